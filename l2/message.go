package l2

import "net/netip"

// message is what a frame of somebody else's says about addresses, in ARP or NDP. The
// zero Addr is none.
type message struct {
	// from has the address that is used, and sends the frame (what the payload says, or
	// the frame where it says nothing).
	from MAC
	// used is the address that from says it has.
	used netip.Addr
	// asked is the address whose MAC is wanted, and asker who wants it: without an
	// address if it only probes whether anybody has the one that is asked for.
	asked, asker netip.Addr
}

// probes tells whether the message asks for an address in order to take it (RFC 5227
// 1.1, RFC 4862 5.4.2).
func (m message) probes() bool { return m.asked.IsValid() && !m.asker.IsValid() }

var (
	broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// single tells whether a MAC is one station's.
func (m MAC) single() bool { return m != MAC{} && m[0]&1 == 0 }

const (
	headerEthernet = 14
	typeARP        = 0x0806
	typeIPv6       = 0x86dd
)

// ethernet begins a frame.
func ethernet(to, from MAC, ethertype uint16, length int) []byte {
	b := make([]byte, 0, headerEthernet+length)
	b = append(b, to[:]...)
	b = append(b, from[:]...)
	return append(b, byte(ethertype>>8), byte(ethertype))
}

// probeFrame asks whether anybody has a VIP, so that nobody learns anything from it.
func probeFrame(mac MAC, vip netip.Addr) []byte {
	if vip.Is4() {
		return arpFrame(arpRequest, broadcast, mac, netip.IPv4Unspecified(), MAC{}, vip)
	}
	return solicitation(mac, vip)
}

// unasked tells everybody that mac has vip.
func unasked(mac MAC, vip netip.Addr) []byte {
	if vip.Is4() {
		return arpFrame(arpRequest, broadcast, mac, vip, MAC{}, vip)
	}
	return advertisement(mac, vip, groupMAC(allNodes), allNodes, 0)
}

// unaskedReply is the second form of unasked for IPv4, a reply to nobody: some listen to
// this one only (RFC 5944 4.6). Linux wants the own MAC as target then (arp_is_garp,
// net/ipv4/arp.c).
func unaskedReply(mac MAC, vip netip.Addr) []byte {
	return arpFrame(arpReply, broadcast, mac, vip, mac, vip)
}

// answer is the answer to a message that asks.
func answer(mac MAC, m message) []byte {
	switch {
	case m.asked.Is4() && m.probes():
		return arpFrame(arpReply, m.from, mac, m.asked, m.from, netip.IPv4Unspecified())
	case m.asked.Is4():
		return arpFrame(arpReply, m.from, mac, m.asked, m.from, m.asker)
	case m.probes(): // RFC 4861 7.2.4: to everybody, as who asks has no address
		return advertisement(mac, m.asked, groupMAC(allNodes), allNodes, 0)
	default:
		return advertisement(mac, m.asked, m.from, m.asker, flagSolicited)
	}
}
