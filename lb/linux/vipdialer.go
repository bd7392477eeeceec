package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// VIPDialer connects to VIPs at one backend each, by the virtual servers for checks
// (lb.CheckTarget). It is safe for concurrent use. Create one with NewVIPDialer.
type VIPDialer struct {
	marks marking

	mu sync.RWMutex
	of map[lb.ServiceID]map[netip.Addr]uint32
}

// NewVIPDialer returns a VIPDialer for a Config.Mark.
func NewVIPDialer(masquerade uint32) *VIPDialer {
	return &VIPDialer{marks: marking{masquerade}, of: map[lb.ServiceID]map[netip.Addr]uint32{}}
}

// Set sets the marks of the virtual servers of some Services in the kernel (lb.CheckMarks).
func (d *VIPDialer) Set(marks map[lb.ServiceID]map[netip.Addr]uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, of := range marks {
		if d.of[id] = of; len(of) == 0 {
			delete(d.of, id)
		}
	}
}

func (d *VIPDialer) markOf(to lb.CheckTarget) uint32 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.of[to.Service][to.Backend]
}

// Dial connects to a VIP and port at a backend, as net.Dialer.DialContext does. The error wraps
// lb.ErrNoCheckServer if the kernel has no virtual server for it: without one, the packets would
// reach any backend.
func (d *VIPDialer) Dial(ctx context.Context, network, address string, to lb.CheckTarget) (net.Conn, error) {
	mark := d.markOf(to)
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
	return dialer.DialContext(ctx, network, address)
}

// Fault returns an error that wraps lb.ErrRepliesDropped if the kernel drops the replies of VIPs at a
// backend, nil if it does not. IPv6 has no such parameters.
func (d *VIPDialer) Fault(ctx context.Context, at lb.CheckTarget) error {
	if !at.Backend.Is4() {
		return nil
	}
	return replyFault("/proc/sys/net/ipv4/conf/", deviceTo(ctx, at.Backend))
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

// replyFault returns the parameter of an interface by which the kernel drops packets with a source
// address of the box; nil without one. The larger value of all interfaces and of the one counts.
func replyFault(conf, device string) error {
	value := func(parameter string) string {
		all, _ := os.ReadFile(conf + "all/" + parameter) // a missing one is no reason
		one, _ := os.ReadFile(conf + device + "/" + parameter)
		return max(strings.TrimSpace(string(all)), strings.TrimSpace(string(one)))
	}
	switch {
	case device == "":
		return nil
	case value("accept_local") == "0":
		return fmt.Errorf("accept_local is 0 on %s, set 1: %w", device, lb.ErrRepliesDropped)
	case value("rp_filter") == "1":
		return fmt.Errorf("rp_filter is 1 on %s, set 2: %w", device, lb.ErrRepliesDropped)
	}
	return nil
}

// deviceTo returns the interface of the route to a backend, "" without one. It asks for this route
// only: a list of all addresses has thousands on a box with as many VIPs.
func deviceTo(ctx context.Context, backend netip.Addr) string {
	c := newConn(unix.NETLINK_ROUTE, &Traffic{})
	defer c.close()
	var index uint32
	err := c.query(ctx, func(e *encoder) { putRouteGet(e, backend) }, func() {}, func(m message) { index = parseRouteLink(m.body) })
	if err != nil || index == 0 {
		return ""
	}
	name, err := linkName(index)
	if err != nil {
		return ""
	}
	return name
}

// linkName returns the name of an interface. Package net would list all interfaces.
func linkName(index uint32) (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	link, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	link.SetUint32(index)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, link); err != nil {
		return "", err
	}
	return link.Name(), nil
}
