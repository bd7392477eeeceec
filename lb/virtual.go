package lb

import (
	"bytes"
	"cmp"
	"iter"
	"math/bits"
	"net/netip"
	"slices"
)

// virtual is the record of one frontend: its virtual server with the real servers, and the
// members of sets that are of this frontend only. A nil one is empty, for reading.
type virtual struct {
	at Frontend
	// serves reports that there is a virtual server, with scheduler and affinity.
	serves bool
	// frozen reports that Tables may share it, so it must not change.
	frozen    bool
	affinity  uint32
	mask      uint32 // VirtualServer.Mask
	target    uint16 // VirtualServer.Port
	sets      uint32 // a bit for each Set that has the frontend as a member
	mark      uint32 // of the member of SetInternal
	group     uint32 // of the member of SetGroup
	scheduler Scheduler
	damaged   bool
	ranges    []sourceRange
	reals     []real // sorted

	// In the records of a State: the owner. If there are several, claims are their records, in
	// their order, and this is the union.
	owner  *Owner
	claims []*virtual
}

// sourceRange is a member of SetSourceCIDR or SetSourceIP.
type sourceRange struct {
	set Set
	net netip.Prefix
}

// real is a RealServer of a virtual. It has no pointers, so the garbage collector skips them.
type real struct {
	ip                   [16]byte
	port                 uint16
	fam                  Family
	forward              Forwarding // and misplaced
	encap                Encap
	weight, upper, lower uint32
}

// misplaced is a bit beside the Forwarding of a real.
const misplaced Forwarding = 0x80

func packReal(rs RealServer) real {
	a := rs.Addr.Addr()
	r := real{ip: a.As16(), port: rs.Addr.Port(), fam: famOf(a), forward: rs.Forward, weight: rs.Weight, upper: rs.Upper, lower: rs.Lower, encap: rs.Encap}
	if rs.Misplaced {
		r.forward |= misplaced
	}
	return r
}

func (r real) server(f Frontend) RealServer {
	return RealServer{
		Frontend: f, Addr: netip.AddrPortFrom(unpack(r.ip, r.fam), r.port), Weight: r.weight, Upper: r.upper, Lower: r.lower,
		Forward: r.forward &^ misplaced, Encap: r.encap, Misplaced: r.forward&misplaced != 0,
	}
}

