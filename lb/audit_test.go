package lb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// piecemeal is a kernel that is read as a real one is: object by object, while it
// changes, and with gaps in the list of virtual servers when it did.
type piecemeal struct {
	*Fake
	g *gen
	// between is called now and then while the whole kernel is read.
	between func()
	whole   int // readings of the whole kernel
	parts   int // and of some frontends
}

func (k *piecemeal) Observe(ctx context.Context, expected *Table, only ...Frontend) (Observation, error) {
	if len(only) > 0 {
		k.parts++
		return k.Fake.Observe(ctx, expected, only...)
	}
	k.whole++
	if k.between == nil {
		return k.Fake.Observe(ctx, expected)
	}
	obs := Observation{Objects: Expecting(expected)}
	k.mu.Lock()
	k.keep(&obs, expected)
	k.mu.Unlock()
	k.between()
	for _, of := range []kind{kindVirtualServer, kindRealServer, kindSet, kindMember, kindRules, kindDevice, kindAddress, kindPoolRoute, kindUnreachable, kindSyncDaemon, kindTunnelDevice, kindSysctl} {
		ids := slices.SortedFunc(maps.Keys(k.Objects()), Compare)
		ids = slices.DeleteFunc(ids, func(id Object) bool { return id.kind() != of })
		for _, id := range ids {
			if k.g.chance(4) {
				k.between()
			}
			k.mu.Lock()
			o, held := k.held[id]
			k.mu.Unlock()
			gap := (of == kindVirtualServer || of == kindRealServer) && k.g.chance(5)
			if held && !gap && !obs.kept.has(of) {
				obs.Objects.Put(o)
			}
		}
	}
	k.between()
	obs.HostAddrs = maps.Clone(k.HostAddrs)
	return obs, nil
}

// comparesWithKernel compares the State of the Reconciler with the objects of the kernel.
func (r *Reconciler) comparesWithKernel(t *testing.T, k *Fake) {
	t.Helper()
	if d := cmp.Diff(k.Objects(), r.have.Snapshot(), exact); d != "" {
		t.Fatalf("weir does not believe what the kernel holds (-kernel +comparesWithKernel):\n%s", d)
	}
}

func TestLawChangesDuringAnAuditAreAppliedAndNoDrift(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		opts := g.options()
		k := &piecemeal{Fake: g.kernel(), g: g}
		r := NewReconciler(k, opts, "static")
		services := g.services()
		r.Update(put(services...))
		now := testNow
		mustSync(t, r, now)
		for range 3 {
			applied := 0
			k.between = func() {
				now = now.Add(time.Duration(g.IntN(30)) * time.Second)
				if g.chance(60) {
					services = g.services()
					r.Update(put(services...))
				}
				calls := k.Calls()
				mustSync(t, r, now)
				applied += k.Calls() - calls
				g.busy(k.Fake)
			}
			before := k.Calls()
			rep, err := r.Audit(t.Context(), now)
			k.between = nil
			must(t, err)
			if len(rep.Drift) > 0 {
				t.Errorf("nobody else did anything, and yet %v drifted", rep.Drift)
			}
			if k.Calls()-before != applied {
				t.Errorf("the audit wrote %v", rep.Ops)
			}
			r.consistent(t)
			r.comparesWithKernel(t, k.Fake)
		}
		for range 3 { // drains end
			now = now.Add(2 * time.Minute)
			mustSync(t, r, now)
		}
		if d := cmp.Diff(canonical(wantOf(k.Fake, services, opts, nil).Snapshot()), canonical(k.Objects()), exact); d != "" {
			t.Errorf("in the end (-want +got):\n%s", d)
		}
	})
}

