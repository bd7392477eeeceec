package daemon

import (
	"maps"
	"net/netip"
	"slices"

	"weir/lb"
	"weir/lb/linux"
)

// Impact is what ops mean for clients.
type Impact struct {
	// VIPs that nobody would serve any more, sorted.
	VIPs []netip.Addr
	// Backends, each of a frontend, that get no more connections; those that go at once
	// Cut what they have.
	Backends, Cut int
	// Living are the connections of those that may still end in peace, Cutting of those
	// that go at once.
	Living, Cutting int

	leaving map[lb.RealServer]bool // by ID; true: at once
}

// ImpactOf tells what ops would mean that are applied to what a kernel holds.
// Connections are not counted yet: see Count.
func ImpactOf(have lb.Snapshot, ops []lb.Op) Impact {
	x := Impact{leaving: map[lb.RealServer]bool{}}
	served, after := map[netip.Addr]int{}, map[netip.Addr]int{} // real servers that take connections
	for _, o := range have {
		if rs, ok := o.(lb.RealServer); ok && rs.Weight > 0 {
			served[rs.Frontend.Addr]++
		}
	}
	maps.Copy(after, served)
	for _, op := range ops {
		rs, ok := op.Object.(lb.RealServer)
		if !ok {
			continue
		}
		before, held := have[rs.ID()].(lb.RealServer)
		had := held && before.Weight > 0
		has := op.Verb != lb.Delete && rs.Weight > 0
		switch {
		case had && !has:
			after[rs.Frontend.Addr]--
			x.Backends++
			x.leaving[key(rs)] = op.Verb == lb.Delete
			if op.Verb == lb.Delete {
				x.Cut++
			}
		case !had && has:
			after[rs.Frontend.Addr]++
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(served), netip.Addr.Compare) {
		if after[a] == 0 {
			x.VIPs = append(x.VIPs, a)
		}
	}
	return x
}

// key is a real server of a frontend and nothing else.
func key(rs lb.RealServer) lb.RealServer { return lb.RealServer{Frontend: rs.Frontend, Addr: rs.Addr} }

// Count takes in a connection that there is now.
func (x *Impact) Count(c linux.Connection) {
	if !living(c) {
		return
	}
	switch cut, leaves := x.leaving[lb.RealServer{Frontend: c.Frontend(), Addr: c.Backend}]; {
	case leaves && cut:
		x.Cutting++
	case leaves:
		x.Living++
	}
}
