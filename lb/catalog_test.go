package lb

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

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

// TestOnlyAnotherWinnerChangesTheOtherClaimants checks the Services that are planned again when one of those that
// claim the same frontend comes, changes or goes.
func TestOnlyAnotherWinnerChangesTheOtherClaimants(t *testing.T) {
	named := func(name string, age time.Duration) Service {
		s := web(be1)
		s.ID.Name, s.Created = name, testNow.Add(-age)
		return s
	}
	with := func(s Service) Service { s.Drain++; return s }
	nodePort := func(name string, age time.Duration) Service {
		s := named(name, age)
		s.VIPs, s.Ports[0].NodePort = []VIP{all4}, 80
		return s
	}
	a, b, c := named("a", 3), named("b", 2), named("c", 1)
	s := newStory(t)
	s.k.HostAddrs = map[netip.Addr]string{vip: "eth0"}
	mustAudit(t, s.Reconciler, s.now)
	for _, step := range []struct {
		name string
		put  Service
		gone bool
		want []string
	}{
		{"the first", b, false, []string{"b"}},
		{"a younger one", c, false, []string{"c"}},
		{"a NodePort", nodePort("x", 2), false, []string{"x"}},
		{"a younger NodePort", nodePort("y", 1), false, []string{"y"}},
		{"a loser changes", with(c), false, []string{"c"}},
		{"an older one", a, false, []string{"a", "b", "c", "x"}},
		{"the second changes", with(b), false, []string{"b"}},
		{"the winner becomes the youngest", named("a", 0), false, []string{"a", "b", "c", "x"}},
		{"a loser goes", c, true, []string{"c"}},
		{"the winner goes", b, true, []string{"a", "b", "x"}},
		{"the last goes", a, true, []string{"a", "x"}},
		{"the NodePort goes", nodePort("x", 2), true, []string{"x", "y"}},
	} {
		u := Update{Source: "static", Put: []Service{step.put}}
		if step.gone {
			u = Update{Source: "static", Delete: []ServiceID{step.put.ID}}
		}
		s.Update(u)
		var got []string
		for _, id := range slices.SortedFunc(maps.Keys(s.dirty), ServiceID.Compare) {
			got = append(got, id.Name)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: %v are planned again, want %v", step.name, got, step.want)
		}
		mustSync(t, s.Reconciler, s.now)
		for id, svc := range s.catalog.services {
			notes := s.notes.of[id]
			if _, want := Plan(svc, s.Facts()); !slices.Equal(notes, want) {
				t.Errorf("%s: notes %v, want %v", step.name, notes, want)
			}
		}
	}
}
