package lb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// GuardOptions limit the deletions of a source within a time: an API server that was restored
// from an older backup, or a faulty controller, must not empty a box. The zero value guards
// nothing.
//
// A deletion above the limit is withheld, from the namespace that causes it, or from all
// namespaces if several do. Additions are served immediately. Deleted Services, VIPs and ports
// stay as they were, and so do the backends of a port that would have none left. (A port that
// keeps some backends is no outage, as in a rollout.) A deletion is released by
// Reconciler.Release, after Timeout, and as soon as an update of the source brings it below the
// limit.
//
// Not covered: changes that delete nothing; ports that keep some backends, or get wrong ones;
// and the first update of a source. For that one, give the Reconciler the last known state of
// the source first, as an Update of its own that is Synced: the guard compares with it.
type GuardOptions struct {
	// Share is the part of the source's frontends, or of its backends with a weight (in ports
	// that lose all of theirs), that may be deleted within Window: 0 to 1. 0 and 1 are off.
	Share float64
	// Least is a number of frontends, or backends: fewer may always be deleted.
	Least int
	// Window is the time within which deletions count together.
	Window time.Duration
	// Timeout limits the time that a deletion is withheld; 0 is no limit.
	Timeout time.Duration
}

func (o GuardOptions) on() bool { return o.Share > 0 && o.Share < 1 }

// exceeded reports whether n of all is too much to delete.
func (o GuardOptions) exceeded(n, all int) bool {
	return n >= o.Least && float64(n) > o.Share*float64(all)
}

// GuardedSource is a source with deletions that a guard withholds.
type GuardedSource struct {
	Source string
	// Since is its begin, and Until its end without confirmation, zero if there is none.
	Since, Until time.Time
	// Services is the number of affected Services, with the frontends and backends that they
	// would lose.
	Services, Frontends, Backends int
	// First are the first names of these Services, at most five.
	First []string
	// Namespaces are those of these Services, sorted.
	Namespaces []string
}

// guards are the guards of the sources that have one, by source.
type guards struct {
	*model
	of map[string]*guard
}

// guard is between a source's Updates and the Catalog. The Catalog has the served state; the
// guard knows where the source's own state differs from it.
//
// Its counts follow each change, so that the cost of an update depends on its size.
type guard struct {
	opts          GuardOptions
	all           tally
	of            map[string]tally    // by namespace
	waiting       map[string]struct{} // namespaces with something withheld
	withheld      map[ServiceID]withheld
	losing        map[Frontend]int    // how many entries of withheld would release it
	served        map[Frontend]string // frontends that Services of the source claim; the namespace of the first one
	lost          map[Frontend]string // those that no Service would claim; the same namespace
	goneFrontends losses[Frontend]    // within Window
	goneBackends  losses[backendsOf]
	since         time.Time // begin of the present guarding; zero if nothing is withheld
	confirmed     bool
}

// withheld is the source's state of a Service that is served in another one.
type withheld struct {
	service Service
	deleted bool
	losing  []Frontend
	short   int
}

func newGuard(opts GuardOptions) *guard {
	return &guard{
		opts:     opts,
		of:       map[string]tally{},
		waiting:  map[string]struct{}{},
		withheld: map[ServiceID]withheld{},
		losing:   map[Frontend]int{},
		served:   map[Frontend]string{},
		lost:     map[Frontend]string{},
	}
}

// configure sets the options. A source that has no guard any more gets its own state.
func (gs *guards) configure(opts map[string]GuardOptions) {
	for source, g := range gs.of {
		if o := opts[source]; o.on() {
			g.opts = o
			continue
		}
		gs.release(source, g, spaces{})
		delete(gs.of, source)
	}
	for source, o := range opts {
		if gs.of[source] != nil || !o.on() {
			continue
		}
		gs.of[source] = newGuard(o)
		for id, svc := range gs.catalog.services {
			if id.Source == source {
				gs.of[source].count(svc, 1)
			}
		}
		for f, claims := range gs.catalog.claims {
			gs.of[source].recount(f, claims, source)
		}
	}
}

