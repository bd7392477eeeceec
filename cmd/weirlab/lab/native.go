package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
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

func dialOn(ctx context.Context, m *Machine, d net.Dialer, network, address string) (net.Conn, error) {
	return opened(m, func() (net.Conn, error) { return d.DialContext(ctx, network, address) })
}

// Listen listens on the host.
func (m *Machine) Listen(network, address string) (net.Listener, error) {
	return opened(m, func() (net.Listener, error) { return net.Listen(network, address) })
}

// ListenPacket listens for datagrams on the host.
func (m *Machine) ListenPacket(network, address string) (net.PacketConn, error) {
	return opened(m, func() (net.PacketConn, error) { return net.ListenPacket(network, address) })
}

// opened opens a socket on the host.
func opened[T any](m *Machine, open func() (T, error)) (socket T, err error) {
	err = m.Do(func() (err error) {
		socket, err = open()
		return err
	})
	return socket, err
}

// enter calls do with the calling goroutine in a network namespace. Goroutines that do starts are not
// in it; sockets it opens stay in it for good.
func enter(namespace *os.File, do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	// Deferred, as do may end the goroutine (t.Fatal). A thread that cannot return to its namespace is not unlocked:
	// it ends with the goroutine.
	defer func() {
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return do()
}
