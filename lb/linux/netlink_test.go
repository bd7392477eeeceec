package linux

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// played is a wire with a simulated kernel. kernel receives each message and appends its
// replies; nil loses them.
type played struct {
	kernel func(m message) []byte
	in     [][]byte
	// fail has the next errors of send and receive.
	fail []error
	// deaf makes receive find nothing.
	deaf bool
	// last is what receive fails with when nothing is left; nil is a timeout.
	last error
}

func (p *played) send(b []byte) error {
	if len(p.fail) > 0 {
		err := p.fail[0]
		p.fail = p.fail[1:]
		return err
	}
	for m := range messages(b) {
		if reply := p.kernel(m); reply != nil {
			p.in = append(p.in, reply)
		}
	}
	return nil
}

func (p *played) receive(b []byte, _ time.Time) (int, error) {
	if len(p.in) == 0 || p.deaf {
		return 0, cmp.Or(p.last, os.ErrDeadlineExceeded)
	}
	n := copy(b, p.in[0])
	p.in = p.in[1:]
	return n, nil
}

func (p *played) close() error { return nil }

func reply(m message, typ uint16, body ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint32(b, m.seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, body...)
}

func ack(m message, errno syscall.Errno) []byte {
	return reply(m, unix.NLMSG_ERROR, binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))...)
}

// playedConn returns a conn over the wires of play, one after the other.
func playedConn(wires ...*played) (*conn, *Traffic) {
	count := &Traffic{}
	c := newConn(0, count)
	c.open = func() (wire, error) {
		if len(wires) == 0 {
			return nil, errors.New("too many sockets")
		}
		w := wires[0]
		wires = wires[1:]
		return w, nil
	}
	return c, count
}

// obedient acknowledges on request; the type of each message is its error number.
func obedient(m message) []byte {
	if m.typ != 0 || m.flags&unix.NLM_F_ACK != 0 {
		return ack(m, syscall.Errno(m.typ))
	}
	return nil
}

func TestExchangeGivesEachMessageItsError(t *testing.T) {
	t.Parallel()
	c, count := playedConn(&played{kernel: obedient})
	const n = 300
	errs := c.exchange(context.Background(), n, func(e *encoder, i int) {
		typ := uint16(0)
		if i%100 == 27 {
			typ = uint16(unix.EEXIST)
		}
		e.message(typ, 0)
	})
	for i, err := range errs {
		want := error(nil)
		if i%100 == 27 {
			want = unix.EEXIST
		}
		if !errors.Is(err, want) {
			t.Errorf("message %d: %v, want %v", i, err, want)
		}
	}
	if got, want := count.Sends.Load(), uint64(3); got != want {
		t.Errorf("%d messages in %d sends, want %d", n, got, want)
	}
	if got := count.Errors.Load(); got != 3 {
		t.Errorf("%d errors counted, want 3", got)
	}
}

func TestExchangeSendsAgainWhenTheReplyIsLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []struct {
		name string
		wire *played
	}{
		{"reply never comes", &played{kernel: obedient, deaf: true}},
		{"no room for the replies", &played{kernel: obedient, fail: []error{unix.ENOBUFS}}},
		{"interrupted", &played{kernel: obedient, fail: []error{unix.EINTR}}},
		{"try again", &played{kernel: obedient, fail: []error{unix.EAGAIN}}},
	} {
		t.Run(lost.name, func(t *testing.T) {
			t.Parallel()
			c, count := playedConn(lost.wire, &played{kernel: obedient})
			errs := c.exchange(context.Background(), 2, func(e *encoder, i int) {
				e.message(uint16(i)*uint16(unix.ENOENT), 0)
			})
			if errs[0] != nil || !errors.Is(errs[1], unix.ENOENT) {
				t.Errorf("errors %v", errs)
			}
			if got := count.Retries.Load(); got != 1 {
				t.Errorf("%d retries, want 1", got)
			}
		})
	}
}

func TestExchangeGivesUpAfterAFewAttempts(t *testing.T) {
	t.Parallel()
	deaf := func() *played { return &played{kernel: obedient, deaf: true} }
	c, count := playedConn(deaf(), deaf(), deaf(), deaf())
	errs := c.exchange(context.Background(), 1, func(e *encoder, _ int) { e.message(0, 0) })
	if !errors.Is(errs[0], errNoReply) {
		t.Errorf("error %v, want %v", errs[0], errNoReply)
	}
	if got := count.Sends.Load(); got != attempts {
		t.Errorf("%d sends, want %d", got, attempts)
	}
}

func TestExchangeTakesNoLateReplyForItsOwn(t *testing.T) {
	t.Parallel()
	late := func(m message) []byte {
		m.seq -= 7
		return append(ack(m, unix.EPERM), obedient(message{typ: m.typ, flags: m.flags, seq: m.seq + 7})...)
	}
	c, _ := playedConn(&played{kernel: late})
	c.seq = 100
	errs := c.exchange(context.Background(), 1, func(e *encoder, _ int) { e.message(0, 0) })
	if errs[0] != nil {
		t.Errorf("error %v", errs[0])
	}
}

func TestExchangeStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	wire := &played{kernel: func(m message) []byte { cancel(); return obedient(m) }}
	c, _ := playedConn(wire)
	errs := c.exchange(ctx, 2*batchMessages, func(e *encoder, _ int) { e.message(0, 0) })
	if errs[0] != nil || !errors.Is(errs[batchMessages], context.Canceled) {
		t.Errorf("first batch %v, second %v", errs[0], errs[batchMessages])
	}
}

