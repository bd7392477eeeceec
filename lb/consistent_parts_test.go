package lb

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
)

// consistentMarks follows the indexes of the marks in both directions.
func (r *Reconciler) consistentMarks(t *testing.T) {
	t.Helper()
	ms := &r.marks
	used := map[MarkKey]bool{}
	for id, keys := range ms.given {
		for _, k := range keys {
			if used[k] = true; k.Service != id || ms.of[k] == 0 {
				t.Fatalf("%v of %s has mark %d", k, id, ms.of[k])
			}
		}
		if !r.isPlanned(id) {
			continue
		}
		need := markedFrontends(r.catalog.services[id], &r.facts)
		given := slices.SortedFunc(maps.Keys(need), MarkKey.compare)
		given = slices.DeleteFunc(given, func(k MarkKey) bool { return ms.of[k] == 0 && len(ms.byMark) >= int(ms.max)/len(markProtos) })
		index(t, "marks.given of "+id.String(), given, keys)
		for _, k := range keys {
			index(t, "markUse.vips", need[k], ms.byMark[ms.of[k]].vips)
		}
	}
	of := map[MarkKey]uint32{}
	for mark, use := range ms.byMark {
		if use.key != (MarkKey{}) {
			of[use.key] = mark
		}
		if _, due := ms.maybeUnused[mark]; !used[use.key] && !due && !r.drains.drainsMark(mark) {
			t.Fatalf("mark %d of %v is not used and is never released", mark, use.key)
		}
	}
	index(t, "marks.of", of, ms.of)
	if len(r.dirty) == 0 {
		all := map[CheckTarget]uint32{}
		for id := range ms.given {
			for a, mark := range ms.checkMarks(id) {
				all[CheckTarget{id, a}] = mark
			}
		}
		index(t, "CheckMarks", all, checkMarks(t, r))
	}
}

func (r *Reconciler) consistentDrains(t *testing.T) {
	t.Helper()
	ds := &r.drains
	owners := map[Frontend]bool{}
	for owner := range r.want.owners {
		if owner.draining() {
			owners[owner.Drain] = true
		}
	}
	draining := map[Frontend]bool{}
	for f, servers := range ds.servers {
		for addr := range servers {
			id := RealServer{Frontend: f, Addr: addr}
			if !r.have.Has(id) && !r.want.Has(id) && ds.nextPoll.IsZero() { // a poll forgets it
				t.Fatalf("%s drains, and neither the kernel nor an owner has it", id)
			}
			if draining[f] = true; f.Mark == 0 {
				continue
			}
			for _, vip := range r.marks.vipsOf(f) {
				if FamilyOf(vip.Addr) != FamilyOf(f.Addr) {
					continue // the number was another Service's before
				}
				if !slices.Contains(ds.inner[vip], f) {
					t.Fatalf("%s drains and needs %s: inner has %v", f, vip, ds.inner[vip])
				}
			}
		}
	}
	index(t, "owners of drains", draining, owners)
	for vip, inner := range ds.inner { // entries of ended drains stay until the next poll
		for _, f := range inner {
			if f.Mark == 0 || vip.Mark != 0 {
				t.Fatalf("%s needs %s", f, vip)
			}
		}
	}
	for id := range ds.drained {
		if _, touched := r.touched[id]; !touched && !r.have.Has(id) && !r.full {
			t.Fatalf("%s was drained and deleted, and is not forgotten", id)
		}
	}
}

