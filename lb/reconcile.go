package lb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Options are what a Reconciler is made of. All of it can be changed later by
// Configure.
type Options struct {
	// Base is what weir needs beside the Services.
	Base Base
	// Exclude, Pools, NodePortNets: see Facts.
	Exclude      []netip.Prefix
	Pools        []PoolRoute
	NodePortNets []netip.Prefix
	// Drain is for real servers that are found unwanted at the start, when their
	// Service is not known any more.
	Drain time.Duration
	// Guards limit what sources may take away at once, by their names.
	Guards map[string]GuardOptions
	// Leaving, if set, is called before Ops that leave addresses with nobody who
	// answers, sorted, of those that Routes said somebody serves: routers should
	// know first.
	Leaving func([]netip.Addr)
}

// Reconciler brings a kernel to what the Services want, and keeps it there. It
// is not safe for concurrent use: one goroutine owns it. It has no clock; now is
// always an argument.
type Reconciler struct {
	kernel  Kernel
	opts    Options
	catalog *Catalog
	facts   Facts
	want    *State
	notes   map[ServiceID][]Note
	noted   uint64 // see NotesVersion
	holding bool   // a guard did at the last Sync

	have    Snapshot                  // what the kernel holds of ours, as last read or written
	adopted bool                      // have has been read at least once
	shared  bool                      // the device holds addresses of others
	laid    map[netip.Prefix]struct{} // the pool routes in have

	dirty   map[ServiceID]struct{} // Services to plan again
	touched map[Object]struct{}    // IDs where have and want may differ
	full    bool                   // any ID may differ
	failed  map[Object]failure
	drains  drains
	marks   marks
	marked  map[ServiceID][]MarkKey // what each Service has marks for
	orphans orphans
	guards  map[string]*guard
	routes  routes
}

// failure is an Op that the kernel would not take.
type failure struct {
	op    Op
	err   error
	tries int
	next  time.Time
}

// Report is what a Sync or an Audit did.
type Report struct {
	// Ops that were applied, in their order.
	Ops []Op
	// Drift are the objects that others took away or altered, and that have been
	// brought back if nothing is Failed.
	Drift []Object
	// Failed is how many Ops failed, or waited for one that did. They are tried
	// again by later Syncs.
	Failed int
	// Errors are why: one for each Op that failed by itself, the first time and
	// whenever it is another error than the last time.
	Errors []error
	// Held is how many objects would be deleted, but may be those of a source that
	// has not synced.
	Held int
}

// NewReconciler makes a Reconciler that waits for the given sources before it
// deletes what it finds in the kernel at the start and no source knows.
func NewReconciler(k Kernel, opts Options, sources ...string) *Reconciler {
	r := &Reconciler{
		kernel:  k,
		catalog: NewCatalog(sources...),
		want:    NewState(),
		notes:   map[ServiceID][]Note{},
		have:    Snapshot{},
		dirty:   map[ServiceID]struct{}{},
		touched: map[Object]struct{}{},
		failed:  map[Object]failure{},
		drains:  newDrains(),
		laid:    map[netip.Prefix]struct{}{},
		marks:   newMarks(),
		marked:  map[ServiceID][]MarkKey{},
		guards:  map[string]*guard{},
		routes:  newRoutes(),
	}
	r.facts.Taken = map[Frontend]ServiceID{}
	r.facts.Marks, r.facts.claims, r.facts.vips = r.marks.of, r.catalog.claims, r.catalog.vips
	r.Configure(opts)
	return r
}

// Configure changes the options. What differs is applied by the next Sync.
func (r *Reconciler) Configure(opts Options) {
	r.opts = opts
	r.configureGuards()
	r.want.Replace(Owner{}, opts.Base.Objects(), r.touched)
	if slices.Equal(r.facts.Exclude, opts.Exclude) && slices.Equal(r.facts.Pools, opts.Pools) &&
		slices.Equal(r.facts.NodePortNets, opts.NodePortNets) {
		return
	}
	r.facts.Exclude, r.facts.Pools, r.facts.NodePortNets = opts.Exclude, opts.Pools, opts.NodePortNets
	r.cut()
	for id := range r.catalog.services {
		r.dirty[id] = struct{}{}
	}
}

// Update takes in what a source says. The next Sync applies it, as far as the
// source's guard lets it.
func (r *Reconciler) Update(u Update) {
	if u.Synced && !r.catalog.synced[u.Source] {
		r.full = true // what the source had before and has no more may go now
	}
	if g := r.guards[u.Source]; g != nil {
		r.stage(g, u)
		return
	}
	r.catalog.Apply(u, r.facts.Taken, r.dirty)
}

