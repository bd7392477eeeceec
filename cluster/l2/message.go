package l2

import "net/netip"

// message is the content of an ARP or NDP frame of another host. The zero Addr is none.
type message struct {
	// from is the MAC address that the frame assigns to the used address: that of the
	// payload, or else that of the frame.
	from MAC
	// used is the address that the sender uses itself.
	used netip.Addr
	// asked is the address that the sender resolves, and asker its own address; a probe
	// has none.
	asked, asker netip.Addr
}

// probes reports whether the sender probes for an address in order to use it (RFC 5227
// 1.1, RFC 4862 5.4.2).
func (m message) probes() bool { return m.asked.IsValid() && !m.asker.IsValid() }

// single reports whether a MAC address is that of one host.
func (m MAC) single() bool { return m != MAC{} && m[0]&1 == 0 }

const (
	headerEthernet = 14
	typeARP        = 0x0806
	typeIPv6       = 0x86dd
)

// ethernet returns the header of a frame.
func ethernet(to, from MAC, ethertype uint16, length int) []byte {
	b := make([]byte, 0, headerEthernet+length)
	b = append(b, to[:]...)
	b = append(b, from[:]...)
	return append(b, byte(ethertype>>8), byte(ethertype))
}
