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
		if limit, ok := ctx.Deadline(); ok {
			wait := unix.NsecToTimeval(max(time.Until(limit), time.Millisecond).Nanoseconds())
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
				return err
			}
		}
		err := unix.Connect(fd, to)
		if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EAGAIN) {
			return os.ErrDeadlineExceeded
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial %s %s: %w", network, addr, err)
	}
	defer func() { _ = f.Close() }()
	return net.FileConn(f)
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
