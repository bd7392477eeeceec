package lb

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var guarded = GuardOptions{Share: 0.3, Least: 3, Window: time.Minute, Timeout: time.Hour}

// inSpaces moves Services to namespaces, so many in each.
func inSpaces(services []Service, sizes ...int) []Service {
	out, from := slices.Clone(services), 0
	for n, size := range sizes {
		for i := range size {
			out[from+i].ID.Namespace = fmt.Sprint("ns", n)
		}
		from += size
	}
	return out
}

// A tenant that deletes most of a cluster holds its own deletion only.
func TestGuardRetainsNoOtherNamespace(t *testing.T) {
	s := newStory(t)
	s.SetSources("prod")
	s.Configure(Options{Base: base, Guards: map[string]GuardOptions{"prod": guarded}})
	services := inSpaces(fleet(40, 4), 24, 8, 8)
	s.put(0, services)
	s.wantServed(services, 40, 160)
	s.put(time.Second, services[24:]) // ns0 deletes all that it has: 24 of 40
	s.wantServed(services, 40, 160)
	if h := s.GuardedSources(); len(h) != 1 || h[0].Services != 24 {
		t.Fatalf("held %+v", h)
	}
	s.put(time.Second, services[26:]) // ns1 deletes two of 8
	s.wantServed(services, 38, 152)
	s.put(time.Second, services[26:38]) // ns2 does, too: 4 of 16 are 25 %
	s.wantServed(services, 36, 144)
	s.put(time.Second, services[27:38]) // 5 of 16 are too many
	s.wantServed(services, 36, 144)
	s.put(2*time.Minute, services[27:38]) // the window is over
	s.wantServed(services, 35, 140)
	if h := s.GuardedSources(); len(h) != 1 || h[0].Services != 24 {
		t.Fatalf("ns0 is held for the hour: %+v", h)
	}
	if !s.Release("prod") {
		t.Error("nothing to release")
	}
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 11, 44)
}

// A backup that lacks half of every namespace is held as a whole, however small they are.
func TestGuardRetainsSmallNamespacesTogether(t *testing.T) {
	s := newStory(t)
	s.SetSources("prod")
	s.Configure(Options{Base: base, Guards: map[string]GuardOptions{"prod": guarded}})
	services := inSpaces(fleet(20, 4), 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)
	s.put(0, services)
	var half []Service
	for i := 0; i < len(services); i += 2 {
		half = append(half, services[i])
	}
	s.put(time.Second, half)
	s.wantServed(services, 20, 80)
	if h := s.GuardedSources(); len(h) != 1 || h[0].Services != 10 {
		t.Errorf("held %+v", h)
	}
}

// Random namespaces: of a source, no more goes than its share, but for the namespace that
// loses most; the counts are those of a recount; a release applies everything.
func TestLawGuardOfNamespaces(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		opts := GuardOptions{Share: []float64{0.1, 0.3, 0.7}[g.IntN(3)], Least: g.IntN(4), Window: time.Minute}
		r := NewReconciler(&Fake{}, Options{Base: base, Guards: map[string]GuardOptions{"prod": opts}}, "prod")
		plain := NewReconciler(&Fake{}, Options{Base: base}, "prod")
		type moment struct {
			at        time.Time
			frontends map[Frontend]string
		}
		var past []moment
		now := testNow
		for range 30 {
			all := inSpaces(fleet(16, 3), 8, 4, 3, 1)
			var put []Service
			for _, svc := range all {
				if !g.chance([]int{70, 10, 30, 50}[svc.ID.Namespace[2]-'0']) {
					put = append(put, svc)
				}
			}
			u := Update{Source: "prod", Put: put, Synced: true}
			r.Update(u)
			plain.Update(u)
			mustSync(t, r, now)
			mustSync(t, plain, now)
			present := moment{now, map[Frontend]string{}}
			for f, ids := range r.catalog.claims {
				present.frontends[f] = ids[0].Namespace
			}
			for _, m := range past {
				if !m.at.After(now.Add(-opts.Window)) {
					continue
				}
				gone, of, total := map[string]int{}, map[string]int{}, 0
				for _, space := range present.frontends {
					of[space]++
				}
				for f, space := range m.frontends {
					if _, ok := present.frontends[f]; !ok {
						gone[space]++
						of[space]++
						total++
					}
				}
				sum := len(present.frontends) + total
				within := func(n, of int) bool { return float64(n) <= math.Max(opts.Share*float64(of), float64(opts.Least-1)) }
				ok := within(total, sum)
				for space, n := range gone { // one namespace may have lost so much before
					ok = ok || within(n, sum) && float64(total-n) <= opts.Share*float64(sum-of[space])
				}
				if !ok {
					t.Fatalf("within %s there went %v of %v", now.Sub(m.at), gone, of)
				}
			}
			past = append(past, present)
			g.checkCounts(t, r)
			now = now.Add(time.Duration(g.IntN(40)) * time.Second)
		}
		r.Release("prod")
		mustSync(t, r, now)
		if d := cmp.Diff(plain.catalog.services, r.catalog.services, exact); d != "" {
			t.Errorf("after the release (-without guard +with):\n%s", d)
		}
	})
}

