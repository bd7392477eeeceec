package lb

import (
	"cmp"
	"net/netip"
	"slices"
)

// Owner is an owner of objects: a Service, weir itself (the zero Owner, for the base objects),
// or the drain of a frontend.
type Owner struct {
	Service ServiceID
	// Drain is set for the owner of the objects that draining connections need.
	Drain Frontend
}

func (o Owner) draining() bool { return o.Drain != Frontend{} }

// State is the wanted state: the union of the objects of all owners. An object stays wanted
// until its last owner has released it. The zero State is not usable; make one with NewState.
//
// A frontend nearly always has one owner, and the State shares that owner's record. Owners of
// other objects are counted.
type State struct {
	wanted Table
	owners map[Owner]*ownerPlan
	addrs  map[netip.Addr]addrOwners
	claims map[Object]claims         // on the other objects
	pools  map[netip.Prefix]struct{} // those of the PoolRoutes in wanted
}

// addrOwners is the number of owners of each object of an address.
type addrOwners struct{ address, guard int32 }

// NewState makes a State that wants nothing.
func NewState() *State {
	return &State{
		owners: map[Owner]*ownerPlan{}, addrs: map[netip.Addr]addrOwners{}, claims: map[Object]claims{}, pools: map[netip.Prefix]struct{}{},
		wanted: Table{fronts: map[Frontend]*virtual{}, loops: map[loop]uint32{}},
	}
}

// Get returns the wanted object with an ID.
func (s *State) Get(id Object) (Object, bool) { return s.wanted.Get(id) }

// Has reports whether the object with an ID is wanted.
func (s *State) Has(id Object) bool { return s.wanted.Has(id) }

// makesLocal reports whether an address is wanted on the box, by itself or in a pool.
func (s *State) makesLocal(a netip.Addr) bool {
	for prefix := range s.pools {
		if prefix.Contains(a) {
			return true
		}
	}
	return s.wanted.addrs[a]&hasAddress != 0
}

// Objects returns the objects of an owner, each ID once.
func (s *State) Objects(owner Owner) []Object {
	if p := s.owners[owner]; p != nil {
		return slices.Collect(p.all())
	}
	return nil
}

// fronts returns the records of an owner. They belong to the State.
func (s *State) fronts(owner Owner) []*virtual {
	if p := s.owners[owner]; p != nil {
		return p.fronts
	}
	return nil
}

// first returns the owner that decides the attributes of an object, nil if there is none. For a
// loop or an object of an address it searches all owners.
func (s *State) first(id Object) *Owner {
	switch at, f := locate(id); at {
	case inFront:
		fr := s.wanted.fronts[f]
		if !fr.has(id) {
			return nil
		}
		for _, c := range fr.claims {
			if c.has(id) {
				return c.owner
			}
		}
		return fr.owner
	case inLoops, inAddrs:
		return s.firstOf(map[Object]struct{}{id.ID(): {}})[id.ID()]
	}
	return s.claims[id.ID()].owner
}

// firstOf returns the deciding owners of IDs, if these are loops or objects of an address. It
// searches all owners once.
func (s *State) firstOf(ids map[Object]struct{}) map[Object]*Owner {
	loops, addrs := map[loop]bool{}, map[netip.Addr]bool{}
	for id := range ids {
		switch at, _ := locate(id); at {
		case inLoops:
			loops[id.(Member).loop()] = true
		case inAddrs:
			a, _ := addrOf(id)
			addrs[a] = true
		}
	}
	out := map[Object]*Owner{}
	if len(loops)+len(addrs) == 0 {
		return out
	}
	offer := func(id Object, owner *Owner) {
		if _, asked := ids[id]; asked && (out[id] == nil || compareOwners(*owner, *out[id]) < 0) {
			out[id] = owner
		}
	}
	for _, p := range s.owners {
		for _, l := range p.loops {
			if loops[l] {
				offer(l.member(), p.owner)
			}
		}
		for _, w := range p.addrs {
			if !addrs[w.addr] {
				continue
			}
			if w.has&hasAddress != 0 {
				offer(Address{w.addr}, p.owner)
			}
			if w.has&hasGuard != 0 {
				offer(guardOf(w.addr), p.owner)
			}
		}
	}
	return out
}

// allOf returns the owners of an object, in their order.
func (s *State) allOf(id Object) (out []*Owner) {
	at, f := locate(id)
	switch at {
	case inFront:
		if fr := s.wanted.fronts[f]; fr.has(id) && fr.claims == nil {
			return []*Owner{fr.owner}
		} else if fr != nil {
			for _, c := range fr.claims {
				if c.has(id) {
					out = append(out, c.owner)
				}
			}
		}
		return out
	case inLoops, inAddrs:
		for _, p := range s.owners {
			if p.shares(id, at) {
				out = append(out, p.owner)
			}
		}
		slices.SortFunc(out, func(a, b *Owner) int { return compareOwners(*a, *b) })
		return out
	}
	c, ok := s.claims[id.ID()]
	if !ok {
		return nil
	}
	out = append(out, c.owner)
	for _, x := range c.rest {
		out = append(out, x.owner)
	}
	return out
}

// wantedByService reports whether an owner that is no drain wants the object. A drain wants no
// loop.
func (s *State) wantedByService(id Object) bool {
	if at, _ := locate(id); at == inLoops {
		return s.Has(id)
	}
	owner := s.first(id)
	return owner != nil && !owner.draining()
}

