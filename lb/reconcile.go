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
	// Exclude, Pools: see Facts.
	Exclude []netip.Prefix
	Pools   []PoolRoute
	// Drain is for real servers that are found unwanted at the start, when their
	// Service is not known any more.
	Drain time.Duration
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

	have    Snapshot // what the kernel holds of ours, as last read or written
	adopted bool     // have has been read at least once

	dirty   map[ServiceID]struct{} // Services to plan again
	touched map[Object]struct{}    // IDs where have and want may differ
	full    bool                   // any ID may differ
	failed  map[Object]failure
	drains  drains
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
	// brought back if nothing is in Errors.
	Drift []Object
	// Errors has one error for each Op that failed or has to wait for one that
	// failed. They are tried again by later Syncs.
	Errors []error
	// Held is how many deletions wait for a source that has not synced.
	Held int
}

// NewReconciler makes a Reconciler that waits for the given sources before it
// deletes anything.
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
	}
	r.facts.Taken = map[Frontend]ServiceID{}
	r.Configure(opts)
	return r
}

// Configure changes the options. What differs is applied by the next Sync.
func (r *Reconciler) Configure(opts Options) {
	r.opts = opts
	r.facts.Exclude, r.facts.Pools = opts.Exclude, opts.Pools
	r.want.Replace(Owner{}, opts.Base.Objects(), r.touched)
	for _, id := range r.catalog.IDs() {
		r.dirty[id] = struct{}{}
	}
}

// Update takes in what a source says.
func (r *Reconciler) Update(u Update) {
	before := r.catalog.Synced()
	r.catalog.Apply(u, r.facts.Taken, r.dirty)
	if !before && r.catalog.Synced() {
		r.full = true
	}
}

// SetHealth takes in the verdicts of all Services that have checks.
func (r *Reconciler) SetHealth(health map[ServiceID]Health) {
	for id := range r.facts.Health {
		if _, ok := health[id]; !ok {
			r.dirty[id] = struct{}{}
		}
	}
	for id, h := range health {
		old, ok := r.facts.Health[id]
		if !ok || !maps.Equal(old.Down, h.Down) || !maps.Equal(old.Lost, h.Lost) {
			r.dirty[id] = struct{}{}
		}
	}
	r.facts.Health = health
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
	ops := r.pending(now)
	r.touched = map[Object]struct{}{}
	r.full = false
	ops, rep.Held = r.hold(ops)
	r.apply(ctx, now, ops, &rep)
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
	ops, _ := r.hold(r.pending(now))
	return ops, nil
}

// Cleanup takes everything that is weir's out of the kernel, without draining.
func (r *Reconciler) Cleanup(ctx context.Context, now time.Time) (Report, error) {
	var rep Report
	if _, err := r.observe(ctx); err != nil {
		return rep, err
	}
	r.want = NewState()
	r.apply(ctx, now, Diff(r.have, r.want), &rep)
	return rep, nil
}

// Next is when Sync should be called again even if nothing changes; the zero
// time if never.
func (r *Reconciler) Next() time.Time {
	next := r.drains.next
	for _, f := range r.failed {
		if next.IsZero() || f.next.Before(next) {
			next = f.next
		}
	}
	return next
}

// pending plans what is dirty and gives the Ops that are due.
func (r *Reconciler) pending(now time.Time) []Op {
	for id := range r.dirty {
		r.plan(id, now)
	}
	r.dirty = map[ServiceID]struct{}{}
	if r.full {
		r.drainUnwanted(now)
		return Diff(r.have, r.want)
	}
	for id, f := range r.failed {
		if !f.next.After(now) {
			r.touched[id] = struct{}{}
		}
	}
	return diffIDs(r.touched, r.have, r.want)
}