// fleet makes n Services of a cluster with b backends each.
func fleet(n, b int) []Service {
	out := make([]Service, n)
	for i := range out {
		s := web()
		s.Drain = 0
		s.ID = ServiceID{"prod", "shop", fmt.Sprintf("s%02d", i)}
		s.VIPs = []VIP{{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Kind: ClusterIP}}
		for j := range b {
			a := netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j)})
			s.Ports[0].Backends = append(s.Ports[0].Backends, Backend{Addr: netip.AddrPortFrom(a, 8080), Weight: 1})
		}
		out[i] = s
	}
	return out
}

// newGuardStory has a fleet of ten that is served.
func newGuardStory(t *testing.T) (*story, []Service) {
	s := newStory(t)
	s.SetSources("prod")
	s.Configure(Options{Base: base, Guards: map[string]GuardOptions{"prod": guarded}})
	services := fleet(10, 4)
	s.put(0, services)
	return s, services
}

// put sends all Services of the cluster after d.
func (s *story) put(d time.Duration, services []Service) {
	s.Helper()
	s.now = s.now.Add(d)
	s.Update(Update{Source: "prod", Put: services, Synced: true})
	mustSync(s.T, s.Reconciler, s.now)
}

// served counts the frontends that clients reach, and the backends there.
func (s *story) served(services []Service) (frontends, backends int) {
	for _, svc := range services {
		if got := s.k.Connect(clients[1], svc.Frontends()[0]); got.Fate == Served {
			frontends++
			backends += len(got.Backends)
		}
	}
	return frontends, backends
}

func (s *story) wantServed(services []Service, frontends, backends int) {
	s.Helper()
	if f, b := s.served(services); f != frontends || b != backends {
		s.Fatalf("%d frontends with %d backends are served, want %d with %d; held %+v", f, b, frontends, backends, s.GuardedSources())
	}
}

func TestGuardRetainsAnEmptyClusterUntilItsReturn(t *testing.T) {
	s, services := newGuardStory(t)
	s.put(time.Hour, nil)
	s.wantServed(services, 10, 40)
	want := []GuardedSource{{
		Source: "prod", Since: s.now, Until: s.now.Add(time.Hour), Services: 10, Frontends: 10, Backends: 40,
		First:      []string{"prod/shop/s00", "prod/shop/s01", "prod/shop/s02", "prod/shop/s03", "prod/shop/s04"},
		Namespaces: []string{"shop"},
	}}
	if d := cmp.Diff(want, s.GuardedSources()); d != "" {
		t.Errorf("held (-want +got):\n%s", d)
	}
	if n := s.Notes(); len(n) != 10 || n[0].Reason != Guarded || n[0].Service != services[0].ID {
		t.Errorf("notes %v", n)
	}
	if next := s.Next(); !next.Equal(s.now.Add(time.Hour)) {
		t.Errorf("next %s, want when it is released by time", next)
	}
	s.put(time.Minute, services[:8]) // two are really gone, and that is not too much
	s.wantServed(services, 8, 32)
	if h, n := s.GuardedSources(), s.Notes(); len(h) > 0 || len(n) > 0 {
		t.Errorf("held %v, notes %v", h, n)
	}
}

