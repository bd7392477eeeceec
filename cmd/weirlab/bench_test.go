package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestBrokenPromisesAreErrors(t *testing.T) {
	out := &strings.Builder{}
	kept, broken := table{out: io.Discard}, table{out: out}
	kept.times("1,000 x 10", 35*time.Millisecond, "ipvsadm -R", 100*time.Millisecond, 0.35)
	kept.times("of that", time.Second, "", time.Millisecond, 0) // no promise
	if err := errors.Join(kept.missed...); err != nil {
		t.Errorf("kept: %v", err)
	}
	broken.times("1,000 x 10", 36*time.Millisecond, "ipvsadm -R", 100*time.Millisecond, 0.35)
	err := errors.Join(broken.missed...)
	if err == nil || err.Error() != "1,000 x 10: 0.36 of ipvsadm -R, want at most 0.35" {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "ABOVE 0.35") {
		t.Errorf("the table says:\n%s", out)
	}
}

func TestARestartEndsWithTheObjectsOfTheAPIServer(t *testing.T) {
	log := `time=2026-11-27T10:00:03.000Z level=INFO msg=ready services=10000 ops=0 failed=0 took=1s`
	first, err := readReady(log)
	if err != nil {
		t.Fatal(err)
	}
	first.total = 3 * time.Second
	for listed, want := range map[time.Duration]resumed{
		-2 * time.Second:        {total: 3 * time.Second},
		-500 * time.Millisecond: {total: 5 * time.Second, saved: 3 * time.Second}, // during the pass of READY, which has read the snapshot
		time.Second:             {total: 5 * time.Second, saved: 3 * time.Second},
	} {
		if got, ended := first.resumed(first.at.Add(listed), first.at.Add(2*time.Second)); got != want || !ended {
			t.Errorf("listed %s after READY: %+v, want %+v; ended: %v", listed, got, want, ended)
		}
		if _, ended := first.resumed(first.at.Add(listed), first.at); ended != (want.saved == 0) {
			t.Errorf("listed %s after READY: ended with its pass: %v", listed, ended)
		}
	}
	if n := (counts{`weir_ops_total{kind="frontend",verb="add"}`: 2, `weir_ops_total{kind="vip",verb="add"}`: 1, "weir_ops_pending": 7}).operations(); n != 3 {
		t.Errorf("%d operations, want 3", n)
	}
}

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

// The start of a process, which is the same for all, hides the growth of a large box from the fitted exponent.
func TestLastSlopeIsThatOfTheLargestSizes(t *testing.T) {
	var out strings.Builder
	b := table{out: &out}
	for _, p := range []struct {
		services int
		value    float64
	}{{10_000, 1}, {100, 0.3}, {100_000, 8}, {1000, 0.3}, {100_000, 12.5}} {
		b.point("restart", "s", p.services, p.value)
	}
	s := seriesOf(b.points)[0]
	slope, from, to := s.lastSlope()
	if math.Abs(slope-1) > 1e-9 || from != 10_000 || to != 100_000 {
		t.Errorf("n^%v from %d to %d, want n^1 from 10000 to 100000", slope, from, to)
	}
	if e, _ := s.exponent(); e > 0.7 {
		t.Errorf("fitted: n^%v, which is no lower", e)
	}
	if svg := growthPlot(b.points); !strings.Contains(svg, "; last interval: n^1.00<") {
		t.Errorf("the legend lacks the slope:\n%s", svg)
	}
	b.growth()
	if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !regexp.MustCompile(`^  restart +n\^0\.\d\d +from 10,000 to 100,000 +n\^1\.00$`).MatchString(lines[1]) {
		t.Errorf("the table:\n%s", &out)
	}
	empty := table{out: &out}
	if empty.growth(); strings.Count(out.String(), "\n") != 2 {
		t.Errorf("without figures:\n%s", &out)
	}
}

func TestTablesAreReplacedBetweenTheirMarks(t *testing.T) {
	const text = "# Doc\n\nprose\n"
	begin, end := marks("make bench")
	once := withTable(text, "make bench", "| a |\n")
	if want := "# Doc\n\nprose\n\n" + begin + "| a |\n" + end; once != want {
		t.Errorf("added:\n%s\nwant:\n%s", once, want)
	}
	twice := withTable(once+"more\n", "make bench", "| b |")
	if want := "# Doc\n\nprose\n\n" + begin + "| b |\n" + end + "more\n"; twice != want {
		t.Errorf("replaced:\n%s\nwant:\n%s", twice, want)
	}
	if other := withTable(once, "make drill", "| c |"); withTable(other, "make bench", "| a |") != other {
		t.Errorf("another target's table is touched:\n%s", other)
	}
}
