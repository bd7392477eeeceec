package l2

import "net/netip"

var (
	broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// probeFrame returns a probe for a VIP. No host learns an address from it.
func probeFrame(mac MAC, vip netip.Addr) []byte {
	if vip.Is4() {
		return arpFrame(arpRequest, broadcast, mac, netip.IPv4Unspecified(), MAC{}, vip)
	}
	return solicitation(mac, vip)
}

// gratuitous returns the announcement that mac has vip.
func gratuitous(mac MAC, vip netip.Addr) []byte {
	if vip.Is4() {
		return arpFrame(arpRequest, broadcast, mac, vip, MAC{}, vip)
	}
	return advertisement(mac, vip, groupMAC(allNodes), allNodes, 0)
}

// gratuitousReply returns the second form of the IPv4 announcement, a reply: some hosts
// accept only this one (RFC 5944 4.6). Linux wants the sender's MAC address as the target,
// too (arp_is_garp, net/ipv4/arp.c).
func gratuitousReply(mac MAC, vip netip.Addr) []byte {
	return arpFrame(arpReply, broadcast, mac, vip, mac, vip)
}

// answer returns the reply to a request.
func answer(mac MAC, m message) []byte {
	switch {
	case m.asked.Is4() && m.probes():
		return arpFrame(arpReply, m.from, mac, m.asked, m.from, netip.IPv4Unspecified())
	case m.asked.Is4():
		return arpFrame(arpReply, m.from, mac, m.asked, m.from, m.asker)
	case m.probes(): // RFC 4861 7.2.4: to all nodes, since the sender has no address
		return advertisement(mac, m.asked, groupMAC(allNodes), allNodes, 0)
	default:
		return advertisement(mac, m.asked, m.from, m.asker, flagSolicited)
	}
}

// frame returns the bytes of a queued frame.
func (q queuedFrame) frame(from MAC) []byte {
	switch q.kind {
	case kindProbe:
		return probeFrame(from, q.binding.vip)
	case kindGratuitousReply:
		return gratuitousReply(from, q.binding.vip)
	}
	return gratuitous(from, q.binding.vip)
}
