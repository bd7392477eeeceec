package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// HoldOptions are the options of a held connection.
type HoldOptions struct {
	// Beat is the time between two bytes; 0 is DefaultBeat.
	Beat time.Duration
	// Patience limits the wait for one byte; 0 sets no limit: TCP goes on as long as it likes.
	Patience time.Duration
	// Listen sends nothing: the server sends bytes on its own.
	Listen bool
}

// openTime limits the wait for a connection to be held.
const openTime = 5 * time.Second

// Held is a connection to an echo server. A byte goes there and comes back at every beat.
type Held struct {
	Server string // the first line that it sent
	Local  net.Addr

	conn    net.Conn
	o       HoldOptions
	release func() // asks talk for its last exchange
	done    chan struct{}

	mu    sync.Mutex
	state heldState
}

type heldState struct {
	bytes int
	sent  time.Time     // when the last byte that came back was sent
	gap   time.Duration // the longest time from one answer to the next
	err   error
	ended time.Time
}

func (h *Held) now() heldState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Hold opens a connection and holds it until Release, the end of ctx, or an error.
func Hold(ctx context.Context, dial Dial, addr string, o HoldOptions) (*Held, error) {
	if o.Beat == 0 {
		o.Beat = DefaultBeat
	}
	limit := openTime
	if o.Patience > 0 {
		limit = min(limit, o.Patience)
	}
	open, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := dial(open, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open a connection to %s: %w", addr, err)
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	r := bufio.NewReaderSize(c, 64)
	name, err := r.ReadString('\n')
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("ask %s for its name: %w", addr, err)
	}
	_ = c.SetDeadline(time.Time{})
	released, release := context.WithCancel(ctx)
	h := &Held{Server: strings.TrimSpace(name), Local: c.LocalAddr(), conn: c, o: o, release: release, done: make(chan struct{}), state: heldState{sent: time.Now()}}
	go h.talk(ctx, released, r)
	return h, nil
}

func (h *Held) talk(ctx, released context.Context, r *bufio.Reader) {
	defer close(h.done)
	defer func() { _ = h.conn.Close() }()
	if h.o.Patience == 0 { // nothing else ends a read
		defer context.AfterFunc(released, func() { _ = h.conn.Close() })()
	}
	tick := time.NewTicker(h.o.Beat)
	defer tick.Stop()
	last := time.Now()
	for final := false; ; {
		sent := time.Now()
		if h.o.Patience > 0 {
			_ = h.conn.SetDeadline(sent.Add(h.o.Patience))
		}
		err := h.exchange(r)
		if errors.Is(err, net.ErrClosed) {
			return // released
		}
		now := time.Now()
		if h.o.Listen {
			sent = now
		}
		h.record(sent, now, now.Sub(last), err)
		last = now
		if err != nil || final {
			return
		}
		select {
		case <-released.Done():
			if ctx.Err() != nil {
				return
			}
			final = true
		case <-tick.C:
		}
	}
}

// exchange sends a byte and reads one.
func (h *Held) exchange(r io.ByteReader) error {
	if !h.o.Listen {
		if _, err := h.conn.Write([]byte{'.'}); err != nil {
			return err
		}
	}
	_, err := r.ReadByte()
	return err
}

func (h *Held) record(sent, now time.Time, gap time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.state
	s.gap = max(s.gap, gap)
	if err != nil {
		s.err, s.ended = err, now
		return
	}
	s.bytes++
	s.sent = sent
}

// Bytes counts the bytes that came back.
func (h *Held) Bytes() int { return h.now().bytes }

// Err returns the error that cut the connection, nil if it lives.
func (h *Held) Err() error {
	s := h.now()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("the connection to %s was cut after %d bytes: %w", h.Server, s.bytes, s.err)
}

// Ended returns the time at which the connection was cut.
func (h *Held) Ended() time.Time { return h.now().ended }

// LastAnswer returns the time at which the newest byte that came back was sent.
func (h *Held) LastAnswer() time.Time { return h.now().sent }

// Gap returns the longest time from one answer to the next.
func (h *Held) Gap() time.Duration { return h.now().gap }

// Wait waits for n more bytes.
func (h *Held) Wait(ctx context.Context, n int) error {
	want := h.Bytes() + n
	err := Eventually(ctx, waitTime, func(context.Context) error {
		if got := h.Bytes(); h.Err() == nil && got < want {
			return fmt.Errorf("the connection to %s has %d of %d bytes", h.Server, got, want)
		}
		return nil
	})
	return errors.Join(err, h.Err())
}

// Release closes the connection and returns the error that cut it before. With a patience, one more
// byte has to come back: a connection that was cut a moment ago does not pass for one that lives.
func (h *Held) Release() error {
	h.release()
	<-h.done
	return h.Err()
}

// Holds are held connections.
type Holds []*Held

// HoldMany holds n connections to addresses by turns, as many as can be opened before the first error.
func HoldMany(ctx context.Context, dial Dial, n int, o HoldOptions, addrs ...string) (all Holds, err error) {
	for i := range n {
		h, err := Hold(ctx, dial, addrs[i%len(addrs)], o)
		if err != nil {
			return all, fmt.Errorf("connection %d of %d: %w", i+1, n, err)
		}
		all = append(all, h)
	}
	return all, nil
}

// By sorts connections by their server.
func (hs Holds) By() map[string]Holds {
	by := map[string]Holds{}
	for _, h := range hs {
		by[h.Server] = append(by[h.Server], h)
	}
	return by
}

// Report waits until each connection has answered after an instant or was cut, but no longer than
// limit. A connection that is silent by then counts as cut, as dropped.
func (hs Holds) Report(ctx context.Context, since time.Time, limit time.Duration) Report {
	_ = Eventually(ctx, limit, func(context.Context) error { // the count below decides
		for _, h := range hs {
			if s := h.now(); s.err == nil && !s.sent.After(since) {
				return errors.New("silent")
			}
		}
		return nil
	})
	r := Report{Held: len(hs), Cuts: Outcomes{}}
	for _, h := range hs {
		switch s := h.now(); {
		case s.err != nil:
			r.Cuts[OutcomeOf(s.err)]++
			r.Cut++
		case !s.sent.After(since):
			r.Cuts[Dropped]++
			r.Cut++
		default:
			r.Gap = max(r.Gap, s.gap)
		}
	}
	return r
}

// Release ends all connections and reports how many had been cut, and the longest gap of the others.
func (hs Holds) Release() Report {
	r := Report{Held: len(hs), Cuts: Outcomes{}}
	for _, h := range hs {
		if err := h.Release(); err != nil {
			r.Cut++
			r.Cuts[OutcomeOf(h.now().err)]++
			continue
		}
		r.Gap = max(r.Gap, h.Gap())
	}
	return r
}