// The snapshot of a restarted process is what the rest is measured by, even
// if the cluster is empty before the first Sync.
func TestGuardRetainsAtAStart(t *testing.T) {
	before, services := newGuardStory(t)
	for _, early := range []bool{false, true} {
		s := newStory(t)
		s.k, s.kernel, s.now = before.k, before.k, before.now
		s.SetSources("prod")
		s.Configure(Options{Base: base, Guards: map[string]GuardOptions{"prod": guarded}})
		s.Update(Update{Source: "prod", Put: services, Synced: true})
		if !early {
			mustSync(t, s.Reconciler, s.now)
		}
		s.put(time.Second, nil)
		s.wantServed(services, 10, 40)
		if len(s.GuardedSources()) != 1 {
			t.Errorf("early %t: nothing is held", early)
		}
	}
}

func TestGuardServesNewServicesMeanwhile(t *testing.T) {
	s, services := newGuardStory(t)
	s.put(time.Hour, fleet(12, 4)[9:])
	s.wantServed(fleet(12, 4), 12, 48)
	s.Update(Update{Source: "prod", Put: fleet(13, 5)[12:]})
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(fleet(13, 5), 13, 53)
	s.wantServed(services, 10, 40)
}

// Each frontend of the old state is there, at its old port or at the one that has its NodePort now.
func TestMergeRetainsNodePorts(t *testing.T) {
	service := func(nodePorts ...uint16) Service {
		s := Service{VIPs: []VIP{{Addr: netip.MustParseAddr("10.9.0.1"), Kind: NodePort}}}
		for i, n := range nodePorts {
			s.Ports = append(s.Ports, Port{Proto: TCP, Port: uint16(80 + i), NodePort: n})
		}
		return s
	}
	for _, tt := range []struct {
		name             string
		old, young, want []uint16
	}{
		{"a NodePort less", []uint16{30001, 30002}, []uint16{0, 30002}, []uint16{30001, 30002}},
		{"another one", []uint16{30001}, []uint16{30009}, []uint16{30001}},
		{"swapped", []uint16{30001, 30002}, []uint16{30002, 30001}, []uint16{30002, 30001}},
		{"moved along", []uint16{30001, 30002}, []uint16{30002, 30003}, []uint16{30001, 30002}},
		{"moved along by three", []uint16{30001, 30002, 30003}, []uint16{30002, 30003, 30004}, []uint16{30001, 30002, 30003}},
		{"taken by a new port", []uint16{30001}, []uint16{30004, 30001}, []uint16{30004, 30001}},
		{"taken by a port that stays", []uint16{30001, 30002}, []uint16{30002}, []uint16{30001, 30002}},
	} {
		merged := merge(service(tt.old...), service(tt.young...))
		if diff := cmp.Diff(service(tt.want...).Ports, merged.Ports); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if lost := without(service(tt.old...).Frontends(), merged.Frontends()); len(lost) > 0 {
			t.Errorf("%s: lost %v", tt.name, lost)
		}
	}
}

func TestGuardEndsByConfirmation(t *testing.T) {
	s, services := newGuardStory(t)
	if s.Release("prod") || s.Release("nobody") {
		t.Error("there was nothing to release")
	}
	s.put(time.Hour, services[:5])
	s.wantServed(services, 10, 40)
	if !s.Release("prod") {
		t.Error("nothing is held")
	}
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 5, 20)
	s.put(time.Second, services[:4]) // later losses are counted from zero
	s.wantServed(services, 4, 16)
}

func TestGuardEndsByTime(t *testing.T) {
	s, services := newGuardStory(t)
	s.put(time.Hour, services[:5])
	s.now = s.now.Add(guarded.Timeout - time.Second)
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 10, 40)
	s.now = s.now.Add(time.Second)
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 5, 20)
}

