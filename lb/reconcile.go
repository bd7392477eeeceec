package lb

import (
	"context"
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
	// Portion is how many Ops the kernel gets at once at most; 0 is no limit. Progress, if
	// set, is called after each portion of a pass that takes several: so many of all its
	// Ops have been applied, have failed, or wait for another one.
	Portion  int
	Progress func(done, total int)
}

// Reconciler brings a kernel to what the Services want, and keeps it there. It
// is not safe for concurrent use: one goroutine owns it. It has no clock; now is
// always an argument.
type Reconciler struct {
	*model
	kernel       Kernel
	opts         Options
	notes        map[ServiceID][]Note
	notesVersion uint64 // see NotesVersion
	guarding     bool   // a guard did at the last Sync
	planned      Table  // of the Service that is being planned

	failed  failures
	marks   marks
	drains  drains
	orphans orphans
	guards  guards
	routes  routes
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
	m := &model{
		catalog: NewCatalog(sources...),
		want:    NewState(),
		have:    kernelState{pools: map[netip.Prefix]struct{}{}},
		dirty:   map[ServiceID]struct{}{},
		touched: map[Object]struct{}{},
	}
	r := &Reconciler{
		model: m, kernel: k, notes: map[ServiceID][]Note{}, failed: newFailures(),
		marks: newMarks(m), guards: guards{m, map[string]*guard{}}, routes: newRoutes(m),
	}
	r.drains = newDrains(m, &r.marks, &r.orphans)
	m.facts = Facts{Taken: map[Frontend]ServiceID{}, Marks: r.marks.of, claims: m.catalog.claims, vips: m.catalog.vips}
	r.Configure(opts)
	return r
}

