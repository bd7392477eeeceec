package lb

import "slices"

// orphans are the objects that a process has found in the kernel at its start and that may
// belong to an unsynced source: an unreachable API server must not cost its Services. A
// frontend that a synced source claims is not among them.
type orphans struct {
	// frontends are those that no Service has claimed since.
	frontends map[Frontend]struct{}
	// shared are the IDs of objects of no single frontend: addresses, members of SetLoopBack,
	// port numbers. They stay until all sources have synced.
	shared Table
	// deferred are the IDs that would be deleted otherwise.
	deferred map[Object]struct{}
}

// adopt records the result of the first reading of the kernel.
func (o *orphans) adopt(have *kernelState) {
	*o = orphans{frontends: map[Frontend]struct{}{}, deferred: map[Object]struct{}{}}
	for f := range have.fronts {
		o.frontends[f] = struct{}{}
	}
	for object := range have.shared() {
		if f, ok := frontendOf(object); ok {
			o.frontends[f] = struct{}{}
		} else {
			o.shared.Put(object)
		}
	}
}

// claim takes planned frontends off the orphans. Objects there that their Service does not
// want are unwanted from now on.
func (o *orphans) claim(planned []*virtual, m *model) {
	if len(o.frontends) == 0 {
		return
	}
	for _, v := range planned {
		if _, orphan := o.frontends[v.at]; !orphan {
			continue
		}
		delete(o.frontends, v.at)
		m.have.found = append(m.have.found, v.at)
		for object := range m.have.Of(v.at) {
			m.touched[object.ID()] = struct{}{}
		}
	}
}

// has reports whether an object may belong to an unsynced source.
func (o *orphans) has(id Object) bool {
	if f, ok := frontendOf(id); ok {
		_, orphan := o.frontends[f]
		return orphan
	}
	return o.shared.Has(id)
}

// deferDeletes removes the deletions of orphans from ops, which are those of all touched
// objects. It returns the number of deferred deletions.
func (o *orphans) deferDeletes(ops []Op, m *model) ([]Op, int) {
	if m.catalog.Synced() {
		*o = orphans{}
		return ops, 0
	}
	if m.full {
		clear(o.deferred)
	}
	for id := range m.touched {
		delete(o.deferred, id)
	}
	ops = slices.DeleteFunc(ops, func(op Op) bool {
		id := op.Object.ID()
		wait := op.Verb == Delete && op.step != stepDropLocal && o.has(id)
		if wait {
			o.deferred[id] = struct{}{}
		}
		return wait
	})
	return ops, len(o.deferred)
}

// SetSources changes the sources. The Services of removed ones are removed. Deletions wait for
// a new one as for those of NewReconciler, except for objects of other sources.
func (r *Reconciler) SetSources(sources ...string) {
	before := r.catalog.Synced()
	for id := range r.catalog.services {
		if !slices.Contains(sources, id.Source) {
			r.catalog.remove(id, r.facts.Taken, r.dirty)
		}
	}
	for s := range r.guards.of {
		if g := r.guards.of[s]; !slices.Contains(sources, s) {
			r.guards.of[s] = newGuard(g.opts)
		}
	}
	for s := range r.catalog.synced {
		if !slices.Contains(sources, s) {
			delete(r.catalog.synced, s)
		}
	}
	for _, s := range sources {
		if _, known := r.catalog.synced[s]; !known {
			r.catalog.synced[s] = false
		}
	}
	if !before && r.catalog.Synced() {
		r.full = true
	}
}
