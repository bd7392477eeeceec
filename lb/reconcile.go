package lb

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Reconciler brings a kernel to the wanted state of the Services, and keeps it there. It is not
// safe for concurrent use: one goroutine owns it. It has no clock; now is always an argument.
type Reconciler struct {
	*model
	kernel       Kernel
	opts         Options
	notes        plannedNotes
	notesVersion uint64 // see NotesVersion
	guarding     bool   // a guard withheld something at the last Sync
	planned      Table  // of the Service that is being planned

	failed  failures
	marks   marks
	drains  drains
	orphans orphans
	guards  guards
	routes  routes
}

// Report is the result of a Sync or an Audit.
type Report struct {
	// Ops that were applied, in their order.
	Ops []Op
	// Drift are the objects that other programs removed or changed, and that are repaired if
	// nothing is Failed.
	Drift []Object
	// Failed is the number of Ops that failed, or waited for a failed one. Later Syncs retry
	// them.
	Failed int
	// Postponed is the number of Ops that wait for the next Syncs, because of Options.PerPass.
	Postponed int
	// Errors has the error of each Op that failed by itself, for the first time or with another
	// error than the last time.
	Errors []error
	// Deferred is the number of deferred deletions: the objects may belong to a source that has not
	// synced.
	Deferred int
}

// NewReconciler makes a Reconciler for some sources. Until these have synced, it deletes
// nothing that it found in the kernel at the start.
func NewReconciler(k Kernel, opts Options, sources ...string) *Reconciler {
	m := &model{
		catalog: NewCatalog(sources...),
		want:    NewState(),
		have:    kernelState{pools: map[netip.Prefix]struct{}{}, written: map[Frontend]struct{}{}},
		dirty:   map[ServiceID]struct{}{},
		touched: map[Object]struct{}{},
	}
	r := &Reconciler{
		model: m, kernel: k, notes: newPlannedNotes(), failed: newFailures(),
		marks: newMarks(m), guards: guards{m, map[string]*guard{}}, routes: newRoutes(m),
	}
	r.drains = newDrains(m, &r.marks, &r.orphans)
	m.facts = Facts{Taken: map[Frontend]ServiceID{}, Marks: r.marks.of, claims: m.catalog.claims, vips: m.catalog.vips}
	r.Configure(opts)
	return r
}

// Update applies a change of a source at the next Sync, within the limits of the source's
// guard.
func (r *Reconciler) Update(u Update) {
	if u.Synced && !r.catalog.synced[u.Source] {
		r.full = true // other Services that the source had before may be deleted now
	}
	if g := r.guards.of[u.Source]; g != nil {
		r.guards.stage(g, u)
		return
	}
	r.catalog.Apply(u, r.facts.Taken, r.dirty)
}

// SetHealth sets the results of the checks of Services, and returns the Services with other results than before, in
// no order. If these are all Services that have checks, the others lose their results. The inner maps are the
// Reconciler's from then on.
func (r *Reconciler) SetHealth(health map[ServiceID]Health, all bool) (differ []ServiceID) {
	now := r.facts.Health
	if all {
		for id := range now {
			if _, ok := health[id]; !ok {
				differ = append(differ, id)
				delete(now, id)
			}
		}
	}
	if now == nil {
		now = make(map[ServiceID]Health, len(health))
		r.facts.Health = now
	}
	for id, h := range health {
		old, ok := now[id]
		if !ok || !maps.Equal(old.Down, h.Down) || !maps.Equal(old.Lost, h.Lost) {
			differ = append(differ, id)
			now[id] = h
		}
	}
	for _, id := range differ {
		r.dirty[id] = struct{}{}
	}
	return differ
}

// SetHealthPorts sets the health check ports on which the box answers (Facts.HealthPorts), and
// reports whether that changes a Service.
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

// NodeAddrs returns the box's own addresses with NodePorts, by the last reading of the kernel.
func (r *Reconciler) NodeAddrs() []netip.Addr {
	var out []netip.Addr
	for _, f := range r.opts.Base.Families {
		out = append(out, r.facts.nodeAddrs(f)...)
	}
	return out
}

// Lost records that other programs have removed or changed objects of weir; a set was removed
// with its members. The next Sync restores them. It returns those that the kernel had.
func (r *Reconciler) Lost(ids []Object) []Object {
	sets := map[IPSet]bool{}
	for _, id := range ids {
		if set, ok := id.(IPSet); ok {
			sets[set] = true
		}
	}
	var lost []Object
	for _, id := range slices.Concat(ids, membersOf(&r.have.Table, sets)) {
		if o, ok := r.have.Get(id); ok {
			lost = append(lost, o)
			r.have.record(id, nil)
			r.touched[id] = struct{}{}
			r.routes.touch(id)
		}
	}
	return lost
}

// Sync applies the changes since the last one, and retries failed Ops. The first one reads the
// kernel and adopts its objects.
func (r *Reconciler) Sync(ctx context.Context, now time.Time) (Report, error) {
	var rep Report
	if !r.have.adopted {
		if _, err := r.observe(ctx); err != nil {
			return rep, err
		}
	}
	r.routes.repair.begin(now)
	r.drains.poll(now)
	ops := r.due(now)
	ops, rep.Deferred = r.orphans.deferDeletes(ops, r.model)
	if !r.opts.WithoutIPVS {
		ops = r.later.split(ops, r.opts.PerPass, now, &r.have)
	}
	r.touched = map[Object]struct{}{}
	r.full = false
	troubled := len(r.failed.of) > 0
	if r.opts.Leaving != nil {
		if gone := r.routes.withdrawals(ops); len(gone) > 0 {
			r.opts.Leaving(gone)
		}
	}
	newPass(r, now, &rep).apply(ctx, ops)
	rep.Postponed = len(r.later.ids)
	holding := r.guarding
	r.guarding = len(r.GuardedSources()) > 0
	if troubled || len(r.failed.of) > 0 || holding || r.guarding {
		r.notesVersion++
	}
	return rep, nil
}

