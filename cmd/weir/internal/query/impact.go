package query

import (
	"maps"
	"net/netip"
	"slices"

	"weir/lb"
	"weir/lb/linux"
)

// Impact is the effect of operations on clients.
type Impact struct {
	// VIPs that would lose their last backend, sorted.
	VIPs []netip.Addr
	// Backends is the number of backends, per frontend, that get no more connections; Cut is the number of those that
	// are removed without a drain.
	Backends, Cut int
	// Living is the number of connections that a drain lets end by themselves, Cutting of those that end at once.
	Living, Cutting int

	leaving map[lb.RealServer]bool // by ID; true: without a drain
}

// ImpactOf returns the impact of operations on a kernel, without connections: see Count.
func ImpactOf(have *lb.Table, ops []lb.Op) Impact {
	x := Impact{leaving: map[lb.RealServer]bool{}}
	served, after := map[netip.Addr]int{}, map[netip.Addr]int{} // real servers with a weight
	for rs := range have.RealServers() {
		if rs.Weight > 0 {
			served[rs.Frontend.Addr]++
		}
	}
	maps.Copy(after, served)
	for _, op := range ops {
		rs, ok := op.Object.(lb.RealServer)
		if !ok {
			continue
		}
		before, held := have.RealServer(rs.Frontend, rs.Addr)
		had := held && before.Weight > 0
		has := op.Verb != lb.Delete && rs.Weight > 0
		switch {
		case had && !has:
			after[rs.Frontend.Addr]--
			x.Backends++
			x.leaving[key(rs.Frontend, rs.Addr)] = op.Verb == lb.Delete
			if op.Verb == lb.Delete {
				x.Cut++
			}
		case !had && has:
			after[rs.Frontend.Addr]++
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(served), netip.Addr.Compare) {
		if after[a] == 0 && !a.IsUnspecified() {
			x.VIPs = append(x.VIPs, a)
		}
	}
	return x
}

func key(f lb.Frontend, backend netip.AddrPort) lb.RealServer {
	return lb.RealServer{Frontend: f, Addr: backend}
}

// Count adds a connection of the kernel.
func (x *Impact) Count(c linux.Connection) {
	if !c.Open() {
		return
	}
	switch cut, leaves := x.leaving[key(c.Frontend(), c.Backend)]; {
	case leaves && cut:
		x.Cutting++
	case leaves:
		x.Living++
	}
}

// Tally counts weir's objects in the kernel by lb.Kind.
type Tally map[string]int

// NewTally counts the objects of a table.
func NewTally(have *lb.Table) Tally { return have.Counts() }

// Apply updates the counts after applied operations.
func (t Tally) Apply(ops []lb.Op) {
	for _, op := range ops {
		switch op.Verb {
		case lb.Add:
			t[lb.Kind(op.Object)]++
		case lb.Delete:
			t[lb.Kind(op.Object)]--
		}
	}
}

// Lose updates the counts after another program removed objects.
func (t Tally) Lose(objects []lb.Object) {
	for _, o := range objects {
		t[lb.Kind(o)]--
	}
}

// Without returns the counts without the base objects.
func (t Tally) Without(base lb.Base, have *lb.Table) map[string]int {
	counts := maps.Clone(t)
	for _, o := range base.Objects() {
		if have.Has(o) {
			counts[lb.Kind(o)]--
		}
	}
	return counts
}