func TestQueryStartsOverWhenADumpWasInterrupted(t *testing.T) {
	t.Parallel()
	broken := func(m message) []byte {
		part := reply(m, 99, 1, 0, 0, 0)
		binary.NativeEndian.PutUint16(part[6:], unix.NLM_F_DUMP_INTR)
		return append(part, reply(m, unix.NLMSG_DONE, 0, 0, 0, 0)...)
	}
	whole := func(m message) []byte {
		return append(reply(m, 99, 2, 0, 0, 0), reply(m, unix.NLMSG_DONE, 0, 0, 0, 0)...)
	}
	tries := 0
	c, _ := playedConn(&played{kernel: func(m message) []byte { // over one socket: all replies are there
		if tries++; tries == 1 {
			return broken(m)
		}
		return whole(m)
	}})
	var got []byte
	err := c.query(context.Background(), func(e *encoder) { e.message(1, 0) }, func() { got = nil },
		func(m message) { got = append(got, m.body[0]) })
	if err != nil || len(got) != 1 || got[0] != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

// dumped are two objects and the end of a dump, one datagram each.
func dumped(m message) [][]byte {
	return [][]byte{
		append(reply(m, 99, 1, 0, 0, 0), reply(m, 99, 2, 0, 0, 0)...), reply(m, 99, 3, 0, 0, 0), reply(m, unix.NLMSG_DONE, 0, 0, 0, 0),
	}
}

// shortDumps are the ways in which a dump may arrive without all of it.
var shortDumps = []struct {
	name string
	cut  func(in [][]byte) [][]byte
	last error
}{
	{"no end", func(in [][]byte) [][]byte { return in[:2] }, nil},
	{"no end, and half of it", func(in [][]byte) [][]byte { return in[:1] }, nil},
	{"nothing at all", func([][]byte) [][]byte { return nil }, nil},
	{"no room for the rest", func(in [][]byte) [][]byte { return in[:1] }, unix.ENOBUFS},
	{"interrupted before the rest", func(in [][]byte) [][]byte { return in[:1] }, unix.EINTR},
	{"no memory for the rest", func(in [][]byte) [][]byte { return in[:1] }, unix.ENOMEM},
	{"a datagram cut within a message", func(in [][]byte) [][]byte {
		in[0] = in[0][:unix.NLMSG_HDRLEN+4+unix.NLMSG_HDRLEN+2]
		return in
	}, nil},
	{"a datagram cut within a header", func(in [][]byte) [][]byte {
		in[0] = in[0][:unix.NLMSG_HDRLEN+4+7]
		return in
	}, nil},
	{"a length that is no length", func(in [][]byte) [][]byte {
		binary.NativeEndian.PutUint32(in[1], 3)
		return in
	}, nil},
	{"something changed meanwhile", func(in [][]byte) [][]byte {
		binary.NativeEndian.PutUint16(in[1][6:], unix.NLM_F_DUMP_INTR)
		return in
	}, nil},
	{"something changed meanwhile, as the end reports", func(in [][]byte) [][]byte {
		binary.NativeEndian.PutUint16(in[2][6:], unix.NLM_F_DUMP_INTR)
		return in
	}, nil},
}

// A dump is all of it, or an error: what a short one lacks would otherwise be gone for weir.
func TestQueryGivesNoPartOfADump(t *testing.T) {
	t.Parallel()
	for _, tt := range shortDumps {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// The first attempts are short, over one socket or over several.
			wires := func(short int) (out []*played) {
				tries := 0
				for range short + 1 {
					p := &played{last: tt.last}
					p.kernel = func(m message) []byte {
						in := dumped(m)
						if tries++; tries <= short {
							in = tt.cut(in)
						}
						p.in = append(p.in, in...)
						return nil
					}
					out = append(out, p)
				}
				return out
			}
			for _, of := range []struct {
				name  string
				wires []*played
				want  []byte // nil: an error
			}{
				{"once", wires(1), []byte{1, 2, 3}},
				{"always", wires(3), nil},
			} {
				c, _ := playedConn(of.wires...)
				var got []byte
				err := c.query(context.Background(), func(e *encoder) { e.message(1, unix.NLM_F_DUMP) }, func() { got = nil },
					func(m message) { got = append(got, m.body[0]) })
				if (err == nil) != (of.want != nil) || err == nil && !slices.Equal(got, of.want) {
					t.Errorf("%s short: %v, %v, want %v", of.name, got, err, of.want)
				}
			}
		})
	}
}

// An audit that reads short has read nothing: no virtual server passes for one that is gone.
func TestIPVSDoesNotReadHalfATable(t *testing.T) {
	t.Parallel()
	for _, tt := range shortDumps {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var wires []*played
			for range attempts {
				p := &played{last: tt.last}
				p.kernel = func(m message) []byte {
					p.in = append(p.in, tt.cut(dumped(m))...)
					return nil
				}
				wires = append(wires, p)
			}
			c, _ := playedConn(wires...)
			var obs lb.Observation
			if err := newTable(c, 1, marking{}).observe(context.Background(), &obs); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestQueryGivesTheKernelsError(t *testing.T) {
	t.Parallel()
	c, count := playedConn(&played{kernel: func(m message) []byte { return ack(m, unix.ENOENT) }})
	err := c.query(context.Background(), func(e *encoder) { e.message(1, 0) }, func() {}, func(message) {})
	if !errors.Is(err, unix.ENOENT) || count.Retries.Load() != 0 {
		t.Errorf("error %v after %d retries", err, count.Retries.Load())
	}
}

func FuzzMessages(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(ack(message{seq: 1}, unix.EEXIST))
	f.Fuzz(func(t *testing.T, b []byte) {
		for m := range messages(b) {
			parseError(m.body)
			for _, v := range attributes(m.body) {
				for range attributes(v) {
				}
			}
		}
	})
}
