package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/cmd/weirlab/lab"
)

// Clients that see every gap: hammers, which make new connections all the time and
// remember each, and the router's kernel, which says when it has a route.

// unreachable is the end of a visit to which a router answered that it knows no way.
const unreachable = "unreachable"

// blow is one attempt of a hammer: a new connection, a request and its answer.
type blow struct {
	addr         string
	began, ended time.Time
	fate         string // "" if it was answered
	err          error
}

// hammer sends requests from a host to addresses, by turns, one every hammerBeat
// whatever has become of those before, until it is ended.
type hammer struct {
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	patience time.Duration

	mu    sync.Mutex
	blows []blow
}

// hammerBeat leaves some of the boxes' one CPU to weir.
const hammerBeat = 8 * time.Millisecond

// startHammer gives each attempt so much patience. TCP sends its first packet again
// after a second: with less patience no packet has a second chance.
func startHammer(t testing.TB, from *lab.Machine, patience time.Duration, addrs ...string) *hammer {
	ctx, cancel := context.WithCancel(t.Context())
	h := &hammer{cancel: cancel, patience: patience}
	h.wg.Go(func() {
		tick := time.NewTicker(hammerBeat)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				h.wg.Go(func() { h.strike(from, addrs[n%len(addrs)]) })
			}
		}
	})
	t.Cleanup(func() { h.end() })
	return h
}

func (h *hammer) strike(from *lab.Machine, addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), h.patience)
	defer cancel()
	b := blow{addr: addr, began: time.Now()}
	_, b.err = get(ctx, from, addr)
	b.ended, b.fate = time.Now(), endOf(b.err)
	h.mu.Lock()
	h.blows = append(h.blows, b)
	h.mu.Unlock()
}

// endOf puts a failed attempt into words, of which there are few.
func endOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return unreachable
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "reset"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return silence
	}
	return err.Error()
}

// end ends the hammer and gives all attempts in the order of their begin. Those that
// have begun may end.
func (h *hammer) end() []blow {
	h.cancel()
	h.wg.Wait()
	slices.SortFunc(h.blows, func(a, b blow) int { return a.began.Compare(b.began) })
	return h.blows
}

// more waits until n more requests have been answered.
func (h *hammer) more(t testing.TB, n int) {
	t.Helper()
	answered := func() (n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, b := range h.blows {
			if b.fate == "" {
				n++
			}
		}
		return n
	}
	want := answered() + n
	eventually(t, 30*time.Second, func() error {
		if got := answered(); got < want {
			return fmt.Errorf("%d of %d requests answered: %s", got, want, tally(h.last(100)))
		}
		return nil
	})
}

// last gives the last n attempts.
func (h *hammer) last(n int) []blow {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.blows[max(0, len(h.blows)-n):])
}

// tally counts the ends of attempts.
func tally(blows []blow) string {
	count := map[string]int{}
	for _, b := range blows {
		if b.fate == "" {
			count["answered"]++
		} else {
			count[b.fate]++
		}
	}
	var words []string
	for _, fate := range slices.Sorted(maps.Keys(count)) {
		words = append(words, fmt.Sprintf("%d %s", count[fate], fate))
	}
	return strings.Join(words, ", ")
}

// mustAllBeAnswered fails for every attempt that began within a time and was not
// answered; a zero end is for ever. What else is says what was going on.
func mustAllBeAnswered(t testing.TB, what string, blows []blow, from, to time.Time) {
	t.Helper()
	var within []blow
	for _, b := range blows {
		if !b.began.Before(from) && (to.IsZero() || b.began.Before(to)) {
			within = append(within, b)
		}
	}
	shown := 0
	for _, b := range within {
		if b.fate != "" && shown < 3 {
			t.Errorf("%s: %s after %s: %v", what, b.fate, b.began.Sub(from).Round(time.Millisecond), b.err)
			shown++
		}
	}
	if len(within) == 0 {
		t.Errorf("%s: no request at all: the test shows nothing", what)
	}
	t.Logf("%s: %s", what, tally(within))
}

