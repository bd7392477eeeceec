package lb

import (
	"cmp"
	"fmt"
	"net/netip"
)

// Frontend is one VIP, port and protocol. The kernel calls it a virtual server.
//
// With a Mark it is the other face of such frontends, for clients inside the cluster, or of a
// Service with Group for all clients: SetInternal or SetGroup maps their packets to it (IPVS
// looks for firewall marks before it looks for addresses). Addr is then the unspecified address
// of the family, and Port is zero: see MarkFrontend.
type Frontend struct {
	Addr  netip.Addr
	Port  uint16
	Proto Protocol
	// Given reports that Mark is a Service.FWMark. Proto is TCP then, for any protocol.
	Given bool
	// Mark is a small number of weir's own; 0 is none. lb/linux makes a firewall mark of it.
	Mark uint32
}

func (f Frontend) String() string {
	switch {
	case f.Given:
		return fmt.Sprintf("%s fwmark %d", FamilyOf(f.Addr), f.Mark)
	case f.Mark != 0:
		return fmt.Sprintf("%s mark %d", FamilyOf(f.Addr), f.Mark)
	}
	return netip.AddrPortFrom(f.Addr, f.Port).String() + "/" + f.Proto.String()
}

// Compare orders by address, port and protocol.
func (f Frontend) Compare(other Frontend) int {
	if c := f.Addr.Compare(other.Addr); c != 0 {
		return c
	}
	c := cmp.Or(cmp.Compare(f.Port, other.Port),
		cmp.Compare(f.Proto, other.Proto), cmp.Compare(f.Mark, other.Mark))
	switch {
	case c != 0 || f.Given == other.Given:
		return c
	case f.Given:
		return 1
	}
	return -1
}

// MaxMark is the largest mark. Those with the bit MasqueradedMark are of groups, and their
// packets are masqueraded.
const (
	MaxMark         = 1<<23 - 1
	MasqueradedMark = 1 << 22
)

// The remainder of a mark is its protocol, which the kernel does not keep: UDP flows of a
// removed backend must move immediately, while connections may end.
var markProtos = [...]Protocol{TCP, UDP, SCTP}

// MarkFrontend returns the frontend of a mark in a family.
func MarkFrontend(f Family, mark uint32) Frontend {
	return Frontend{Addr: unspecified(f), Proto: markProtos[mark%uint32(len(markProtos))], Mark: mark}
}

// GivenFrontend returns the frontend of a Service with FWMark in a family.
func GivenFrontend(f Family, mark uint32) Frontend {
	return Frontend{Addr: unspecified(f), Proto: TCP, Mark: mark, Given: true}
}

// mapped reports whether f has a mark of weir's own.
func (f Frontend) mapped() bool { return f.Mark != 0 && !f.Given }
