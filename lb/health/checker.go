package health

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
	"unique"

	"weir/lb"
)

// Options are what a Checker is made of; the zero value will do.
type Options struct {
	// Logger hears of every verdict that changes; of first ones that say up only at level
	// debug. nil is silence.
	Logger *slog.Logger
	// Concurrency is how many checks may be under way at once. A backend that
	// drops packets takes one for the whole of its timeout. 0 is 4096, or a
	// quarter of the files that the process may open if that is less.
	Concurrency int
	// Dial opens the connections of all checks; nil is a net.Dialer. To bind
	// them, give one with a LocalAddr and a Control that sets
	// IP_BIND_ADDRESS_NO_PORT, or all checks share one range of source ports.
	Dial Dial
}

// Checker asks backends and knows their verdicts. Make one with New. All methods
// may be called at any time, before, while and after Run runs.
type Checker struct {
	log     *slog.Logger
	dial    Dial
	limit   int
	wake    chan struct{} // Set has changed what is due
	changed chan struct{}

	mu    sync.Mutex
	table table
	ready chan struct{} // closed while every target has a verdict
}

// Totals are counters over all targets, forgotten ones included.
type Totals struct {
	// Checks that ended with a result, those of them that Failures, and how long
	// they took together.
	Checks, Failures uint64
	Spent            time.Duration
	// Void are checks that said nothing of the backend: this box had no file or
	// memory left, or didn't get to run.
	Void uint64
}

// Stats are the numbers of a Checker as a whole.
type Stats struct {
	Totals
	// Targets is how many there are, Asking how many are being asked.
	Targets, Asking int
	// Behind is how late the last check began. It grows when Concurrency, or the
	// box, is too small.
	Behind time.Duration
}

// New makes a Checker that does nothing until Run.
func New(opts Options) *Checker {
	c := &Checker{
		log:     opts.Logger,
		dial:    opts.Dial,
		limit:   opts.Concurrency,
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		ready:   make(chan struct{}),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.dial == nil {
		// A connection that lives for milliseconds needs no keep-alive.
		c.dial = (&net.Dialer{KeepAlive: -1}).DialContext
	}
	if c.limit <= 0 {
		c.limit = defaultConcurrency()
	}
	close(c.ready)
	return c
}

func defaultConcurrency() int {
	const most = 4096
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return most
	}
	return int(max(1, min(most, files.Cur/4)))
}

// Set makes groups all that is wanted. Targets that are wanted as before (same
// Service, address and check) go on as if nothing had happened; new ones are
// asked at once; others are forgotten. A backend whose check is another one keeps
// its verdict until the new check has turned it. Health speaks of groups when Set
// returns: a backend without a verdict is down, unless Group.Serves it.
func (c *Checker) Set(groups []Group) {
	ready := c.prepare(groups)
	c.mu.Lock()
	c.table.set(groups, ready, time.Now())
	c.markReady()
	c.mu.Unlock()
	signal(c.wake)
	signal(c.changed)
}

// prepare makes the checks ready to be asked, each once, before the lock is
// taken: it reads CA files.
func (c *Checker) prepare(groups []Group) []prepared {
	cas := authorities{}
	made := map[unique.Handle[string]]prepared{}
	out := make([]prepared, len(groups))
	for i, g := range groups {
		check := g.Check
		check.Port = 0 // it is part of the target's address
		key := unique.Make(fmt.Sprintf("%#v", check))
		p, ok := made[key]
		if !ok {
			p.key = key
			if p.ask, p.err = check.asker(cas); p.err != nil {
				c.log.Warn("check creation failed", "service", g.Service.String(), "error", p.err)
				p.ask = func(context.Context, Dial, target) error { return p.err }
			}
			made[key] = p
		}
		out[i] = p
	}
	return out
}

// markReady keeps ready as the board says. Who waits stays with a channel that is
// not closed, so that it speaks of the latest Set.
func (c *Checker) markReady() {
	closed := false
	select {
	case <-c.ready:
		closed = true
	default:
	}
	switch {
	case closed && c.table.unknown > 0:
		c.ready = make(chan struct{})
	case !closed && c.table.unknown == 0:
		close(c.ready)
	}
}

// Ready waits until every target of the latest Set has its first verdict.
func (c *Checker) Ready(ctx context.Context) error {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Patience is how long Ready takes at most from now on, on a box that is not
// overloaded: it grows with the number of targets that have no verdict yet.
func (c *Checker) Patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.patience(c.limit, time.Now())
}

// Changed gets a value when Health may differ from what it was when the last
// value was taken.
func (c *Checker) Changed() <-chan struct{} { return c.changed }

// Health gives the health of every Service that is checked, of one instant. The
// maps are the caller's.
func (c *Checker) Health() map[lb.ServiceID]lb.Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.health()
}

// Backends gives every backend of every port, sorted by Service, port and address.
func (c *Checker) Backends() []Backend {
	var out []Backend
	c.Each(func(b Backend) { out = append(out, b) })
	return out
}

// Each calls each for every backend with a check, in the order of Backends. Checks wait
// meanwhile, so that each must not block.
func (c *Checker) Each(each func(Backend)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.table.backends {
		each(s.status())
	}
}

func (s *backendState) status() Backend {
	p := s.probe
	return Backend{
		Service:  s.port.service.id,
		Port:     s.port.key.Port,
		Backend:  s.addr,
		State:    s.state.String(),
		Since:    s.since,
		Error:    p.problem,
		Checked:  p.checked,
		Took:     p.took,
		Checks:   p.checks,
		Failures: p.failures,
		Flaps:    s.flaps,
		Spent:    p.spent,
	}
}

// Stats gives the numbers of c as a whole.
func (c *Checker) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.table.totals, len(c.table.probes), c.table.asking, c.table.behind}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