func TestLawAnAuditFindsWhatOthersDoDuringIt(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		opts := g.options()
		k := &piecemeal{Fake: g.kernel(), g: g}
		r := NewReconciler(k, opts, "static")
		services := g.services()
		r.Update(put(services...))
		now := testNow
		mustSync(t, r, now)
		done := map[Object]bool{} // by others
		for range 3 {
			k.between = func() {
				now = now.Add(time.Duration(g.IntN(5)) * time.Second)
				if g.chance(30) {
					services = g.services()
					r.Update(put(services...))
					mustSync(t, r, now)
				}
				if g.chance(30) {
					k.interfere(g, done)
				}
			}
			rep, err := r.Audit(t.Context(), now)
			k.between = nil
			must(t, err)
			for _, o := range rep.Drift {
				if !done[o.ID()] {
					t.Errorf("nobody else did anything to %s, and yet it drifted", o)
				}
			}
			r.consistent(t)
		}
		for range 4 { // what came too late for an audit, and drains
			now = now.Add(2 * time.Minute)
			if _, err := r.Audit(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			r.comparesWithKernel(t, k.Fake)
		}
		if d := cmp.Diff(canonical(wantOf(k.Fake, services, opts, nil).Snapshot()), canonical(k.Objects()), exact); d != "" {
			t.Errorf("in the end (-want +got):\n%s", d)
		}
	})
}

// interfere does something to an object of weir's, and adds what it altered to done.
func (k *piecemeal) interfere(g *gen, done map[Object]bool) {
	before := k.Objects()
	ids := slices.SortedFunc(maps.Keys(before), Compare)
	if len(ids) == 0 {
		return
	}
	id := ids[g.IntN(len(ids))]
	rs, isServer := before[id].(RealServer)
	switch {
	case isServer && g.chance(30):
		rs.Weight += 7
		k.Put(rs)
	case isServer && g.chance(30):
		rs.Addr = netip.AddrPortFrom(rs.Addr.Addr(), 6666)
		k.Put(rs)
	default:
		k.Remove(id)
	}
	after := k.Objects()
	for id, o := range before {
		done[id] = done[id] || after[id] != o
	}
	for id := range after {
		done[id] = done[id] || before[id] == nil
	}
}

func TestLawKilledDuringAnAuditConverges(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		opts := g.options()
		k := &piecemeal{Fake: g.kernel(), g: g}
		now := testNow
		var services []Service
		for range 3 {
			r := NewReconciler(k, opts, "static")
			services = g.services()
			r.Update(put(services...))
			mustSync(t, r, now)
			left := g.IntN(60)
			k.Fail = func(Op) error { // from here on the process is dead
				if left--; left < 0 {
					return context.Canceled
				}
				return nil
			}
			k.between = func() {
				now = now.Add(time.Second)
				services = g.services()
				r.Update(put(services...))
				mustSync(t, r, now)
			}
			if _, err := r.Audit(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			k.Fail, k.between = nil, nil
		}
		r := NewReconciler(k, opts, "static")
		r.Update(put(services...))
		for range 4 {
			mustSync(t, r, now)
			now = now.Add(2 * time.Minute)
		}
		if n := len(r.Facts().Foreign); n > 0 {
			t.Errorf("%d virtual servers are taken for foreign ones", n)
		}
		if d := cmp.Diff(canonical(wantOf(k.Fake, services, opts, nil).Snapshot()), canonical(k.Objects()), exact); d != "" {
			t.Errorf("in the end (-want +got):\n%s", d)
		}
	})
}

// An audit of many changed frontends reads them in the reader's goroutine, the rest at once.
func TestAuditReadsManyChangedFrontendsOutsideTheLoop(t *testing.T) {
	for _, n := range []int{rereadAtOnce, rereadAtOnce + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r, services := many(t, 200, 2)
			fake := r.kernel.(*Fake)
			k := &piecemeal{Fake: fake, g: NewGen(1)}
			r.kernel = k
			a := r.BeginAudit()
			a.Read(t.Context(), k)
			for i := range n { // after the reading
				services[i].Ports = slices.Clone(services[i].Ports)
				services[i].Ports[0].Backends = services[i].Ports[0].Backends[:1]
			}
			r.Update(Update{Source: "static", Put: services[:n]})
			mustSync(t, r, testNow)
			again := r.Reread(a)
			if again != (n > rereadAtOnce) || k.parts > 0 {
				t.Fatalf("again %v after %d readings", again, k.parts)
			}
			if again {
				a.Read(t.Context(), k)
				again = r.Reread(a)
			}
			rep, err := r.EndAudit(t.Context(), testNow, a)
			if again || err != nil || len(rep.Drift)+len(rep.Ops) > 0 || k.whole != 1 || k.parts != 1 {
				t.Errorf("again %v, drift %v, ops %v, %v, %d readings of all and %d of some", again, rep.Drift, rep.Ops, err, k.whole, k.parts)
			}
			r.comparesWithKernel(t, fake)
		})
	}
}