func TestGuardCountsUpdatesWithinItsWindowTogether(t *testing.T) {
	s, services := newGuardStory(t)
	s.put(time.Hour, services[:9])
	s.put(20*time.Second, services[:8])
	s.put(20*time.Second, services[:7])
	s.wantServed(services, 7, 28) // three of ten
	s.put(10*time.Second, services[:6])
	s.wantServed(services, 7, 28) // the fourth is too much
	if next := s.Next(); !next.Equal(s.now.Add(10 * time.Second)) {
		t.Errorf("next %s, want when the first of them is a minute ago", next)
	}
	s.now = s.now.Add(10 * time.Second)
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 7, 28) // and so is the third of nine
	s.now = s.now.Add(20 * time.Second)
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 6, 24) // but not the second of eight
}

func TestGuardRetainsVanishedBackends(t *testing.T) {
	s, services := newGuardStory(t)
	s.put(time.Hour, fleet(10, 0))
	s.wantServed(services, 10, 40)
	if h := s.GuardedSources(); len(h) != 1 || h[0].Frontends != 0 || h[0].Backends != 40 {
		t.Errorf("held %+v", h)
	}
	weightless := fleet(10, 4)
	for i := range weightless {
		for j := range weightless[i].Ports[0].Backends {
			weightless[i].Ports[0].Backends[j].Weight = 0
		}
	}
	s.put(time.Second, weightless)
	s.wantServed(services, 10, 40)
	s.put(time.Second, services)
	if h := s.GuardedSources(); len(h) > 0 {
		t.Errorf("held %+v", h)
	}
}

// Fewer backends are no outage, and removed ones answer no client.
func TestGuardLetsServicesShrink(t *testing.T) {
	s, _ := newGuardStory(t)
	s.put(time.Second, fleet(10, 1))
	s.wantServed(fleet(10, 1), 10, 10)
	if h := s.GuardedSources(); len(h) > 0 {
		t.Errorf("held %+v", h)
	}
}

// A rollout replaces every backend; while something is held they are replaced too.
func TestGuardLetsRolloutsPass(t *testing.T) {
	s, services := newGuardStory(t)
	roll := func() {
		t.Helper()
		for step := range 4 {
			next := make([]Service, len(services))
			for i, svc := range services {
				b := slices.Clone(svc.Ports[0].Backends)
				a := b[step].Addr
				b[step].Addr = netip.AddrPortFrom(a.Addr(), a.Port()+1)
				svc.Ports = []Port{{Proto: TCP, Port: 80, Backends: b}}
				next[i] = svc
			}
			// The old one goes, and a second later the new one is there.
			short := slices.Clone(next)
			for i := range short {
				b := slices.Delete(slices.Clone(next[i].Ports[0].Backends), step, step+1)
				short[i].Ports = []Port{{Proto: TCP, Port: 80, Backends: b}}
			}
			s.put(time.Second, short)
			services = next
			s.put(time.Second, services)
		}
	}
	roll()
	if h := s.GuardedSources(); len(h) > 0 {
		t.Fatalf("a rollout is held: %+v", h)
	}
	s.wantServed(services, 10, 40)
	all := services
	services = services[:5]
	s.put(time.Second, services)
	roll()
	s.wantServed(all, 10, 40)
	for _, svc := range services {
		for _, b := range s.k.Connect(clients[1], svc.Frontends()[0]).Backends {
			if b.Port() != 8082 {
				t.Fatalf("%s has an old backend %s while something else is held", svc.ID, b)
			}
		}
	}
}

func TestGuardOfOneSourceAffectsNoOther(t *testing.T) {
	s, services := newGuardStory(t)
	s.SetSources("prod", "static")
	s.Update(put(web(be1)))
	s.put(time.Hour, nil)
	s.Update(put())
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 10, 40)
	if _, ok := s.Catalog().Get(web().ID); ok {
		t.Error("another source's Service is held")
	}
	s.Configure(Options{Base: base}) // without guards
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 0, 0)
	s.Configure(Options{Base: base, Guards: map[string]GuardOptions{"prod": guarded}})
	s.put(time.Hour, services)
	s.put(time.Hour, nil)
	s.wantServed(services, 10, 40)
	s.SetSources("static")
	mustSync(t, s.Reconciler, s.now)
	s.wantServed(services, 0, 0) // a cluster that is not followed any more goes
}

