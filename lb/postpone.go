package lb

import (
	"errors"
	"time"
)

// postponed are Ops that the next pass applies: real servers, beyond Options.PerPass, of virtual servers that get very
// many at a time, and Ops that wait for them. The kernel takes a minute for 40,000 (searched), and changes of other
// Services would wait for as long.
type postponed struct {
	ids       map[Object]struct{}
	frontends map[Frontend]struct{} // those with postponed real servers
	at        time.Time             // of the pass that postponed them
}

// touch adds the IDs to those that a pass compares, and forgets them.
func (p *postponed) touch(touched map[Object]struct{}) {
	for id := range p.ids {
		touched[id] = struct{}{}
	}
	*p = postponed{ids: map[Object]struct{}{}, frontends: map[Frontend]struct{}{}, at: p.at}
}

// next returns the time from which the next pass is due; zero is never.
func (p *postponed) next() time.Time {
	if len(p.ids) == 0 {
		return time.Time{}
	}
	return p.at
}

// split postpones additions of real servers if a frontend has more than limit of them, and returns the other Ops in
// their order. Real servers with a weight come first: whatever is removed meanwhile, the frontend has as many that
// take connections. A limit of 0 postpones nothing.
func (p *postponed) split(ops []Op, limit int, now time.Time) []Op {
	p.at = now
	room := map[Frontend]int{}
	for _, op := range ops {
		if op.addsReal() {
			room[op.Object.(RealServer).Frontend]++
		}
	}
	for f, n := range room {
		if room[f] = limit; limit == 0 || n <= limit {
			delete(room, f)
		} else {
			p.frontends[f] = struct{}{}
		}
	}
	if len(room) == 0 {
		return ops
	}
	for _, live := range []bool{true, false} {
		for _, op := range ops {
			if !op.addsReal() {
				continue
			}
			rs := op.Object.(RealServer)
			n, large := room[rs.Frontend]
			if !large || (rs.Weight > 0) != live {
				continue
			}
			if n == 0 {
				p.ids[rs.ID()] = struct{}{}
			} else {
				room[rs.Frontend]--
			}
		}
	}
	kept := ops[:0]
	for _, op := range ops {
		if _, later := p.ids[op.Object.ID()]; !later {
			kept = append(kept, op)
		}
	}
	return kept
}

// causes reports whether an Op with the error of blocked waits for a postponed one.
func (p *postponed) causes(err error) bool {
	var w waiting
	if errors.As(err, &w) {
		_, later := p.ids[w.object.ID()]
		return later
	}
	return len(p.frontends) > 0 && errors.Is(err, errReplacement)
}

// addsReal reports whether op adds a real server.
func (op Op) addsReal() bool { return op.Verb == Add && op.Object.kind() == kindRealServer }
