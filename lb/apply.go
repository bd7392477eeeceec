package lb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// apply carries out ops step by step and keeps have true.
func (r *Reconciler) apply(ctx context.Context, now time.Time, ops []Op, rep *Report) {
	run := run{now: now, report: rep, broken: map[Frontend]bool{}, live: map[Frontend]int{}}
	rep.Ops = slices.Grow(rep.Ops, len(ops))
	r.have = r.have.grow(len(ops))
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && ops[n].step == ops[0].step {
			n++
		}
		run.stands = Frontend{}
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
	stands Frontend          // in this step: its virtual server is there
}

func (r *Reconciler) applyStep(ctx context.Context, ops []Op, run *run) {
	for i, err := range r.kernel.Apply(ctx, ops) {
		op := ops[i]
		r.routes.touch(op.Object)
		if err != nil {
			r.fail(op, err, run)
			continue
		}
		run.report.Ops = append(run.report.Ops, op)
		id := op.Object.ID()
		pool, isPool := op.Object.(PoolRoute)
		if op.Verb == Delete {
			delete(r.have, id)
			delete(r.drains.over, id)
			delete(r.laid, pool.Prefix)
			continue
		}
		r.have[id] = op.Object
		if isPool {
			r.laid[pool.Prefix] = struct{}{}
		}
	}
}

// settled tells whether there is nothing left to do for an ID.
func (r *Reconciler) settled(id Object) bool {
	return len(diffOne(nil, id, r.have, r.want)) == 0
}

// Failed Ops are tried again after retryMin, doubling up to retryMax.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

func (r *Reconciler) fail(op Op, err error, run *run) {
	id := op.Object.ID()
	rs, isServer := op.Object.(RealServer)
	none := isServer && op.Verb == Add && rs.Weight == 0 // nobody is to connect to it
	if f, ok := frontendOf(op.Object); ok && !none {
		run.broken[f] = true
	}
	if m, ok := r.have[id].(Member); ok && m.Mark != 0 { // clients are still led there
		run.broken[MarkFrontend(m.Family(), m.Mark)] = true
	}
	f := r.failed[id]
	run.report.Failed++
	if !errors.Is(err, errWaits) && (f.err == nil || f.err.Error() != err.Error()) {
		run.report.Errors = append(run.report.Errors, fmt.Errorf("%s: %w", op, err))
	}
	f.op, f.err = op, err
	f.next = run.now.Add(min(retryMin<<min(f.tries, 10), retryMax))
	f.tries++
	r.failed[id] = f
}

// errWaits is why an Op was not even tried.
var errWaits = errors.New("waits for")

// waits tells why op must not be applied now: something it stands on does not
// hold, something still stands on it, or it would take the last working backend
// of a frontend that has just failed to get a better one.
func (r *Reconciler) waits(op Op, run *run) error {
	if err := r.waitsForBackends(op, run); err != nil {
		return err
	}
	if op.Verb == Delete {
		return r.waitsToGo(op.Object)
	}
	rs, isServer := op.Object.(RealServer)
	if isServer {
		if by := r.barred(rs); by != nil && (op.Verb == Add || rs.Weight > 0) {
			return fmt.Errorf("%w the end of %s", errWaits, by)
		}
	}
	if id := r.uncut(op.Object); id != nil {
		return fmt.Errorf("%w the end of %s", errWaits, id)
	}
	if isServer && rs.Frontend == run.stands {
		return nil
	}
	for _, id := range r.standsOn(op.Object) {
		if _, held := r.have[id]; !held {
			return fmt.Errorf("%w %s", errWaits, id)
		}
	}
	if isServer {
		run.stands = rs.Frontend
	}
	return nil
}

