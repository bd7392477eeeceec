package lb

import "slices"

// claim is an object that an owner wants.
type claim struct {
	owner  *Owner // shared by all claims of one owner
	object Object
}

// claims on one object, sorted by compareOwners. The first one decides its attributes, so a
// drain never decides before a Service. Nearly always there is only one; but the route of a
// pool has one claim of every Service in it.
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

// drop removes the claim of an owner, unless it is the last of all.
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

// compareOwners orders Services before drains, and is otherwise arbitrary but total, so that
// State does not depend on the order of its input.
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
