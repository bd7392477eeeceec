package bgp

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// nextHop is the next hop of a family's routes to a peer.
type nextHop struct {
	addr netip.Addr
	self bool // the session's own address
}

func (n nextHop) known() bool { return n.self || n.addr.IsValid() }

// hops are the next hops for a peer.
type hops struct {
	v4, v6 nextHop
	// extended: v4 is an IPv6 address, which only routers with RFC 8950 accept.
	extended bool
}

func (h hops) of(v6 bool) nextHop {
	if v6 {
		return h.v6
	}
	return h.v4
}

// nextHops returns the next hops for a peer: the configured ones, else the session's
// address for its own family. For the other family it is an address of the session's
// interface. If that has no IPv4 address, the session's IPv6 address is used (RFC 8950),
// unless the router refused that. A family without a next hop is not announced.
func nextHops(p Peer, on []netip.Addr, refused bool) hops {
	var h hops
	over6 := !p.addr().Is4()
	switch {
	case p.NextHops.IPv4.IsValid():
		h.v4.addr = p.NextHops.IPv4
	case !over6:
		h.v4.self = true
	default:
		h.v4.addr = p.pick(on, false)
		h.extended = !h.v4.addr.IsValid()
		h.v4.self = h.extended && !refused
	}
	switch {
	case p.NextHops.IPv6.IsValid():
		h.v6.addr = p.NextHops.IPv6
	case over6 && !p.addr().IsLinkLocalUnicast():
		h.v6.self = true
	default:
		h.v6.addr = p.pick(on, true)
		h.v6.self = over6 && !h.v6.addr.IsValid()
	}
	return h
}

// keepKnown keeps next hops that are unknown at the moment: an interface without addresses
// is more likely being configured than a reason to withdraw routes.
func (h hops) keepKnown(was hops, refused bool) hops {
	if !h.v4.known() && (!refused || !was.extended) {
		h.v4, h.extended = was.v4, was.extended
	}
	if !h.v6.known() {
		h.v6 = was.v6
	}
	return h
}

// except returns h without the addresses that another interface has than the session's. They were chosen when the box
// had another route to the router.
func (h hops) except(session []netip.Addr, interfaces [][]netip.Addr) hops {
	for _, n := range []*nextHop{&h.v4, &h.v6} {
		elsewhere := func(on []netip.Addr) bool { return slices.Contains(on, n.addr) }
		if len(session) > 0 && !elsewhere(session) && slices.ContainsFunc(interfaces, elsewhere) {
			*n = nextHop{}
		}
	}
	return h
}

// pick returns the first usable address of a family. A loopback address is usable only for
// a router on the box itself.
func (p Peer) pick(addrs []netip.Addr, v6 bool) netip.Addr {
	for _, a := range addrs {
		if a.Is6() == v6 && (a.IsGlobalUnicast() || a.IsLoopback() && p.addr().IsLoopback()) {
			return a
		}
	}
	return netip.Addr{}
}

// sessionInterface returns the addresses of the interface that sessions with p use. Empty:
// it is unknown, for instance because there is no route to the router.
func sessionInterface(p Peer, interfaces [][]netip.Addr) []netip.Addr {
	local := p.Source
	if !local.IsValid() {
		local = sourceTo(netip.AddrPortFrom(p.firstAddress(), uint16(p.Port)))
	}
	for _, addrs := range interfaces {
		for _, a := range addrs {
			if a == local.WithZone("") || !p.Source.IsValid() && p.Range.Contains(a) {
				return addrs
			}
		}
	}
	return nil
}

// firstAddress returns an address of p: of a range the first that a router may have.
func (p Peer) firstAddress() netip.Addr {
	if p.Address.IsValid() {
		return p.Address
	}
	first := p.Range.Masked().Addr()
	if next := first.Next(); p.Range.Contains(next) {
		return next
	}
	return first
}

// sourceTo returns the source address for packets to a router, by the routing table.
// Nothing is sent.
func sourceTo(router netip.AddrPort) netip.Addr {
	conn, err := net.Dial("udp", net.JoinHostPort(router.Addr().String(), strconv.Itoa(int(router.Port()))))
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}
	}
	return local.AddrPort().Addr().Unmap()
}

// hasFixedHops reports whether p's next hops do not depend on an interface.
func (p Peer) hasFixedHops() bool {
	over4, over6 := p.addr().Is4(), !p.addr().Is4() && !p.addr().IsLinkLocalUnicast()
	return (over4 || p.NextHops.IPv4.IsValid()) && (over6 || p.NextHops.IPv6.IsValid())
}
