package lb

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The laws of the package comment, held for random boxes. A failing case prints
// its seed; run only it with -run 'TestLaws/.../seed=N'.

var (
	exact   = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b addrOwners) bool { return a == b }), cmp.Comparer(func(a, b tally) bool { return a == b }), cmp.Comparer(func(a, b loop) bool { return a == b }), cmp.Comparer(func(a, b MarkKey) bool { return a == b }), cmpopts.EquateEmpty()}
	testNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	base    = Base{Device: "kube-ipvs0", Families: []Family{IPv4, IPv6}, Sysctls: Sysctls([]Family{IPv4, IPv6})}
	// Clients outside, inside (pods), the box itself, and backends, of both families.
	clients = []netip.Addr{
		netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("10.9.9.1"), netip.MustParseAddr("10.0.0.1"),
		netip.MustParseAddr("fd00:c::7"), netip.MustParseAddr("fd00:d::7"), netip.MustParseAddr("fd00:9::1"), netip.MustParseAddr("fd00::1"),
	}
	pods = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd00:d::/64")}
)

// mustSync counts the connections of what drains, as the daemon does between two passes,
// and syncs until nothing is postponed.
func mustSync(t *testing.T, r *Reconciler, now time.Time) Report {
	t.Helper()
	countDrains(r, now)
	rep, err := r.Sync(context.Background(), now)
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	r.consistent(t)
	for n := 0; rep.Postponed > 0; n++ {
		if n > 1000 {
			t.Fatalf("%d Ops stay postponed", rep.Postponed)
		}
		more, err := r.Sync(context.Background(), now)
		must(t, err)
		r.consistent(t)
		more.Ops, more.Errors = slices.Concat(rep.Ops, more.Ops), slices.Concat(rep.Errors, more.Errors)
		more.Failed += rep.Failed
		rep = more
	}
	return rep
}

// mustAudit audits at now.
func mustAudit(t *testing.T, r *Reconciler, now time.Time) Report {
	t.Helper()
	rep, err := r.Audit(context.Background(), now)
	must(t, err)
	return rep
}

// countDrains counts the connections of what drains at now.
func countDrains(r *Reconciler, now time.Time) {
	if servers := r.UncountedDrains(now); len(servers) > 0 {
		conns, _ := r.kernel.(interface {
			CountConns(context.Context, []RealServer) (map[Object]Conns, error)
		}).CountConns(context.Background(), servers)
		r.Counted(Count{Begun: now, Ended: now, Conns: conns})
	}
}

// canonical renames marks by the frontends that map to them: the number does not
// matter. A mark without a frontend keeps its own.
func canonical(s Snapshot) Snapshot {
	var leads []Object
	for _, o := range s {
		if m, ok := o.(Member); ok && m.Set.MarksPackets() {
			leads = append(leads, m)
		}
	}
	slices.SortFunc(leads, Compare)
	names := map[uint32]uint32{}
	for _, o := range leads {
		if m := o.(Member); names[m.Mark] == 0 {
			names[m.Mark] = uint32(len(names) + MaxMark + 1)
		}
	}
	rename := func(f Frontend) Frontend {
		if name := names[f.Mark]; name != 0 && !f.Given {
			f.Mark = name
		}
		return f
	}
	out := make(Snapshot, len(s))
	for _, o := range s {
		switch x := o.(type) {
		case VirtualServer:
			x.Frontend = rename(x.Frontend)
			o = x
		case RealServer:
			x.Frontend = rename(x.Frontend)
			o = x
		case Member:
			if f, ok := x.frontend(); ok && x.Set == SetMarks {
				o = markMember(rename(f))
			} else if x.Mark != 0 {
				x.Mark = names[x.Mark]
				o = x
			}
		}
		out[o.ID()] = o
	}
	return out
}

func TestLawApplyingTheOpsGivesTheWantedState(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		k := g.kernel()
		from := wantOf(k, g.services(), g.options(), nil).Snapshot()
		services := g.services()
		to := wantOf(k, services, g.options(), g.health(services))
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
		have := k.Objects()
		for _, err := range k.Apply(context.Background(), Diff(have, to)) {
			must(t, err)
		}
		got := k.Objects()
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
		if again := Diff(k.Objects(), to); len(again) > 0 {
			t.Errorf("nothing to do, and yet: %v", again)
		}
	})
}

func TestLawPlanIgnoresInputOrder(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		services := g.services()
		health := g.health(services)
		opts := g.options()
		k := g.kernel()
		want := wantOf(k, services, opts, health).Snapshot()
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
		if d := cmp.Diff(canonical(want), canonical(wantOf(k, services, opts, health).Snapshot()), exact); d != "" {
			t.Errorf("other order, other state:\n%s", d)
		}
	})
}

