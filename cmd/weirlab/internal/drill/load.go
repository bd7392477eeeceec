package drill

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"weir/cmd/weirlab/lab"
)

// The clients: one that makes new connections all the time, and some that hold one each.
const (
	// Beat is the time between two new connections.
	Beat = 15 * time.Millisecond
	// Patience is how long a client waits for its answer. TCP sends its first packet again after a
	// second: with this, a packet has a second chance.
	Patience = 3 * time.Second
	// lateAfter is what takes longer than that: it had to be sent again.
	lateAfter = 900 * time.Millisecond
	// heldBeat is the time between two bytes over a connection that is held.
	heldBeat = 100 * time.Millisecond
)

// knock is one new connection: a name asked for and given, or not.
type knock struct {
	addr         string
	began, ended time.Time
	err          error
}

// knocker makes them, to addresses by turns, whatever has become of those before.
type knocker struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	all []knock
}

func startKnocker(from *lab.Machine, addrs []string) *knocker {
	ctx, cancel := context.WithCancel(context.Background())
	k := &knocker{cancel: cancel}
	k.wg.Go(func() {
		tick := time.NewTicker(Beat)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				k.wg.Go(func() { k.knock(from, addrs[n%len(addrs)]) })
			}
		}
	})
	return k
}

func (k *knocker) knock(from *lab.Machine, addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	one := knock{addr: addr, began: time.Now()}
	one.err = ask(ctx, from, addr)
	one.ended = time.Now()
	k.mu.Lock()
	k.all = append(k.all, one)
	k.mu.Unlock()
}

// ask makes a connection, says something, as clients do, and reads the name that is given and what
// was said. A client that only listened would not be met again by a box that takes over at that moment.
func ask(ctx context.Context, from *lab.Machine, addr string) error {
	c, err := from.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	limit, _ := ctx.Deadline()
	_ = c.SetDeadline(limit)
	if _, err := c.Write([]byte{'?'}); err != nil {
		return err
	}
	r := bufio.NewReaderSize(c, 16)
	if _, err := r.ReadString('\n'); err != nil {
		return err
	}
	_, err = r.ReadByte()
	return err
}

// end ends the knocker and gives all knocks in the order in which they were over.
func (k *knocker) end() []knock {
	k.cancel()
	k.wg.Wait()
	slices.SortFunc(k.all, func(a, b knock) int { return a.ended.Compare(b.ended) })
	return k.all
}

// row is how many of the last knocks in a row were answered, of those that began after an instant.
func (k *knocker) row(since time.Time) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range slices.Backward(k.all) {
		if one.err != nil || one.began.Before(since) {
			break
		}
		n++
	}
	return n
}

// gap is the longest time without an answer for one of the addresses.
func gap(knocks []knock) (longest time.Duration) {
	last, first := map[string]time.Time{}, map[string]time.Time{}
	for _, one := range knocks {
		if _, known := first[one.addr]; !known {
			first[one.addr], last[one.addr] = one.began, one.began
		}
		if one.err == nil {
			longest = max(longest, one.ended.Sub(last[one.addr]))
			last[one.addr] = one.ended
		}
	}
	for _, one := range knocks { // one that was never answered again
		longest = max(longest, one.began.Sub(last[one.addr]))
	}
	return longest
}

// late counts those that were answered, but had to be sent again.
func late(knocks []knock) (n int) {
	for _, one := range knocks {
		if one.err == nil && one.ended.Sub(one.began) > lateAfter {
			n++
		}
	}
	return n
}

// lost are those that were not answered.
func lost(knocks []knock) (out []knock) {
	for _, one := range knocks {
		if one.err != nil {
			out = append(out, one)
		}
	}
	return out
}

// fate puts the end of a connection into few words.
func fate(err error) string {
	switch {
	case err == nil:
		return "answered"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "silence"
	}
	return err.Error()
}

// held is a connection over which a byte goes and comes back, again and again.
type held struct {
	addr string
	c    net.Conn
	done chan struct{}

	mu      sync.Mutex
	answers int
	last    time.Time // when the last byte that came back was sent
	err     error
}

// hold makes connections to addresses by turns, one after the other, as far as they can be made.
func hold(ctx context.Context, from *lab.Machine, addrs []string, n int) (all []*held, err error) {
	for i := range n {
		h, err := holdOne(ctx, from, addrs[i%len(addrs)])
		if err != nil {
			return all, fmt.Errorf("connection %d of %d to hold: %w", i+1, n, err)
		}
		all = append(all, h)
	}
	return all, nil
}

func holdOne(ctx context.Context, from *lab.Machine, addr string) (*held, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	r := bufio.NewReaderSize(c, 64)
	if _, err := r.ReadString('\n'); err != nil {
		_ = c.Close()
		return nil, err
	}
	_ = c.SetReadDeadline(time.Time{})
	h := &held{addr: addr, c: c, done: make(chan struct{}), last: time.Now()}
	go h.talk(r)
	return h, nil
}

func (h *held) talk(r *bufio.Reader) {
	defer close(h.done)
	for {
		sent := time.Now()
		_, err := h.c.Write([]byte{'.'})
		if err == nil {
			_, err = r.ReadByte()
		}
		h.mu.Lock()
		if h.err = err; err == nil {
			h.answers, h.last = h.answers+1, sent
		}
		h.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(heldBeat)
	}
}

// answered tells whether a byte came back that was sent after an instant; over tells that none
// ever will.
func (h *held) answered(since time.Time) (yes, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.After(since), h.err != nil
}

// kept waits until each connection has answered after an instant or is over, but no longer than
// limit, and counts those that are alive.
func kept(ctx context.Context, all []*held, since time.Time, limit time.Duration) (alive int) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		alive = 0
		undecided := false
		for _, h := range all {
			yes, over := h.answered(since)
			if yes && !over {
				alive++
			}
			undecided = undecided || !yes && !over
		}
		if !undecided {
			return alive
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return alive
		}
	}
}

// ends counts how connections have ended, those that are silent among them.
func ends(all []*held) map[string]int {
	fates := map[string]int{}
	for _, h := range all {
		h.mu.Lock()
		switch {
		case h.err != nil:
			fates[fate(h.err)]++
		case time.Since(h.last) > time.Second:
			fates["silence"]++
		}
		h.mu.Unlock()
	}
	return fates
}

func release(all []*held) {
	for _, h := range all {
		_ = h.c.Close()
		<-h.done
	}
}
