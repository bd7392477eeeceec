package lb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The laws of the package comment, held for random boxes. A failing case prints
// its seed; run it alone with -run 'TestLaws/.../seed=N'.

var (
	exact   = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmpopts.EquateEmpty()}
	testNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	base    = Base{Device: "kube-ipvs0", Families: []Family{IPv4, IPv6}, Sysctls: Sysctls([]Family{IPv4, IPv6})}
	clients = []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("fd00:c::7")}
)

// seeds runs f for many random boxes.
func seeds(t *testing.T, n uint64, f func(t *testing.T, g *gen)) {
	t.Helper()
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			f(t, &gen{rand.New(rand.NewPCG(seed, 1))})
		})
	}
}

// gen makes random things out of a space so small that they often clash.
type gen struct{ *rand.Rand }

func (g *gen) chance(percent int) bool { return g.IntN(100) < percent }

func (g *gen) vip() netip.Addr {
	if g.chance(30) {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 1+g.IntN(3)))
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + g.IntN(3))})
}

func (g *gen) backend(port uint16) netip.AddrPort {
	if g.chance(30) {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00::%d", 1+g.IntN(4))), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + g.IntN(4))}), port)
}

func (g *gen) service(name string) Service {
	s := Service{
		ID:        ServiceID{Source: "static", Name: name},
		Scheduler: Scheduler{Name: []string{"rr", "wrr", "mh"}[g.IntN(3)]},
		Keep:      g.chance(30),
		Drain:     time.Duration(g.IntN(2)) * time.Minute,
		WhenDown:  WhenDown(g.IntN(3)),
	}
	if g.chance(20) {
		s.Created = testNow.Add(time.Duration(g.IntN(3)) * time.Hour)
	}
	if g.chance(20) {
		s.Affinity = time.Hour
	}
	if g.chance(30) {
		s.Restricted = true
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix([]string{"203.0.113.0/24", "198.51.100.0/24", "0.0.0.0/0", "fd00:c::/64"}[g.IntN(4)])}
	}
	for range 1 + g.IntN(2) {
		v := VIP{Addr: g.vip(), Kind: VIPKind(g.IntN(3)), Local: g.chance(30)}
		if !slices.ContainsFunc(s.VIPs, func(x VIP) bool { return x.Addr == v.Addr }) {
			s.VIPs = append(s.VIPs, v)
		}
	}
	for range 1 + g.IntN(2) {
		p := Port{Proto: []Protocol{TCP, UDP, SCTP}[g.IntN(3)], Port: uint16(80 + g.IntN(2))}
		if slices.ContainsFunc(s.Ports, func(x Port) bool { return x.Key() == p.Key() }) {
			continue
		}
		for range g.IntN(5) {
			b := Backend{Addr: g.backend(8000 + p.Port), Weight: uint32(g.IntN(3)), Scope: Scope(g.IntN(3))}
			if !slices.ContainsFunc(p.Backends, func(x Backend) bool { return x.Addr == b.Addr }) {
				p.Backends = append(p.Backends, b)
			}
		}
		s.Ports = append(s.Ports, p)
	}
	if s.WhenDown == UseFallback {
		s.Fallback = []netip.AddrPort{g.backend(9000)}
	}
	return s
}

func (g *gen) services() []Service {
	var out []Service
	for i := range g.IntN(5) {
		out = append(out, g.service(fmt.Sprintf("s%d", i)))
	}
	return out
}

func (g *gen) health(services []Service) map[ServiceID]Health {
	out := map[ServiceID]Health{}
	for _, s := range services {
		if g.chance(50) {
			continue
		}
		h := Health{Down: map[netip.AddrPort]bool{}, Lost: map[FamilyPort]bool{}}
		for _, p := range s.Ports {
			for _, b := range p.Backends {
				if g.chance(40) {
					h.Down[b.Addr] = true
				}
			}
			for _, f := range []Family{IPv4, IPv6} {
				if g.chance(30) {
					h.Lost[FamilyPort{p.Key(), f}] = true
				}
			}
		}
		out[s.ID] = h
	}
	return out
}

func (g *gen) options() Options {
	o := Options{Base: base, Drain: time.Minute}
	if g.chance(30) {
		o.Pools = []PoolRoute{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Src: netip.MustParseAddr("10.9.9.9")}}
	}
	if g.chance(10) {
		o.Exclude = []netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")}
	}
	return o
}

// wantOf plans services by themselves.
func wantOf(services []Service, opts Options, health map[ServiceID]Health) *State {
	r := NewReconciler(&Fake{}, opts, "static")
	r.Update(Update{Source: "static", Put: services, Synced: true})
	r.SetHealth(health)
	r.due(testNow)
	return r.want
}

// mustSync syncs until there is nothing left to do at now.
func mustSync(t *testing.T, r *Reconciler, now time.Time) Report {
	t.Helper()
	rep, err := r.Sync(context.Background(), now)
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	return rep
}

