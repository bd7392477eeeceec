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
	// The limits of a batch. Beyond 64 messages there is no gain: the kernel's own work remains.
	// With one message in each batch it takes ten times as long.
	batchMessages = 128
	batchBytes    = 32 << 10

	// The kernel works within sendmsg: a reply that is missing after this time never comes.
	replyTimeout = 5 * time.Second
)

// refusal is the kernel's NLMSG_ERROR for one message.
type refusal struct {
	errno syscall.Errno
	// echo is the request, usually only its header (NETLINK_CAP_ACK). In that of ipset the kernel
	// marks the refused member.
	echo []byte
}

func (r *refusal) Error() string { return errnoText(r.errno) }
func (r *refusal) Unwrap() error { return r.errno }

// errNoReply is the error after the last attempt without a reply.
var errNoReply = errors.New("no reply from the kernel")

// errCut is the error of a datagram that ends within a message: its rest is lost, and a dump would look
// complete without it.
var errCut = errors.New("a reply was cut short")

// errInterrupted is the error of a dump of a list that changed meanwhile. All of its replies are received, so the
// next attempt has the same socket.
var errInterrupted = fmt.Errorf("the list changed while it was read: %w", unix.EAGAIN)

// wire is a netlink socket. Tests replace it to lose replies.
type wire interface {
	send(b []byte) error
	receive(b []byte, deadline time.Time) (int, error)
	close() error
}

// conn sends requests over a wire, many at once, and matches the replies. It is for one
// goroutine at a time.
//
// A request may be carried out twice: after a lost reply, the batch is sent again over a new
// socket. All of weir's requests are idempotent, as present on add and absent on delete are
// success.
type conn struct {
	open  func() (wire, error)
	wire  wire
	seq   uint32
	in    []byte
	out   encoder
	count *Traffic
	// sockets is the number of sockets so far, and commits that of the transactions of nf_tables
	// that the kernel has carried out.
	sockets, commits uint32
}

func newConn(protocol int, count *Traffic) *conn {
	return &conn{open: func() (wire, error) { return dial(protocol) }, count: count, in: make([]byte, 64<<10)}
}

func (c *conn) close() {
	if c.wire != nil {
		c.wire.close()
		c.wire = nil
	}
}

// exchange sends n requests and returns their errors. put encodes the i-th one as exactly one
// message. Only the last of a batch requests an acknowledgement: the kernel reports errors in
// any case.
func (c *conn) exchange(ctx context.Context, n int, put func(e *encoder, i int)) []error {
	errs := make([]error, n)
	for done := 0; done < n; {
		if err := ctx.Err(); err != nil {
			fill(errs[done:], err)
			return errs
		}
		c.out.reset(c.seq)
		for i := done; i < n && c.out.count < batchMessages && len(c.out.b) < batchBytes; i++ {
			put(&c.out, i)
		}
		c.out.finish()
		c.out.flag(unix.NLM_F_ACK)
		size := c.out.count
		c.deliver(errs[done : done+size])
		done += size
	}
	return errs
}

// deliver sends the batch in c.out and stores one error for each message.
func (c *conn) deliver(errs []error) {
	first := c.seq
	c.seq += uint32(len(errs))
	last := c.seq - 1
	err := c.try(func() error {
		clear(errs)
		return c.roundTrip(len(errs), func(m message) (bool, error) {
			at := m.seq - first
			if m.typ != unix.NLMSG_ERROR || at >= uint32(len(errs)) {
				return false, nil
			}
			errs[at] = parseError(m.body)
			if errs[at] != nil {
				c.count.Errors.Add(1)
			}
			return m.seq == last, nil
		})
	})
	if err != nil {
		fill(errs, err)
	}
}

// query sends one request and calls each for each reply: all messages of a dump (flags has
// NLM_F_DUMP), or the only one. After a lost reply it starts over and calls again, so that the
// caller can discard what it has.
func (c *conn) query(ctx context.Context, put func(e *encoder), again func(), each func(message)) error {
	if err := ctx.Err(); err != nil {
		return err // try would close the socket, which may own tables
	}
	return c.try(func() error {
		again()
		c.out.reset(c.seq)
		put(&c.out)
		c.out.finish()
		c.out.flag(unix.NLM_F_ACK)
		seq := c.seq
		c.seq++
		interrupted := false
		return c.roundTrip(1, func(m message) (bool, error) {
			if m.seq != seq {
				return false, nil
			}
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			switch m.typ {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				err := parseError(m.body)
				if err == nil && interrupted {
					err = errInterrupted
				}
				return true, err
			}
			each(m)
			return false, nil
		})
	})
}

// roundTrip sends c.out and passes the replies to reply until done.
func (c *conn) roundTrip(n int, reply func(message) (done bool, err error)) error {
	if c.wire == nil {
		w, err := c.open()
		if err != nil {
			return err
		}
		c.wire = w
		c.sockets++
	}
	c.count.Messages.Add(uint64(n))
	c.count.Sends.Add(1)
	if err := c.wire.send(c.out.b); err != nil {
		return err
	}
	deadline := time.Now().Add(replyTimeout)
	for {
		size, err := c.wire.receive(c.in, deadline)
		if err != nil {
			return err
		}
		whole := 0
		for m := range messages(c.in[:size]) {
			if done, err := reply(m); done || err != nil {
				return err
			}
			whole += align(unix.NLMSG_HDRLEN + len(m.body))
		}
		if whole < size {
			return errCut
		}
	}
}

// try repeats a round trip with an unknown outcome. Each attempt after a lost reply has a new socket, so
// that no late reply is matched with another request. A refusal is an outcome.
func (c *conn) try(roundTrip func() error) error {
	var err error
	for i := range attempts {
		if i > 0 {
			c.count.Retries.Add(1)
		}
		err = roundTrip()
		if _, refused := errors.AsType[*refusal](err); err == nil || refused {
			return err
		}
		if !errors.Is(err, errInterrupted) {
			c.close()
		}
		if !passing(err) {
			return err
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errNoReply
	}
	return fmt.Errorf("%w (%w)", errNoReply, err)
}

// passing reports whether an error is temporary: a reply that did not come or for which there
// was no room, an interrupted call, a dump of a list that changed meanwhile.
func passing(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errCut) || errors.Is(err, unix.ENOBUFS) ||
		errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOMEM)
}

// parseError decodes the body of NLMSG_ERROR and NLMSG_DONE: a negative errno.
func parseError(body []byte) error {
	errno := int32(getU32(body))
	if errno == 0 {
		return nil
	}
	r := &refusal{errno: syscall.Errno(-errno)}
	if len(body) > 4 {
		r.echo = append([]byte(nil), body[4:]...)
	}
	return r
}

func fill(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// errnoText returns the text of an error number. The kernel's ipset has its own numbers, from
// 4096 (include/uapi/linux/netfilter/ipset/ip_set.h).
func errnoText(errno syscall.Errno) string {
	if s, ok := ipsetErrors[errno]; ok {
		return s
	}
	return errno.Error()
}
