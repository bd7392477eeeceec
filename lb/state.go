package lb

import (
	"maps"
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
}

type claim struct {
	owner  *Owner // shared by all claims of one Replace
	object Object
}

// claims on one object. The first one decides its attributes; nearly always it
// is the only one. A drain never comes before a living owner.
type claims struct {
	claim
	rest []claim
}

// NewState makes a State that wants nothing.
func NewState() *State {
	return &State{objects: map[Object]claims{}, owners: map[Owner][]Object{}}
}

// Get gives the wanted object with an ID.
func (s *State) Get(id Object) (Object, bool) {
	c, ok := s.objects[id]
	return c.object, ok
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
	switch {
	case !ok:
		s.objects[id] = claims{claim: claim{owner, o}}
		touch(touched, id)
	case len(c.rest) == 0 && *c.owner == *owner:
		if c.object != o {
			s.objects[id] = claims{claim: claim{owner, o}}
			touch(touched, id)
		}
	default:
		s.put(id, c, append(c.without(owner), claim{owner, o}), touched)
	}
}

func (s *State) release(owner *Owner, id Object, touched map[Object]struct{}) {
	c := s.objects[id]
	all := c.without(owner)
	if len(all) == 0 {
		delete(s.objects, id)
		touch(touched, id)
		return
	}
	s.put(id, c, all, touched)
}

// without gives all claims but the owner's.
func (c claims) without(owner *Owner) []claim {
	all := append([]claim{c.claim}, c.rest...)
	return slices.DeleteFunc(all, func(x claim) bool { return *x.owner == *owner })
}

func (s *State) put(id Object, before claims, all []claim, touched map[Object]struct{}) {
	slices.SortFunc(all, func(a, b claim) int { return compareOwners(*a.owner, *b.owner) })
	after := claims{claim: all[0]}
	if len(all) > 1 {
		after.rest = all[1:]
	}
	s.objects[id] = after
	if after.object != before.object {
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
