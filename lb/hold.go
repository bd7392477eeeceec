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
	shared map[Object]struct{}
	// held are the IDs of what would be deleted otherwise.
	held map[Object]struct{}
}

// adoptOrphans takes down what the first look at the kernel has found.
func (r *Reconciler) adoptOrphans() {
	if r.catalog.Synced() {
		return
	}
	r.orphans = orphans{map[Frontend]struct{}{}, map[Object]struct{}{}, map[Object]struct{}{}}
	for id := range r.have {
		if f, ok := frontendOf(id); ok {
			r.orphans.frontends[f] = struct{}{}
		} else {
			r.orphans.shared[id] = struct{}{}
		}
	}
}

// claim takes the frontends of planned objects off the orphans.
func (o *orphans) claim(objects []Object) {
	if len(o.frontends) == 0 {
		return
	}
	for _, x := range objects {
		if f, ok := frontendOf(x); ok {
			delete(o.frontends, f)
		}
	}
}

// has tells whether an object may be that of a source that has not synced.
func (o *orphans) has(id Object) bool {
	if f, ok := frontendOf(id); ok {
		_, orphan := o.frontends[f]
		return orphan
	}
	_, orphan := o.shared[id]
	return orphan
}

// hold takes the deletions of orphans out of ops, and gives how many wait by now.
func (r *Reconciler) hold(ops []Op) ([]Op, int) {
	if r.catalog.Synced() {
		r.orphans = orphans{}
		return ops, 0
	}
	ops = slices.DeleteFunc(ops, func(op Op) bool {
		id := op.Object.ID()
		wait := op.Verb == Delete && op.step != stepCut && r.orphans.has(id)
		if wait {
			r.orphans.held[id] = struct{}{}
		}
		return wait
	})
	return ops, len(r.orphans.held)
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
	for s := range r.guards {
		if g := r.guards[s]; !slices.Contains(sources, s) {
			r.guards[s] = newGuard(g.opts)
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
