package lb

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// consistent compares each index that the Reconciler keeps with a recomputation of it. The
// laws call it after each operation. What follows is no index: it records what happened,
// and nothing else in memory has it.
//
//   - kernelState.unread and found, orphans.frontends and shared: results of audits
//   - routes.reported, failures.of: results of calls of Routes and of the kernel
//   - losses of a guard: past removals
//   - marks.last: the cursor of a search
func (r *Reconciler) consistent(t *testing.T) {
	t.Helper()
	r.consistentKernel(t)
	r.want.consistent(t)
	r.consistentCatalog(t)
	r.consistentPlans(t)
	r.consistentMarks(t)
	r.consistentDrains(t)
	r.consistentRoutes(t)
	r.consistentOrphans(t)
	for source, g := range r.guards.of {
		g.consistent(t, source, r.catalog)
	}
}

// index compares an index with its recomputation.
func index(t *testing.T, name string, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return // the usual case, in a tenth of the time
	}
	if d := cmp.Diff(want, got, exact); d != "" {
		t.Fatalf("%s differs from its recomputation (-computed +kept):\n%s", name, d)
	}
}

func (r *Reconciler) consistentKernel(t *testing.T) {
	t.Helper()
	index(t, "kernelState.pools", poolsOf(&r.have.Table), r.have.pools)
	failed := newFailures()
	for _, f := range r.failed.of {
		failed.add(f.op, f.err, time.Time{})
	}
	index(t, "failures.servers", failed.servers, r.failed.servers)
	for f, v := range r.have.fronts {
		if v.at != f || v.empty() || !slices.IsSortedFunc(v.reals, compareReals) {
			t.Fatalf("the record of %s in have is %+v", f, v)
		}
	}
	if !r.have.adopted {
		return
	}
	r.have.consistent(t)
	have := r.have.Table
	have.fronts = maps.Clone(have.fronts)
	for _, op := range diff(&have, r.want) {
		id := op.Object.ID()
		_, failed := r.failed.of[id]
		_, deferred := r.orphans.deferred[id]
		_, touched := r.touched[id]
		if !failed && !deferred && !touched && !r.later.has(id) && !r.full {
			t.Fatalf("no Sync will %s", op)
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

// consistent compares the sums of a Table with those of a new one.
func (t *Table) consistent(test *testing.T) {
	test.Helper()
	fresh := NewTable(slices.Collect(t.All())...)
	if fresh.addrSum != t.addrSum || fresh.loopSum != t.loopSum {
		test.Fatalf("the sums of %d addresses and %d loops are wrong", len(t.addrs), len(t.loops))
	}
}

// consistent compares the indexes of a State with the plans of its owners.
func (s *State) consistent(t *testing.T) {
	t.Helper()
	want, loops := NewState(), map[loop]uint32{}
	for owner, p := range s.owners {
		if *p.owner != owner || p.empty() {
			t.Fatalf("the plan of %v is %+v", owner, p)
		}
		want.Replace(owner, slices.Collect(p.all()), nil)
		for _, l := range p.loops {
			loops[l]++
		}
	}
	index(t, "State.pools", poolsOf(&s.wanted), s.pools)
	index(t, "State.addrs", want.addrs, s.addrs)
	index(t, "State.wanted", want.wanted.Snapshot(), s.wanted.Snapshot())
	index(t, "Table.loops", loops, s.wanted.loops)
	s.wanted.consistent(t)
	index(t, "State.claims", claimsOf(want), claimsOf(s))
	for f, v := range s.wanted.fronts {
		if v.at != f || !v.frozen || v.owner == nil || cap(v.reals) != len(v.reals) {
			t.Fatalf("the record of %s in the State may change: %+v", f, v)
		}
		if owners := want.allOf(VirtualServer{Frontend: f}); v.serves && *owners[0] != *s.first(VirtualServer{Frontend: f}) {
			t.Fatalf("%s is of %v, not %v", f, owners[0], v.owner)
		}
	}
}

// claimsOf returns the claims on each object, by the owners' names.
func claimsOf(s *State) map[Object][]string {
	out := map[Object][]string{}
	for id, c := range s.claims {
		for _, one := range append([]claim{c.claim}, c.rest...) {
			out[id] = append(out[id], one.object.String()+" of "+one.owner.Service.String()+" "+one.owner.Drain.String())
		}
	}
	return out
}

func (r *Reconciler) consistentCatalog(t *testing.T) {
	t.Helper()
	c := r.catalog
	vips, backends, of := map[netip.Addr]int{}, map[uint32]uint32{}, map[string]int{}
	claims, probes := map[Frontend][]ServiceID{}, map[ServiceID]HealthCheck{}
	for id, s := range c.services {
		of[id.Source]++
		if s.HealthCheck.Port != 0 {
			probes[id] = s.HealthCheck
		}
		for _, v := range s.VIPs {
			if v.Kind != NodePort {
				vips[v.Addr]++
			}
		}
		for a := range s.backendAddrs() {
			backends[hashOf(a)]++
		}
		for _, f := range c.claimed(s) {
			if !slices.Contains(claims[f], id) {
				claims[f] = append(claims[f], id)
			}
		}
	}
	taken := map[Frontend]ServiceID{}
	for f, ids := range claims {
		slices.SortFunc(ids, func(a, b ServiceID) int { return c.rank(f, a, b) })
		if len(ids) > 1 {
			taken[f] = ids[0]
		}
	}
	changed := map[netip.Addr]struct{}{} // since the last plan
	for a := range vips {
		if r.routes.claimed[a] == nil {
			changed[a] = struct{}{}
		}
	}
	for a := range r.routes.claimed {
		if vips[a] == 0 {
			changed[a] = struct{}{}
		}
	}
	index(t, "Catalog.vips", vips, c.vips)
	index(t, "Catalog.changedVIPs", changed, c.changedVIPs)
	index(t, "Catalog.backends", backends, c.backends)
	index(t, "Catalog.of", of, c.of)
	index(t, "Catalog.claims", claims, c.claims)
	index(t, "Catalog.probes", probes, c.probes)
	index(t, "Catalog.hosts", r.facts.HostAddrs, c.hosts)
	index(t, "Facts.Taken", taken, r.facts.Taken)
}

// isPlanned reports whether a Service was planned since it and its Facts changed.
func (r *Reconciler) isPlanned(id ServiceID) bool {
	_, dirty := r.dirty[id]
	svc := r.catalog.services[id]
	return !dirty && !svc.hasBackendIn(func(a netip.Addr) bool { _, ok := r.catalog.changedVIPs[a]; return ok })
}

// consistentPlans plans each Service that is not dirty.
func (r *Reconciler) consistentPlans(t *testing.T) {
	t.Helper()
	notes, times := map[ServiceID][]Note{}, map[ServiceID]time.Duration{}
	for id, svc := range r.catalog.services {
		if !r.isPlanned(id) {
			continue
		}
		objects, planNotes := Plan(svc, &r.facts)
		times[id] = svc.Drain
		if notes[id] = planNotes; notes[id] == nil {
			delete(notes, id)
		}
		have := r.want.Objects(Owner{Service: id})
		slices.SortFunc(have, Compare)
		index(t, "the plan of "+id.String(), objects, have)
	}
	for id := range r.catalog.services {
		if !r.isPlanned(id) {
			notes[id], times[id] = r.notes.of[id], r.drains.times[id]
		}
	}
	for id := range r.dirty { // which may be of no Service any more
		notes[id], times[id] = r.notes.of[id], r.drains.times[id]
	}
	for id := range notes {
		if _, ok := r.notes.of[id]; !ok && notes[id] == nil {
			delete(notes, id)
		}
	}
	for id := range times {
		if _, ok := r.drains.times[id]; !ok && times[id] == 0 && !r.isPlanned(id) {
			delete(times, id)
		}
	}
	maps.DeleteFunc(notes, func(_ ServiceID, n []Note) bool { return n == nil })
	index(t, "plannedNotes.of", notes, r.notes.of)
	index(t, "drains.times", times, r.drains.times)
}