// randomFleet changes some of the Services of a fleet.
func (g *gen) randomFleet(n int) []Service {
	var out []Service
	percent := []int{5, 30, 90}[g.IntN(3)]
	for _, svc := range fleet(n, 4) {
		if g.chance(percent) {
			continue
		}
		b := svc.Ports[0].Backends
		svc.Ports[0].Backends = slices.DeleteFunc(b, func(Backend) bool { return g.chance(percent) })
		if g.chance(20) {
			svc.Ports[0].NodePort = uint16(30000 + g.IntN(50))
			svc.VIPs = append(svc.VIPs, VIP{Addr: unspecified(IPv4), Kind: NodePort})
		}
		if g.chance(20) {
			svc.Ports = append(svc.Ports, Port{Proto: UDP, Port: 53, Backends: slices.Clone(svc.Ports[0].Backends)})
		}
		if g.chance(20) {
			svc.Affinity = time.Duration(g.IntN(3)) * time.Minute
		}
		out = append(out, svc)
	}
	return out
}

func TestLawGuardLetsNoMoreGoThanItsShare(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		opts := GuardOptions{Share: []float64{0.1, 0.3, 0.7}[g.IntN(3)], Least: g.IntN(4), Window: time.Minute}
		r := NewReconciler(&Fake{}, Options{Base: base, Guards: map[string]GuardOptions{"prod": opts}}, "prod")
		plain := NewReconciler(&Fake{}, Options{Base: base}, "prod")
		type moment struct {
			at        time.Time
			frontends map[Frontend]bool
		}
		var past []moment
		now := testNow
		for range 30 {
			u := Update{Source: "prod", Put: g.randomFleet(12), Synced: true}
			if g.chance(50) {
				u.Synced, u.Delete = false, []ServiceID{fleet(12, 0)[g.IntN(12)].ID}
				u.Put = slices.DeleteFunc(u.Put, func(s Service) bool { return s.ID == u.Delete[0] || g.chance(80) })
			}
			r.Update(u)
			plain.Update(u)
			mustSync(t, r, now)
			mustSync(t, plain, now)
			present := moment{now, map[Frontend]bool{}}
			for f := range r.catalog.claims {
				present.frontends[f] = true
			}
			for _, m := range past {
				if !m.at.After(now.Add(-opts.Window)) {
					continue
				}
				gone := 0
				for f := range m.frontends {
					if !present.frontends[f] {
						gone++
					}
				}
				all := len(present.frontends) + gone
				if float64(gone) > math.Max(opts.Share*float64(all), float64(opts.Least-1)) {
					t.Fatalf("%d of %d frontends went within %s", gone, all, now.Sub(m.at))
				}
			}
			past = append(past, present)
			g.checkCounts(t, r)
			now = now.Add(time.Duration(g.IntN(40)) * time.Second)
		}
		held := len(r.GuardedSources()) > 0
		if r.Release("prod") != held {
			t.Errorf("released what was not held, or the other way round")
		}
		mustSync(t, r, now)
		if d := cmp.Diff(plain.catalog.services, r.catalog.services, exact); d != "" {
			t.Errorf("after the release (-without guard +with):\n%s", d)
		}
		if d := cmp.Diff(wantOf(&Fake{}, slices.Collect(func(yield func(Service) bool) {
			for _, id := range plain.catalog.IDs() {
				if !yield(plain.catalog.services[id]) {
					return
				}
			}
		}), Options{Base: base}, nil).Snapshot(), r.want.Snapshot(), exact); d != "" && len(r.Drains()) == 0 {
			t.Errorf("after the release (-anew +released):\n%s", d)
		}
	})
}