// waitsForBackends tells why op must not be applied now that something of its
// frontend has failed: it would leave clients without a backend, or with one that
// can't answer them.
func (r *Reconciler) waitsForBackends(op Op, run *run) error {
	if len(run.broken) == 0 {
		return nil
	}
	var alone bool
	switch o := op.Object.(type) {
	case RealServer:
		alone = (op.Verb == Delete && op.step != stepCut || op.step == stepShrink || op.step == stepDwindle) && run.broken[o.Frontend] && r.lastLive(o, run)
	case Member:
		f, _ := o.frontend()
		to := f // where it leaves clients to
		if op.Verb != Delete {
			to = MarkFrontend(o.Family(), o.Mark)
		}
		_, wanted := r.want.Get(VirtualServer{Frontend: to})
		alone = o.Set == SetInternal && run.broken[to] && wanted && r.live(to, run) == 0 ||
			op.step == stepLateKeep && run.broken[f]
	}
	if alone {
		return fmt.Errorf("%w a backend to replace it", errWaits)
	}
	return nil
}

// waitsToGo tells why an object must not be deleted now. The record of a virtual
// server outlives it, or stays until it has another record.
func (r *Reconciler) waitsToGo(o Object) error {
	for _, id := range r.standsUnder(o) {
		under, held := r.have[id]
		if !held {
			continue
		}
		stays, ok := r.want.Get(id)
		if m, lead := stays.(Member); !ok || lead && m.Set == SetInternal && stays != under {
			return fmt.Errorf("%w the end of %s", errWaits, under)
		}
		vs, ok := under.(VirtualServer)
		if ok && len(r.recorded(vs.Frontend)) == 0 {
			return fmt.Errorf("%w another record of %s", errWaits, under)
		}
	}
	return nil
}

// recorded gives the records of f that are wanted and held.
func (r *Reconciler) recorded(f Frontend) []Object {
	return slices.DeleteFunc(r.wanted(recordsOf(f)...), func(id Object) bool {
		_, held := r.have[id]
		return !held
	})
}

// lastLive tells whether rs is the last real server of its frontend that takes
// connections, and counts it out if not.
func (r *Reconciler) lastLive(rs RealServer, run *run) bool {
	old, _ := r.have[rs.ID()].(RealServer)
	if old.Weight == 0 || (rs.Weight > 0 && rs != old) {
		return false
	}
	if r.live(rs.Frontend, run) <= 1 {
		return true
	}
	run.live[rs.Frontend]--
	return false
}

// live counts the real servers of f that take connections. Reading all of have
// is fine for something that only follows a failure.
func (r *Reconciler) live(f Frontend, run *run) int {
	if n, counted := run.live[f]; counted {
		return n
	}
	run.live[f] = 0
	for _, o := range r.have {
		if x, ok := o.(RealServer); ok && x.Frontend == f && x.Weight > 0 {
			run.live[f]++
		}
	}
	return run.live[f]
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
		f, _ := o.frontend()
		set := IPSet{o.Set, o.Family()}
		switch o.Set {
		case SetIPVSPorts:
			return r.wanted(VirtualServer{Frontend: f}, Rules{FamilyOf(f.Addr)}, tuple(SetFirewall, f), tuple(SetNoLocal, f), set)
		case SetInternal:
			return r.wanted(VirtualServer{Frontend: MarkFrontend(o.Family(), o.Mark)}, set)
		case SetNoLocal:
			return r.wanted(tuple(SetInternal, f), set)
		}
		return []Object{set}
	case VirtualServer:
		return r.wanted(recordsOf(o.Frontend)...)
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

// standsUnder gives the IDs that must be gone before o may go, if they go: the
// record of what is weir's outlives what it records, and a guard what it guards.
func (r *Reconciler) standsUnder(o Object) []Object {
	switch o := o.(type) {
	case Member:
		f, _ := o.frontend()
		switch o.Set {
		case SetLoadBalancer, SetClusterIP, SetExternalIP, SetNodePorts, SetMarks:
			return []Object{VirtualServer{Frontend: f}}
		case SetIPVSIPs:
			return []Object{Address{o.Addr}}
		case SetIPVSNets:
			return []Object{PoolRoute{Prefix: o.Net}}
		case SetSourceCIDR:
			return []Object{tuple(SetFirewall, f)}
		case SetInternal:
			return []Object{tuple(SetNoLocal, f)}
		}
	case VirtualServer:
		if o.Frontend.Mark != 0 {
			return r.leads(o.Frontend)
		}
		// What is admitted and not balanced would reach a daemon of the host.
		return []Object{tuple(SetIPVSPorts, o.Frontend)}
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