// plan plans one Service, and starts to drain the real servers it no longer
// wants.
func (r *Reconciler) plan(id ServiceID, now time.Time) {
	owner := Owner{Service: id}
	old := r.want.Objects(owner)
	svc, ok := r.catalog.Get(id)
	if !ok {
		delete(r.notes, id)
		r.want.Replace(owner, nil, r.touched)
	} else {
		objects, notes := Plan(svc, &r.facts)
		r.notes[id] = notes
		r.drains.times[id] = svc.Drain
		r.want.Replace(owner, objects, r.touched)
	}
	for _, o := range old {
		if rs, isServer := o.(RealServer); isServer {
			r.drain(rs, now.Add(r.drains.times[id]), now)
		}
	}
	if !ok {
		delete(r.drains.times, id)
	}
}

// observe reads the kernel into have, finds the strangers and gives the objects
// that are not as weir left them.
func (r *Reconciler) observe(ctx context.Context) ([]Object, error) {
	obs, err := r.kernel.Observe(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the kernel: %w", err)
	}
	ours, strangers := r.sortOut(obs.Objects)
	var drift []Object
	if r.adopted {
		for id, o := range r.have {
			if got, ok := ours[id]; !ok || got != o {
				drift = append(drift, o)
			}
		}
		for id, o := range ours {
			if _, ok := r.have[id]; !ok {
				drift = append(drift, o)
			}
		}
		slices.SortFunc(drift, Compare)
	}
	r.have, r.adopted, r.full = ours, true, true
	r.meet(strangers, obs.HostAddrs)
	return drift, nil
}

// meet takes in strangers' virtual servers and the box's own addresses, and
// plans the Services again that they concern.
func (r *Reconciler) meet(strangers map[Frontend]bool, hosts map[netip.Addr]string) {
	concerned := func(f Frontend) bool {
		return strangers[f] != r.facts.Strangers[f] || hosts[f.Addr] != r.facts.HostAddrs[f.Addr]
	}
	if !maps.Equal(strangers, r.facts.Strangers) || !maps.Equal(hosts, r.facts.HostAddrs) {
		for id, svc := range r.catalog.services {
			if slices.ContainsFunc(svc.Frontends(), concerned) {
				r.dirty[id] = struct{}{}
			}
		}
	}
	r.facts.Strangers, r.facts.HostAddrs = strangers, hosts
}

// sortOut parts what is weir's from what is not, as the package comment says
// under Ownership.
func (r *Reconciler) sortOut(objects Snapshot) (ours Snapshot, strangers map[Frontend]bool) {
	ours, strangers = make(Snapshot, len(objects)), map[Frontend]bool{}
	for id, o := range objects {
		switch o := o.(type) {
		case VirtualServer:
			if !r.owns(o.Frontend, objects) {
				strangers[o.Frontend] = true
				continue
			}
		case RealServer:
			if !r.owns(o.Frontend, objects) {
				continue
			}
		case Address:
			if _, recorded := objects[Member{Set: SetIPVSIPs, Addr: o.Addr}]; !recorded && !r.knows(id) {
				continue
			}
		}
		ours[id] = o
	}
	return ours, strangers
}

// knows tells whether this process has written the object or wants it.
func (r *Reconciler) knows(id Object) bool {
	if _, ok := r.have[id]; ok {
		return true
	}
	_, ok := r.want.Get(id)
	return ok
}

// owns tells whether the virtual server at f is weir's.
func (r *Reconciler) owns(f Frontend, objects Snapshot) bool {
	if slices.ContainsFunc(r.opts.Exclude, func(n netip.Prefix) bool { return n.Contains(f.Addr) }) {
		return false
	}
	for _, s := range []Set{SetLoadBalancer, SetClusterIP} {
		if _, ok := objects[tuple(s, f)]; ok {
			return true
		}
	}
	if _, ok := r.have[VirtualServer{Frontend: f}]; ok {
		return true
	}
	if f == anchorFrontend(FamilyOf(f.Addr)) {
		return true
	}
	// The sets have been flushed while no weir was running: what is wanted and
	// stands on weir's own device can only be weir's.
	_, onDevice := objects[Address{f.Addr}]
	return onDevice && r.claimed(f)
}

