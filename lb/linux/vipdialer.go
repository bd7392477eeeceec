package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// VIPDialer connects to VIPs at one backend each, by the virtual servers for checks
// (lb.CheckTarget). It is safe for concurrent use. Create one with NewVIPDialer.
type VIPDialer struct {
	marks marking
	of    atomic.Pointer[map[lb.CheckTarget]uint32]
}

// NewVIPDialer returns a VIPDialer for a Config.Mark.
func NewVIPDialer(masquerade uint32) *VIPDialer { return &VIPDialer{marks: marking{masquerade}} }

// Set sets the marks of the virtual servers in the kernel (lb.CheckMarks).
func (d *VIPDialer) Set(marks map[lb.CheckTarget]uint32) { d.of.Store(&marks) }

// Dial connects to a VIP and port at a backend, as net.Dialer.DialContext does. The error wraps
// lb.ErrNoCheckServer if the kernel has no virtual server for it: without one, the packets would
// reach any backend.
func (d *VIPDialer) Dial(ctx context.Context, network, address string, to lb.CheckTarget) (net.Conn, error) {
	var mark uint32
	if of := d.of.Load(); of != nil {
		mark = (*of)[to]
	}
	if mark == 0 {
		return nil, lb.ErrNoCheckServer
	}
	// Otherwise the kernel selects the VIP as the source, to which no server can reply.
	source, err := sourceTo(ctx, to.Backend)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error { return d.mark(raw, mark) }}
	if dialer.LocalAddr = net.UDPAddrFromAddrPort(source); network == "tcp" {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(source)
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		if device := strictDevice("/proc/sys/net/ipv4/conf/", source.Addr()); device != "" {
			return nil, fmt.Errorf("rp_filter is 1 on %s, so that the kernel drops the replies from its own VIP; set 2", device)
		}
	}
	return conn, err
}

func (d *VIPDialer) mark(raw syscall.RawConn, n uint32) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(d.marks.firewall(n))),
			// The port is chosen with the destination, so that all checks share the range.
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
	})
	return errors.Join(err, failed)
}

// sourceTo returns the address of this box for packets to a backend, with port 0. It sends none.
func sourceTo(ctx context.Context, backend netip.Addr) (netip.AddrPort, error) {
	const discard = 9
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(backend, discard).String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer c.Close()
	return netip.AddrPortFrom(c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), 0), nil
}

// strictDevice returns the interface with an address if the kernel drops packets there that would
// be sent back over another one; "" without one.
func strictDevice(conf string, a netip.Addr) string {
	if !a.Is4() {
		return ""
	}
	value := func(device string) string {
		b, _ := os.ReadFile(conf + device + "/rp_filter") // a missing one is no reason
		return strings.TrimSpace(string(b))
	}
	devices, _ := net.Interfaces()
	for _, device := range devices {
		addrs, _ := device.Addrs()
		for _, have := range addrs {
			if p, err := netip.ParsePrefix(have.String()); err == nil && p.Addr() == a && max(value("all"), value(device.Name)) == "1" {
				return device.Name
			}
		}
	}
	return ""
}
