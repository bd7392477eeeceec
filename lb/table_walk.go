package lb

import (
	"iter"
	"net/netip"
	"slices"
)

// All returns all objects, in no order.
func (t *Table) All() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		if t == nil {
			return
		}
		t.resolve()
		for _, fr := range t.fronts {
			for o := range fr.all() {
				if !yield(o) {
					return
				}
			}
		}
		for o := range t.shared() {
			if !yield(o) {
				return
			}
		}
	}
}

// shared returns the objects that are not in a frontend's record.
func (t *Table) shared() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for a, has := range t.addrs {
			if has&hasAddress != 0 && !yield(Address{a}) || has&hasGuard != 0 && !yield(guardOf(a)) {
				return
			}
		}
		for l := range t.loops {
			if !yield(l.member()) {
				return
			}
		}
		for _, o := range t.rest {
			if !yield(o) {
				return
			}
		}
	}
}

// Of returns the objects of one frontend, in their order.
func (t *Table) Of(f Frontend) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		if t.resolve(); t != nil && t.fronts[f] != nil {
			t.fronts[f].all()(yield)
		}
	}
}

// RealServers returns all real servers, in no order.
func (t *Table) RealServers() iter.Seq[RealServer] {
	return func(yield func(RealServer) bool) {
		t.resolve()
		for f, fr := range t.fronts {
			for _, r := range fr.reals {
				if !yield(r.server(f)) {
					return
				}
			}
		}
	}
}

// Mappings returns the members of SetInternal and SetGroup, in no order.
func (t *Table) Mappings() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		t.resolve()
		for _, v := range t.fronts {
			for _, s := range mappingSets {
				if v.in(s) && !yield(v.member(s)) {
					return
				}
			}
		}
	}
}

// membersOf returns the IDs of the members of some sets, in no order.
func membersOf(t *Table, sets map[IPSet]bool) (out []Object) {
	if len(sets) == 0 {
		return nil
	}
	t.resolve()
	for _, v := range t.fronts {
		for m := range v.tuples() {
			if sets[IPSet{m.Set, m.Family()}] {
				out = append(out, m.ID())
			}
		}
	}
	for o := range t.shared() {
		if m, ok := o.(Member); ok && sets[IPSet{m.Set, m.Family()}] {
			out = append(out, m.ID())
		}
	}
	return out
}

// OnLinks returns the objects on network interfaces: devices, addresses and routes, in no
// order.
func (t *Table) OnLinks() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for a, has := range t.addrs {
			if has&hasAddress != 0 && !yield(Address{a}) {
				return
			}
		}
		for id, o := range t.rest {
			switch id.kind() {
			case kindDevice, kindPoolRoute, kindUnreachable, kindTunnelDevice:
				if !yield(o) {
					return
				}
			}
		}
	}
}

// differ calls yield for each ID in which t and u differ, with the object of each, nil if it
// has none. From then on t shares the records of u that are equal. What u has of frontends comes
// in their order, of which a sort makes use; the other order is arbitrary.
func (t *Table) differ(u *Table, yield func(mine, theirs Object)) {
	t.resolve()
	u.resolve()
	var unequal []Frontend
	for f, theirs := range u.fronts {
		if mine := t.fronts[f]; mine == nil || mine != theirs && !mine.equal(theirs) {
			unequal = append(unequal, f)
		} else if mine != theirs {
			t.fronts[f] = theirs.share()
		}
	}
	slices.SortFunc(unequal, Frontend.Compare)
	for _, f := range unequal {
		t.fronts[f].differ(u.fronts[f], yield)
	}
	for f, mine := range t.fronts {
		if u.fronts[f] == nil {
			mine.differ(nil, yield)
		}
	}
	differShared(t, u, nil, yield)
}

// differShared is differ for the objects that are in no frontend's record. It may leave out IDs of
// ignored.
func differShared(t, u *Table, ignored map[Object]struct{}, yield func(mine, theirs Object)) {
	mineAddrs, mineLoops := sums(t, ignored)
	theirAddrs, theirLoops := sums(u, ignored)
	if mineAddrs != theirAddrs {
		differAddrs(t, u, yield)
	}
	if mineLoops != theirLoops {
		differLoops(t, u, yield)
	}
	for id, theirs := range u.rest {
		if mine := t.rest[id]; mine != theirs {
			yield(mine, theirs)
		}
	}
	for id, mine := range t.rest {
		if _, ok := u.rest[id]; !ok {
			yield(mine, nil)
		}
	}
}

// sums returns the sums of addrs and loops without some IDs.
func sums(t *Table, without map[Object]struct{}) (addrs, loops uint64) {
	addrs, loops = t.addrSum, t.loopSum
	bits := map[netip.Addr]addrObjects{}
	for id := range without {
		switch at, _ := locate(id); at {
		case inLoops:
			l := id.(Member).loop()
			loops -= hashed(l, min(t.loops[l], 1))
		case inAddrs:
			a, bit := addrOf(id)
			bits[a] |= bit
		}
	}
	for a, bit := range bits {
		addrs += hashed(a, t.addrs[a]&^bit) - hashed(a, t.addrs[a])
	}
	return addrs, loops
}

func differAddrs(t, u *Table, yield func(mine, theirs Object)) {
	for a, theirs := range u.addrs {
		differAddr(a, t.addrs[a], theirs, yield)
	}
	for a, mine := range t.addrs {
		if _, ok := u.addrs[a]; !ok {
			differAddr(a, mine, 0, yield)
		}
	}
}

func differLoops(t, u *Table, yield func(mine, theirs Object)) {
	common := 0
	for l := range u.loops {
		if _, ok := t.loops[l]; ok {
			common++
		} else {
			yield(nil, l.member())
		}
	}
	if common < len(t.loops) {
		for l := range t.loops {
			if _, ok := u.loops[l]; !ok {
				yield(l.member(), nil)
			}
		}
	}
}

// keepShared adds the sets, members and rules of u to t that are not in a frontend's record.
func keepShared(t, u *Table) {
	for a, has := range u.addrs {
		if has&hasGuard != 0 {
			t.putAddr(a, hasGuard)
		}
	}
	t.loops, t.loopSum = u.loops, u.loopSum // t is only read from now on
	for _, o := range u.rest {
		if KeptRules.has(o.kind()) {
			t.putRest(o)
		}
	}
}

func differAddr(a netip.Addr, mine, theirs addrObjects, yield func(mine, theirs Object)) {
	if mine&hasAddress > theirs&hasAddress {
		yield(Address{a}, nil)
	}
	if mine&hasAddress < theirs&hasAddress {
		yield(nil, Address{a})
	}
	if mine&hasGuard > theirs&hasGuard {
		yield(guardOf(a), nil)
	}
	if mine&hasGuard < theirs&hasGuard {
		yield(nil, guardOf(a))
	}
}

// share makes t share u's record of a frontend, if both are equal.
func (t *Table) share(u *Table, f Frontend) {
	if mine, theirs := t.fronts[f], u.fronts[f]; mine != theirs && mine != nil && theirs != nil && mine.equal(theirs) {
		t.fronts[f] = theirs.share()
	}
}
