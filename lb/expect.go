package lb

import (
	"math/bits"
	"net/netip"
)

// An audit nearly always finds the expected objects. A Table that is read from the kernel
// compares each object with the expected one as it arrives, and records only the arrival. It
// makes a record of its own for a frontend with another object, or with a missing one.

// expectation is the expected content of a Table. The zero expectation expects nothing.
type expectation struct {
	fronts map[Frontend]*virtual
	// arrivals are those of fronts with expected objects only.
	arrivals map[Frontend]arrival
}

// arrival is the objects of a record that arrived.
type arrival struct {
	serves bool
	sets   uint32
	n      int      // of reals and ranges
	first  uint64   // a bit for each of the first 64 of reals and ranges
	more   []uint64 // and for the others
}

// Expecting returns an empty Table that expects the objects of another one: it shares the
// records of those that arrive. The other one must not change until this one is read.
func Expecting(other *Table) Table {
	if other == nil {
		return Table{}
	}
	other.resolve()
	return Table{
		addrs:  make(map[netip.Addr]addrObjects, len(other.addrs)),
		loops:  make(map[loop]uint32, len(other.loops)),
		expect: expectation{other.fronts, make(map[Frontend]arrival, len(other.fronts))},
	}
}

// arrivedAsExpected records the arrival of o, if it is expected at f.
func (t *Table) arrivedAsExpected(f Frontend, o Object) bool {
	v := t.expect.fronts[f]
	if v == nil || t.fronts[f] != nil {
		return false
	}
	got := t.expect.arrivals[f]
	if !got.take(v, o) {
		return false
	}
	t.expect.arrivals[f] = got
	return true
}

// take records the arrival of an object, and reports whether v has it.
func (got *arrival) take(v *virtual, o Object) bool {
	switch o := o.(type) {
	case VirtualServer:
		got.serves = v.serves && v.virtualServer() == o
		return got.serves
	case RealServer:
		r := packReal(o)
		i, ok := v.find(r)
		if ok = ok && v.reals[i] == r; ok {
			got.mark(i)
		}
		return ok
	case Member:
		if o.Set.ranged() {
			i, ok := v.findRange(o)
			if ok {
				got.mark(len(v.reals) + i)
			}
			return ok
		}
		if mark := markOf(v, o.Set); !v.in(o.Set) || mark != nil && *mark != o.Mark {
			return false
		}
		got.sets |= 1 << o.Set
		return true
	}
	return false
}

// arriveMembers records the arrival of all expected members.
func (e expectation) arriveMembers() {
	for f, v := range e.fronts {
		if v.members() == 0 {
			continue
		}
		got := arrival{sets: v.sets}
		for i := range v.ranges {
			got.mark(len(v.reals) + i)
		}
		e.arrivals[f] = got
	}
}

func (got *arrival) mark(i int) {
	if got.has(i) {
		return
	}
	got.n++
	if i < 64 {
		got.first |= 1 << i
		return
	}
	for len(got.more) <= i/64-1 {
		got.more = append(got.more, 0)
	}
	got.more[i/64-1] |= 1 << (i % 64)
}

func (got *arrival) has(i int) bool {
	if i < 64 {
		return got.first&(1<<i) != 0
	}
	return i/64-1 < len(got.more) && got.more[i/64-1]&(1<<(i%64)) != 0
}

// whole reports whether all objects of v arrived.
func (got *arrival) whole(v *virtual) bool {
	return got.serves == v.serves && bits.OnesCount32(got.sets) == bits.OnesCount32(v.sets) && got.n == len(v.reals)+len(v.ranges)
}

// of returns the objects of v that arrived, as a record of its own.
func (got *arrival) of(v *virtual) *virtual {
	out := &virtual{at: v.at, sets: got.sets}
	if got.serves {
		out.putServer(v.virtualServer())
	}
	if out.in(SetInternal) {
		out.mark = v.mark
	}
	if out.in(SetGroup) {
		out.group = v.group
	}
	for i, r := range v.reals {
		if got.has(i) {
			out.reals = append(out.reals, r)
		}
	}
	for i, r := range v.ranges {
		if got.has(len(v.reals) + i) {
			out.ranges = append(out.ranges, r)
		}
	}
	return out
}

// stopExpecting ends the expectation of f, and returns the record of its arrivals; nil if there
// are none.
func (t *Table) stopExpecting(f Frontend) *virtual {
	got, ok := t.expect.arrivals[f]
	if !ok {
		return nil
	}
	delete(t.expect.arrivals, f)
	return got.of(t.expect.fronts[f])
}

// resolve ends the expectation.
func (t *Table) resolve() {
	if t == nil || t.expect.arrivals == nil {
		return
	}
	e := t.expect
	t.expect = expectation{}
	if t.fronts == nil {
		t.fronts = make(map[Frontend]*virtual, len(e.arrivals))
	}
	for f, got := range e.arrivals {
		v := e.fronts[f]
		if got.whole(v) {
			t.fronts[f] = v.share()
		} else {
			t.fronts[f] = got.of(v)
		}
	}
}