// Configure changes the options. What differs is applied by the next Sync.
func (r *Reconciler) Configure(opts Options) {
	r.opts, r.drains.defaultTime = opts, opts.Drain
	r.guards.configure(opts.Guards)
	r.want.Replace(Owner{}, opts.Base.Objects(), r.touched)
	if slices.Equal(r.facts.Exclude, opts.Exclude) && slices.Equal(r.facts.Pools, opts.Pools) &&
		slices.Equal(r.facts.NodePortNets, opts.NodePortNets) {
		return
	}
	r.facts.Exclude, r.facts.Pools, r.facts.NodePortNets = opts.Exclude, opts.Pools, opts.NodePortNets
	r.drains.dropLocal()
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
	if g := r.guards.of[u.Source]; g != nil {
		r.guards.stage(g, u)
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

// NodeAddrs returns the box's own addresses on which NodePorts are served, as of
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
		if o, ok := r.have.Get(id); ok {
			lost = append(lost, o)
			r.have.record(id, nil)
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
	if !r.have.adopted {
		if _, err := r.observe(ctx); err != nil {
			return rep, err
		}
	}
	r.drains.poll(now)
	ops := r.due(now)
	ops, rep.Held = r.orphans.deferDeletes(ops, r.model)
	r.touched = map[Object]struct{}{}
	r.full = false
	troubled := len(r.failed.of) > 0
	if r.opts.Leaving != nil {
		if gone := r.routes.withdrawals(ops); len(gone) > 0 {
			r.opts.Leaving(gone)
		}
	}
	newPass(r, now, &rep).apply(ctx, ops)
	holding := r.guarding
	r.guarding = len(r.Held()) > 0
	if troubled || len(r.failed.of) > 0 || holding || r.guarding {
		r.notesVersion++
	}
	return rep, nil
}

// Audit reads the whole kernel, finds what others have done, and repairs it. No change is
// applied meanwhile: BeginAudit and EndAudit are for that.
func (r *Reconciler) Audit(ctx context.Context, now time.Time) (Report, error) {
	a := r.BeginAudit()
	for a.Read(ctx, r.kernel); r.Reread(a); {
		a.Read(ctx, r.kernel)
	}
	return r.EndAudit(ctx, now, a)
}

// EndAudit takes in what an Audit has read, and repairs what others have done. It does
// nothing with one that another audit has replaced.
func (r *Reconciler) EndAudit(ctx context.Context, now time.Time, a *Audit) (Report, error) {
	replaced := a != r.have.audit
	drift, err := r.finish(ctx, a)
	if replaced || err != nil {
		return Report{}, err
	}
	rep, err := r.Sync(ctx, now)
	rep.Drift = drift
	return rep, err
}

// Preview returns the Ops that the next Sync would apply, after reading the
// kernel. Nothing is applied; the Reconciler is of no other use afterwards.
func (r *Reconciler) Preview(ctx context.Context, now time.Time) ([]Op, error) {
	if _, err := r.observe(ctx); err != nil {
		return nil, err
	}
	ops, _ := r.orphans.deferDeletes(r.due(now), r.model)
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
	if r.have.foreignAddrs {
		r.want.Replace(Owner{}, []Object{Device{r.opts.Base.Device}}, r.touched)
	}
	newPass(r, now, &rep).apply(ctx, diff(&r.have.Table, r.want))
	return rep, nil
}

// Adopt reads the kernel, so that Have tells what it holds. Sync does it by
// itself; this is for those who only look.
func (r *Reconciler) Adopt(ctx context.Context) error {
	_, err := r.observe(ctx)
	return err
}

// Pending is how many Ops have failed and are tried again.
func (r *Reconciler) Pending() int { return len(r.failed.of) }

// Next is when Sync should be called again even if nothing changes; the zero
// time if never.
func (r *Reconciler) Next() time.Time {
	next := earliest(r.drains.nextPoll, r.failed.next())
	for _, g := range r.guards.of {
		next = earliest(next, g.next())
	}
	return next
}

// due plans what is dirty and gives the Ops to apply now.
func (r *Reconciler) due(now time.Time) []Op {
	r.guards.decide(now)
	if len(r.catalog.changedVIPs) > 0 {
		r.replanBackends(r.catalog.changedVIPs)
		r.drains.dropLocal()
		r.catalog.changedVIPs = map[netip.Addr]struct{}{}
	}
	r.drains.forget()
	// In their order: that of the claims on what many of them share (state.go).
	var left []removedServer
	for _, id := range slices.SortedFunc(maps.Keys(r.dirty), ServiceID.Compare) {
		left = r.plan(id, left)
	}
	r.dirty = map[ServiceID]struct{}{}
	// Only now: what one Service let go of another may have taken.
	for _, l := range left {
		r.drains.start(l.server, now.Add(l.drain), now)
	}
	r.drains.startUnwanted(now)
	r.marks.release(r.drains.drainsMark)
	if r.full {
		return diff(&r.have.Table, r.want)
	}
	r.failed.due(now, r.touched)
	return diffIDs(r.touched, &r.have.Table, r.want)
}

// leaving is a real server that a Service has had, and how long it drains.
type removedServer struct {
	server RealServer
	drain  time.Duration
}

// plan plans one Service, and adds the real servers that it had before to left.
func (r *Reconciler) plan(id ServiceID, left []removedServer) []removedServer {
	owner := Owner{Service: id}
	touched := r.touched
	if r.full {
		touched = nil // every ID is looked at anyway
	}
	old := r.want.fronts(owner)
	r.planned.reset()
	before := r.notes[id]
	svc, ok := r.catalog.Get(id)
	r.marks.assign(id, svc)
	if ok {
		r.notes[id] = planInto(&r.planned, svc, &r.facts)
		r.drains.times[id] = svc.Drain
	} else {
		delete(r.notes, id)
	}
	if !slices.Equal(before, r.notes[id]) {
		r.notesVersion++
	}
	r.want.replace(owner, &r.planned, touched)
	r.routes.claim(id, svc.VIPs)
	now := r.want.fronts(owner)
	r.orphans.claim(now, r.model)
	r.drains.refresh(old)
	r.drains.refresh(now)
	for _, fr := range old {
		if r.want.wanted.fronts[fr.at] == fr {
			continue // as before
		}
		for _, server := range fr.reals {
			left = append(left, removedServer{server.server(fr.at), r.drains.times[id]})
		}
	}
	if !ok {
		delete(r.drains.times, id)
	}
	return left
}

// NotesVersion changes with every Sync after which Notes may give something else:
// with many Services that have Notes, giving them is more work than most changes.
func (r *Reconciler) NotesVersion() uint64 { return r.notesVersion }

// Have is what the kernel holds of weir's. The Table belongs to the Reconciler: read
// it before the next call, and change nothing.
func (r *Reconciler) Have() *Table { return &r.have.Table }

// Catalog returns the Services. It belongs to the Reconciler.
func (r *Reconciler) Catalog() *Catalog { return r.catalog }

// Facts are what the last plans were made with. They belong to the Reconciler.
func (r *Reconciler) Facts() *Facts { return &r.facts }
