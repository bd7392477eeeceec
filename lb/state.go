package lb

import (
	"maps"
	"net/netip"
	"slices"
)

// Owner is who wants an object: a Service, weir itself (the zero Owner, for what
// it needs to work at all), or the drain of a frontend.
type Owner struct {
	Service ServiceID
	// Drain is set for the owner that holds what dying connections need.
	Drain Frontend
}

func (o Owner) draining() bool { return o.Drain != Frontend{} }

// State is what is wanted: the union of the objects of all owners. An object
// stays wanted until its last owner has let go of it. The zero State is not
// usable; make one with NewState.
type State struct {
	objects map[Object]claims
	owners  map[Owner][]Object
	pools   map[netip.Prefix]struct{} // those of the PoolRoutes in objects
}

type claim struct {
	owner  *Owner // shared by all claims of one Replace
	object Object
}

// claims on one object, sorted by compareOwners. The first one decides its
// attributes, so a drain never decides before a living owner. Nearly always it is
// the only one; but the route of a pool has one claim of every Service in it.
type claims struct {
	claim
	rest []claim
}

// put adds a claim, or replaces the one of the same owner.
func (c *claims) put(x claim) {
	switch d := compareOwners(*x.owner, *c.owner); {
	case d < 0:
		c.rest = slices.Insert(c.rest, 0, c.claim)
		c.claim = x
	case d == 0:
		c.claim = x
	default:
		i, found := c.find(x.owner)
		if !found {
			c.rest = slices.Insert(c.rest, i, x)
		}
		c.rest[i] = x
	}
}

// drop takes out the claim of an owner, unless it is the last of all.
func (c *claims) drop(owner *Owner) (last bool) {
	if *c.owner == *owner {
		if len(c.rest) == 0 {
			return true
		}
		c.claim, c.rest = c.rest[0], c.rest[1:]
		return false
	}
	if i, found := c.find(owner); found {
		c.rest = slices.Delete(c.rest, i, i+1)
	}
	return false
}

// find finds an owner among the rest.
func (c *claims) find(owner *Owner) (int, bool) {
	return slices.BinarySearchFunc(c.rest, owner, func(x claim, o *Owner) int { return compareOwners(*x.owner, *o) })
}

// NewState makes a State that wants nothing.
func NewState() *State {
	return &State{objects: map[Object]claims{}, owners: map[Owner][]Object{}, pools: map[netip.Prefix]struct{}{}}
}

// Get gives the wanted object with an ID.
func (s *State) Get(id Object) (Object, bool) {
	c, ok := s.objects[id]
	return c.object, ok
}

// takes tells whether an address is to be the box's own, by itself or in a pool.
func (s *State) takes(a netip.Addr) bool {
	for prefix := range s.pools {
		if prefix.Contains(a) {
			return true
		}
	}
	_, ok := s.objects[Address{a}]
	return ok
}

// Objects gives what an owner wants. The slice belongs to the State.
func (s *State) Objects(owner Owner) []Object { return s.owners[owner] }

// grow makes room for so many objects, if it is much more than there is.
func (s *State) grow(n int) {
	if n < 2*len(s.objects) {
		return
	}
	objects := make(map[Object]claims, n)
	maps.Copy(objects, s.objects)
	s.objects = objects
}

// Len is the number of different objects that are wanted.
func (s *State) Len() int { return len(s.objects) }

// Snapshot copies what is wanted.
func (s *State) Snapshot() Snapshot {
	out := make(Snapshot, len(s.objects))
	for id, c := range s.objects {
		out[id] = c.object
	}
	return out
}

// Replace makes objects all that owner wants, and adds the IDs of those that are
// wanted otherwise than before to touched, unless that is nil. No two objects may
// have the same ID. The State keeps the slice.
func (s *State) Replace(owner Owner, objects []Object, touched map[Object]struct{}) {
	old := s.owners[owner]
	for _, o := range objects {
		s.claim(&owner, o, touched)
	}
	if len(objects) == 0 {
		delete(s.owners, owner)
	} else {
		s.owners[owner] = objects
	}
	if len(old) == 0 {
		return
	}
	keep := make(map[Object]struct{}, len(objects))
	for _, o := range objects {
		keep[o.ID()] = struct{}{}
	}
	for _, o := range old {
		if _, ok := keep[o.ID()]; !ok {
			s.release(&owner, o.ID(), touched)
		}
	}
}

func (s *State) claim(owner *Owner, o Object, touched map[Object]struct{}) {
	id := o.ID()
	c, ok := s.objects[id]
	if !ok {
		s.objects[id] = claims{claim: claim{owner, o}}
		if pool, is := o.(PoolRoute); is {
			s.pools[pool.Prefix] = struct{}{}
		}
		touch(touched, id)
		return
	}
	before := c.object
	c.put(claim{owner, o})
	s.set(id, c, before, touched)
}

func (s *State) release(owner *Owner, id Object, touched map[Object]struct{}) {
	c := s.objects[id]
	before := c.object
	if c.drop(owner) {
		delete(s.objects, id)
		if pool, is := id.(PoolRoute); is {
			delete(s.pools, pool.Prefix)
		}
		touch(touched, id)
		return
	}
	s.set(id, c, before, touched)
}

func (s *State) set(id Object, c claims, before Object, touched map[Object]struct{}) {
	s.objects[id] = c
	if c.object != before {
		touch(touched, id)
	}
}

func touch(touched map[Object]struct{}, id Object) {
	if touched != nil {
		touched[id] = struct{}{}
	}
}

// compareOwners puts the living before drains, and is otherwise arbitrary but
// total, so that State does not depend on the order of its input.
func compareOwners(a, b Owner) int {
	if a.draining() != b.draining() {
		if a.draining() {
			return 1
		}
		return -1
	}
	if c := a.Service.Compare(b.Service); c != 0 {
		return c
	}
	return a.Drain.Compare(b.Drain)
}