// Release permits the withheld deletions of a source, which the next Sync applies. Later
// deletions count from zero. It returns false if nothing is withheld.
func (r *Reconciler) Release(source string) bool {
	g := r.guards.of[source]
	if g == nil || g.since.IsZero() {
		return false
	}
	g.confirmed = true
	return true
}

// UpdateUnguarded is Update for the whole state of a source, Synced, which the operator has
// asked to serve in spite of its deletions. The guard compares later updates with it.
func (r *Reconciler) UpdateUnguarded(u Update) {
	delete(r.guards.of, u.Source) // with its withheld deletions, since u is the whole state
	r.Update(u)
	r.guards.configure(r.opts.Guards)
}

// GuardedSources returns the sources with withheld deletions since the last Sync, sorted by name.
func (r *Reconciler) GuardedSources() []GuardedSource {
	var out []GuardedSource
	for source, g := range r.guards.of {
		if !g.since.IsZero() {
			out = append(out, g.guardedSource(source))
		}
	}
	slices.SortFunc(out, func(a, b GuardedSource) int { return cmp.Compare(a.Source, b.Source) })
	return out
}

func (g *guard) guardedSource(source string) GuardedSource {
	const names = 5
	h := GuardedSource{
		Source: source, Since: g.since, Until: g.until(),
		Services: len(g.withheld), Frontends: len(g.lost), Backends: g.all.short,
		Namespaces: slices.Sorted(maps.Keys(g.waiting)),
	}
	for _, id := range slices.SortedFunc(maps.Keys(g.withheld), ServiceID.Compare) {
		if len(h.First) < names {
			h.First = append(h.First, id.String())
		}
	}
	return h
}

// until returns the end of the guarding without confirmation; the zero time if there is none.
func (g *guard) until() time.Time {
	if g.since.IsZero() || g.opts.Timeout == 0 {
		return time.Time{}
	}
	return g.since.Add(g.opts.Timeout)
}

// next is the time of the next release without an update or confirmation.
func (g *guard) next() time.Time {
	if g.since.IsZero() {
		return time.Time{}
	}
	return earliest(g.until(), earliest(g.goneFrontends.next(g.opts.Window), g.goneBackends.next(g.opts.Window)))
}

// notes returns a Note for each Service with a withheld deletion.
func (gs *guards) notes() []Note {
	var out []Note
	for source, g := range gs.of {
		if g.since.IsZero() {
			continue
		}
		for id, w := range g.withheld {
			what := fmt.Sprintf("%d frontends and %d backends less", len(w.losing), w.short)
			if w.deleted {
				what = "the Service is gone"
			}
			out = append(out, Note{id, Guarded, fmt.Sprintf("%s in cluster %s, as part of a mass deletion: the former state is served until the deletion is confirmed", what, source)})
		}
	}
	return out
}

// stage applies an update without its deletions.
func (gs *guards) stage(g *guard, u Update) {
	add := Update{Source: u.Source, Put: make([]Service, 0, len(u.Put))}
	var touched []Frontend
	withhold := func(id ServiceID, served Service, w withheld) {
		touched = append(touched, g.withhold(id, served, w)...)
	}
	for _, id := range gs.deleted(u) {
		if served, ok := gs.catalog.Get(id); ok {
			withhold(id, served, withheld{deleted: true})
		}
	}
	for _, svc := range u.Put {
		old, known := gs.catalog.Get(svc.ID)
		served := svc
		if known {
			served = merge(old, svc)
		}
		g.gain(old, served)
		withhold(svc.ID, served, withheld{service: svc})
		add.Put = append(add.Put, served)
		touched = append(append(touched, served.Frontends()...), old.Frontends()...)
	}
	gs.catalog.Apply(add, gs.facts.Taken, gs.dirty)
	if u.Synced {
		gs.catalog.synced[u.Source] = true
	}
	gs.recountOnce(touched, g, u.Source)
}