// Audit reads the whole kernel, finds foreign changes, and repairs them. It blocks other
// changes meanwhile; BeginAudit and EndAudit do not.
func (r *Reconciler) Audit(ctx context.Context, now time.Time) (Report, error) {
	a := r.BeginAudit()
	for a.Read(ctx, r.kernel); r.Reread(a); {
		a.Read(ctx, r.kernel)
	}
	return r.EndAudit(ctx, now, a)
}

// EndAudit applies the result of an Audit, and repairs foreign changes. It ignores one that
// another audit has replaced.
func (r *Reconciler) EndAudit(ctx context.Context, now time.Time, a *Audit) (Report, error) {
	replaced := a != r.have.audit
	drift, err := r.finish(ctx, a)
	if replaced || err != nil {
		return Report{Postponed: len(r.later.ids)}, err
	}
	rep, err := r.Sync(ctx, now)
	rep.Drift = drift
	return rep, err
}

// Preview returns the Ops that the next Sync would apply, after a reading of the kernel. It
// applies nothing. The Reconciler is of no other use afterwards.
func (r *Reconciler) Preview(ctx context.Context, now time.Time) ([]Op, error) {
	if _, err := r.observe(ctx); err != nil {
		return nil, err
	}
	ops, _ := r.orphans.deferDeletes(r.due(now), r.model)
	return ops, nil
}

// Cleanup deletes all objects of weir from the kernel, without draining. The device stays if it
// has foreign addresses: they would be deleted with it.
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

// Adopt reads the kernel, so that Have is up to date. Sync calls it by itself; other callers
// only read.
func (r *Reconciler) Adopt(ctx context.Context) error {
	_, err := r.observe(ctx)
	return err
}

// Pending returns the number of failed Ops that are retried.
func (r *Reconciler) Pending() int { return len(r.failed.of) }

// Next returns when Sync should be called even if nothing changes; the zero time is never.
func (r *Reconciler) Next() time.Time {
	next := earliest(earliest(r.drains.nextPoll, r.failed.next()), earliest(r.routes.repair.due, r.later.next()))
	for _, g := range r.guards.of {
		next = earliest(next, g.next())
	}
	return next
}

// due plans the dirty Services and returns the Ops to apply now.
func (r *Reconciler) due(now time.Time) []Op {
	r.guards.decide(now)
	if len(r.catalog.changedVIPs) > 0 {
		r.replanBackends(r.catalog.changedVIPs)
		r.drains.dropLocal()
		r.catalog.changedVIPs = map[netip.Addr]struct{}{}
	}
	r.drains.forget()
	// In the order of the claims on objects that many of them share (state.go).
	var left []removedServer
	for _, id := range slices.SortedFunc(maps.Keys(r.dirty), ServiceID.Compare) {
		left = r.plan(id, left)
		if r.opts.Planned != nil {
			r.opts.Planned()
		}
	}
	r.dirty = map[ServiceID]struct{}{}
	// Only now: another Service may have taken over what one released.
	for _, l := range left {
		r.drains.start(l.server, now.Add(l.drain), now)
	}
	r.drains.startUnwanted(now)
	r.drains.updateStale()
	r.marks.release(r.drains.drainsMark)
	r.later.touch(r.touched)
	if r.full {
		return diff(&r.have.Table, r.want)
	}
	r.failed.due(now, r.touched)
	return diffIDs(r.touched, &r.have.Table, r.want)
}

// removedServer is a real server that a Service has had, and its drain time.
type removedServer struct {
	server RealServer
	drain  time.Duration
}

// plan plans one Service, and adds the real servers that it had before to left.
func (r *Reconciler) plan(id ServiceID, left []removedServer) []removedServer {
	owner := Owner{Service: id}
	touched := r.touched
	if r.full {
		touched = nil // every ID is compared anyway
	}
	old := r.want.fronts(owner)
	r.planned.reset()
	svc, ok := r.catalog.Get(id)
	r.marks.assign(id, svc)
	var notes []Note
	if ok {
		notes = planInto(&r.planned, svc, &r.facts)
		r.drains.times[id] = svc.Drain
	}
	if r.notes.set(id, notes) {
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

// NotesVersion changes with every Sync after which Notes may differ: if many Services have
// Notes, making them costs more than most changes.
func (r *Reconciler) NotesVersion() uint64 { return r.notesVersion }

// Have returns weir's objects in the kernel. The Table belongs to the Reconciler: read it
// before the next call, and change nothing.
func (r *Reconciler) Have() *Table { return &r.have.Table }

// Catalog returns the Services. It belongs to the Reconciler.
func (r *Reconciler) Catalog() *Catalog { return r.catalog }

// Facts returns the facts of the last plans. They belong to the Reconciler.
func (r *Reconciler) Facts() *Facts { return &r.facts }