// caller holds a connection and sends a byte a beat, as held does; cut off, or
// unanswered for its patience, it opens another one at once.
type caller struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	seen []time.Time // answers
}

func startCaller(t testing.TB, from *lab.Machine, patience time.Duration, addr string) *caller {
	ctx, cancel := context.WithCancel(t.Context())
	c := &caller{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			c.call(ctx, from, patience, addr)
		}
	}()
	t.Cleanup(func() { c.gap(time.Now()) })
	return c
}

// call talks over one connection until something is the matter with it.
func (c *caller) call(ctx context.Context, from *lab.Machine, patience time.Duration, addr string) {
	dial, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := from.DialContext(dial, "tcp", addr)
	if err != nil {
		time.Sleep(beat / 4)
		return
	}
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = r.ReadString('\n') // its name
	for err == nil && ctx.Err() == nil {
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err = conn.Write([]byte{'.'}); err == nil {
			_, err = r.ReadByte()
		}
		if err == nil {
			c.mu.Lock()
			c.seen = append(c.seen, time.Now())
			c.mu.Unlock()
			time.Sleep(beat)
		}
	}
}

// gap ends the caller and gives the longest time without an answer that ended after
// an instant.
func (c *caller) gap(since time.Time) (longest time.Duration) {
	c.cancel()
	<-c.done
	for i := 1; i < len(c.seen); i++ {
		if c.seen[i].After(since) {
			longest = max(longest, c.seen[i].Sub(c.seen[i-1]))
		}
	}
	return longest
}

// routeWatch hears from the router's kernel when its routes change.
type routeWatch struct {
	stop chan struct{}

	mu     sync.Mutex
	events []routeEvent
}

// routeEvent is one change. There are more of them than changes of what the route
// is: an IPv6 route with two next hops goes in two steps.
type routeEvent struct {
	at   time.Time
	to   netip.Prefix
	here bool // there is such a route now
}

// watchRoutes hears all changes from now on.
func watchRoutes(t testing.TB, router *lab.Machine) *routeWatch {
	t.Helper()
	w := &routeWatch{stop: make(chan struct{})}
	updates := make(chan netlink.RouteUpdate, 1024)
	if err := router.Do(func() error { return netlink.RouteSubscribe(updates, w.stop) }); err != nil {
		t.Fatal(err)
	}
	go func() {
		for u := range updates {
			if u.Dst == nil {
				continue
			}
			addr, _ := netip.AddrFromSlice(u.Dst.IP)
			bits, _ := u.Dst.Mask.Size()
			w.mu.Lock()
			w.events = append(w.events, routeEvent{time.Now(), netip.PrefixFrom(addr.Unmap(), bits), u.Type == syscall.RTM_NEWROUTE})
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() { close(w.stop) })
	return w
}

// of gives the changes of the route to a VIP since an instant.
func (w *routeWatch) of(vip string, since time.Time) []routeEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []routeEvent
	for _, e := range w.events {
		if e.to.Addr().String() == vip && e.to.IsSingleIP() && !e.at.Before(since) {
			out = append(out, e)
		}
	}
	return out
}

// first waits for the first change of that kind since an instant, and says when it was.
func (w *routeWatch) first(t testing.TB, vip string, here bool, since time.Time) (at time.Time) {
	t.Helper()
	eventually(t, routeWait, func() error {
		for _, e := range w.of(vip, since) {
			if e.here == here {
				at = e.at
				return nil
			}
		}
		return fmt.Errorf("the router's route to %s has not changed so: %v", vip, w.of(vip, since))
	})
	return at
}

// flaps counts how often a route went since an instant.
func (w *routeWatch) flaps(vip string, since time.Time) (n int) {
	for _, e := range w.of(vip, since) {
		if !e.here {
			n++
		}
	}
	return n
}

// dialAs dials from one of a client's addresses.
func dialAs(from *lab.Machine, addr string) func(ctx context.Context, network, to string) (net.Conn, error) {
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		return from.DialFrom(ctx, network, &net.TCPAddr{IP: net.ParseIP(addr)}, to)
	}
}
