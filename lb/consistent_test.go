package lb

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// consistent compares each index that the Reconciler keeps with what it is computed
// from. The laws call it after each Sync.
func (r *Reconciler) consistent(t *testing.T) {
	t.Helper()
	index := func(name string, want, got any) {
		t.Helper()
		if d := cmp.Diff(want, got, exact); d != "" {
			t.Fatalf("%s is not what it is computed from (-computed +kept):\n%s", name, d)
		}
	}
	index("held.pools", poolsOf(&r.have.Table), r.have.pools)
	index("State.pools", poolsOf(&r.want.wanted), r.want.pools)
	addrs, bits := map[netip.Addr]addrOwners{}, map[netip.Addr]addrObjects{}
	for _, p := range r.want.owners {
		for _, w := range p.addrs {
			of := addrs[w.addr]
			of.address += int32(w.has & hasAddress)
			of.guard += int32(w.has&hasGuard) / int32(hasGuard)
			addrs[w.addr] = of
			bits[w.addr] |= w.has
		}
	}
	index("State.addrs", addrs, r.want.addrs)
	if len(bits)+len(r.want.wanted.addrs) > 0 {
		index("State.wanted.addrs", bits, r.want.wanted.addrs)
	}
	failed := newFailures()
	for _, f := range r.failed.of {
		failed.add(f.op, f.err, time.Time{})
	}
	index("failures.servers", failed.servers, r.failed.servers)

	for f, v := range r.want.wanted.fronts {
		if v.at != f || !v.frozen || v.owner == nil || cap(v.reals) != len(v.reals) {
			t.Fatalf("the record of %s in the State may change: %+v", f, v)
		}
	}
	for f, v := range r.have.fronts {
		if v.at != f || v.empty() || !slices.IsSortedFunc(v.reals, compareReals) {
			t.Fatalf("the record of %s in have is %+v", f, v)
		}
	}

	if r.have.adopted {
		have := Table{fronts: maps.Clone(r.have.fronts), addrs: r.have.addrs, loops: r.have.loops, rest: r.have.rest}
		for _, op := range diff(&have, r.want) {
			id := op.Object.ID()
			_, failed := r.failed.of[id]
			_, held := r.orphans.deferred[id]
			_, due := r.touched[id]
			if !failed && !held && !due && !r.full {
				t.Fatalf("nobody will %s", op)
			}
		}
	}

	vips, backends, of := map[netip.Addr]int{}, map[uint32]uint32{}, map[string]int{}
	claims := map[Frontend][]ServiceID{}
	for id, s := range r.catalog.services {
		of[id.Source]++
		for _, v := range s.VIPs {
			if v.Kind != NodePort {
				vips[v.Addr]++
			}
		}
		for a := range s.backendAddrs() {
			backends[hashOf(a)]++
		}
		for _, f := range r.catalog.claimed(s) {
			if !slices.Contains(claims[f], id) {
				claims[f] = append(claims[f], id)
			}
		}
	}
	taken := map[Frontend]ServiceID{}
	for f, ids := range claims {
		slices.SortFunc(ids, func(a, b ServiceID) int { return r.catalog.rank(f, a, b) })
		if len(ids) > 1 {
			taken[f] = ids[0]
		}
	}
	index("Catalog.vips", vips, r.catalog.vips)
	index("Catalog.backends", backends, r.catalog.backends)
	index("Catalog.of", of, r.catalog.of)
	index("Catalog.claims", claims, r.catalog.claims)
	index("Facts.Taken", taken, r.facts.Taken)

	marked := map[MarkKey]bool{}
	for id, keys := range r.marks.given {
		for _, k := range keys {
			if marked[k] = true; k.Service != id || r.marks.of[k] == 0 || r.marks.byMark[r.marks.of[k]].key != k {
				t.Fatalf("%v of %s has mark %d, which is of %v", k, id, r.marks.of[k], r.marks.byMark[r.marks.of[k]].key)
			}
		}
	}
	numbers := slices.Sorted(maps.Values(r.marks.of))
	if len(slices.Compact(numbers)) != len(r.marks.of) {
		t.Fatalf("a mark is given twice: %v", r.marks.of)
	}
	for f, servers := range r.drains.servers {
		for addr := range servers {
			if !r.have.Has(RealServer{Frontend: f, Addr: addr}) && !r.want.Has(RealServer{Frontend: f, Addr: addr}) {
				t.Fatalf("%s of %s drains and is nowhere", addr, f)
			}
		}
	}
}

func poolsOf(t *Table) map[netip.Prefix]struct{} {
	out := map[netip.Prefix]struct{}{}
	for o := range t.All() {
		if p, ok := o.(PoolRoute); ok {
			out[p.Prefix] = struct{}{}
		}
	}
	return out
}
