package lb

import (
	"net/netip"
	"strconv"
)

// Forwarding is the method by which packets reach a real server.
type Forwarding uint8

// The forwarding methods. weir never wants LocalNode; it is observed.
const (
	// Masquerading replaces the VIP by the backend's address and port. Replies pass the box.
	Masquerading Forwarding = iota
	LocalNode
	// Tunnel sends the packet unchanged in another one to the backend, which has the VIP as an
	// address of its own and replies to the client.
	Tunnel
	// DirectRouting does the same with a frame to the backend's link address.
	DirectRouting
)

// Direct reports whether the backend gets packets to the VIP unchanged, and its replies do not
// pass the box. Nothing masquerades such packets.
func (f Forwarding) Direct() bool { return f == Tunnel || f == DirectRouting }

func (f Forwarding) String() string {
	return [...]string{"masquerading", "local", "tunnel", "direct routing"}[f]
}

// Encap is the packet around the packets of a Tunnel: IPIP for the zero Encap.
type Encap struct {
	Type EncapType
	// Port is the UDP port of GUE at the backend.
	Port     uint16
	Checksum EncapChecksum
}

// EncapType has the values of IP_VS_CONN_F_TUNNEL_TYPE_* in include/uapi/linux/ip_vs.h.
type EncapType uint8

// The types of tunnels.
const (
	IPIP EncapType = iota
	GUE
	GRE
)

func (t EncapType) String() string { return word(int(t), "ipip", "gue", "gre") }

// EncapChecksum has the values of IP_VS_TUNNEL_ENCAP_FLAG_*.
type EncapChecksum uint8

// The checksums of tunnels: none, of the outer packet, or for GUE of the inner packet, in a way
// that network cards can compute (remote checksum offload).
const (
	NoChecksum EncapChecksum = iota
	FullChecksum
	RemoteChecksum
)

func (c EncapChecksum) String() string { return word(int(c), "none", "full", "remote") }

// backendFamily returns the family of the backends of a port for clients of a family. It is the other
// one if only that has backends, and tunnels route to them. In a group each family has backends of its
// own: /proc/net/ip_vs does not show the family of a firewall mark.
func (s Service) backendFamily(port Port, clients Family) Family {
	tunnels := false
	for _, be := range port.Backends {
		if FamilyOf(be.Addr.Addr()) == clients {
			return clients
		}
		tunnels = tunnels || be.Forward == Tunnel
	}
	switch {
	case !tunnels || s.Group || s.FWMark != 0:
		return clients
	case clients == IPv4:
		return IPv6
	}
	return IPv4
}

// Mixed returns the first VIP that has backends of the other family.
func (s Service) Mixed() (vip netip.Addr, mixed bool) {
	for _, v := range s.VIPs {
		for _, p := range s.Ports {
			if s.MixedAt(v.Addr, p) {
				return v.Addr, true
			}
		}
	}
	return netip.Addr{}, false
}

// MixedAt reports whether a VIP has backends of the other family at a port.
func (s Service) MixedAt(vip netip.Addr, port Port) bool {
	f := FamilyOf(vip)
	return s.backendFamily(port, f) != f
}

// word returns the word of a number, or the number if another program chose it.
func word(n int, words ...string) string {
	if n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n)
}

// String returns the words after "tunnel": "gue port 6080 checksum full".
func (e Encap) String() string {
	s := e.Type.String()
	if e.Port != 0 {
		s += " port " + strconv.Itoa(int(e.Port))
	}
	if e.Checksum != NoChecksum {
		s += " checksum " + e.Checksum.String()
	}
	return s
}

// method names the forwarding method.
func (o RealServer) method() string {
	if o.Forward == Tunnel {
		return o.Forward.String() + " " + o.Encap.String()
	}
	return o.Forward.String()
}

// method names the forwarding method; empty for masquerading.
func (b Backend) method() string {
	if b.Forward == Masquerading {
		return ""
	}
	return RealServer{Forward: b.Forward, Encap: b.Encap}.method()
}
