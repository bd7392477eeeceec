package lb

import (
	"iter"
	"net/netip"
	"slices"
)

// ownerPlan is the objects of one owner.
type ownerPlan struct {
	owner  *Owner
	fronts []*virtual // frozen
	loops  []loop
	addrs  []addrWant // sorted
	rest   []Object
}

// addrWant are the objects of an address that an owner wants.
type addrWant struct {
	addr netip.Addr
	has  addrObjects
}

func (p *ownerPlan) empty() bool { return len(p.fronts)+len(p.loops)+len(p.addrs)+len(p.rest) == 0 }

func (p *ownerPlan) all() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for _, fr := range p.fronts {
			for o := range fr.all() {
				if !yield(o) {
					return
				}
			}
		}
		for _, l := range p.loops {
			if !yield(l.member()) {
				return
			}
		}
		for _, w := range p.addrs {
			if w.has&hasAddress != 0 && !yield(Address{w.addr}) || w.has&hasGuard != 0 && !yield(guardOf(w.addr)) {
				return
			}
		}
		for _, o := range p.rest {
			if !yield(o) {
				return
			}
		}
	}
}

// find finds an address among addrs.
func (p *ownerPlan) find(a netip.Addr) (int, bool) {
	return slices.BinarySearchFunc(p.addrs, a, func(w addrWant, a netip.Addr) int { return w.addr.Compare(a) })
}

// shares reports whether p wants an object of a loop or an address.
func (p *ownerPlan) shares(id Object, at place) bool {
	if at == inLoops {
		return slices.Contains(p.loops, id.(Member).loop())
	}
	a, bit := addrOf(id)
	i, ok := p.find(a)
	return ok && p.addrs[i].has&bit != 0
}

// get returns the object of an ID that p wants. A nil p wants nothing.
func (p *ownerPlan) get(id Object) (Object, bool) {
	if p == nil {
		return nil, false
	}
	switch at, f := locate(id); at {
	case inFront:
		return p.front(f).get(id)
	case inRest:
		i, ok := slices.BinarySearchFunc(p.rest, id, Compare)
		if !ok {
			return nil, false
		}
		return p.rest[i], true
	default:
		return id, p.shares(id, at)
	}
}

// front returns the record of a frontend, nil if p has none.
func (p *ownerPlan) front(f Frontend) *virtual {
	i, ok := slices.BinarySearchFunc(p.fronts, f, func(fr *virtual, f Frontend) int { return fr.at.Compare(f) })
	if !ok {
		return nil
	}
	return p.fronts[i]
}

// wants reports whether an ID is among the rest.
func (p *ownerPlan) wants(id Object) bool {
	_, ok := slices.BinarySearchFunc(p.rest, id, Compare)
	return ok
}

// newPlan makes the plan of an owner that had old. Equal records are those of old.
func newPlan(old *ownerPlan, objects *Table) *ownerPlan {
	p := &ownerPlan{
		owner: old.owner, fronts: make([]*virtual, 0, len(objects.fronts)), loops: make([]loop, 0, len(objects.loops)),
		addrs: make([]addrWant, 0, len(objects.addrs)), rest: make([]Object, 0, len(objects.rest)),
	}
	for _, fr := range objects.fronts {
		if before := old.front(fr.at); before != nil && before.equal(fr) {
			fr = before
		} else {
			fr.owner = p.owner
			fr.freeze()
		}
		p.fronts = append(p.fronts, fr)
	}
	for l := range objects.loops {
		p.loops = append(p.loops, l)
	}
	for a, has := range objects.addrs {
		p.addrs = append(p.addrs, addrWant{a, has})
	}
	for _, o := range objects.rest {
		p.rest = append(p.rest, o)
	}
	slices.SortFunc(p.fronts, func(a, b *virtual) int { return a.at.Compare(b.at) })
	slices.SortFunc(p.addrs, func(a, b addrWant) int { return a.addr.Compare(b.addr) })
	slices.SortFunc(p.rest, Compare)
	return p
}
