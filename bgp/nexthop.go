package bgp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// nextHop is what the routes of a family bear towards a peer.
type nextHop struct {
	addr netip.Addr
	self bool // the session's own address, whichever that is
}

func (n nextHop) known() bool { return n.self || n.addr.IsValid() }

// hops are those of a peer.
type hops struct {
	v4, v6 nextHop
	// extended tells that v4 is an IPv6 address, which only a router takes that speaks
	// RFC 8950.
	extended bool
}

func (h hops) of(v6 bool) nextHop {
	if v6 {
		return h.v6
	}
	return h.v4
}

// nextHops finds the addresses that a peer's routes bear: what the configuration
// says, else the session's address for its own family. For the other family it is
// an address of the session's interface. Where that has no IPv4 address the
// session's IPv6 address stands in (RFC 8950), unless refused tells that the router
// doesn't take it. What is not found is not known, and no route of that family goes
// there.
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

// orStill keeps next hops that are not known at the moment: an interface without
// addresses is more likely one in the making than a reason to withdraw routes.
func (h hops) orStill(was hops, refused bool) hops {
	if !h.v4.known() && (!refused || !was.extended) {
		h.v4, h.extended = was.v4, was.extended
	}
	if !h.v6.known() {
		h.v6 = was.v6
	}
	return h
}

// pick is the first address of a family that p can send packets to: a loopback
// address is one only for a router on the box itself.
func (p Peer) pick(addrs []netip.Addr, v6 bool) netip.Addr {
	for _, a := range addrs {
		if a.Is6() == v6 && (a.IsGlobalUnicast() || a.IsLoopback() && p.addr().IsLoopback()) {
			return a
		}
	}
	return netip.Addr{}
}

// besides picks, of the box's interfaces, the addresses of the one that sessions with
// p run over, the session's own among them. None: it is not known, for instance since
// there is no way to the router now.
func besides(p Peer, interfaces [][]netip.Addr) []netip.Addr {
	local := p.Source
	if !local.IsValid() {
		local = sourceTo(netip.AddrPortFrom(p.somebody(), uint16(p.Port)))
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

// somebody is an address of p: of a range the first that can be a router's.
func (p Peer) somebody() netip.Addr {
	if p.Address.IsValid() {
		return p.Address
	}
	first := p.Range.Masked().Addr()
	if next := first.Next(); p.Range.Contains(next) {
		return next
	}
	return first
}

// sourceTo is the address that the routing table has packets to a router come from.
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

// interfaces gives the addresses of each of the box's interfaces. It takes one look
// at the kernel, where net.Interfaces would take one for each, and a node has many.
func interfaces() [][]netip.Addr {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil
	}
	var out [][]netip.Addr
	at := map[uint32]int{}
	for i := range messages {
		index, addr := addrOf(&messages[i])
		if !addr.IsValid() {
			continue
		}
		if _, ok := at[index]; !ok {
			at[index] = len(out)
			out = append(out, nil)
		}
		out[at[index]] = append(out[at[index]], addr)
	}
	return out
}

// notToBeUsed are IPv6 addresses that others should not be told of: not there yet, or
// about to go.
const notToBeUsed = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TEMPORARY

// addrOf reads an address and the interface that has it (rtnetlink(7), RTM_NEWADDR).
func addrOf(m *syscall.NetlinkMessage) (index uint32, addr netip.Addr) {
	if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
		return 0, netip.Addr{}
	}
	family, flags := m.Data[0], m.Data[2]
	if family == syscall.AF_INET6 && flags&notToBeUsed != 0 {
		return 0, netip.Addr{}
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return 0, netip.Addr{}
	}
	for _, a := range attrs {
		// Of a point-to-point link, IFA_ADDRESS is the other end's.
		if a.Attr.Type == syscall.IFA_LOCAL || a.Attr.Type == syscall.IFA_ADDRESS && !addr.IsValid() {
			addr, _ = netip.AddrFromSlice(a.Value)
		}
	}
	return binary.NativeEndian.Uint32(m.Data[4:]), addr
}

// knowsHops tells whether p's next hops do not depend on an interface.
func (p Peer) knowsHops() bool {
	over4, over6 := p.addr().Is4(), !p.addr().Is4() && !p.addr().IsLinkLocalUnicast()
	return (over4 || p.NextHops.IPv4.IsValid()) && (over6 || p.NextHops.IPv6.IsValid())
}