// claimed tells whether a Service wants f.
func (r *Reconciler) claimed(f Frontend) bool { return len(r.catalog.Claimants(f)) > 0 }

// hold takes the deletions out of ops while a source has not synced: what it
// would want is not known yet.
func (r *Reconciler) hold(ops []Op) ([]Op, int) {
	if r.catalog.Synced() {
		return ops, 0
	}
	n := len(ops)
	ops = slices.DeleteFunc(ops, func(op Op) bool { return op.Verb == Delete })
	return ops, n - len(ops)
}

// apply carries out ops step by step and keeps have true.
func (r *Reconciler) apply(ctx context.Context, now time.Time, ops []Op, rep *Report) {
	run := run{now: now, report: rep, broken: map[Frontend]bool{}, live: map[Frontend]int{}}
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && ops[n].step == ops[0].step {
			n++
		}
		ready := make([]Op, 0, n)
		for _, op := range ops[:n] {
			if err := r.waits(op, &run); err != nil {
				r.fail(op, err, &run)
				continue
			}
			ready = append(ready, op)
		}
		if len(ready) > 0 {
			r.applyStep(ctx, ready, &run)
		}
		ops = ops[n:]
	}
	for id := range r.failed {
		if r.settled(id) {
			delete(r.failed, id)
		}
	}
}

// run is one pass of apply.
type run struct {
	now    time.Time
	report *Report
	broken map[Frontend]bool // something of it failed in this run
	live   map[Frontend]int  // real servers with a weight, for broken ones
}

func (r *Reconciler) applyStep(ctx context.Context, ops []Op, run *run) {
	for i, err := range r.kernel.Apply(ctx, ops) {
		op := ops[i]
		if err != nil {
			r.fail(op, err, run)
			continue
		}
		run.report.Ops = append(run.report.Ops, op)
		id := op.Object.ID()
		if op.Verb == Delete {
			delete(r.have, id)
			delete(r.drains.over, id)
		} else {
			r.have[id] = op.Object
		}
	}
}

func (r *Reconciler) settled(id Object) bool {
	want, wanted := r.want.Get(id)
	have, held := r.have[id]
	return wanted == held && want == have
}

// Failed Ops are tried again after retryMin, doubling up to retryMax.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

func (r *Reconciler) fail(op Op, err error, run *run) {
	id := op.Object.ID()
	if f, ok := frontendOf(op.Object); ok {
		run.broken[f] = true
	}
	f := r.failed[id]
	f.op, f.err = op, err
	f.next = run.now.Add(min(retryMin<<min(f.tries, 10), retryMax))
	f.tries++
	r.failed[id] = f
	run.report.Errors = append(run.report.Errors, fmt.Errorf("%s: %w", op, err))
}

// errWaits is why an Op was not even tried.
var errWaits = errors.New("waits for")

// waits tells why op must not be applied now: something it stands on does not
// hold, something still stands on it, or it would take the last working backend
// of a frontend that has just failed to get a better one.
func (r *Reconciler) waits(op Op, run *run) error {
	if rs, ok := op.Object.(RealServer); ok && (op.Verb == Delete || op.step == stepShrink) {
		if run.broken[rs.Frontend] && r.lastLive(rs, run) {
			return fmt.Errorf("%w a backend to replace it", errWaits)
		}
	}
	if op.Verb == Delete {
		for _, id := range standsUnder(op.Object) {
			if o, held := r.have[id]; held {
				return fmt.Errorf("%w the end of %s", errWaits, o)
			}
		}
		return nil
	}
	for _, id := range r.standsOn(op.Object) {
		if _, held := r.have[id]; !held {
			return fmt.Errorf("%w %s", errWaits, id)
		}
	}
	return nil
}

