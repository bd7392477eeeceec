package lb

import "slices"

// orphans are what a process has found in the kernel at its start and may belong
// to Services of a source that has not synced yet: an API server that is away
// must not cost the Services that it told of before. What the sources that have
// synced know of is theirs, and goes when they say so.
type orphans struct {
	// frontends are those that no Service has claimed since.
	frontends map[Frontend]struct{}
	// shared are the IDs of what belongs to no frontend alone: addresses, backends
	// that may loop, port numbers. They stay until all sources have synced.
	shared Table
	// held are the IDs of what would be deleted otherwise.
	deferred map[Object]struct{}
}

// adopt takes down what the first look at the kernel has found.
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

// has reports whether an object may be that of a source that has not synced.
func (o *orphans) has(id Object) bool {
	if f, ok := frontendOf(id); ok {
		_, orphan := o.frontends[f]
		return orphan
	}
	return o.shared.Has(id)
}

// deferDeletes takes the deletions of orphans out of ops, which are those of all touched
// objects. It returns how many deletions are deferred.
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

// Follow changes which sources there are. The Services of one that is not among
// them any more are removed. A new one is waited for as those of NewReconciler
// are, but what other sources are known to have had may be deleted meanwhile.
func (r *Reconciler) Follow(sources ...string) {
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
