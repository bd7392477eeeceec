package lb

import (
	"hash/maphash"
	"net/netip"
)

// Table is a set of objects by ID, as Snapshot is, in little memory: all objects of a frontend
// are one record. The zero Table is empty and ready for use. A nil one is empty, for reading.
//
// Tables share equal records. A record of another Table is frozen: it is copied before it
// changes. Only members of SetInternal and SetGroup keep their Mark.
type Table struct {
	fronts map[Frontend]*virtual
	addrs  map[netip.Addr]addrObjects
	loops  map[loop]uint32 // members of SetLoopBack, and how many owners of a State want each
	rest   map[Object]Object
	expect expectation // of one that is being read from the kernel
	// addrSum and loopSum are the sums of the hashes of addrs and loops: an audit need not compare
	// 100,000 members that have the expected sum.
	addrSum, loopSum uint64
}

// addrObjects are the objects of one address.
type addrObjects uint8

const (
	hasAddress addrObjects = 1 << iota
	hasGuard               // the member of SetIPVSIPs
)

// loop is a member of SetLoopBack.
type loop struct {
	ip    [16]byte
	port  uint16
	fam   Family
	proto Protocol
}

// place is where a Table keeps an object.
type place uint8

const (
	inRest  place = iota
	inFront       // its frontend's record
	inAddrs
	inLoops
)

// locate returns the place of an object, and its frontend if that is a record. A member that
// only another program would write is in rest.
func locate(id Object) (place, Frontend) {
	switch o := id.(type) {
	case VirtualServer:
		return inFront, o.Frontend
	case RealServer:
		return inFront, o.Frontend
	case Address:
		return inAddrs, Frontend{}
	case Member:
		return o.locate()
	}
	return inRest, Frontend{}
}

func (o Member) locate() (place, Frontend) {
	o.Mark = 0
	f, ok := o.frontend()
	switch {
	case o.Set == SetIPVSIPs && o == guardOf(o.Addr):
		return inAddrs, f
	case o.Set == SetLoopBack && o == loopBack(netip.AddrPortFrom(o.Addr, o.Port), o.Proto):
		return inLoops, f
	case ok && (o.Set == SetSourceCIDR || o.Set == SetSourceIP),
		ok && o.Set.ofMarks() && o == markMember(f),
		ok && !o.Set.ofMarks() && o == tuple(o.Set, f):
		return inFront, f
	}
	return inRest, f
}

// NewTable makes a Table of objects; of two with one ID the last counts.
func NewTable(objects ...Object) *Table {
	t := &Table{}
	for _, o := range objects {
		t.Put(o)
	}
	return t
}

// Get returns the object with an ID.
func (t *Table) Get(id Object) (Object, bool) {
	t.resolve()
	if t == nil {
		return nil, false
	}
	at, f := locate(id)
	switch at {
	case inFront:
		return t.fronts[f].get(id)
	case inRest:
		o, ok := t.rest[id.ID()]
		return o, ok
	}
	if !t.Has(id) {
		return nil, false
	}
	return id.ID(), true
}

// Has reports whether there is an object with an ID.
func (t *Table) Has(id Object) bool {
	t.resolve()
	if t == nil {
		return false
	}
	at, f := locate(id)
	switch at {
	case inFront:
		return t.fronts[f].has(id)
	case inAddrs:
		a, bit := addrOf(id)
		return t.addrs[a]&bit != 0
	case inLoops:
		_, ok := t.loops[id.(Member).loop()]
		return ok
	}
	_, ok := t.rest[id.ID()]
	return ok
}

// RealServer returns the real server of a backend.
func (t *Table) RealServer(f Frontend, backend netip.AddrPort) (RealServer, bool) {
	if t == nil {
		return RealServer{}, false
	}
	t.resolve()
	return t.fronts[f].realServer(backend)
}

// Put adds an object, or replaces the one with the same ID. It copies o, so callers need not
// allocate one.
func (t *Table) Put(o Object) {
	switch o := o.(type) {
	case VirtualServer:
		if t.expect.arrivals != nil && t.arrivedAsExpected(o.Frontend, o) {
			return
		}
		t.edit(o.Frontend).putServer(o)
	case RealServer:
		if t.expect.arrivals == nil || !t.arrivedAsExpected(o.Frontend, o) {
			t.edit(o.Frontend).putReal(packReal(o))
		}
	case Address:
		t.putAddr(o.Addr, hasAddress)
	case Member:
		t.putMember(o)
	case Sysctl:
		t.putRest(o)
	case Device:
		t.putRest(o)
	case IPSet:
		t.putRest(o)
	case Rules:
		t.putRest(o)
	case PoolRoute:
		t.putRest(o)
	case Unreachable:
		t.putRest(o)
	case SyncDaemon:
		t.putRest(o)
	case TunnelDevice:
		t.putRest(o)
	default:
		panic("lb: unknown kind of object")
	}
}

func (t *Table) putMember(o Member) {
	switch at, f := o.locate(); at {
	case inFront:
		if t.expect.arrivals == nil || !t.arrivedAsExpected(f, o) {
			t.edit(f).putMember(o)
		}
	case inAddrs:
		t.putAddr(o.Addr, hasGuard)
	case inLoops:
		setLoop(t, o.loop(), 1)
	default:
		t.putRest(o)
	}
}

