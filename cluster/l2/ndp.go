package l2

import (
	"encoding/binary"
	"net/netip"
)

// Neighbour discovery (RFC 4861 4.3, 4.4) without extension headers: hosts do not send it
// with them, and RFC 6980 forbids fragments.
//
//	 0 IPv6: 4 length, 6 next header 58, 7 hop limit 255, 8 source, 24 destination
//	40 ICMPv6: type, code 0, 42 checksum, 44 flags, 48 target, 64 options
const (
	lengthIPv6     = 40
	lengthND       = 24
	protocolICMPv6 = 58
	neighbourHops  = 255

	typeSolicitation  = 135
	typeAdvertisement = 136

	optionSource = 1 // the link-layer address of the sender
	optionTarget = 2 // that of the target

	flagRouter    = 0x80
	flagSolicited = 0x40
	flagOverride  = 0x20
)

// parseND parses a whole frame; false if it is not a neighbour solicitation or
// advertisement that is valid by RFC 4861 7.1.1 and 7.1.2.
func parseND(b []byte) (message, bool) {
	if len(b) < headerEthernet+lengthIPv6+lengthND || binary.BigEndian.Uint16(b[12:]) != typeIPv6 {
		return message{}, false
	}
	station, p := MAC(b[6:12]), b[headerEthernet:]
	length := int(binary.BigEndian.Uint16(p[4:]))
	if p[0]>>4 != 6 || p[6] != protocolICMPv6 || p[7] != neighbourHops ||
		length < lengthND || length > len(p)-lengthIPv6 || !station.single() {
		return message{}, false
	}
	p = p[:lengthIPv6+length]
	source, destination := netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
	target := netip.AddrFrom16([16]byte(p[48:64]))
	if p[41] != 0 || source.IsMulticast() || !usable(target) || checksum(p) != 0 {
		return message{}, false
	}
	switch p[40] {
	case typeSolicitation:
		return parseSolicitation(station, source, destination, target, p[64:])
	case typeAdvertisement:
		if destination.IsMulticast() && p[44]&flagSolicited != 0 || source.IsUnspecified() {
			return message{}, false
		}
		from, present, ok := linkAddress(p[64:], optionTarget)
		if !present {
			from = station
		}
		return message{from: from, used: target}, ok
	}
	return message{}, false
}

func parseSolicitation(station MAC, source, destination, target netip.Addr, options []byte) (message, bool) {
	from, present, ok := linkAddress(options, optionSource)
	if !ok {
		return message{}, false
	}
	if !present {
		from = station
	}
	m := message{from: from, asked: target}
	if source.IsUnspecified() {
		return m, destination == solicitedNode(target) && !present
	}
	m.used, m.asker = source, source
	return m, true
}

// linkAddress returns the MAC address in an option of a kind, and whether the option is
// present. Not ok: the options are malformed.
func linkAddress(options []byte, kind byte) (mac MAC, present, ok bool) {
	for len(options) > 0 {
		if len(options) < 8 || options[1] == 0 || len(options) < int(options[1])*8 {
			return MAC{}, false, false
		}
		if options[0] == kind {
			if mac, present = MAC(options[2:8]), true; options[1] != 1 || !mac.single() {
				return MAC{}, false, false
			}
		}
		options = options[int(options[1])*8:]
	}
	return mac, present, true
}

// solicitedNode returns the group at which an address is resolved (RFC 4291 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// groupMAC returns the MAC address of an IPv6 group (RFC 2464 7).
func groupMAC(group netip.Addr) MAC {
	b := group.As16()
	return MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// solicitation returns a probe for duplicate address detection (RFC 4862 5.4.2).
func solicitation(mac MAC, vip netip.Addr) []byte {
	group := solicitedNode(vip)
	return ndFrame(groupMAC(group), mac, netip.IPv6Unspecified(), group, typeSolicitation, 0, vip, nil)
}

// advertisement returns the announcement that mac has vip. Its source is the VIP, as in
// the kernel (ndisc_send_na), and it has the router flag: weir forwards, and a default
// router that advertises itself without the flag loses that role (RFC 4861 7.2.5).
func advertisement(mac MAC, vip netip.Addr, to MAC, destination netip.Addr, flags byte) []byte {
	option := append([]byte{optionTarget, 1}, mac[:]...)
	return ndFrame(to, mac, vip, destination, typeAdvertisement, flags|flagOverride|flagRouter, vip, option)
}

func ndFrame(to, mac MAC, source, destination netip.Addr, kind, flags byte, target netip.Addr, option []byte) []byte {
	length := lengthND + len(option)
	b := ethernet(to, mac, typeIPv6, lengthIPv6+length)
	b = append(b, 0x60, 0, 0, 0, 0, byte(length), protocolICMPv6, neighbourHops)
	b = append(b, source.AsSlice()...)
	b = append(b, destination.AsSlice()...)
	b = append(b, kind, 0, 0, 0, flags, 0, 0, 0)
	b = append(b, target.AsSlice()...)
	b = append(b, option...)
	p := b[headerEthernet:]
	binary.BigEndian.PutUint16(p[42:], checksum(p))
	return b
}

// checksum returns the ICMPv6 checksum of an IPv6 packet (RFC 4443 2.3); 0 if the one in
// the packet is correct.
func checksum(packet []byte) uint16 {
	sum := uint32(protocolICMPv6) + uint32(len(packet)-lengthIPv6)
	for i := 8; i+1 < len(packet); i += 2 { // both addresses, then the message
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	if len(packet)%2 == 1 {
		sum += uint32(packet[len(packet)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
