package lb

import (
	"context"
	"net/netip"
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
// backends, that take connections, and that later passes add the rest.
func TestALargeServiceDelaysNoOther(t *testing.T) {
	const perPass, many = 10, 95
	k := &Fake{}
	r := NewReconciler(k, Options{Base: base, PerPass: perPass})
	large := kube(backends(manyBackends("10.64.0.1", many, 20)...), VIP{Addr: vip})
	r.Update(Update{Put: []Service{large, numbered(2)}, Synced: true})
	now := time.Unix(1, 0)
	for pass, left := 1, many; left > 0; pass++ {
		rep := mustSyncOnce(t, r, now)
		left -= min(left, perPass)
		if rep.Failed > 0 || rep.Postponed != left {
			t.Fatalf("pass %d: %d failed and %d postponed, want %d: %v", pass, rep.Failed, rep.Postponed, left, rep.Errors)
		}
		f := large.Frontends()[0]
		if v := r.have.fronts[f]; len(v.reals) != many-left || !v.in(SetIPVSPorts) || v.live() != min(many-left, many-20) {
			t.Fatalf("pass %d: %d real servers, %d with a weight", pass, len(v.reals), v.live())
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
	if rep := mustSyncOnce(t, r, now); rep.Postponed != 17 {
		t.Errorf("%d Ops are postponed, want 17", rep.Postponed)
	}
	r.Update(Update{Put: []Service{kube(backends(manyBackends("10.64.0.1", 10, 0)...), VIP{Addr: vip})}})
	mustSync(t, r, now)
	mustSync(t, r, now.Add(time.Hour))
	if v := r.have.fronts[f]; len(v.reals) != 10 || v.live() != 10 {
		t.Errorf("in the end %d real servers, %d with a weight", len(v.reals), v.live())
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
