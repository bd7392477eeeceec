package bfd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The ports of BFD over one link (RFC 5881, 4) and over routers (RFC 5883, 5), and the
// range of source ports.
const (
	Port         = 3784
	MultihopPort = 4784
	LinkTTL      = 255 // of packets over one link, which no other host can send (RFC 5881, 5)
	firstSource  = 49152
	sources      = 65536 - firstSource
	sourceTries  = 8
)

// Dial returns a connection that sends BFD packets to an address, with a TTL. An invalid
// source means that the routing table selects it.
func Dial(to netip.AddrPort, source netip.Addr, ttl uint8) (conn *net.UDPConn, err error) {
	for range sourceTries {
		conn, err = dial(to, netip.AddrPortFrom(source, uint16(firstSource+rand.IntN(sources))), func(fd int) error {
			return setTTL(fd, to.Addr().Is6(), ttl)
		})
		if !errors.Is(err, unix.EADDRINUSE) {
			return conn, err
		}
	}
	return nil, err
}

// listen returns a connection that receives the packets of one address from all of its ports:
// it is connected to port 0. minTTL is the smallest accepted TTL.
//
// The kernel prefers it to a socket that is not connected, such as GoBGP's.
func listen(from netip.Addr, local netip.AddrPort, minTTL uint8) (*net.UDPConn, error) {
	return dial(netip.AddrPortFrom(from, 0), local, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		return AttachTTLFilter(fd, minTTL)
	})
}

// dial connects a UDP socket, after an option is set.
func dial(to, local netip.AddrPort, option func(fd int) error) (*net.UDPConn, error) {
	network := "udp4"
	if to.Addr().Is6() {
		network = "udp6"
	}
	from := &net.UDPAddr{Port: int(local.Port())}
	if a := local.Addr(); a.IsValid() {
		from.IP, from.Zone = a.AsSlice(), a.Zone()
	}
	d := net.Dialer{LocalAddr: from, Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = option(int(fd)) })
		return errors.Join(err, failed)
	}}
	c, err := d.DialContext(context.Background(), network, to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func setTTL(fd int, v6 bool, ttl uint8) error {
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	return unix.SetsockoptInt(fd, level, option, int(ttl))
}

// networkHeader is the offset of the IP header for a filter of a UDP socket, which begins
// at the UDP header (SKF_NET_OFF).
const networkHeader = 0xfff00000

// Offsets in the IP headers.
const (
	offsetTTL      = 8 // IPv4
	offsetHopLimit = 7 // IPv6
)

// AttachTTLFilter makes a UDP socket drop packets with a TTL or hop limit below least. The
// kernel has no option for it: IP_MINTTL is for TCP.
func AttachTTLFilter(fd int, least uint8) error {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: networkHeader, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4}, // the version
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipFalse: 2},
		bpf.LoadAbsolute{Off: networkHeader + offsetTTL, Size: 1},
		bpf.Jump{Skip: 1},
		bpf.LoadAbsolute{Off: networkHeader + offsetHopLimit, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(least), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1 << 16},
	})
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("attach the TTL filter: %w", err)
	}
	return nil
}
