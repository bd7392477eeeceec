package traffic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// What weir top costs where there are 10,000 services of ten backends each.
func BenchmarkTraffic(b *testing.B) {
	doc := Totals{Time: time.Now()}
	for i := range 10_000 {
		f := Frontend{Frontend: fmt.Sprintf("10.1.%d.%d:80/tcp", i/250, i%250), Service: fmt.Sprintf("static/s%d", i), Counters: Counters{uint64(i), 1e6, 1e6, 1e9, 1e9}}
		for j := range 10 {
			f.Backends = append(f.Backends, Backend{Backend: fmt.Sprintf("10.2.0.%d:8080", j), Active: 7, Counters: Counters{1e3, 1e5, 1e5, 1e8, 1e8}})
		}
		doc.Frontends = append(doc.Frontends, f)
	}
	var text bytes.Buffer
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			text.Reset()
			if err := json.NewEncoder(&text).Encode(doc); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(text.Len()), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			var x Totals
			if err := json.Unmarshal(text.Bytes(), &x); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("since", func(b *testing.B) {
		for b.Loop() {
			if r := doc.Since(doc); len(r.Frontends) != 10_000 {
				b.Fatal("services are missing")
			}
		}
	})
}
