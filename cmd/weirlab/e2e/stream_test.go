package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// What clients do for a while, and what they saw of it: connections that are
// held, streams of requests, flows of datagrams. All are native Go on the hosts.

// beat is the time between two bytes or datagrams of a client that goes on and on.
const beat = 20 * time.Millisecond

// serveEcho puts a TCP server on a host that says the host's name in a line and
// then gives back every byte.
func serveEcho(t testing.TB, m *lab.Machine, port int) {
	t.Helper()
	serveConns(t, m, port, func(c net.Conn) {
		if _, err := fmt.Fprintln(c, m.Name()); err == nil {
			_, _ = io.Copy(c, c)
		}
	})
}

// serveConns puts a TCP server on a host that does something with each connection, and
// closes it then, or when the test ends.
func serveConns(t testing.TB, m *lab.Machine, port int, do func(net.Conn)) {
	t.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			go func() {
				defer func() { _ = c.Close() }()
				do(c)
			}()
		}
	}()
}

// held is a connection that sends a byte and waits for it to come back, one byte
// a beat.
type held struct {
	server string // who answers
	conn   net.Conn
	cancel context.CancelFunc
	done   chan struct{}

	bytes atomic.Int64
	// Set before done is closed.
	gap   time.Duration // the longest time from one answer to the next
	err   error         // what cut it, nil if it was let go
	ended time.Time
}

// holdPatience is how long a held connection waits for an answer.
const holdPatience = 10 * time.Second

// hold opens a connection to an echo service and holds it until letGo, the end
// of the test, or whatever cuts it.
func hold(t testing.TB, from *lab.Machine, addr string) *held {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := from.DialContext(within(t, 10*time.Second), "tcp", addr)
	if err != nil {
		cancel()
		t.Fatalf("%s opens a connection to %s: %v", from.Name(), addr, err)
	}
	h := &held{conn: c, cancel: cancel, done: make(chan struct{})}
	_ = c.SetDeadline(time.Now().Add(holdPatience))
	r := bufio.NewReader(c)
	name, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%s asks %s for its name: %v", from.Name(), addr, err)
	}
	h.server = strings.TrimSpace(name)
	go h.talk(ctx, r)
	t.Cleanup(func() { _ = h.letGo() })
	return h
}

func (h *held) talk(ctx context.Context, r *bufio.Reader) {
	defer close(h.done)
	defer func() { _ = h.conn.Close() }()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = h.conn.SetDeadline(time.Now().Add(holdPatience))
		_, err := h.conn.Write([]byte{'.'})
		if err == nil {
			_, err = r.ReadByte()
		}
		now := time.Now()
		h.gap = max(h.gap, now.Sub(last))
		last = now
		if err != nil {
			h.err, h.ended = err, now
			return
		}
		h.bytes.Add(1)
	}
}

// alive tells why the connection is no more, nil if it is.
func (h *held) alive() error {
	select {
	case <-h.done:
		return fmt.Errorf("the connection to %s was cut after %d bytes: %w", h.server, h.bytes.Load(), h.err)
	default:
		return nil
	}
}

// moves tells that the connection is alive by waiting for some more bytes.
func (h *held) moves(t testing.TB) {
	t.Helper()
	want := h.bytes.Load() + 3
	eventually(t, holdPatience, func() error {
		if err := h.alive(); err != nil {
			return err
		}
		if n := h.bytes.Load(); n < want {
			return fmt.Errorf("a held connection to %s stands still at %d bytes", h.server, n)
		}
		return nil
	})
}

// letGo closes the connection if nobody has cut it, and gives what did.
func (h *held) letGo() error {
	h.cancel()
	<-h.done
	return h.err
}

// holdMany holds n connections to each address, and sorts them by server.
func holdMany(t testing.TB, n int, from *lab.Machine, addrs ...string) (all []*held, by map[string][]*held) {
	t.Helper()
	by = map[string][]*held{}
	for _, a := range addrs {
		for range n {
			h := hold(t, from, a)
			all = append(all, h)
			by[h.server] = append(by[h.server], h)
		}
	}
	return all, by
}

// letGoAll ends held connections and tells how many had been cut, and the
// longest gap of the others.
func letGoAll(all []*held) (lost int, gap time.Duration, err error) {
	for _, h := range all {
		if e := h.letGo(); e != nil {
			lost++
			err = e
			continue
		}
		gap = max(gap, h.gap)
	}
	return lost, gap, err
}

// stream is a client that sends one request after the other, each over a new
// connection, until it is ended.
type stream struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	ok      int
	by      map[string]int
	failed  []failure
	slowest time.Duration
}

type failure struct {
	at  time.Time
	err error
}

// startStream starts a stream from a host to some addresses, by turns.
func startStream(t testing.TB, from *lab.Machine, addrs ...string) *stream {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{cancel: cancel, by: map[string]int{}}
	s.wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			begin := time.Now()
			// A request that has begun may end: only failures of others count.
			a, err := get(context.WithoutCancel(ctx), from, addrs[i%len(addrs)])
			s.add(begin, a, err)
			select {
			case <-ctx.Done():
			case <-time.After(beat): // leaves some of the box's one CPU to weir
			}
		}
	})
	t.Cleanup(func() { s.end() })
	return s
}

