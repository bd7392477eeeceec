package lb

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// postponed are Ops that wait for the next passes: real servers of virtual servers that have very many (see
// Options.PerPass), and Ops that need them. The kernel takes up to a minute for 40,000, since it searches a list for
// each. Changes of other Services would wait for as long.
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

// split postpones additions to frontends that have more than limit real servers afterwards: such frontends share the
// limit, and each gets at least a quarter of it. It returns the other Ops. Both are in the order of ops: mh needs
// ascending addresses (lb/linux). A limit of 0 postpones nothing.
func (p *postponed) split(ops []Op, limit int, now time.Time, have *kernelState) []Op {
	p.at = now
	if limit == 0 {
		return ops
	}
	room := map[Frontend]int{} // at first the additions
	for _, op := range ops {
		if op.addsReal() {
			room[op.Object.(RealServer).Frontend]++
		}
	}
	maps.DeleteFunc(room, func(f Frontend, n int) bool { return n+have.servers(f) <= limit })
	if len(room) == 0 {
		return ops
	}
	share := max(limit/len(room), limit/4, 1)
	for f := range room {
		room[f] = share
	}
	return slices.DeleteFunc(ops, func(op Op) bool {
		if !op.addsReal() {
			return false
		}
		rs := op.Object.(RealServer)
		left, large := room[rs.Frontend]
		if !large {
			return false
		}
		if left > 0 {
			room[rs.Frontend]--
			return false
		}
		p.ids[rs.ID()] = struct{}{}
		p.frontends[rs.Frontend] = struct{}{}
		return true
	})
}

// has reports whether an ID is postponed.
func (p *postponed) has(id Object) bool {
	_, later := p.ids[id]
	return later
}

// postpones reports whether op, which is blocked, waits for postponed ones only. Then the next pass tries it.
func (p *pass) postpones(op Op, err error) bool {
	var other waiting
	var backend unreplaced
	later := false
	switch {
	case errors.As(err, &other):
		later = p.later.has(other.object.ID())
	case errors.As(err, &backend):
		_, later = p.later.frontends[backend.Frontend]
		later = later && !p.broken[backend.Frontend]
	}
	if later {
		p.later.ids[op.Object.ID()] = struct{}{}
	}
	return later
}

// addsReal reports whether op adds a real server.
func (op Op) addsReal() bool { return op.Verb == Add && op.Object.kind() == kindRealServer }
