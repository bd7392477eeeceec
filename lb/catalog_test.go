package lb

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCatalogCountsVIPsAndHealthChecks(t *testing.T) {
	c := NewCatalog("static", "away")
	apply := func(u Update) { c.Apply(u, map[Frontend]ServiceID{}, map[ServiceID]struct{}{}) }
	a, b := elsewhere("away"), elsewhere("static")
	a.HealthCheck = HealthCheck{Port: 30000, Endpoints: 2}
	b.VIPs = append(b.VIPs, VIP{Addr: vip}, VIP{Addr: unspecified(IPv4), Kind: NodePort})
	for _, step := range []struct {
		name   string
		update Update
		of     int // of the cluster
		vips   int
		checks map[ServiceID]HealthCheck
		waits  []string
	}{
		{"one", Update{Source: "away", Put: []Service{a}}, 1, 1, map[ServiceID]HealthCheck{a.ID: a.HealthCheck}, []string{"away", "static"}},
		{"the same VIP, and another", Update{Source: "static", Put: []Service{b}, Synced: true}, 1, 2, map[ServiceID]HealthCheck{a.ID: a.HealthCheck}, []string{"away"}},
		{"one is gone", Update{Source: "away", Synced: true}, 0, 2, map[ServiceID]HealthCheck{}, nil},
		{"all are gone", Update{Source: "static", Delete: []ServiceID{b.ID}}, 0, 0, map[ServiceID]HealthCheck{}, nil},
	} {
		apply(step.update)
		got, want := []any{c.LenOf("away"), c.VIPs(), c.HealthChecks(), c.Waiting()}, []any{step.of, step.vips, step.checks, step.waits}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s (-want +got):\n%s", step.name, d)
		}
	}
}

// TestCatalogKeepsOneOfEqualServices checks that a source that repeats a Service does not keep a second copy.
func TestCatalogKeepsOneOfEqualServices(t *testing.T) {
	c := NewCatalog("prod")
	apply := func(s Service) (Service, int) {
		put, changed := []Service{s}, map[ServiceID]struct{}{}
		c.Apply(Update{Source: "prod", Put: put, Synced: true}, map[Frontend]ServiceID{}, changed)
		return put[0], len(changed)
	}
	first, _ := apply(numbered(1))
	again, changed := apply(numbered(1))
	if &again.VIPs[0] != &first.VIPs[0] || changed != 0 {
		t.Errorf("another copy is kept; %d Services are planned again", changed)
	}
	other := numbered(1)
	other.Drain++
	young, changed := apply(other)
	if &young.VIPs[0] != &other.VIPs[0] || changed != 1 {
		t.Errorf("another Service was replaced; %d Services are planned again", changed)
	}
}