// SetHealth takes in the verdicts of all Services that have checks, and gives those for
// which they are others than before, in no order.
func (r *Reconciler) SetHealth(health map[ServiceID]Health) (differ []ServiceID) {
	for id := range r.facts.Health {
		if _, ok := health[id]; !ok {
			differ = append(differ, id)
		}
	}
	for id, h := range health {
		old, ok := r.facts.Health[id]
		if !ok || !maps.Equal(old.Down, h.Down) || !maps.Equal(old.Lost, h.Lost) {
			differ = append(differ, id)
		}
	}
	for _, id := range differ {
		r.dirty[id] = struct{}{}
	}
	r.facts.Health = health
	return differ
}

// SetHealthPorts takes in on which health check ports the box answers
// (Facts.HealthPorts), and tells whether that makes a difference to a Service.
func (r *Reconciler) SetHealthPorts(ports map[uint16]bool) bool {
	before := Facts{HealthPorts: r.facts.HealthPorts}
	r.facts.HealthPorts = ports
	differs := false
	for id, check := range r.catalog.probes {
		if before.admits(check.Port) != r.facts.admits(check.Port) {
			r.dirty[id] = struct{}{}
			differs = true
		}
	}
	return differs
}

// NodeAddrs gives the box's own addresses on which NodePorts are served, as of
// the last look at the kernel.
func (r *Reconciler) NodeAddrs() []netip.Addr {
	var out []netip.Addr
	for _, f := range r.opts.Base.Families {
		out = append(out, r.facts.nodeAddrs(f)...)
	}
	return out
}

// Lost takes in that others have taken away or altered objects of ours. The next
// Sync brings them back. It gives those that weir did hold.
func (r *Reconciler) Lost(ids []Object) []Object {
	var lost []Object
	for _, id := range ids {
		if o, ok := r.have[id]; ok {
			lost = append(lost, o)
			delete(r.have, id)
			r.touched[id] = struct{}{}
			r.routes.touch(id)
		}
	}
	return lost
}

// Sync applies what has changed since the last one, and tries again what failed
// then. The first one reads the kernel and adopts what it holds.
func (r *Reconciler) Sync(ctx context.Context, now time.Time) (Report, error) {
	var rep Report
	if !r.adopted {
		if _, err := r.observe(ctx); err != nil {
			return rep, err
		}
	}
	if err := r.pollDrains(ctx, now); err != nil {
		rep.Errors = append(rep.Errors, err)
	}
	ops := r.due(now)
	r.touched = map[Object]struct{}{}
	r.full = false
	ops, rep.Held = r.hold(ops)
	troubled := len(r.failed) > 0
	r.leave(ops)
	r.apply(ctx, now, ops, &rep)
	holding := r.holding
	r.holding = len(r.Held()) > 0
	if troubled || len(r.failed) > 0 || holding || r.holding {
		r.noted++
	}
	return rep, nil
}

// Audit reads the whole kernel, finds what others have done, and repairs it.
func (r *Reconciler) Audit(ctx context.Context, now time.Time) (Report, error) {
	drift, err := r.observe(ctx)
	if err != nil {
		return Report{}, err
	}
	rep, err := r.Sync(ctx, now)
	rep.Drift = drift
	return rep, err
}

// Preview gives the Ops that the next Sync would apply, after reading the
// kernel. Nothing is applied; the Reconciler is of no other use afterwards.
func (r *Reconciler) Preview(ctx context.Context, now time.Time) ([]Op, error) {
	if _, err := r.observe(ctx); err != nil {
		return nil, err
	}
	ops, _ := r.hold(r.due(now))
	return ops, nil
}

// Cleanup takes everything that is weir's out of the kernel, without draining. The
// device stays if others have put addresses on it: those would go with it.
func (r *Reconciler) Cleanup(ctx context.Context, now time.Time) (Report, error) {
	var rep Report
	if _, err := r.observe(ctx); err != nil {
		return rep, err
	}
	r.want = NewState()
	if r.shared {
		r.want.Replace(Owner{}, []Object{Device{r.opts.Base.Device}}, r.touched)
	}
	r.apply(ctx, now, Diff(r.have, r.want), &rep)
	return rep, nil
}

// Adopt reads the kernel, so that Have tells what it holds. Sync does it by
// itself; this is for those who only look.
func (r *Reconciler) Adopt(ctx context.Context) error {
	_, err := r.observe(ctx)
	return err
}

// Pending is how many Ops have failed and are tried again.
func (r *Reconciler) Pending() int { return len(r.failed) }

// Next is when Sync should be called again even if nothing changes; the zero
// time if never.
func (r *Reconciler) Next() time.Time {
	next := r.drains.next
	for _, f := range r.failed {
		next = earliest(next, f.next)
	}
	for _, g := range r.guards {
		next = earliest(next, g.next())
	}
	return next
}