func (s *stream) add(begin time.Time, a answer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = append(s.failed, failure{begin, err})
		return
	}
	s.ok++
	s.by[a.server]++
	s.slowest = max(s.slowest, time.Since(begin))
}

// count is how many requests were answered so far.
func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ok
}

// more waits until n more requests have been answered.
func (s *stream) more(t testing.TB, n int) {
	t.Helper()
	want := s.count() + n
	eventually(t, 30*time.Second, func() error {
		if got := s.count(); got < want {
			return fmt.Errorf("%d of %d requests answered", got, want)
		}
		return nil
	})
}

// end ends the stream; what it counted is complete then.
func (s *stream) end() *stream {
	s.cancel()
	s.wg.Wait()
	return s
}

func (s *stream) String() string {
	return fmt.Sprintf("%d requests answered %v, %d failed, slowest %s", s.ok, s.by, len(s.failed), s.slowest.Round(time.Millisecond))
}

// mustHaveLostNothing ends streams and fails the test if a request failed.
func mustHaveLostNothing(t testing.TB, streams ...*stream) {
	t.Helper()
	for _, s := range streams {
		s.end()
		if len(s.failed) > 0 {
			t.Errorf("a stream of requests had %d failures, the first: %v", len(s.failed), s.failed[0].err)
		}
		t.Log(s)
	}
}

// serveUDP puts a UDP server on a host that answers with the host's name.
func serveUDP(t testing.TB, m *lab.Machine, port int) {
	t.Helper()
	for _, network := range []string{"udp4", "udp6"} {
		c, err := m.ListenPacket(network, fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			buf := make([]byte, 2048)
			for {
				n, from, err := c.ReadFrom(buf)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = c.WriteTo([]byte(fmt.Sprintf("%s %s", buf[:n], m.Name())), from)
				}
			}
		}()
	}
}

// flow is a UDP client with one source port that sends a numbered datagram every
// beat, answered or not.
type flow struct {
	conn net.Conn
	wg   sync.WaitGroup
	stop chan struct{}
	once sync.Once

	mu      sync.Mutex
	sent    int
	answers []datagram
}

type datagram struct {
	at     time.Time
	number int
	server string
}

func startFlow(t testing.TB, from *lab.Machine, port int, addr string) *flow {
	t.Helper()
	c, err := from.DialFrom(within(t, 10*time.Second), "udp", &net.UDPAddr{Port: port}, addr)
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{conn: c, stop: make(chan struct{})}
	f.wg.Go(f.send)
	f.wg.Go(f.receive)
	t.Cleanup(func() { f.end() })
	return f
}

func (f *flow) send() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			// The last answers may be on their way.
			_ = f.conn.SetReadDeadline(time.Now().Add(time.Second))
			return
		case <-tick.C:
		}
		f.mu.Lock()
		n := f.sent
		f.sent++
		f.mu.Unlock()
		_, _ = fmt.Fprint(f.conn, n) // refused or not: the answers tell
	}
}

func (f *flow) receive() {
	buf := make([]byte, 2048)
	for {
		n, err := f.conn.Read(buf)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
			return
		}
		var d datagram
		if err != nil {
			continue // an ICMP error
		}
		if _, err := fmt.Sscanf(string(buf[:n]), "%d %s", &d.number, &d.server); err != nil {
			continue
		}
		d.at = time.Now()
		f.mu.Lock()
		f.answers = append(f.answers, d)
		f.mu.Unlock()
	}
}

// last gives the newest answer and how many there are.
func (f *flow) last() (d datagram, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answers) == 0 {
		return d, 0
	}
	return f.answers[len(f.answers)-1], len(f.answers)
}

// answered waits for n more answers and gives the last.
func (f *flow) answered(t testing.TB, n int) datagram {
	t.Helper()
	_, have := f.last()
	var d datagram
	eventually(t, 20*time.Second, func() error {
		var got int
		if d, got = f.last(); got < have+n {
			return fmt.Errorf("%d of %d datagrams answered", got-have, n)
		}
		return nil
	})
	return d
}

// end ends the flow and tells how many datagrams before the last answered one had
// no answer, and the longest time from one answer to the next. What was sent after
// that may be on its way still: a user-mode Linux kernel may sleep over the last
// packet of all. answered tells whether a flow lives.
func (f *flow) end() (lost int, gap time.Duration) {
	f.once.Do(func() { close(f.stop) })
	f.wg.Wait()
	_ = f.conn.Close()
	last := -1
	for i, d := range f.answers {
		last = max(last, d.number)
		if i > 0 {
			gap = max(gap, d.at.Sub(f.answers[i-1].at))
		}
	}
	return last + 1 - len(f.answers), gap
}
