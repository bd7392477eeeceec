package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// What follows lets the test process itself take part in the networks, as a host: native Go clients
// and servers, without a process each. A box with a kernel of its own cannot be entered so.

var errOwnKernel = errors.New("it has a kernel of its own, into which only Run and Start reach")

// Do calls do with the calling goroutine in the host's network namespace: sockets opened there belong
// to the host for good. Goroutines that do starts are not in it.
func (m *Machine) Do(do func() error) error {
	on, err := boot{m}.on()
	if err != nil {
		return err
	}
	if on.netns == nil {
		return fmt.Errorf("%s: enter its network: %w", m.name, errOwnKernel)
	}
	return enter(on.netns, do)
}

// DialContext connects from the host. The address must be an IP address and a port. It fits
// http.Transport's field of the same name.
func (m *Machine) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return m.DialFrom(ctx, network, nil, address)
}

// DialFrom is DialContext with a local address of the kind that network takes (*net.UDPAddr, ...).
func (m *Machine) DialFrom(ctx context.Context, network string, local net.Addr, address string) (net.Conn, error) {
	return dialOn(ctx, m, net.Dialer{LocalAddr: local}, network, address)
}

// DialShared is Machine.DialFrom with a local address that other connections have, too, or had a moment ago.
func DialShared(ctx context.Context, m *Machine, network string, local net.Addr, address string) (net.Conn, error) {
	reuse := func(_, _ string, c syscall.RawConn) (err error) {
		ctl := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(ctl, err)
	}
	return dialOn(ctx, m, net.Dialer{LocalAddr: local, Control: reuse}, network, address)
}

func dialOn(ctx context.Context, m *Machine, d net.Dialer, network, address string) (conn net.Conn, err error) {
	err = m.Do(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens on the host.
func (m *Machine) Listen(network, address string) (net.Listener, error) {
	var l net.Listener
	err := m.Do(func() (err error) {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// ListenPacket listens for datagrams on the host.
func (m *Machine) ListenPacket(network, address string) (net.PacketConn, error) {
	var c net.PacketConn
	err := m.Do(func() (err error) {
		c, err = net.ListenPacket(network, address)
		return err
	})
	return c, err
}
