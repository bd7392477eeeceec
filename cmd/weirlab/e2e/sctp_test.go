package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func listenSCTP(network, addr string) (net.Listener, error) {
	f, err := socketSCTP(network, addr, func(fd int, at unix.Sockaddr) error {
		if err := unix.Bind(fd, at); err != nil {
			return err
		}
		return unix.Listen(fd, 16)
	})
	if err != nil {
		return nil, fmt.Errorf("listen %s %s: %w", network, addr, err)
	}
	defer func() { _ = f.Close() }()
	return net.FileListener(f)
}

func dialSCTP(ctx context.Context, network, addr string) (net.Conn, error) {
	f, err := socketSCTP(network, addr, func(fd int, to unix.Sockaddr) error {
		// A signal of Go's scheduler interrupts a connect that blocks (EINTR), and
		// none that doesn't.
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		err := unix.Connect(fd, to)
		if errors.Is(err, unix.EINPROGRESS) {
			return connectedSCTP(ctx, fd)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial %s %s: %w", network, addr, err)
	}
	defer func() { _ = f.Close() }()
	return net.FileConn(f)
}

// connectedSCTP waits for the end of a connect that did not block, and returns its
// error.
func connectedSCTP(ctx context.Context, fd int) error {
	limit, ok := ctx.Deadline()
	if !ok {
		limit = time.Now().Add(time.Minute)
	}
	for {
		left := time.Until(limit)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			break
		}
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || code == 0 {
		return err
	}
	return unix.Errno(code)
}

func socketSCTP(network, addr string, use func(int, unix.Sockaddr) error) (*os.File, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	family := unix.AF_INET
	var sockaddr unix.Sockaddr
	if network == "sctp6" {
		family = unix.AF_INET6
		sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	} else {
		sockaddr = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, err
	}
	if network == "sctp6" {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = use(fd, sockaddr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "sctp"), nil
}
