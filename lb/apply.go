package lb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// pass is one application of Ops to the kernel.
type pass struct {
	*model
	kernel Kernel
	opts   *Options
	marks  *marks
	drains *drains
	routes *routes
	failed *failures

	now       time.Time
	report    *Report
	broken    map[Frontend]bool     // frontends with a failed Op in this pass, or a failed backend before it
	liveCount map[Frontend]int      // real servers with a weight, of broken ones
	present   Frontend              // the frontend of the last RealServer of this step with all it needs
	written   map[Frontend]struct{} // frontends with an applied Op
}

func newPass(r *Reconciler, now time.Time, rep *Report) *pass {
	p := &pass{
		model: r.model, kernel: r.kernel, opts: &r.opts,
		marks: &r.marks, drains: &r.drains, routes: &r.routes, failed: &r.failed,
		now: now, report: rep,
		broken: map[Frontend]bool{}, liveCount: map[Frontend]int{}, written: map[Frontend]struct{}{},
	}
	for id := range r.failed.of { // without the replacement, what it replaces stays, whichever of the two is due
		if rs, ok := id.(RealServer); ok && r.awaited(rs) {
			p.broken[rs.Frontend] = true
		}
	}
	return p
}

// apply applies ops step by step and records the results in have.
func (p *pass) apply(ctx context.Context, ops []Op) {
	p.report.Ops = slices.Grow(p.report.Ops, len(ops))
	total := len(ops)
	portion := cmp.Or(p.opts.Portion, math.MaxInt)
	for len(ops) > 0 {
		n := p.inPortion(ops, portion)
		p.present = Frontend{}
		ready := make([]Op, 0, n)
		for _, op := range ops[:n] {
			switch err := p.blocked(op); {
			case err == nil:
				ready = append(ready, op)
			case !p.postpones(op, err):
				p.fail(op, err)
			}
		}
		if len(ready) > 0 {
			p.applyStep(ctx, ready)
		}
		ops = ops[n:]
		if p.opts.Progress != nil && total > portion {
			p.opts.Progress(total-len(ops), total)
		}
	}
	for f := range p.written {
		p.have.share(&p.want.wanted, f)
	}
	p.failed.forget(p.applied)
}

// searched is how many real servers of one virtual server the kernel finds in the time that a usual Op takes:
// they are a list, and each Op on one of them goes through it (ip_vs_lookup_dest in net/netfilter/ipvs/ip_vs_ctl.c).
// On Linux 7.3 the first 5,000 took 1.5 s, and those after the first 20,000 some 1.8 ms each.
const searched = 1500

// inPortion returns how many of ops come next together: those of one step, until the portion is full. An Op on a
// real server counts as several Ops if its virtual server has thousands.
func (p *pass) inPortion(ops []Op, portion int) int {
	var last Frontend
	others, effort := 0, 0 // real servers of last
	for n, op := range ops {
		effort++
		if rs, ok := op.Object.(RealServer); ok && !p.facts.WithoutIPVS {
			if rs.Frontend != last {
				last, others = rs.Frontend, p.have.servers(rs.Frontend)
			}
			effort += others / searched
			if op.Verb == Add {
				others++
			}
		}
		if n > 0 && (effort > portion || op.step != ops[0].step) {
			return n
		}
	}
	return len(ops)
}

func (p *pass) applyStep(ctx context.Context, ops []Op) {
	for i, err := range p.kernel.Apply(ctx, ops) {
		op := ops[i]
		p.routes.touch(op.Object)
		p.have.audit.recordChange(op.Object)
		if err != nil {
			if op.Object.kind() == kindRules && !errors.Is(err, ErrEarlier) {
				p.have.record(op.Object, nil) // perhaps only some of their tables were written
			}
			p.fail(op, err)
			continue
		}
		p.report.Ops = append(p.report.Ops, op)
		if f, ok := frontendOf(op.Object); ok {
			p.written[f] = struct{}{}
		}
		if op.Verb == Delete {
			p.deleted(op.Object.ID())
			for _, id := range p.have.goneWith(op.Object) {
				p.deleted(id)
				p.touched[id] = struct{}{} // the next Sync restores a wanted one
			}
			continue
		}
		p.have.record(op.Object, op.Object)
	}
}

// deleted records that the kernel has no object of an ID any more.
func (p *pass) deleted(id Object) {
	p.have.record(id, nil)
	delete(p.drains.drained, id)
}

func (p *pass) fail(op Op, err error) {
	rs, isServer := op.Object.(RealServer)
	none := isServer && op.Verb == Add && rs.Weight == 0 // it takes no new connections
	if f, ok := frontendOf(op.Object); ok && !none {
		p.broken[f] = true
	}
	if m, ok := p.mappingOf(op.Object); ok && m.Mark != 0 { // clients are still mapped to it
		p.broken[MarkFrontend(m.Family(), m.Mark)] = true
	}
	p.report.Failed++
	if p.failed.add(op, err, p.now) {
		p.report.Errors = append(p.report.Errors, fmt.Errorf("%s: %w", op, err))
	}
}

// mappingOf returns the member of o in the kernel, if it maps to a mark.
func (p *pass) mappingOf(o Object) (Member, bool) {
	m, ok := o.(Member)
	if !ok || !m.Set.MarksPackets() {
		return Member{}, false
	}
	f, _ := m.frontend()
	return p.have.mapping(m.Set, f)
}