// due plans what is dirty and gives the Ops to apply now.
func (r *Reconciler) due(now time.Time) []Op {
	r.judge(now)
	if r.full {
		r.want.grow(r.catalog.size())
	}
	if len(r.catalog.moved) > 0 {
		r.concern(r.catalog.moved)
		r.cut()
		r.catalog.moved = map[netip.Addr]struct{}{}
	}
	r.unretire()
	// In their order: that of the claims on what many of them share (state.go).
	var left []leaving
	for _, id := range slices.SortedFunc(maps.Keys(r.dirty), ServiceID.Compare) {
		left = r.plan(id, left)
	}
	r.dirty = map[ServiceID]struct{}{}
	// Only now: what one Service let go of another may have taken.
	for _, l := range left {
		r.drain(l.server, now.Add(l.drain), now)
	}
	if r.full {
		r.drainUnwanted(now)
	}
	r.releaseMarks()
	if r.full {
		return Diff(r.have, r.want)
	}
	for id, f := range r.failed {
		if !f.next.After(now) {
			r.touched[id] = struct{}{}
		}
	}
	return diffIDs(r.touched, r.have, r.want)
}

// leaving is a real server that a Service has had, and how long it drains.
type leaving struct {
	server RealServer
	drain  time.Duration
}

// plan plans one Service, and adds the real servers that it had before to left.
func (r *Reconciler) plan(id ServiceID, left []leaving) []leaving {
	owner := Owner{Service: id}
	touched := r.touched
	if r.full {
		touched = nil // every ID is looked at anyway
	}
	old := r.want.Objects(owner)
	var objects []Object
	before := r.notes[id]
	svc, ok := r.catalog.Get(id)
	r.assign(id, svc)
	if ok {
		objects, r.notes[id] = Plan(svc, &r.facts)
		r.orphans.claim(objects)
		r.drains.times[id] = svc.Drain
	} else {
		delete(r.notes, id)
	}
	if !slices.Equal(before, r.notes[id]) {
		r.noted++
	}
	r.want.Replace(owner, objects, touched)
	r.routes.claim(id, svc.VIPs)
	r.reclaimDrains(old)
	r.reclaimDrains(objects)
	for _, o := range old {
		if rs, isServer := o.(RealServer); isServer {
			left = append(left, leaving{rs, r.drains.times[id]})
		}
	}
	if !ok {
		delete(r.drains.times, id)
	}
	return left
}

// Notes gives what could not be done, sorted. Ops that only wait for one that
// failed are not told: the one that failed is.
func (r *Reconciler) Notes() []Note {
	var out []Note
	for _, notes := range r.notes {
		out = append(out, notes...)
	}
	out = append(out, r.heldNotes()...)
	for id, f := range r.failed {
		if errors.Is(f.err, errWaits) {
			continue
		}
		note := Note{Reason: Failed, Text: fmt.Sprintf("%s: %v", f.op, f.err)}
		if r.wantedAlive(id) {
			note.Service = r.want.objects[id].owner.Service
		}
		out = append(out, note)
	}
	return sortNotes(out)
}

// Unfinished gives the Services that the kernel does not hold as their source says,
// and why: Failed if it would not take something of theirs, or that waits for
// something which it would not take, and Held if a guard holds something.
func (r *Reconciler) Unfinished() map[ServiceID]Reason {
	out := map[ServiceID]Reason{}
	for id := range r.failed {
		for _, s := range r.concerned(id) {
			out[s] = Failed
		}
	}
	for _, n := range r.heldNotes() {
		out[n.Service] = Held
	}
	return out
}

// concerned gives the Services that an ID is of, or was, as far as that is known.
func (r *Reconciler) concerned(id Object) []ServiceID {
	var out []ServiceID
	if r.wantedAlive(id) {
		out = append(out, r.want.objects[id].owner.Service)
	}
	f, ok := frontendOf(id)
	switch {
	case !ok:
		return out
	case f.Mark != 0:
		return append(out, r.marks.leds[f.Mark].key.Service)
	}
	return append(append(out, r.catalog.Claimants(f)...), r.catalog.Claimants(everyAddress(f))...)
}

// NotesVersion changes with every Sync after which Notes may give something else:
// with many Services that have Notes, giving them is more work than most changes.
func (r *Reconciler) NotesVersion() uint64 { return r.noted }

// Have is what the kernel holds of weir's. The Snapshot belongs to the
// Reconciler: read it before the next call.
func (r *Reconciler) Have() Snapshot { return r.have }

// Catalog gives the Services. It belongs to the Reconciler.
func (r *Reconciler) Catalog() *Catalog { return r.catalog }

// Facts are what the last plans were made with. They belong to the Reconciler.
func (r *Reconciler) Facts() *Facts { return &r.facts }