// Others' changes of many frontends are read twice, and no more: they stay as they are.
func TestAuditAcceptsTheSecondReading(t *testing.T) {
	r, _ := many(t, 200, 2)
	k := &piecemeal{Fake: r.kernel.(*Fake), g: NewGen(1)}
	r.kernel = k
	for id := range k.Objects() {
		if rs, ok := id.(RealServer); ok {
			k.Remove(rs)
		}
	}
	rep, err := r.Audit(t.Context(), testNow)
	if err != nil || len(rep.Drift) != 402 || len(rep.Ops) != 402 || k.whole != 1 || k.parts != 1 { // with those of the anchors
		t.Errorf("%d drifted, %d ops, %v, %d readings of all and %d of some", len(rep.Drift), len(rep.Ops), err, k.whole, k.parts)
	}
}

// An audit that failed, or that another one has replaced, changes nothing.
func TestAuditWithoutResultChangesNothing(t *testing.T) {
	r, _ := many(t, 3, 2)
	fake := r.kernel.(*Fake)
	old := r.BeginAudit()
	old.Read(t.Context(), fake)
	for id := range fake.Objects() {
		if id.kind() == kindRealServer {
			fake.Remove(id)
		}
	}
	unread := r.BeginAudit()
	if rep, err := r.EndAudit(t.Context(), testNow, old); r.Reread(old) || err != nil || len(rep.Ops) > 0 {
		t.Errorf("a replaced audit: %v %v", rep, err)
	}
	if rep, err := r.EndAudit(t.Context(), testNow, unread); !errors.Is(err, errUnread) || len(rep.Ops) > 0 {
		t.Errorf("an audit that was not read: %v %v", rep, err)
	}
	rep, err := r.Audit(t.Context(), testNow)
	if err != nil || len(rep.Drift) != 6+2 || len(rep.Ops) != 6+2 { // with those of the anchors
		t.Errorf("the next audit: %d drifted, %d ops, %v", len(rep.Drift), len(rep.Ops), err)
	}
}
func BenchmarkBeginAudit(b *testing.B) {
	r, _ := many(b, 10_000, 10)
	for b.Loop() {
		r.BeginAudit()
	}
}

func BenchmarkEndAudit(b *testing.B) {
	r, _ := many(b, 10_000, 10)
	for b.Loop() {
		b.StopTimer()
		a := r.BeginAudit()
		a.Read(b.Context(), r.kernel)
		b.StartTimer()
		if _, err := r.EndAudit(b.Context(), testNow, a); err != nil {
			b.Fatal(err)
		}
	}
}

// A restart that writes nothing reads the kernel once, though its routes are new to it.
func TestARestartReadsTheKernelOnce(t *testing.T) {
	before, services := many(t, 10, 2)
	k := &piecemeal{Fake: before.kernel.(*Fake), g: NewGen(1)}
	r := NewReconciler(k, Options{Base: base}, "static")
	r.Update(put(services...))
	for _, want := range []int{0, 1} { // after a change: what was written is read back
		mustSync(t, r, testNow)
		routes, err := r.Routes(t.Context())
		if err != nil || len(routes) < 10 || len(routes[len(routes)-1].Serves) == 0 {
			t.Errorf("routes %v, %v", routes, err)
		}
		if k.whole != 1 || k.parts != want {
			t.Errorf("%d readings of all and %d of some, want 1 and %d", k.whole, k.parts, want)
		}
		for i := range services {
			services[i].ID.Name += "x"
			services[i].VIPs = []VIP{{Addr: services[i].VIPs[0].Addr.Next().Next()}}
			services[i].Ports = []Port{{Proto: TCP, Port: 81, Backends: services[i].Ports[0].Backends}}
		}
		r.Update(put(services...))
	}
}