// reset removes all objects. The records do not change.
func (t *Table) reset() {
	const large = 100 // its maps take longer to clear than to make
	if len(t.fronts)+len(t.addrs)+len(t.loops)+len(t.rest) > large {
		*t = Table{}
		return
	}
	clear(t.fronts)
	clear(t.addrs)
	clear(t.loops)
	clear(t.rest)
	t.addrSum, t.loopSum = 0, 0
}

func (t *Table) putRest(o Object) {
	if t.rest == nil {
		t.rest = map[Object]Object{}
	}
	if id := o.ID(); id != o {
		t.rest[id] = o
		return
	}
	t.rest[o] = o
}

func (t *Table) putAddr(a netip.Addr, has addrObjects) { setAddr(t, a, t.addrs[a]|has) }

// setAddr sets the objects of an address.
func setAddr(t *Table, a netip.Addr, has addrObjects) {
	if t.addrs == nil {
		t.addrs = map[netip.Addr]addrObjects{}
	}
	t.addrSum += hashed(a, has) - hashed(a, t.addrs[a])
	if t.addrs[a] = has; has == 0 {
		delete(t.addrs, a)
	}
}

// setLoop sets the number of owners of a loop.
func setLoop(t *Table, l loop, owners uint32) {
	if t.loops == nil {
		t.loops = map[loop]uint32{}
	}
	if before := t.loops[l]; (before == 0) != (owners == 0) {
		t.loopSum += hashed(l, min(owners, 1)) - hashed(l, min(before, 1))
	}
	if t.loops[l] = owners; owners == 0 {
		delete(t.loops, l)
	}
}

// seed differs between processes, so that no tenant can choose addresses with equal sums.
var seed = maphash.MakeSeed()

// hashed returns the hash of a key with a value; that of the zero value is 0.
func hashed[K comparable, V uint32 | addrObjects](key K, value V) uint64 {
	if value == 0 {
		return 0
	}
	return maphash.Comparable(seed, struct {
		key   K
		value V
	}{key, value})
}

// Delete removes the object with an ID.
func (t *Table) Delete(id Object) {
	t.resolve()
	switch at, f := locate(id); at {
	case inFront:
		if !t.fronts[f].has(id) {
			return
		}
		if fr := t.edit(f); fr.drop(id) {
			delete(t.fronts, f)
		}
	case inAddrs:
		a, bit := addrOf(id)
		setAddr(t, a, t.addrs[a]&^bit)
	case inLoops:
		setLoop(t, id.(Member).loop(), 0)
	default:
		delete(t.rest, id.ID())
	}
}

// addrOf returns the address of an object in addrs, and its bit there.
func addrOf(id Object) (netip.Addr, addrObjects) {
	if o, ok := id.(Address); ok {
		return o.Addr, hasAddress
	}
	return id.(Member).Addr, hasGuard
}

// edit returns the record of a frontend, for a change.
func (t *Table) edit(f Frontend) *virtual {
	fr := t.fronts[f]
	switch {
	case fr == nil:
		if fr = t.stopExpecting(f); fr == nil {
			fr = &virtual{at: f}
		}
	case !fr.frozen:
		return fr
	default:
		fr = fr.clone()
	}
	if t.fronts == nil {
		t.fronts = map[Frontend]*virtual{}
	}
	t.fronts[f] = fr
	return fr
}

// DropMembers removes all members of a set.
func (t *Table) DropMembers(set IPSet) {
	for _, m := range membersOf(t, map[IPSet]bool{set: true}) {
		t.Delete(m)
	}
}

// Counts returns the number of objects by Kind.
func (t *Table) Counts() map[string]int {
	t.resolve()
	var n [numKinds]int
	for _, fr := range t.fronts {
		if fr.serves {
			n[kindVirtualServer]++
		}
		n[kindRealServer] += len(fr.reals)
		n[kindMember] += fr.members()
	}
	for _, has := range t.addrs {
		if has&hasAddress != 0 {
			n[kindAddress]++
		}
		if has&hasGuard != 0 {
			n[kindMember]++
		}
	}
	n[kindMember] += len(t.loops)
	for id := range t.rest {
		n[id.kind()]++
	}
	out := map[string]int{}
	for k, n := range n {
		if n > 0 {
			out[kind(k).String()] = n
		}
	}
	return out
}

// Len returns the number of objects.
func (t *Table) Len() (n int) {
	for _, of := range t.Counts() {
		n += of
	}
	return n
}

// Snapshot copies the objects into a map.
func (t *Table) Snapshot() Snapshot {
	out := Snapshot{}
	for o := range t.All() {
		out[o.ID()] = o
	}
	return out
}

func guardOf(a netip.Addr) Member { return Member{Set: SetIPVSIPs, Addr: a} }

func (o Member) loop() loop { return loop{o.Addr.As16(), o.Port, famOf(o.Addr), o.Proto} }

func (l loop) member() Member {
	return loopBack(netip.AddrPortFrom(unpack(l.ip, l.fam), l.port), l.proto)
}

func unpack(ip [16]byte, f Family) netip.Addr {
	switch f {
	case IPv4:
		return netip.AddrFrom4([4]byte(ip[12:]))
	case IPv6:
		return netip.AddrFrom16(ip)
	}
	return netip.Addr{}
}