func TestLawApplyingTheOpsGivesTheWantedState(t *testing.T) {
	seeds(t, 300, func(t *testing.T, g *gen) {
		from := wantOf(g.services(), g.options(), nil).Snapshot()
		services := g.services()
		to := wantOf(services, g.options(), g.health(services))
		k := &Fake{}
		for _, o := range from {
			k.Put(o)
		}
		// From any state: some of it is gone.
		for id := range from {
			if g.chance(10) {
				k.Remove(id)
				delete(from, id)
			}
		}
		have := k.Held()
		for _, err := range k.Apply(context.Background(), Diff(have, to)) {
			if err != nil {
				t.Fatal(err)
			}
		}
		got := k.Held()
		for id := range got {
			if id.kind() == kindSysctl {
				delete(got, id)
			}
		}
		want := to.Snapshot()
		for id := range want {
			if id.kind() == kindSysctl {
				delete(want, id)
			}
		}
		if d := cmp.Diff(want, got, exact); d != "" {
			t.Errorf("after the ops (-want +got):\n%s", d)
		}
		if again := Diff(k.Held(), to); len(again) > 0 {
			t.Errorf("nothing to do, and yet: %v", again)
		}
	})
}

func TestLawPlanIgnoresInputOrder(t *testing.T) {
	seeds(t, 200, func(t *testing.T, g *gen) {
		services := g.services()
		health := g.health(services)
		opts := g.options()
		want := wantOf(services, opts, health).Snapshot()
		g.Shuffle(len(services), func(i, j int) { services[i], services[j] = services[j], services[i] })
		for i := range services {
			s := &services[i]
			s.VIPs, s.Ports = slices.Clone(s.VIPs), slices.Clone(s.Ports)
			g.Shuffle(len(s.VIPs), func(i, j int) { s.VIPs[i], s.VIPs[j] = s.VIPs[j], s.VIPs[i] })
			g.Shuffle(len(s.Ports), func(i, j int) { s.Ports[i], s.Ports[j] = s.Ports[j], s.Ports[i] })
			for j := range s.Ports {
				b := slices.Clone(s.Ports[j].Backends)
				g.Shuffle(len(b), func(x, y int) { b[x], b[y] = b[y], b[x] })
				s.Ports[j].Backends = b
			}
		}
		if d := cmp.Diff(want, wantOf(services, opts, health).Snapshot(), exact); d != "" {
			t.Errorf("other order, other state:\n%s", d)
		}
	})
}

func TestLawChangesGiveTheSameStateAsStartingAnew(t *testing.T) {
	seeds(t, 200, func(t *testing.T, g *gen) {
		opts := g.options()
		k := &Fake{}
		r := NewReconciler(k, opts, "static")
		var services []Service
		var health map[ServiceID]Health
		now := testNow
		for range 6 {
			services = g.services()
			health = g.health(services)
			r.Update(Update{Source: "static", Put: services, Synced: true})
			r.SetHealth(health)
			mustSync(t, r, now)
			now = now.Add(time.Second)
		}
		for range 3 { // drains end
			now = now.Add(2 * time.Minute)
			mustSync(t, r, now)
		}
		want := wantOf(services, opts, health).Snapshot()
		if d := cmp.Diff(want, k.Held(), exact); d != "" {
			t.Errorf("after changes (-anew +changed):\n%s", d)
		}
		calls := k.Calls()
		mustSync(t, r, now)
		if _, err := r.Audit(context.Background(), now); err != nil {
			t.Fatal(err)
		}
		if k.Calls() != calls {
			t.Errorf("nothing to do, and yet %d ops", k.Calls()-calls)
		}
		// A restart adopts it all without a write.
		r2 := NewReconciler(k, opts, "static")
		r2.Update(Update{Source: "static", Put: services, Synced: true})
		r2.SetHealth(health)
		mustSync(t, r2, now)
		if k.Calls() != calls {
			t.Errorf("a restart wrote %d ops", k.Calls()-calls)
		}
	})
}

func TestLawKilledAnywhereConverges(t *testing.T) {
	seeds(t, 150, func(t *testing.T, g *gen) {
		opts := g.options()
		k := &Fake{}
		stranger := VirtualServer{Frontend: Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: TCP}, Scheduler: Scheduler{Name: "wlc"}}
		if g.chance(50) {
			k.Put(stranger, RealServer{Frontend: stranger.Frontend, Addr: netip.MustParseAddrPort("10.7.7.7:80"), Weight: 3})
		}
		first := k.Held()
		var services []Service
		for range 3 {
			services = g.services()
			left := g.IntN(60)
			k.Fail = func(Op) error { // from here on the process is dead
				if left--; left < 0 {
					return context.Canceled
				}
				return nil
			}
			r := NewReconciler(k, opts, "static")
			r.Update(Update{Source: "static", Put: services, Synced: true})
			mustSync(t, r, testNow)
		}
		k.Fail = nil
		r := NewReconciler(k, opts, "static")
		r.Update(Update{Source: "static", Put: services, Synced: true})
		now := testNow
		for range 4 {
			mustSync(t, r, now)
			now = now.Add(2 * time.Minute)
		}
		want := r.want.Snapshot()
		for id, o := range first { // strangers are where they were
			want[id] = o
		}
		if d := cmp.Diff(want, k.Held(), exact); d != "" {
			t.Errorf("after the last start (-want +got):\n%s", d)
		}
		if len(first) > 0 {
			return // strangers take frontends from services
		}
		if d := cmp.Diff(wantOf(services, opts, nil).Snapshot(), k.Held(), exact); d != "" {
			t.Errorf("no stranger, other state:\n%s", d)
		}
	})
}