// lastLive tells whether rs is the last real server of its frontend that takes
// connections, and counts it out if not. Reading all of have is fine for
// something that only follows a failure.
func (r *Reconciler) lastLive(rs RealServer, run *run) bool {
	old, _ := r.have[rs.ID()].(RealServer)
	if old.Weight == 0 || (rs.Weight > 0 && rs != old) {
		return false
	}
	if _, counted := run.live[rs.Frontend]; !counted {
		run.live[rs.Frontend] = 0
		for _, o := range r.have {
			if x, ok := o.(RealServer); ok && x.Frontend == rs.Frontend && x.Weight > 0 {
				run.live[rs.Frontend]++
			}
		}
	}
	if run.live[rs.Frontend] <= 1 {
		return true
	}
	run.live[rs.Frontend]--
	return false
}

// standsOn gives the IDs that must hold before o may be there.
func (r *Reconciler) standsOn(o Object) []Object {
	switch o := o.(type) {
	case Rules:
		var sets []Object
		for _, s := range Sets() {
			sets = append(sets, IPSet{s, o.Family})
		}
		return sets
	case Member:
		if o.Set != SetIPVSPorts {
			return []Object{IPSet{o.Set, o.Family()}}
		}
		f, _ := o.frontend()
		return r.wanted(VirtualServer{Frontend: f}, Rules{FamilyOf(f.Addr)}, tuple(SetFirewall, f), IPSet{o.Set, o.Family()})
	case VirtualServer:
		return r.wanted(tuple(SetLoadBalancer, o.Frontend), tuple(SetClusterIP, o.Frontend))
	case RealServer:
		return []Object{VirtualServer{Frontend: o.Frontend}}
	case Address:
		return r.wanted(Device{r.opts.Base.Device}, Rules{FamilyOf(o.Addr)}, Member{Set: SetIPVSIPs, Addr: o.Addr})
	case PoolRoute:
		return r.wanted(Device{r.opts.Base.Device}, Rules{FamilyOf(o.Prefix.Addr())}, Member{Set: SetIPVSNets, Net: o.Prefix})
	}
	return nil
}

// wanted gives those of ids that are wanted.
func (r *Reconciler) wanted(ids ...Object) []Object {
	return slices.DeleteFunc(ids, func(id Object) bool {
		_, ok := r.want.Get(id)
		return !ok
	})
}

// standsUnder gives the IDs that must be gone before o may go: the record of
// what is weir's outlives what it records.
func standsUnder(o Object) []Object {
	switch o := o.(type) {
	case Member:
		if f, ok := o.frontend(); ok && (o.Set == SetLoadBalancer || o.Set == SetClusterIP) {
			return []Object{VirtualServer{Frontend: f}}
		}
		if o.Set == SetIPVSIPs {
			return []Object{Address{o.Addr}}
		}
		if o.Set == SetIPVSNets {
			return []Object{PoolRoute{Prefix: o.Net}}
		}
	case IPSet:
		return []Object{Rules{o.Family}}
	}
	return nil
}

// frontendOf gives the frontend that an object serves, if it serves just one.
func frontendOf(o Object) (Frontend, bool) {
	switch o := o.(type) {
	case VirtualServer:
		return o.Frontend, true
	case RealServer:
		return o.Frontend, true
	case Member:
		return o.frontend()
	}
	return Frontend{}, false
}

// Notes gives what could not be done, sorted.
func (r *Reconciler) Notes() []Note {
	var out []Note
	for _, notes := range r.notes {
		out = append(out, notes...)
	}
	for id, f := range r.failed {
		if c, ok := r.want.objects[id]; ok && !c.owner.draining() {
			out = append(out, Note{c.owner.Service, Failed, fmt.Sprintf("%s: %v", f.op, f.err)})
		}
	}
	return sortNotes(out)
}

// Have is what the kernel holds of weir's. The Snapshot belongs to the
// Reconciler: read it before the next call.
func (r *Reconciler) Have() Snapshot { return r.have }

// Catalog gives the Services. It belongs to the Reconciler.
func (r *Reconciler) Catalog() *Catalog { return r.catalog }

// Facts are what the last plans were made with. They belong to the Reconciler.
func (r *Reconciler) Facts() *Facts { return &r.facts }
