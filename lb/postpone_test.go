package lb

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// manyBackends returns n backends from an address on, of which the first have weight 0.
func manyBackends(from string, n, zero int) []Backend {
	var list []Backend
	for addr := netip.MustParseAddr(from); len(list) < n; addr = addr.Next() {
		b := Backend{Addr: netip.AddrPortFrom(addr, 8080), Weight: 1}
		if len(list) < zero {
			b.Weight = 0
		}
		list = append(list, b)
	}
	return list
}

// TestALargeServiceDelaysNoOther checks that the first pass serves all Services, the largest one with a part of its
// backends, and that later passes add the rest in the order of their addresses.
func TestALargeServiceDelaysNoOther(t *testing.T) {
	const perPass, many = 10, 95
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base, PerPass: perPass})
	large := kube(backends(manyBackends("10.64.0.1", many, 0)...), VIP{Addr: vip})
	r.Update(Update{Put: []Service{large, numbered(2)}, Synced: true})
	now := time.Unix(1, 0)
	for pass, left := 1, many; left > 0; pass++ {
		rep := mustSyncOnce(t, r, now)
		left -= min(left, perPass)
		if rep.Failed > 0 || rep.Postponed != left {
			t.Fatalf("pass %d: %d failed and %d postponed, want %d: %v", pass, rep.Failed, rep.Postponed, left, rep.Errors)
		}
		f := large.Frontends()[0]
		all, v := large.Ports[0].Backends, r.have.fronts[f]
		if len(v.reals) != many-left || !v.in(SetIPVSPorts) || !r.have.Has(RealServer{Frontend: f, Addr: all[many-left-1].Addr}) {
			t.Fatalf("pass %d: %d real servers", pass, len(v.reals))
		}
		for _, other := range numbered(2).Frontends() {
			if want := r.want.wanted.fronts[other]; want != nil && !want.equal(r.have.fronts[other]) {
				t.Fatalf("pass %d: %s waits", pass, other)
			}
		}
		_, unfinished := r.Unfinished()[large.ID]
		_, other := r.Unfinished()[numbered(2).ID]
		if due := !r.Next().After(now) && !r.Next().IsZero(); due != (left > 0) || unfinished != (left > 0) || other {
			t.Fatalf("pass %d: next %v, unfinished %v, the other %v", pass, r.Next(), unfinished, other)
		}
	}
}

// TestVirtualServersShareAPass checks that a Service with several VIPs adds about as many real servers in a pass as one
// with one VIP.
func TestVirtualServersShareAPass(t *testing.T) {
	const perPass, many = 12, 20
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base, PerPass: perPass})
	var vips []VIP
	for n := range 3 {
		vips = append(vips, VIP{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(n + 1)})})
	}
	r.Update(Update{Put: []Service{kube(backends(manyBackends("10.64.0.1", many, 0)...), vips...)}, Synced: true})
	for left := len(vips) * many; left > 0; left -= perPass {
		if rep := mustSyncOnce(t, r, time.Unix(1, 0)); rep.Postponed != left-perPass {
			t.Fatalf("%d Ops are postponed, want %d", rep.Postponed, left-perPass)
		}
	}
}

// TestPostponedBackendsReplaceTheirPredecessors checks that a Service with as many new backends is never without one,
// and that a change of it before the last pass counts.
func TestPostponedBackendsReplaceTheirPredecessors(t *testing.T) {
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base, PerPass: 3})
	before, after := kube(backends(manyBackends("10.96.1.1", 2, 0)...), VIP{Addr: vip}), kube(backends(manyBackends("10.64.0.1", 20, 5)...), VIP{Addr: vip})
	r.Update(Update{Put: []Service{before}, Synced: true})
	now := time.Unix(1, 0)
	mustSyncOnce(t, r, now)
	f := before.Frontends()[0]
	k.After = func(op Op) {
		if r.have.fronts[f].live() == 0 {
			t.Errorf("after %s no real server takes connections", op)
		}
	}
	r.Update(Update{Put: []Service{after}})
	if rep := mustSyncOnce(t, r, now); rep.Postponed != 18 {
		t.Errorf("%d Ops are postponed, want 17 and the last one before", rep.Postponed)
	}
	r.Update(Update{Put: []Service{kube(backends(manyBackends("10.64.0.1", 10, 0)...), VIP{Addr: vip})}})
	mustSync(t, r, now)
	mustSync(t, r, now.Add(time.Hour))
	if v := r.have.fronts[f]; len(v.reals) != 10 || v.live() != 10 {
		t.Errorf("in the end %d real servers, %d with a weight", len(v.reals), v.live())
	}
}

