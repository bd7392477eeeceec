package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// attempts bounds the tries of a call or of a round trip.
	attempts = 3

	// Room for the errors of a whole batch, and for events while the reader is busy.
	receiveBuffer = 8 << 20
	// Room for a transaction of nf_tables that can't be split: all ranges of one frontend.
	sendBuffer = 8 << 20
)

// socket is a netlink socket in Go's poller: a wait needs no thread, and a deadline can end
// it.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

func dial(protocol int, groups ...int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd) // the first error counts
		return nil, fmt.Errorf("bind netlink socket: %w", err)
	}
	// Optional, as the kernel and the privileges allow. An old kernel filters no dumps, for
	// example; the callers filter again.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)

	file := os.NewFile(uintptr(fd), "netlink")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close() // here, too
		return nil, err
	}
	s := &socket{file, raw}
	for _, g := range groups {
		if err := s.join(g); err != nil {
			_ = s.close() // here, too
			return nil, fmt.Errorf("join netlink group %d: %w", g, err)
		}
	}
	return s, nil
}

// join subscribes to a group of the kernel's announcements.
func (s *socket) join(group int) error { return s.set(unix.NETLINK_ADD_MEMBERSHIP, group) }

// leave ends the subscription.
func (s *socket) leave(group int) error { return s.set(unix.NETLINK_DROP_MEMBERSHIP, group) }

func (s *socket) set(option, value int) (err error) {
	ctlErr := s.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, option, value) })
	return errors.Join(ctlErr, err)
}

// send implements wire. The kernel carries the requests out before it returns.
func (s *socket) send(b []byte) error {
	var err error
	for range attempts {
		if ctlErr := s.raw.Control(func(fd uintptr) {
			_, err = unix.Write(int(fd), b)
		}); ctlErr != nil {
			return ctlErr
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return err
}

// receive implements wire.
func (s *socket) receive(b []byte, deadline time.Time) (int, error) {
	// The reply is nearly always there already, so no deadline is set for it.
	n, err := s.receiveNow(b)
	if !errors.Is(err, unix.EAGAIN) {
		return n, err
	}
	if err := s.file.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	return s.receiveWaiting(b)
}

func (s *socket) receiveNow(b []byte) (n int, err error) {
	if ctlErr := s.raw.Control(func(fd uintptr) { n, err = recv(fd, b) }); ctlErr != nil {
		return 0, ctlErr
	}
	return n, err
}

func (s *socket) receiveWaiting(b []byte) (n int, err error) {
	readErr := s.raw.Read(func(fd uintptr) bool {
		n, err = recv(fd, b)
		return !errors.Is(err, unix.EAGAIN)
	})
	if readErr != nil {
		return 0, readErr
	}
	return n, err
}

func recv(fd uintptr, b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (s *socket) close() error { return s.file.Close() }

// interruptible ends all waits on s with ctx. The returned function must be called when s is
// no longer used.
func (s *socket) interruptible(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		_ = s.file.SetReadDeadline(time.Unix(1, 0)) // fails on a closed file, which has no waiting reader
	})
}
