package health

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Dial opens a connection as net.Dialer.DialContext does; network is "tcp" or
// "udp", address an IP address and port.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// asker asks a target once, within the deadline of ctx. An error says what is
// wrong with the target.
type asker func(ctx context.Context, dial Dial, t target) error

// target is who is asked.
type target struct {
	address string
	timeout time.Duration // for messages; the deadline is in the context
}

// asker gives what asks by c. CA files are read through cas.
func (c *Check) asker(cas authorities) (asker, error) {
	if err := c.valid(); err != nil {
		return nil, err
	}
	var roots *x509.CertPool
	if c.Verify && c.CAFile != "" {
		var err error
		if roots, err = cas.read(c.CAFile); err != nil {
			return nil, err
		}
	}
	switch c.Kind {
	case TLS:
		return askTLS(c.tlsConfig(roots)), nil
	case HTTP:
		return newPage(c).ask, nil
	case HTTPS:
		return newPage(c).over(c.tlsConfig(roots, "http/1.1")), nil
	case GRPC:
		return askGRPC(c, roots), nil
	case UDP:
		return askUDP(c.Send, c.Expect), nil
	}
	return askTCP, nil
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

// talk connects, and has everything on the connection end with ctx.
func (t target) open(ctx context.Context, dial Dial, network string) (conn net.Conn, release func() bool, err error) {
	conn, err = t.connect(ctx, dial, network)
	if err != nil {
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // the end of ctx comes too, and sets it again
	}
	return conn, context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // fails on a closed connection, on which nobody waits
	}), nil
}

// How long and how much is read for politeness after the verdict.
const (
	drainTime  = 50 * time.Millisecond
	drainBytes = 64 << 10
)

// part closes a connection on which the other side may still be talking. Closed
// with unread bytes (a session ticket, the rest of a page) the kernel would send
// a reset, which many servers log as an error.
func closeGracefully(ctx context.Context, conn net.Conn) {
	if ctx.Err() == nil {
		until := time.Now().Add(drainTime)
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
			until = deadline
		}
		// The verdict stands, whatever comes now.
		if conn.SetReadDeadline(until) == nil {
			_, _ = io.CopyN(io.Discard, conn, drainBytes)
		}
	}
	_ = conn.Close() // nor does this change it
}

// silence is that nothing came within the timeout.
type timeoutError time.Duration

func (s timeoutError) Error() string { return "no answer within " + time.Duration(s).String() }

var errClosed = errors.New("connection closed too early")

// cause strips err of what its reader knows already.
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

// stalled is how much longer than its timeout a check takes only if this box
// didn't get to run.
const stalled = 500 * time.Millisecond

// ours tells whether a check failed for want of something on this box, which says
// nothing of the backend.
func localFault(err error, took, timeout time.Duration) bool {
	for _, errno := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.EADDRNOTAVAIL, // connect(2): all ports of the ephemeral range are in use
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	var s timeoutError
	return errors.As(err, &s) && took > timeout+stalled
}

// maxProblem bounds what is said of a failed check.
const maxProblem = 160

// problem says what err is in one short line. Parts of it may come from the other
// side (names in a certificate), so it is cleaned.
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