func TestLawNoStepLetsTrafficLandWrong(t *testing.T) {
	seeds(t, 400, func(t *testing.T, g *gen) {
		a, b := g.services(), g.services()
		opts := g.options()
		healthA, healthB := g.health(a), g.health(b)
		k := &Fake{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
		load := func(services []Service, health map[ServiceID]Health) Snapshot {
			want := wantOf(services, opts, health)
			k.Apply(context.Background(), Diff(k.Held(), want))
			return k.Held()
		}
		load(a, healthA)
		frontends := allFrontends(a, b)
		before := outcomes(k, frontends)
		afterFake := &Fake{ClusterCIDRs: k.ClusterCIDRs}
		wantB := wantOf(b, opts, healthB)
		afterFake.Apply(context.Background(), Diff(nil, wantB))
		after := outcomes(afterFake, frontends)
		n := 0
		k.After = func(op Op) {
			n++
			for key, got := range outcomes(k, frontends) {
				if wrong := landsWrong(before[key], after[key], got); wrong != "" {
					t.Errorf("after step %d (%s), %s to %s: %s\nbefore %v\nnow    %v\nafter  %v", n, op, key.client, key.to, wrong, before[key], got, after[key])
				}
			}
		}
		k.Apply(context.Background(), Diff(k.Held(), wantB))
		if d := cmp.Diff(after, outcomes(k, frontends), exact); d != "" {
			t.Errorf("in the end (-want +got):\n%s", d)
		}
	})
}

type flow struct {
	client netip.Addr
	to     Frontend
}

func allFrontends(lists ...[]Service) []Frontend {
	var out []Frontend
	for _, services := range lists {
		for _, s := range services {
			out = append(out, s.Frontends()...)
			for _, v := range s.VIPs { // a port that no Service has
				out = append(out, Frontend{Addr: v.Addr, Port: 22, Proto: TCP})
			}
		}
	}
	return out
}

func outcomes(k *Fake, frontends []Frontend) map[flow]Outcome {
	out := map[flow]Outcome{}
	for _, f := range frontends {
		for _, c := range clients {
			if c.Is4() == f.Addr.Is4() {
				out[flow{c, f}] = k.Connect(c, f)
			}
		}
	}
	return out
}

// landsWrong says what is wrong with an outcome on the way from one state to
// another, if anything.
func landsWrong(before, after, got Outcome) string {
	if got.Fate == HostPort && before.Fate != HostPort && after.Fate != HostPort {
		return "a daemon of the host gets it"
	}
	if before.Fate == Served && after.Fate == Served && got.Fate != Served {
		return "it was and will be served, and is not now"
	}
	if got.Fate != Served {
		return ""
	}
	if before.Fate == Dropped && after.Fate == Dropped {
		return "its client is not admitted"
	}
	for _, b := range got.Backends {
		old, young := slices.Contains(before.Backends, b), slices.Contains(after.Backends, b)
		switch {
		case before.Fate == Served && after.Fate == Served && !old && !young:
			return fmt.Sprintf("backend %s is of neither state", b)
		case old && !young && before.Masqueraded && !got.Masqueraded,
			young && !old && after.Masqueraded && !got.Masqueraded:
			return fmt.Sprintf("backend %s sees the client's address and can't answer", b)
		}
	}
	return ""
}

func TestLawSharedObjectsStayUntilTheLastOwnerLetsGo(t *testing.T) {
	seeds(t, 200, func(t *testing.T, g *gen) {
		s := NewState()
		owners := []Owner{{Service: ServiceID{Name: "a"}}, {Service: ServiceID{Name: "b"}}, {Drain: Frontend{Port: 1}}}
		model := map[Owner]Snapshot{}
		for range 30 {
			o := owners[g.IntN(len(owners))]
			objects := Snapshot{}
			for range g.IntN(4) {
				x := RealServer{Addr: g.backend(1), Weight: uint32(g.IntN(3))}
				objects[x.ID()] = x
			}
			var list []Object
			for _, x := range objects {
				list = append(list, x)
			}
			was := s.Snapshot()
			touched := map[Object]struct{}{}
			s.Replace(o, list, touched)
			model[o] = objects
			want := Snapshot{}
			for i := len(owners) - 1; i >= 0; i-- { // the first owner counts
				for id, x := range model[owners[i]] {
					want[id] = x
				}
			}
			if d := cmp.Diff(want, s.Snapshot(), exact); d != "" {
				t.Fatalf("(-want +got):\n%s", d)
			}
			for id := range touched {
				delete(was, id)
				delete(want, id)
			}
			if d := cmp.Diff(was, want, exact); d != "" {
				t.Fatalf("changed without being touched:\n%s", d)
			}
		}
	})
}
