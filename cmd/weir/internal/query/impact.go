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
	// Redirected is the number of backends that change from masquerading to direct routing, and Masqueraded that of
	// their connections, which can make the kernel lose such a backend.
	Redirected, Masqueraded int

	of map[lb.RealServer]effect // by ID
	// byMark has those of given marks in of, by address: connections do not show a mark.
	byMark map[netip.Addr][]lb.RealServer
	have   *lb.Table
}

// effect is what happens to the connections of a real server. A larger one counts.
type effect int

const (
	none effect = iota
	kept        // masqueraded, by a real server of direct routing
	draining
	cut
)

// ImpactOf returns the impact of operations on a kernel, without connections: see Count. The services
// are those after the operations.
func ImpactOf(have *lb.Table, ops []lb.Op, services []lb.Service) Impact {
	x := Impact{of: map[lb.RealServer]effect{}, byMark: map[netip.Addr][]lb.RealServer{}, have: have}
	served, after := map[lb.Frontend]int{}, map[lb.Frontend]int{} // real servers with a weight, by place
	for rs := range have.RealServers() {
		if rs.Weight > 0 {
			served[place(rs.Frontend)]++
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
		if held && op.Verb != lb.Delete && before.Forward == lb.Masquerading && rs.Forward == lb.DirectRouting {
			x.Redirected++ // also without a weight: its connections may live
			x.mark(rs, kept)
		}
		switch {
		case had && !has && op.Verb == lb.Delete:
			after[place(rs.Frontend)]--
			x.Backends++
			x.Cut++
			x.mark(rs, cut)
		case had && !has:
			after[place(rs.Frontend)]--
			x.Backends++
			x.mark(rs, draining)
		case !had && has:
			after[place(rs.Frontend)]++
		}
	}
	lost := map[lb.Frontend]bool{} // given marks
	for f := range served {
		switch {
		case after[f] > 0:
		case f.Given:
			lost[f] = true
		case !f.Addr.IsUnspecified():
			x.VIPs = append(x.VIPs, f.Addr)
		}
	}
	for _, a := range ofMarks(lost, have, services) {
		if after[lb.Frontend{Addr: a}] == 0 {
			x.VIPs = append(x.VIPs, a)
		}
	}
	slices.SortFunc(x.VIPs, netip.Addr.Compare)
	x.VIPs = slices.Compact(x.VIPs)
	return x
}

// mark records the effect on the connections of a real server.
func (x *Impact) mark(rs lb.RealServer, on effect) {
	id := key(rs.Frontend, rs.Addr)
	x.of[id] = on
	if rs.Frontend.Given {
		x.byMark[rs.Addr.Addr()] = append(x.byMark[rs.Addr.Addr()], id)
	}
}

// place returns the unit that loses its last backend: a given mark, or all ports of an address.
func place(f lb.Frontend) lb.Frontend {
	if f.Given {
		return f
	}
	return lb.Frontend{Addr: f.Addr}
}

// ofMarks returns the VIPs of the Services of given marks. The kernel does not show those of a removed
// Service: they are its addresses without a virtual server, and without another Service.
func ofMarks(lost map[lb.Frontend]bool, have *lb.Table, services []lb.Service) (out []netip.Addr) {
	if len(lost) == 0 {
		return nil
	}
	named, families := map[netip.Addr]bool{}, map[lb.Family]bool{}
	for f := range lost {
		families[lb.FamilyOf(f.Addr)] = true
	}
	for _, svc := range services {
		for _, vip := range svc.VIPs {
			named[vip.Addr] = true
			if svc.FWMark != 0 && lost[lb.GivenFrontend(lb.FamilyOf(vip.Addr), svc.FWMark)] {
				out = append(out, vip.Addr)
			}
		}
	}
	for o := range have.All() {
		if vs, ok := o.(lb.VirtualServer); ok {
			named[vs.Frontend.Addr] = true
		}
	}
	for o := range have.All() {
		if a, ok := o.(lb.Address); ok && !named[a.Addr] && families[lb.FamilyOf(a.Addr)] {
			out = append(out, a.Addr)
		}
	}
	return out
}

func key(f lb.Frontend, backend netip.AddrPort) lb.RealServer {
	return lb.RealServer{Frontend: f, Addr: backend}
}

// Count adds a connection of the kernel.
func (x *Impact) Count(c linux.Connection) {
	if !c.Open() {
		return
	}
	on := x.of[key(c.Frontend(), c.Backend)]
	for _, rs := range x.byMark[c.Backend.Addr()] {
		if _, other := x.have.RealServer(c.Frontend(), c.Backend); !other && rs.At(c.Backend.Port()) == c.Backend {
			on = max(on, x.of[rs])
		}
	}
	switch on {
	case none:
	case kept:
		x.Masqueraded++
	case draining:
		x.Living++
	case cut:
		x.Cutting++
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
