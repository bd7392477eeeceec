package traffic

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weirlab/internal/props"
)

// Dial makes a connection, as net.Dialer and a machine of a lab do.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// Ask sends one request over a new connection and returns the server's name.
type Ask func(ctx context.Context, addr string) (server string, err error)

// HTTP asks servers of package props.
func HTTP(dial Dial) Ask {
	return func(ctx context.Context, addr string) (string, error) {
		a, err := props.Ask(ctx, dial, addr)
		return a.Server, err
	}
}

// Echo asks echo servers for their name and for one byte back. A client that only read would never
// send again to a box that takes over at that moment.
func Echo(dial Dial) Ask {
	return func(ctx context.Context, addr string) (string, error) {
		c, err := dial(ctx, "tcp", addr)
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		if limit, ok := ctx.Deadline(); ok {
			_ = c.SetDeadline(limit)
		}
		if _, err := c.Write([]byte{'?'}); err != nil {
			return "", err
		}
		r := bufio.NewReaderSize(c, 64)
		name, err := r.ReadString('\n')
		if err == nil {
			_, err = r.ReadByte()
		}
		return strings.TrimSpace(name), err
	}
}

// Options of a load.
type Options struct {
	Ask Ask
	// Beat is the time between two new connections; 0 is DefaultBeat.
	Beat time.Duration
	// Patience limits one request; 0 is DefaultPatience. TCP sends its first packet again after a
	// second: with less patience than that, no packet has a second chance.
	Patience time.Duration
}

// The defaults. The beat leaves most of a box's one processor to weir.
const (
	DefaultBeat     = 20 * time.Millisecond
	DefaultPatience = 5 * time.Second
)

// Load makes new connections, to some addresses by turns, and records each.
type Load struct {
	o      Options
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	tries Tries // in the order in which they ended
}

// Start starts a load that runs until Stop or the end of ctx.
func Start(ctx context.Context, o Options, addrs ...string) *Load {
	if o.Beat == 0 {
		o.Beat = DefaultBeat
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{o: o, cancel: cancel}
	l.wg.Go(func() {
		tick := time.NewTicker(o.Beat)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.wg.Go(func() { l.try(context.WithoutCancel(ctx), addrs[n%len(addrs)]) })
			}
		}
	})
	return l
}

func (l *Load) try(ctx context.Context, addr string) {
	ctx, cancel := context.WithTimeout(ctx, l.o.Patience)
	defer cancel()
	one := Try{Addr: addr, Began: time.Now()}
	one.Server, one.Err = l.o.Ask(ctx, addr)
	one.Ended = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries = append(l.tries, one)
}

// Stop ends the load and returns all tries, those that were under way included, in the order in which
// they began. A second Stop returns the same.
func (l *Load) Stop() Tries {
	l.cancel()
	l.wg.Wait()
	return l.Tries()
}

// Tries returns the tries that have ended so far, in the order in which they began.
func (l *Load) Tries() Tries {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.tries)
	slices.SortStableFunc(out, func(a, b Try) int { return a.Began.Compare(b.Began) })
	return out
}

// Answered counts the answers so far.
func (l *Load) Answered() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.tries {
		if one.Err == nil {
			n++
		}
	}
	return n
}

// Wait waits for n more answers.
func (l *Load) Wait(ctx context.Context, n int) error {
	want := l.Answered() + n
	return Eventually(ctx, waitTime, func(context.Context) error {
		if got := l.Answered(); got < want {
			return fmt.Errorf("%d of %d requests answered; the last hundred: %s", got, want, l.last(100))
		}
		return nil
	})
}

// waitTime bounds the waits for clients to go on.
const waitTime = 30 * time.Second

func (l *Load) last(n int) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tries[max(0, len(l.tries)-n):]).Report()
}

// Row counts the answers since the last failure, of the tries that began after an instant.
func (l *Load) Row(since time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range slices.Backward(l.tries) {
		if one.Err != nil || one.Began.Before(since) {
			break
		}
		n++
	}
	return n
}
