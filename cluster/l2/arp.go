package l2

import (
	"encoding/binary"
	"net/netip"
)

// ARP for IPv4 over Ethernet (RFC 826):
//
//	0 hardware 1   2 protocol 0800   4 lengths 6, 4   6 operation
//	8 sender's MAC   14 sender's address   18 target's MAC   24 target's address
const (
	lengthARP  = 28
	arpRequest = 1
	arpReply   = 2
)

// parseARP parses a whole frame; false if it is not ARP that may be answered.
func parseARP(b []byte) (message, bool) {
	if len(b) < headerEthernet+lengthARP || binary.BigEndian.Uint16(b[12:]) != typeARP {
		return message{}, false
	}
	p := b[headerEthernet:]
	if binary.BigEndian.Uint32(p) != 1<<16|0x0800 || p[4] != 6 || p[5] != 4 {
		return message{}, false
	}
	m := message{from: MAC(p[8:14])}
	if !m.from.single() || !MAC(b[6:12]).single() {
		return message{}, false
	}
	sender, target := netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28]))
	if !sender.IsUnspecified() {
		if !usable(sender) {
			return message{}, false
		}
		m.used = sender
	}
	switch binary.BigEndian.Uint16(p[6:]) {
	case arpRequest:
		if target != sender && usable(target) {
			m.asked, m.asker = target, m.used
		}
	case arpReply:
	default:
		return message{}, false
	}
	return m, m.used.IsValid() || m.asked.IsValid()
}

// usable reports whether an address can be that of a host.
func usable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func arpFrame(operation uint16, to, mac MAC, sender netip.Addr, targetMAC MAC, target netip.Addr) []byte {
	b := ethernet(to, mac, typeARP, lengthARP)
	b = append(b, 0, 1, 8, 0, 6, 4, 0, byte(operation))
	b = append(b, mac[:]...)
	b = append(b, sender.AsSlice()...)
	b = append(b, targetMAC[:]...)
	return append(b, target.AsSlice()...)
}
