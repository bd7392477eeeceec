package lb

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestPortions checks that a pass in portions does the same as one at once, and reports how far it is.
func TestPortions(t *testing.T) {
	whole, parts := &Fake{}, &Fake{}
	var done, largest []int
	opts := Options{Base: base}
	opts.Portion = 7
	opts.Progress = func(n, total int) { done, largest = append(done, n), append(largest, total) }
	var ops [2][]Op
	for i, k := range []*Fake{whole, parts} {
		o := opts
		if k == whole {
			o.Portion, o.Progress = 0, nil
		}
		r := NewReconciler(k, o)
		var services []Service
		for n := range 20 {
			services = append(services, numbered(n+1))
		}
		r.Update(Update{Put: services, Synced: true})
		rep, err := r.Sync(context.Background(), time.Unix(1, 0))
		if err != nil || rep.Failed > 0 {
			t.Fatal(err, rep.Errors)
		}
		ops[i] = rep.Ops
	}
	if !slices.Equal(ops[0], ops[1]) {
		t.Errorf("in portions other ops: %d and %d", len(ops[0]), len(ops[1]))
	}
	total := len(ops[0])
	if len(done) < total/7 || !slices.IsSorted(done) || done[len(done)-1] != total {
		t.Errorf("progress %v of %d", done, total)
	}
	for i, n := range largest {
		before := 0
		if i > 0 {
			before = done[i-1]
		}
		if n != total || done[i]-before > 7 {
			t.Errorf("portion %d: %d of %d", i, done[i]-before, n)
		}
	}
}

// TestPortionsAreSmallerForALargeService checks that the kernel gets fewer real servers at a time where it looks
// for each of them in a long list, and that a Service beside it changes nothing.
func TestPortionsAreSmallerForALargeService(t *testing.T) {
	const many = 12 * searched
	for _, rules := range []bool{false, true} {
		var sizes []int
		last := 0
		r := NewReconciler(&Fake{}, Options{Base: base, WithoutIPVS: rules, Portion: 3 * searched, Progress: func(n, _ int) {
			sizes = append(sizes, n-last)
			last = n
		}})
		var list []Backend
		for addr := netip.MustParseAddr("10.64.0.1"); len(list) < many; addr = addr.Next() {
			list = append(list, Backend{Addr: netip.AddrPortFrom(addr, 8080), Weight: 1})
		}
		large := kube(backends(list...), VIP{Addr: vip})
		r.Update(Update{Put: []Service{large, numbered(2)}, Synced: true})
		if rep, err := r.Sync(context.Background(), time.Unix(1, 0)); err != nil || rep.Failed > 0 {
			t.Fatal(err, rep.Errors)
		}
		// Of the last thousands each counts as some ten, so that a portion has a third of a thousand.
		half := slices.Max(sizes[len(sizes)/2:])
		if most := slices.Max(sizes); most > 3*searched || most < searched || rules != (half > searched) {
			t.Errorf("without IPVS %v: portions of %v", rules, sizes)
		}
	}
}

// TestEachPlannedServiceIsReported checks that no pass is silent while it plans many Services.
func TestEachPlannedServiceIsReported(t *testing.T) {
	planned := 0
	r := NewReconciler(&Fake{}, Options{Base: base, Planned: func() { planned++ }})
	var services []Service
	for n := range 20 {
		services = append(services, numbered(n+1))
	}
	for _, step := range []struct {
		u    Update
		want int
	}{{Update{Put: services, Synced: true}, 20}, {Update{}, 0}, {Update{Delete: []ServiceID{services[3].ID}}, 1}} {
		planned = 0
		r.Update(step.u)
		if _, err := r.Sync(context.Background(), time.Unix(1, 0)); err != nil || planned != step.want {
			t.Errorf("%d Services were reported as planned, want %d (%v)", planned, step.want, err)
		}
	}
}
