package traffic

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestRates(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration, frontends ...Frontend) Totals {
		return Totals{Time: now.Add(d), Frontends: frontends}
	}
	front := func(name string, n uint64, backends ...Backend) Frontend {
		return Frontend{Frontend: name, Service: "static/web", Counters: Counters{n, 10 * n, 8 * n, 1000 * n, 9000 * n}, Backends: backends}
	}
	back := func(name string, n uint64) Backend {
		return Backend{Backend: name, Active: 3, Inactive: 4, Counters: Counters{Connections: n, PacketsIn: n}}
	}
	before := at(0,
		front("192.0.2.1:80/tcp", 100, back("10.0.0.1:80", 60), back("10.0.0.2:80", 40)),
		front("192.0.2.2:80/tcp", 1000),
		front("192.0.2.9:80/tcp", 7))
	after := at(2*time.Second,
		front("192.0.2.1:80/tcp", 110, back("10.0.0.1:80", 68), back("10.0.0.3:80", 2)), // the third is new
		front("192.0.2.2:80/tcp", 4), // created again
		front("192.0.2.3:80/tcp", 0),
		// No client's: the total is without it.
		Frontend{Frontend: "IPv4 mark 7", Service: "static/web", Check: true, Counters: Counters{Connections: 4}, Backends: []Backend{{Backend: "10.0.0.1:0", Active: 1}}})
	got := after.Since(before)
	rate := func(n float64) Rate { return Rate{n, 10 * n, 8 * n, 1000 * n, 9000 * n, 0, 0} }
	busy := rate(5)
	busy.Active, busy.Inactive = 6, 8
	total := rate(7)
	total.Active, total.Inactive = 6, 8
	want := Rates{Time: after.Time, Seconds: 2, Total: total, Frontends: []FrontendRates{
		{"192.0.2.1:80/tcp", "static/web", false, busy, []BackendRates{
			{"10.0.0.1:80", Rate{Connections: 4, PacketsIn: 4, Active: 3, Inactive: 4}},
			{"10.0.0.3:80", Rate{Connections: 1, PacketsIn: 1, Active: 3, Inactive: 4}},
		}},
		{"192.0.2.2:80/tcp", "static/web", false, rate(2), []BackendRates{}},
		{"192.0.2.3:80/tcp", "static/web", false, rate(0), []BackendRates{}},
		{"IPv4 mark 7", "static/web", true, Rate{Connections: 2, Active: 1}, []BackendRates{{"10.0.0.1:0", Rate{Active: 1}}}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	first := after.Since(Totals{})
	if first.Seconds != 0 || first.Total != (Rate{Active: 6, Inactive: 8}) {
		t.Errorf("of one reading alone: %+v", first.Total)
	}
}

func TestRatesAreSorted(t *testing.T) {
	t.Parallel()
	rates := func() Rates {
		return Rates{Frontends: []FrontendRates{
			{"c", "static/c", false, Rate{Connections: 1, PacketsIn: 5, BytesOut: 5, Active: 9}, nil},
			{"a", "static/a", false, Rate{Connections: 2, PacketsOut: 9, BytesIn: 7}, []BackendRates{{"x", Rate{Connections: 1}}, {"y", Rate{Connections: 2, Active: 1}}}},
			{"b", "static/b", false, Rate{Connections: 2, PacketsOut: 1, BytesIn: 9, Active: 1}, nil},
		}}
	}
	for by, want := range map[string]string{"connections": "a b c", "packets": "a c b", "bytes": "b a c", "active": "c b a", "name": "a b c"} {
		r := rates()
		if !r.Sort(by) {
			t.Errorf("%s is no order", by)
		}
		var names []string
		for _, f := range r.Frontends {
			names = append(names, f.Frontend)
			if len(f.Backends) > 0 && (f.Backends[0].Backend == "y") != (by == "connections" || by == "active") {
				t.Errorf("%s: backends %+v", by, f.Backends)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
	if r := rates(); r.Sort("size") {
		t.Error("there is no order by size")
	}
}