func TestUnguardedUpdateIsServedAndIsTheNewMeasure(t *testing.T) {
	s, services := newGuardStory(t)
	s.put(time.Second, services[:3]) // held
	s.UpdateUnguarded(Update{Source: "prod", Put: services[:5], Synced: true})
	mustSync(t, s.Reconciler, s.now)
	if f, b := s.served(services); f != 5 || b != 20 || len(s.GuardedSources()) != 0 {
		t.Errorf("%d frontends and %d backends are served, want 5 and 20; held: %v", f, b, s.GuardedSources())
	}
	s.put(time.Second, services[:3]) // fewer than three frontends, but too many backends
	if f, _ := s.served(services); f != 5 || len(s.GuardedSources()) != 1 || s.GuardedSources()[0].Services != 2 {
		t.Errorf("%d frontends are served, want 5; held: %v", f, s.GuardedSources())
	}
}

// checkCounts compares the counts of a guard with a recomputation.
func (g *gen) checkCounts(t *testing.T, r *Reconciler) {
	t.Helper()
	kept, anew := r.guards.of["prod"], newGuard(GuardOptions{})
	lost, short := map[Frontend]bool{}, 0
	said := map[Frontend]bool{}
	for id, svc := range r.catalog.services {
		anew.count(svc, 1)
		truth := svc
		if w, ok := kept.withheld[id]; ok {
			truth = w.service
			for _, n := range shortage(svc, truth) {
				short += n
			}
		}
		for _, f := range without(svc.Frontends(), without(svc.Frontends(), truth.Frontends())) {
			said[f] = true // of what is served
		}
	}
	for f, claims := range r.catalog.claims {
		anew.add(claims[0].Namespace, tally{frontends: 1}) // once, however many Services claim it
		if !said[f] {
			lost[f] = true
		}
	}
	got := []int{kept.all.frontends, kept.all.backends, len(kept.lost), kept.all.short}
	if want := []int{anew.all.frontends, anew.all.backends, len(lost), short}; !slices.Equal(got, want) {
		t.Fatalf("the guard counts %v, want %v", got, want)
	}
	sum := tally{}
	for space, n := range kept.of {
		if sum = sum.plus(n); n.frontends != anew.of[space].frontends || n.backends != anew.of[space].backends || n == (tally{}) {
			t.Fatalf("the guard counts %+v of namespace %s, want %+v", n, space, anew.of[space])
		}
		if _, waiting := kept.waiting[space]; waiting != (n.waiting > 0) {
			t.Fatalf("namespace %s has %d withheld Services, and waiting is %v", space, n.waiting, waiting)
		}
	}
	if sum != kept.all || sum.waiting != len(kept.withheld) {
		t.Fatalf("the namespaces add up to %+v, want %+v with %d withheld", sum, kept.all, len(kept.withheld))
	}
	for name, l := range map[string]map[string]int{"frontends": kept.goneFrontends.by, "backends": kept.goneBackends.by} {
		n := 0
		for _, part := range l {
			n += part
		}
		if total := map[string]int{"frontends": kept.goneFrontends.total, "backends": kept.goneBackends.total}[name]; n != total {
			t.Fatalf("%s gone: %v, want %d", name, l, total)
		}
	}
}

// The cost of an ordinary update is its own size, with ten Services as with ten
// thousand.
func BenchmarkGuard(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, services := many(b, n, 10)
			r.Configure(Options{Base: base, Guards: map[string]GuardOptions{"static": guarded}})
			svc := services[n/2]
			all := svc.Ports[0].Backends
			for i := 0; b.Loop(); i++ {
				svc.Ports = []Port{{Proto: TCP, Port: 80, Backends: all[:9+i%2]}}
				r.Update(Update{Source: "static", Put: []Service{svc}})
				if _, err := r.Sync(context.Background(), testNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The cost of a whole state is its own size, even if all its Services claim the same frontend.
func BenchmarkGuardOfOneFrontend(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, services := many(b, n, 1)
			r.Configure(Options{Base: base, Guards: map[string]GuardOptions{"static": guarded}})
			for i := range services {
				services[i].VIPs = services[0].VIPs
			}
			for b.Loop() {
				r.Update(Update{Source: "static", Put: services, Synced: true})
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N*n), "ns/service")
		})
	}
}