// TestPostponedBackendsDoNotHideAFailedOne checks that a Service keeps its last backend while the kernel refuses the
// next one, although another Service has postponed backends.
func TestPostponedBackendsDoNotHideAFailedOne(t *testing.T) {
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base, PerPass: 3})
	small := kube(backends(manyBackends("10.96.1.1", 1, 0)...), VIP{Addr: netip.MustParseAddr("192.0.2.99")})
	small.ID.Name = "small"
	r.Update(Update{Put: []Service{small}, Synced: true})
	now := time.Unix(1, 0)
	mustSyncOnce(t, r, now)
	f := small.Frontends()[0]
	if r.have.fronts[f].live() != 1 {
		t.Fatalf("%s has %d live real servers", f, r.have.fronts[f].live())
	}
	next := netip.MustParseAddrPort("10.77.0.1:8080")
	k.Fail = func(op Op) error {
		if rs, ok := op.Object.(RealServer); ok && rs.Addr == next {
			return context.DeadlineExceeded
		}
		return nil
	}
	small.Ports = slices.Clone(small.Ports)
	small.Ports[0].Backends = []Backend{{Addr: next, Weight: 1}}
	r.Update(Update{Put: []Service{small, kube(backends(manyBackends("10.64.0.1", 30, 0)...), VIP{Addr: vip})}})
	for rep := (Report{Postponed: 1}); rep.Postponed > 0; {
		rep = mustSyncOnce(t, r, now)
		if r.have.fronts[f].live() == 0 {
			t.Fatalf("%d Ops are postponed, and %s has no backend", rep.Postponed, f)
		}
	}
	k.Fail = nil
	mustSync(t, r, now.Add(time.Minute))
	if !r.have.Has(RealServer{Frontend: f, Addr: next}) {
		t.Errorf("%s lacks %s", f, next)
	}
}

// TestAGrowingServiceKeepsItsRoute checks that a VIP is announced when all its backends are there, and stays announced
// while more are added.
func TestAGrowingServiceKeepsItsRoute(t *testing.T) {
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base, PerPass: 3})
	now := time.Unix(1, 0)
	serves := func() (known, serves bool) {
		t.Helper()
		routes, err := r.Routes(context.Background())
		must(t, err)
		for _, route := range routes {
			known, serves = true, len(route.Serves) > 0
		}
		return known, serves
	}
	r.Update(Update{Put: []Service{kube(backends(manyBackends("10.64.0.1", 8, 0)...), VIP{Addr: vip})}, Synced: true})
	for rep := (Report{Postponed: 1}); rep.Postponed > 0; {
		rep = mustSyncOnce(t, r, now)
		if _, announced := serves(); announced != (rep.Postponed == 0) {
			t.Fatalf("announced: %v, while %d Ops are postponed", announced, rep.Postponed)
		}
	}
	r.Update(Update{Put: []Service{kube(backends(manyBackends("10.64.0.1", 30, 0)...), VIP{Addr: vip})}})
	for rep := (Report{Postponed: 1}); rep.Postponed > 0; {
		rep = mustSyncOnce(t, r, now)
		if known, announced := serves(); known && !announced {
			t.Fatalf("withdrawn, while %d Ops are postponed", rep.Postponed)
		}
	}
}

// mustSyncOnce syncs once, and leaves what is postponed.
func mustSyncOnce(t *testing.T, r *Reconciler, now time.Time) Report {
	t.Helper()
	rep, err := r.Sync(context.Background(), now)
	must(t, err)
	r.consistent(t)
	return rep
}