// compareReals orders as netip.AddrPort.Compare does.
func compareReals(a, b real) int {
	if c := cmp.Compare(a.fam, b.fam); c != 0 {
		return c
	}
	if c := bytes.Compare(a.ip[:], b.ip[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.port, b.port)
}

func compareRanges(a, b sourceRange) int {
	return cmp.Or(cmp.Compare(a.set, b.set), comparePrefixes(a.net, b.net))
}

func (fr *virtual) find(r real) (int, bool) {
	if n := len(fr.reals); n > 0 && compareReals(fr.reals[n-1], r) < 0 {
		return n, false // the usual case of putReal
	}
	return slices.BinarySearchFunc(fr.reals, r, compareReals)
}

func (fr *virtual) findRange(o Member) (int, bool) {
	return slices.BinarySearchFunc(fr.ranges, sourceRange{o.Set, o.Net}, compareRanges)
}

// ranged reports whether members of a set are in ranges.
func (s Set) ranged() bool { return s == SetSourceCIDR || s == SetSourceIP }

func (fr *virtual) get(id Object) (Object, bool) {
	if !fr.has(id) {
		return nil, false
	}
	switch o := id.(type) {
	case VirtualServer:
		return fr.virtualServer(), true
	case RealServer:
		i, _ := fr.find(packReal(o))
		return fr.reals[i].server(fr.at), true
	case Member:
		o.Mark = 0
		if mark := markOf(fr, o.Set); mark != nil {
			o.Mark = *mark
		}
		return o, true
	}
	return nil, false
}

func (fr *virtual) has(id Object) (ok bool) {
	if fr == nil {
		return false
	}
	switch o := id.(type) {
	case VirtualServer:
		ok = fr.serves
	case RealServer:
		_, ok = fr.find(packReal(o))
	case Member:
		if o.Set.ranged() {
			_, ok = fr.findRange(o)
		} else {
			ok = fr.in(o.Set)
		}
	}
	return ok
}

// in reports whether the frontend is a member of a set.
func (fr *virtual) in(s Set) bool { return fr != nil && fr.sets&(1<<s) != 0 }

func (fr *virtual) realServer(backend netip.AddrPort) (RealServer, bool) {
	if fr == nil {
		return RealServer{}, false
	}
	i, ok := fr.find(packReal(RealServer{Addr: backend}))
	if !ok {
		return RealServer{}, false
	}
	return fr.reals[i].server(fr.at), true
}

func (fr *virtual) virtualServer() VirtualServer {
	return VirtualServer{fr.at, fr.scheduler, fr.affinity, fr.mask, fr.target, fr.damaged}
}

// live counts the real servers that take connections.
func (fr *virtual) live() (n int) {
	if fr == nil {
		return 0
	}
	for _, r := range fr.reals {
		if r.weight > 0 {
			n++
		}
	}
	return n
}

func (fr *virtual) putServer(o VirtualServer) {
	fr.serves, fr.scheduler, fr.affinity, fr.mask = true, o.Scheduler, o.Affinity, o.Mask
	fr.target, fr.damaged = o.Port, o.Damaged
}

func (fr *virtual) putReal(r real) {
	i, found := fr.find(r)
	if !found {
		fr.reals = slices.Insert(fr.reals, i, r)
	}
	fr.reals[i] = r
}

func (fr *virtual) putMember(o Member) {
	if o.Set.ranged() {
		if i, found := fr.findRange(o); !found {
			fr.ranges = slices.Insert(fr.ranges, i, sourceRange{o.Set, o.Net})
		}
		return
	}
	fr.sets |= 1 << o.Set
	if mark := markOf(fr, o.Set); mark != nil {
		*mark = o.Mark
	}
}

// markOf returns the field of a record with the mark of a set's member; nil for a set without marks.
func markOf(fr *virtual, s Set) *uint32 {
	switch s {
	case SetInternal:
		return &fr.mark
	case SetGroup:
		return &fr.group
	}
	return nil
}

// drop removes an object that exists, and reports whether it was the last.
func (fr *virtual) drop(id Object) bool {
	switch o := id.(type) {
	case VirtualServer:
		fr.putServer(VirtualServer{})
		fr.serves = false
	case RealServer:
		i, _ := fr.find(packReal(o))
		fr.reals = slices.Delete(fr.reals, i, i+1)
	case Member:
		if o.Set.ranged() {
			i, _ := fr.findRange(o)
			fr.ranges = slices.Delete(fr.ranges, i, i+1)
			break
		}
		fr.sets &^= 1 << o.Set
		if mark := markOf(fr, o.Set); mark != nil {
			*mark = 0
		}
	}
	return fr.empty()
}

// dropServers removes the virtual server and its real servers.
func (fr *virtual) dropServers() {
	fr.putServer(VirtualServer{})
	fr.serves, fr.reals = false, nil
}

// takeServers sets the servers to those of another record.
func (fr *virtual) takeServers(from *virtual) {
	if fr.serves = from.serves; fr.serves {
		fr.putServer(from.virtualServer())
	}
	fr.reals = from.reals
}

// sameServers reports whether two have the same virtual server and real servers, or none.
// Either may be nil.
func (fr *virtual) sameServers(other *virtual) bool {
	none := virtual{}
	fr, other = cmp.Or(fr, &none), cmp.Or(other, &none)
	return fr.serves == other.serves && fr.affinity == other.affinity && fr.mask == other.mask && fr.target == other.target && fr.scheduler == other.scheduler &&
		fr.damaged == other.damaged && slices.Equal(fr.reals, other.reals)
}

func (fr *virtual) empty() bool {
	return !fr.serves && fr.sets == 0 && len(fr.reals)+len(fr.ranges) == 0
}

// clone returns a copy that may change.
func (fr *virtual) clone() *virtual {
	c := *fr
	c.frozen, c.owner, c.claims = false, nil, nil
	c.ranges, c.reals = slices.Clone(fr.ranges), slices.Clone(fr.reals)
	return &c
}

// share marks a record as shared by Tables. It does not write to a marked one, which another
// goroutine may read.
func (fr *virtual) share() *virtual {
	if !fr.frozen {
		fr.frozen = true
	}
	return fr
}

// freeze makes fr one that Tables may share, without room to grow.
func (fr *virtual) freeze() {
	fr.frozen = true
	fr.ranges, fr.reals = exactly(fr.ranges), exactly(fr.reals)
}

func exactly[T any](s []T) []T {
	if cap(s) == len(s) {
		return s
	}
	return append(make([]T, 0, len(s)), s...)
}

// mergeFronts returns the union of records of one frontend; where they differ, the first one
// wins.
func mergeFronts(fronts []*virtual) *virtual {
	out := fronts[len(fronts)-1].clone()
	for _, fr := range slices.Backward(fronts[:len(fronts)-1]) {
		for o := range fr.all() {
			switch o := o.(type) {
			case VirtualServer:
				out.putServer(o)
			case RealServer:
				out.putReal(packReal(o))
			case Member:
				out.putMember(o)
			}
		}
	}
	out.owner, out.claims = fronts[0].owner, fronts
	out.freeze()
	return out
}

// members counts the members of sets.
func (fr *virtual) members() int { return bits.OnesCount32(fr.sets) + len(fr.ranges) }

// all returns the objects, in their order.
func (fr *virtual) all() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for m := range fr.tuples() {
			if !yield(m) {
				return
			}
		}
		if fr.serves && !yield(fr.virtualServer()) {
			return
		}
		for _, r := range fr.reals {
			if !yield(r.server(fr.at)) {
				return
			}
		}
	}
}

