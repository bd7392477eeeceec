package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"

	"weir/lb"
)

// Dial opens a connection as net.Dialer.DialContext does; network is "tcp" or
// "udp", address an IP address and port.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// asker checks a target once, within the deadline of ctx. An error describes the fault of the
// target.
type asker func(ctx context.Context, dial Dial, t target) error

// target is the address of a check.
type target struct {
	address string
	timeout time.Duration // for messages; the context has the deadline
	service lb.ServiceID
}

func askTCP(ctx context.Context, dial Dial, t target) error {
	conn, err := t.connect(ctx, dial, "tcp")
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}

func (t target) connect(ctx context.Context, dial Dial, network string) (net.Conn, error) {
	conn, err := dial(ctx, network, t.address)
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", t.address, t.cause(err))
	}
	return conn, nil
}

// open connects. All operations on the connection end with ctx.
func (t target) open(ctx context.Context, dial Dial, network string) (conn net.Conn, release func() bool, err error) {
	conn, err = t.connect(ctx, dial, network)
	if err != nil {
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // the end of ctx sets it again
	}
	return conn, context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // fails on a closed connection, which has no reader
	}), nil
}

// overConn returns an asker that opens a connection. All operations on it end with the check, and
// ask closes it.
func overConn(network string, ask func(ctx context.Context, conn net.Conn, t target) error) asker {
	return func(ctx context.Context, dial Dial, t target) error {
		conn, release, err := t.open(ctx, dial, network)
		if err != nil {
			return err
		}
		defer release()
		return ask(ctx, conn, t)
	}
}

// The limits of reading after the result.
const (
	drainTime  = 50 * time.Millisecond
	drainBytes = 64 << 10
)

// closeGracefully closes a connection on which the server may still send. With unread bytes (a
// session ticket, the rest of a page) the kernel would send a reset, which many servers log as
// an error.
func closeGracefully(ctx context.Context, conn net.Conn) {
	if ctx.Err() == nil {
		until := time.Now().Add(drainTime)
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
			until = deadline
		}
		// Errors have no effect on the result.
		if conn.SetReadDeadline(until) == nil {
			_, _ = io.CopyN(io.Discard, conn, drainBytes)
		}
	}
	_ = conn.Close() // nor has this one
}

// timeoutError is the error of a check without an answer within its timeout.
type timeoutError time.Duration

func (s timeoutError) Error() string { return "no answer within " + time.Duration(s).String() }

var errClosed = errors.New("connection closed too early")

// cause removes known parts from err, such as the address.
func (t target) cause(err error) error {
	var (
		errno  syscall.Errno
		remote *net.OpError
	)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return timeoutError(t.timeout)
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errClosed
	case errors.As(err, &remote):
		return remote.Err
	}
	return err
}

// stalled is the time beyond its timeout that a check takes only if this box did not get to
// run.
const stalled = 500 * time.Millisecond

// localFault reports whether a check failed because this box lacks something, which is no
// result about the backend.
func localFault(err error, took, timeout time.Duration) bool {
	_, silent := errors.AsType[timeoutError](err)
	return lacksMeans(err) || silent && took > timeout+stalled
}

// lacksMeans reports whether a check failed for lack of files, memory, addresses or other means.
func lacksMeans(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.EADDRNOTAVAIL, // connect(2): all ports of the ephemeral range are in use
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errors.Is(err, errNoRun) || errors.Is(err, errNoSession) || errors.Is(err, lb.ErrNoCheckServer) || errors.Is(err, lb.ErrRepliesDropped)
}

// maxProblem limits the text about a failed check.
const maxProblem = 160

// problem returns err as one short line. Parts of it may come from the server (names in a
// certificate), so it is cleaned.
func problem(err error) string {
	if err == nil {
		return ""
	}
	s := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, err.Error())
	if len(s) > maxProblem {
		s = strings.ToValidUTF8(s[:maxProblem], "") + "..."
	}
	return s
}