// Len is the number of different objects that are wanted.
func (s *State) Len() int { return s.wanted.Len() }

// Snapshot copies what is wanted.
func (s *State) Snapshot() Snapshot { return s.wanted.Snapshot() }

// Replace sets the objects of owner, and adds the IDs that are wanted differently than before
// to touched, unless that is nil. No two objects may have the same ID.
func (s *State) Replace(owner Owner, objects []Object, touched map[Object]struct{}) {
	s.replace(owner, NewTable(objects...), touched)
}

// replace is Replace by the objects of a Table. The State keeps its records.
func (s *State) replace(owner Owner, objects *Table, touched map[Object]struct{}) {
	old, known := s.owners[owner]
	if !known {
		old = &ownerPlan{owner: &owner}
	}
	p := newPlan(old, objects)
	if !known && p.empty() {
		return
	}
	for _, fr := range p.fronts {
		if before := old.front(fr.at); before != fr {
			s.claimFront(before, fr, touched)
		}
	}
	for _, before := range old.fronts {
		if p.front(before.at) == nil {
			s.claimFront(before, nil, touched)
		}
	}
	for _, o := range p.rest {
		s.claim(p.owner, o, touched)
	}
	for _, o := range old.rest {
		if !p.wants(o) {
			s.release(p.owner, o.ID(), touched)
		}
	}
	for _, w := range p.addrs {
		s.count(w, 1, touched)
	}
	for _, w := range old.addrs {
		s.count(w, -1, touched)
	}
	for _, l := range p.loops {
		n := s.wanted.loops[l]
		if setLoop(&s.wanted, l, n+1); n == 0 && touched != nil {
			touch(touched, l.member())
		}
	}
	for _, l := range old.loops {
		n := s.wanted.loops[l]
		if setLoop(&s.wanted, l, n-1); n == 1 && touched != nil {
			touch(touched, l.member())
		}
	}
	if p.empty() {
		delete(s.owners, owner)
	} else {
		s.owners[owner] = p
	}
}

// count adds n, 1 or -1, to the owners of the objects of w.
func (s *State) count(w addrWant, n int32, touched map[Object]struct{}) {
	before := s.addrs[w.addr]
	of := before
	if w.has&hasAddress != 0 {
		of.address += n
	}
	if w.has&hasGuard != 0 {
		of.guard += n
	}
	if (before.address == 0) != (of.address == 0) {
		s.toggle(Address{w.addr}, of.address > 0, touched)
	}
	if (before.guard == 0) != (of.guard == 0) {
		s.toggle(guardOf(w.addr), of.guard > 0, touched)
	}
	if s.addrs[w.addr] = of; of == (addrOwners{}) {
		delete(s.addrs, w.addr)
	}
}

// toggle makes an object wanted or unwanted.
func (s *State) toggle(id Object, wanted bool, touched map[Object]struct{}) {
	if wanted {
		s.wanted.Put(id)
	} else {
		s.wanted.Delete(id)
	}
	touch(touched, id)
}

func (s *State) claim(owner *Owner, o Object, touched map[Object]struct{}) {
	id := o.ID()
	if id == o {
		id = o // not another copy of it in memory
	}
	c, ok := s.claims[id]
	if !ok {
		s.claims[id] = claims{claim: claim{owner, o}}
		if pool, is := o.(PoolRoute); is {
			s.pools[pool.Prefix] = struct{}{}
		}
		s.wanted.Put(o)
		touch(touched, id)
		return
	}
	before := c.object
	c.put(claim{owner, o})
	s.set(id, c, before, touched)
}

func (s *State) release(owner *Owner, id Object, touched map[Object]struct{}) {
	c := s.claims[id]
	before := c.object
	if c.drop(owner) {
		delete(s.claims, id)
		if pool, is := id.(PoolRoute); is {
			delete(s.pools, pool.Prefix)
		}
		s.wanted.Delete(id)
		touch(touched, id)
		return
	}
	s.set(id, c, before, touched)
}

func (s *State) set(id Object, c claims, before Object, touched map[Object]struct{}) {
	s.claims[id] = c
	if c.object != before {
		s.wanted.Put(c.object)
		touch(touched, id)
	}
}

// claimFront replaces before by after, the records of one owner of a frontend, nil if there is
// none.
func (s *State) claimFront(before, after *virtual, touched map[Object]struct{}) {
	f := cmp.Or(before, after).at
	was := s.wanted.fronts[f]
	var claims []*virtual
	if was != nil && was.claims == nil {
		claims = []*virtual{was}
	} else if was != nil {
		claims = slices.Clone(was.claims)
	}
	claims = slices.DeleteFunc(claims, func(fr *virtual) bool { return fr == before })
	if after != nil {
		claims = append(claims, after)
	}
	var now *virtual
	switch len(claims) {
	case 0:
		delete(s.wanted.fronts, f)
	case 1:
		now = claims[0]
		s.wanted.fronts[f] = now
	default:
		slices.SortFunc(claims, func(a, b *virtual) int { return compareOwners(*a.owner, *b.owner) })
		now = mergeFronts(claims)
		s.wanted.fronts[f] = now
	}
	if touched == nil {
		return
	}
	was.differ(now, func(mine, theirs Object) { touch(touched, cmp.Or(mine, theirs).ID()) })
}

func touch(touched map[Object]struct{}, id Object) {
	if touched != nil {
		touched[id] = struct{}{}
	}
}