func (fr *virtual) tuples() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		for _, r := range fr.ranges {
			if !yield(Member{Set: r.set, Addr: fr.at.Addr, Port: fr.at.Port, Proto: fr.at.Proto, Net: r.net}) {
				return
			}
		}
		for left := fr.sets; left != 0; left &= left - 1 {
			if !yield(fr.member(Set(bits.TrailingZeros32(left)))) {
				return
			}
		}
	}
}

// member returns the member of a set that is not ranged.
func (fr *virtual) member(s Set) Member {
	if s.ofMarks() {
		return markMember(fr.at)
	}
	m := tuple(s, fr.at)
	if mark := markOf(fr, s); mark != nil {
		m.Mark = *mark
	}
	return m
}

// equal reports whether two have the same objects.
func (fr *virtual) equal(other *virtual) bool {
	return fr.sets == other.sets && fr.mark == other.mark && fr.group == other.group && slices.Equal(fr.ranges, other.ranges) && fr.sameServers(other)
}

// differ calls yield for each ID in which the two differ, with the object of each, nil if it
// has none. Either may be nil.
func (fr *virtual) differ(other *virtual, yield func(mine, theirs Object)) {
	if fr == other {
		return
	}
	if fr == nil {
		fr = &virtual{at: other.at}
	}
	if other == nil {
		other = &virtual{at: fr.at}
	}
	for id := range fr.all() {
		switch theirs, ok := other.get(id); {
		case !ok:
			yield(id, nil)
		case theirs != id:
			yield(id, theirs)
		}
	}
	for id := range other.all() {
		if !fr.has(id) {
			yield(nil, id)
		}
	}
}

// famOf returns the family of an address, 0 for the zero Addr.
func famOf(a netip.Addr) Family {
	if !a.IsValid() {
		return 0
	}
	return FamilyOf(a)
}