// deleted returns the Services that an update deletes.
func (gs *guards) deleted(u Update) []ServiceID {
	if !u.Synced {
		return u.Delete
	}
	out := slices.Clone(u.Delete)
	kept := make(map[ServiceID]struct{}, len(u.Put))
	for _, s := range u.Put {
		kept[s.ID] = struct{}{}
	}
	for id := range gs.catalog.services {
		if _, ok := kept[id]; id.Source == u.Source && !ok {
			out = append(out, id)
		}
	}
	return out
}

// withhold records the source's state of a served Service, and returns the affected frontends.
func (g *guard) withhold(id ServiceID, served Service, w withheld) []Frontend {
	touched := g.drop(id)
	if !w.deleted && equal(served, w.service) {
		return touched
	}
	w.losing = without(served.Frontends(), w.service.Frontends())
	for _, n := range shortage(served, w.service) {
		w.short += n
	}
	g.withheld[id] = w
	g.add(id.Namespace, tally{waiting: 1, short: w.short})
	for _, f := range w.losing {
		g.losing[f]++
	}
	return append(touched, w.losing...)
}

// gain counts the additions to a served Service.
func (g *guard) gain(old, young Service) {
	for _, f := range without(young.Frontends(), old.Frontends()) {
		g.goneFrontends.restore(f, 1)
	}
	for key, n := range shortage(young, old) {
		g.goneBackends.restore(key, n)
	}
	g.count(old, -1)
	g.count(young, 1)
}

// count adds n times the backends of a Service.
func (g *guard) count(s Service, n int) {
	t := tally{}
	for _, p := range s.Ports {
		t.backends += n * (p.live(IPv4) + p.live(IPv6))
	}
	g.add(s.ID.Namespace, t)
}

// decide permits the deletions of each source that are below the limit, and those that were
// withheld for the full time.
func (gs *guards) decide(now time.Time) {
	for source, g := range gs.of {
		g.goneFrontends.expire(now.Add(-g.opts.Window))
		g.goneBackends.expire(now.Add(-g.opts.Window))
		until := g.until()
		switch {
		case len(g.withheld) == 0:
		case g.confirmed || !until.IsZero() && !until.After(now):
			gs.release(source, g, spaces{})
			g.goneFrontends, g.goneBackends = losses[Frontend]{}, losses[backendsOf]{}
		default:
			if free := g.allowed(); free != nil {
				g.countLosses(gs.catalog, free, now)
				gs.release(source, g, free)
			}
		}
		switch {
		case len(g.withheld) == 0:
			g.since, g.confirmed = time.Time{}, false
		case g.since.IsZero():
			g.since = now
		}
	}
}

// countLosses counts the deletions that are about to be applied.
func (g *guard) countLosses(c *Catalog, in spaces, now time.Time) {
	for f, space := range g.lost {
		if in.has(space) {
			g.goneFrontends.add(f, space, 1, now)
		}
	}
	for id, w := range g.withheld {
		if !in.has(id.Namespace) {
			continue
		}
		served, _ := c.Get(id)
		for key, n := range shortage(served, w.service) {
			g.goneBackends.add(key, id.Namespace, n, now)
		}
	}
}

// release serves the source's own state of some namespaces.
func (gs *guards) release(source string, g *guard, in spaces) {
	u := Update{Source: source}
	var touched []Frontend
	for id, w := range g.withheld {
		if !in.has(id.Namespace) {
			continue
		}
		served, _ := gs.catalog.Get(id)
		g.count(served, -1)
		touched = append(touched, g.drop(id)...)
		if w.deleted {
			u.Delete = append(u.Delete, id)
			continue
		}
		g.count(w.service, 1)
		touched = append(touched, w.service.Frontends()...)
		u.Put = append(u.Put, w.service)
	}
	gs.catalog.Apply(u, gs.facts.Taken, gs.dirty)
	gs.recountOnce(touched, g, source)
}