func (r *Reconciler) consistentRoutes(t *testing.T) {
	t.Helper()
	rs := &r.routes
	of, claimed := map[ServiceID][]VIP{}, map[netip.Addr][]Serving{}
	for id, vips := range rs.of {
		for _, v := range vips {
			claimed[v.Addr] = append(claimed[v.Addr], Serving{id, v.Kind})
		}
		if svc, ok := r.catalog.services[id]; !r.isPlanned(id) || !ok {
			of[id] = vips
		} else if vips := slices.DeleteFunc(slices.Clone(svc.VIPs), func(v VIP) bool { return v.Kind == NodePort }); len(vips) > 0 {
			of[id] = vips
		}
	}
	kept := map[netip.Addr][]Serving{}
	for a, serving := range rs.claimed {
		kept[a] = slices.SortedFunc(slices.Values(serving), Serving.compare)
		slices.SortFunc(claimed[a], Serving.compare)
	}
	index(t, "routes.of", of, rs.of)
	index(t, "routes.claimed", claimed, kept)
	for a := range rs.dirty {
		if _, reported := rs.reported[a]; !reported && rs.claimed[a] == nil {
			t.Fatalf("%s is dirty, and neither claimed nor reported", a)
		}
	}
	if !r.have.adopted {
		return
	}
	for a := range claimed {
		if _, dirty := rs.dirty[a]; dirty {
			continue
		}
		reported, ever := rs.reported[a]
		if now := rs.current(a); !ever || reported != (len(now.Serves) > 0) {
			t.Fatalf("%s is not dirty, was reported %t (ever: %t), and is %+v", a, reported, ever, now)
		}
	}
	for a := range rs.reported {
		if _, dirty := rs.dirty[a]; !dirty && rs.claimed[a] == nil {
			t.Fatalf("%s is gone, and Routes never reports it", a)
		}
	}
}

// consistentOrphans compares the deletions that are deferred with those that would be.
func (r *Reconciler) consistentOrphans(t *testing.T) {
	t.Helper()
	if r.full || len(r.dirty) > 0 || len(r.touched) > 0 || !r.have.adopted {
		return // the next Sync finds out
	}
	deferred := map[Object]struct{}{}
	have := r.have.Table
	have.fronts = maps.Clone(have.fronts)
	for _, op := range diff(&have, r.want) {
		if op.Verb == Delete && op.step != stepDropLocal && r.orphans.has(op.Object) {
			deferred[op.Object.ID()] = struct{}{}
		}
	}
	index(t, "orphans.deferred", deferred, r.orphans.deferred)
}

// consistent compares the counts of a guard with those of its Services.
func (g *guard) consistent(t *testing.T, source string, c *Catalog) {
	t.Helper()
	want := newGuard(g.opts)
	for id, svc := range c.services {
		if id.Source == source {
			want.count(svc, 1)
		}
	}
	for id, w := range g.withheld {
		served, ok := c.Get(id)
		if !ok {
			t.Fatalf("something is withheld of %s, which is not served", id)
		}
		want.withhold(id, served, withheld{service: w.service, deleted: w.deleted})
	}
	for f, claims := range c.claims {
		want.recount(f, claims, source)
	}
	index(t, "guard.all", want.all, g.all)
	index(t, "guard.of", want.of, g.of)
	index(t, "guard.waiting", want.waiting, g.waiting)
	index(t, "guard.losing", want.losing, g.losing)
	index(t, "guard.served", want.served, g.served)
	index(t, "guard.lost", want.lost, g.lost)
	for id, w := range want.withheld {
		index(t, "withheld of "+id.String(), w.losing, g.withheld[id].losing)
		index(t, "withheld of "+id.String(), w.short, g.withheld[id].short)
	}
	g.goneFrontends.consistent(t)
	g.goneBackends.consistent(t)
}

// consistent compares the sums of losses with its entries.
func (l *losses[K]) consistent(t *testing.T) {
	t.Helper()
	total, by := 0, map[string]int{}
	dates := map[K]int{}
	for _, d := range l.order {
		dates[d.key]++
	}
	for key, of := range l.of {
		for _, one := range of {
			total += one.n
			by[one.space] += one.n
		}
		if dates[key] < len(of) {
			t.Fatalf("%d losses of %v have %d dates", len(of), key, dates[key])
		}
	}
	index(t, "losses.total", total, l.total)
	index(t, "losses.by", by, l.by)
}
