package lb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// GuardOptions limit what a source may take away at once: an API server that was
// restored from an older backup, or a controller that deletes what it should not,
// must not empty a box. The zero value guards nothing.
//
// What would take too much away is held, of the namespace that does, or of all if it is not
// one alone: what is new is served at once, while
// Services, VIPs and ports that are gone stay as they were, and so do the backends
// of a port that would have none left. (Where some stay nothing is held: a rollout
// or fewer pods are no outage, and pods that are gone answer nobody.) It is released
// by Reconciler.Release, after Hold, and as soon as the source itself says something
// by which it would not be too much any more.
//
// Not covered: what a source changes without taking it away; ports that keep some
// backends, or get wrong ones; and the first that a source says. For that one, tell
// the Reconciler first what the source was last known to have, as an Update of
// its own that is Synced: it is what the rest is measured by.
type GuardOptions struct {
	// Share is how much of the source's frontends, or of its backends with a weight (by
	// ports that lose all of theirs), may go within Window: 0 to 1. 0 and 1 are off.
	Share float64
	// Least is a number of frontends, or backends: fewer may always go.
	Least int
	// Window is how long what is taken away counts together.
	Window time.Duration
	// Hold is how long something is held at most; 0 is for ever.
	Hold time.Duration
}

func (o GuardOptions) on() bool { return o.Share > 0 && o.Share < 1 }

// exceeded tells whether n of all is too much to take away.
func (o GuardOptions) exceeded(n, all int) bool {
	return n >= o.Least && float64(n) > o.Share*float64(all)
}

// Hold is what a guard keeps from being taken away.
type Hold struct {
	Source string
	// Since is when it began; Until is when it ends by itself, zero if never.
	Since, Until time.Time
	// Services are how many would lose something, Frontends and Backends what.
	Services, Frontends, Backends int
	// First are the first names of these Services, at most five.
	First []string
}

// guards are those of all sources that have one, by source.
type guards struct {
	*model
	of map[string]*guard
}

// guard stands between a source's Updates and the Catalog. The Catalog has what
// is served; the guard knows where that differs from what the source says.
//
// Its counts are kept up with every change, so that an update costs its size.
type guard struct {
	opts          GuardOptions
	all           tally
	of            map[string]tally    // by namespace
	waiting       map[string]struct{} // namespaces of which something is withheld
	withheld      map[ServiceID]withheld
	losing        map[Frontend]int    // how many of withheld would let go of it
	lost          map[Frontend]string // nobody would claim it; a namespace that does
	goneFrontends losses[Frontend]    // within Window
	goneBackends  losses[backendsOf]
	since         time.Time // when holding began; zero if nothing is held
	confirmed     bool
}

// withheld is what a source says of a Service that is served otherwise.
type withheld struct {
	service Service
	deleted bool
	losing  []Frontend
	short   int
}

// backendsOf names the backends of a Service's port in a family.
type backendsOf struct {
	service ServiceID
	FamilyPort
}

func newGuard(opts GuardOptions) *guard {
	return &guard{
		opts:     opts,
		of:       map[string]tally{},
		waiting:  map[string]struct{}{},
		withheld: map[ServiceID]withheld{},
		losing:   map[Frontend]int{},
		lost:     map[Frontend]string{},
	}
}

// configure makes the guards those of the options. A source that is not
// guarded any more gets what it said.
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
	}
}

// Release lets a source take away what is held of it, which the next Sync
// applies. What it takes away from then on counts anew. It is false if nothing is
// held.
func (r *Reconciler) Release(source string) bool {
	g := r.guards.of[source]
	if g == nil || g.since.IsZero() {
		return false
	}
	g.confirmed = true
	return true
}

// Believe is Update for a whole of a source, Synced, that is to be served however
// much it takes away: the operator has asked for it. What the source says from
// then on is measured by it.
func (r *Reconciler) Believe(u Update) {
	delete(r.guards.of, u.Source) // with what it holds, since u is all there is
	r.Update(u)
	r.guards.configure(r.opts.Guards)
}

// Held gives what the guards hold since the last Sync, sorted by source.
func (r *Reconciler) Held() []Hold {
	var out []Hold
	for source, g := range r.guards.of {
		if !g.since.IsZero() {
			out = append(out, g.hold(source))
		}
	}
	slices.SortFunc(out, func(a, b Hold) int { return cmp.Compare(a.Source, b.Source) })
	return out
}

func (g *guard) hold(source string) Hold {
	const names = 5
	h := Hold{
		Source: source, Since: g.since, Until: g.until(),
		Services: len(g.withheld), Frontends: len(g.lost), Backends: g.all.short,
	}
	for _, id := range slices.SortedFunc(maps.Keys(g.withheld), ServiceID.Compare) {
		if len(h.First) < names {
			h.First = append(h.First, id.String())
		}
	}
	return h
}

// until is when holding ends by itself; zero if never.
func (g *guard) until() time.Time {
	if g.since.IsZero() || g.opts.Hold == 0 {
		return time.Time{}
	}
	return g.since.Add(g.opts.Hold)
}

// next is when something is released without anybody saying a word.
func (g *guard) next() time.Time {
	if g.since.IsZero() {
		return time.Time{}
	}
	return earliest(g.until(), earliest(g.goneFrontends.next(g.opts.Window), g.goneBackends.next(g.opts.Window)))
}

// notes tells of every Service that something is held of.
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

// stage takes in an update without what it takes away.
func (gs *guards) stage(g *guard, u Update) {
	add := Update{Source: u.Source}
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
		touched = append(touched, served.Frontends()...)
	}
	gs.catalog.Apply(add, gs.facts.Taken, gs.dirty)
	if u.Synced {
		gs.catalog.synced[u.Source] = true
	}
	for _, f := range touched {
		g.updateLost(f, gs.catalog.claims[f], u.Source)
	}
}

// deleted gives the Services that an update says are gone.
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

// withhold takes down what the source says of a Service that is served, and gives
// the frontends that this concerns.
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

// gain counts what a Service that is served gets more.
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

// count adds n times what is counted of a Service.
func (g *guard) count(s Service, n int) {
	t := tally{frontends: n * len(s.Frontends())}
	for _, p := range s.Ports {
		t.backends += n * (p.live(IPv4) + p.live(IPv6))
	}
	g.add(s.ID.Namespace, t)
}

// judge lets every source take away what is not too much, and what has been held
// long enough.
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

// takeAway counts what is about to go.
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

// letGo serves what the source says of some namespaces.
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
		u.Put = append(u.Put, w.service)
	}
	gs.catalog.Apply(u, gs.facts.Taken, gs.dirty)
	for _, f := range touched {
		g.updateLost(f, gs.catalog.claims[f], source)
	}
}
