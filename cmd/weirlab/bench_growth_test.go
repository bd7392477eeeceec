package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestGrowthPlot(t *testing.T) {
	var b table
	for _, n := range []int{100, 1000, 10_000} {
		b.point("restart", "s", n, 0.001*float64(n))
		b.point("memory <idle>", "MiB", n, 4000)
	}
	b.point("restart", "s", 50_000, 0) // not measured
	b.point("once", "s", 100, 1)
	all := seriesOf(b.points)
	if len(all) != 2 || len(all[0].points) != 3 {
		t.Fatalf("series %+v", all)
	}
	for i, want := range []float64{1, 0} {
		if e, _ := all[i].exponent(); math.Abs(e-want) > 1e-9 {
			t.Errorf("%s grows as n^%v, want n^%v", all[i].what, e, want)
		}
	}
	svg := growthPlot(b.points)
	d := xml.NewDecoder(strings.NewReader(svg))
	circles := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	if circles != 6 {
		t.Errorf("%d points, want 6", circles)
	}
	for _, want := range []string{"grows as n^1.00", "grows as n^0.00", "memory &lt;idle&gt;", "10,000 services: 10 s", "100 services: 100 ms", "4,000 MiB", "10,000 MiB"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the plot lacks %q", want)
		}
	}
}
