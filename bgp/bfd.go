package bgp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/osrg/gobgp/v4/pkg/packet/bfd"
	"golang.org/x/sys/unix"
)

// Single-hop BFD (RFC 5881, 4): the port, and the range of source ports.
const (
	bfdPort          = 3784
	bfdFirstSource   = 49152
	bfdSources       = 65536 - bfdFirstSource
	bfdSourceTries   = 8
	bfdPacketsToSend = 3 // there is no acknowledgement
)

// bfdAdminDown announces to a router that the BFD session ends on purpose, so that the
// router does not consider the box dead (RFC 5880, 6.8.16; RFC 5882, 3.2). GoBGP has
// closed its own end by now; without the router's discriminator the packet finds the
// session by its addresses (RFC 5880, 6.8.6).
func bfdAdminDown(router, local netip.Addr, p Peer) error {
	interval := uint32(p.BFD.Interval.Microseconds())
	packet, err := (&bfd.BFDHeader{
		Version:               1,
		Diagnostic:            bfd.DiagnosticAdministrativelyDown,
		State:                 bfd.StateAdminDown,
		DetectTimeMultiplier:  uint8(p.BFD.Multiplier),
		MyDiscriminator:       rand.Uint32() | 1,
		DesiredMinTxInterval:  interval,
		RequiredMinRxInterval: interval,
	}).MarshalBinary()
	if err != nil {
		return err
	}
	conn, err := bfdDial(router, local)
	if err != nil {
		return fmt.Errorf("send BFD AdminDown to %s: %w", router, err)
	}
	defer conn.Close()
	if err := setTTL(conn, router.Is6()); err != nil {
		return fmt.Errorf("send BFD AdminDown to %s: %w", router, err)
	}
	for range bfdPacketsToSend {
		if _, err := conn.Write(packet); err != nil {
			return fmt.Errorf("send BFD AdminDown to %s: %w", router, err)
		}
	}
	return nil
}

func bfdDial(router, local netip.Addr) (conn *net.UDPConn, err error) {
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(router, bfdPort))
	for range bfdSourceTries {
		from := &net.UDPAddr{Port: bfdFirstSource + rand.IntN(bfdSources)}
		if local.IsValid() {
			from.IP, from.Zone = local.AsSlice(), local.Zone()
		}
		if conn, err = net.DialUDP("udp", from, to); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// setTTL sets the TTL that single-hop BFD demands (RFC 5881, 5).
func setTTL(conn *net.UDPConn, v6 bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 255) }); err != nil {
		return err
	}
	return failed
}