func TestLawChangesGiveTheSameStateAsARestart(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		opts := g.options()
		k := g.kernel()
		r := NewReconciler(k, opts, "static")
		var services []Service
		var health map[ServiceID]Health
		now := testNow
		for range 6 {
			services = g.services()
			health = g.health(services)
			opts = g.syncing(opts, services)
			r.Configure(opts)
			r.Update(Update{Source: "static", Put: services, Synced: true})
			r.SetHealth(health, true)
			mustSync(t, r, now)
			now = now.Add(time.Second)
		}
		for range 3 { // drains end
			now = now.Add(2 * time.Minute)
			mustSync(t, r, now)
		}
		want := wantOf(k, services, opts, health).Snapshot()
		if d := cmp.Diff(canonical(want), canonical(k.Objects()), exact); d != "" {
			t.Errorf("after changes (-anew +changed):\n%s", d)
		}
		calls := k.Calls()
		mustSync(t, r, now)
		mustAudit(t, r, now)
		if k.Calls() != calls {
			t.Errorf("nothing to do, and yet %d ops", k.Calls()-calls)
		}
		// A restart adopts it all without a write.
		r2 := NewReconciler(k, opts, "static")
		r2.Update(Update{Source: "static", Put: services, Synced: true})
		r2.SetHealth(health, true)
		mustSync(t, r2, now)
		if k.Calls() != calls {
			t.Errorf("a restart wrote %d ops", k.Calls()-calls)
		}
	})
}

func TestLawKilledAnywhereConverges(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		opts := g.options()
		k := g.kernel()
		foreign := VirtualServer{Frontend: Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: TCP}, Scheduler: Scheduler{Name: "wlc"}}
		if g.chance(50) {
			k.Put(foreign, RealServer{Frontend: foreign.Frontend, Addr: netip.MustParseAddrPort("10.7.7.7:80"), Weight: 3})
		}
		first := k.Objects()
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
		for id, o := range first { // foreign objects are where they were
			want[id] = o
		}
		if d := cmp.Diff(want, k.Objects(), exact); d != "" {
			t.Errorf("after the last start (-want +got):\n%s", d)
		}
		if len(first) > 0 {
			return // foreign virtual servers take frontends from services
		}
		if d := cmp.Diff(canonical(wantOf(k, services, opts, nil).Snapshot()), canonical(k.Objects()), exact); d != "" {
			t.Errorf("no foreign object, other state:\n%s", d)
		}
	})
}

func TestLawNoStepLetsTrafficLandWrong(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		a, b := g.services(), g.services()
		opts := g.options()
		healthA, healthB := g.health(a), g.health(b)
		k := g.kernel()
		r := NewReconciler(k, opts, "static")
		r.Update(put(a...))
		r.SetHealth(healthA, true)
		mustSync(t, r, testNow)
		frontends := k.allFrontends(a, b)
		before := outcomes(k, frontends)
		anew := like(k)
		anew.Apply(context.Background(), Diff(nil, wantOf(k, b, opts, healthB)))
		after := outcomes(anew, frontends)
		g.busy(k)
		n := 0
		k.After = func(op Op) {
			n++
			for key, got := range outcomes(k, frontends) {
				if wrong := landsWrong(key.client, before[key], after[key], got); wrong != "" {
					t.Errorf("after step %d (%s), %s to %s: %s\nbefore %v\nnow    %v\nafter  %v", n, op, key.client, key.to, wrong, before[key], got, after[key])
				}
			}
		}
		r.Update(put(b...))
		r.SetHealth(healthB, true)
		for now := testNow; n == 0 || len(r.Drains()) > 0; now = now.Add(20 * time.Second) {
			mustSync(t, r, now)
			n++
		}
		mustSync(t, r, testNow.Add(time.Hour))
		if d := cmp.Diff(after, outcomes(k, frontends), exact); d != "" {
			t.Errorf("in the end (-want +got):\n%s", d)
		}
	})
}

// landsWrong returns the fault of an outcome during the change from one state to
// another, or "".
func landsWrong(client netip.Addr, before, after, got Outcome) string {
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
		was, will, is := hides(before, client, b), hides(after, client, b), hides(got, client, b)
		switch {
		case before.Fate == Served && after.Fate == Served && !old && !young:
			return fmt.Sprintf("backend %s is of neither state", b)
		case slices.Contains(got.Direct, b): // it replies to the client itself
		case old && !young && was && !is,
			young && !old && will && !is:
			return fmt.Sprintf("backend %s sees the client's address and can't answer", b)
		case is && (len(before.Direct) == 0) != (len(after.Direct) == 0):
			// NAT is replaced by another method, or the reverse, together with the policy. The
			// box masquerades in between: the client is served.
		case before.Fate == Served && after.Fate == Served && was == will && is != will:
			return fmt.Sprintf("backend %s sees a source address that is neither state's", b)
		}
	}
	return ""
}

// hides reports whether a backend sees the box's address instead of the client's. It
// does not matter what it is to a backend that is not there; it is as to others.
func hides(o Outcome, client netip.Addr, backend netip.AddrPort) bool {
	return (o.Masqueraded || o.Loops && backend.Addr() == client) && !slices.Contains(o.Direct, backend)
}

func TestLawSharedObjectsStayUntilTheLastOwnerReleasesThem(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
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
