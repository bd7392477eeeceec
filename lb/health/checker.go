package health

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unique"

	"weir/lb"
)

// Options configure a Checker; the zero value is valid.
type Options struct {
	// Logger receives every transition; a first state up only at level debug. nil discards them.
	Logger *slog.Logger
	// Concurrency limits the checks under way. A backend that drops packets takes one for the
	// whole of its timeout. 0 is 4096, or a quarter of the files that the process may open if
	// that is less.
	Concurrency int
	// Dial opens the connections of all checks; nil is a net.Dialer. To bind them, use one with a
	// LocalAddr and a Control that sets IP_BIND_ADDRESS_NO_PORT, or all checks share one range of
	// source ports.
	Dial Dial
	// VIPs connects to VIPs; nil means that none can be checked.
	VIPs VIPs
	// Run starts the programs of checks of kind Exec; nil means that none can be started.
	Run Run
}

// Checker checks backends and has their states. Create one with New. All methods may be called
// at any time, before, during and after Run.
type Checker struct {
	log     *slog.Logger
	dial    Dial
	by      means
	limit   int
	wake    chan struct{} // Set has changed the schedule
	changed chan struct{}
	warned  map[string]time.Time // by fault of this box; of Run's goroutine

	mu    sync.Mutex
	table table
	ready chan struct{} // closed while every target has a result
}

// Totals are counters over all targets, removed ones included.
type Totals struct {
	// Checks counts results, Failures the failed ones.
	Checks, Failures uint64
	// Void counts checks without a result: this box had no file or memory left, did not get to run,
	// could not run a program, or drops the replies of VIPs.
	Void uint64
}

// Counts are the backends of a Checker, one for each port.
type Counts struct {
	// Up, Down and Unknown count them by state.
	Up, Down, Unknown int
	// Void counts those of which the checks have had no result for a while. VoidError is the problem of
	// one of them.
	Void      int
	VoidError string
}

// Stats are the numbers of a Checker as a whole.
type Stats struct {
	Totals
	// Targets is the number of targets, Asking that of checks under way.
	Targets, Asking int
	// Behind is the delay of the last check. It grows if Concurrency, or the box, is too small.
	Behind time.Duration
}

// New returns a Checker that does nothing until Run.
func New(opts Options) *Checker {
	c := &Checker{
		log:     opts.Logger,
		dial:    opts.Dial,
		by:      means{run: opts.Run, vips: opts.VIPs},
		limit:   opts.Concurrency,
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		warned:  map[string]time.Time{},
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
	c.by.bfd = &sessions{changed: c.recheck, all: map[netip.AddrPort]*session{}}
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

// Set replaces all groups. Targets that stay the same (Service, address and check) continue
// unchanged. New ones are checked at once, others are removed. A backend with another check
// keeps its state until the new check changes it. Health includes the groups when Set returns:
// a backend without a result is down, unless Group.Serves it.
func (c *Checker) Set(groups []Group) {
	ready := c.prepare(groups)
	c.mu.Lock()
	c.table.set(groups, ready, time.Now())
	c.by.bfd.set(c.table.peers())
	c.markReady()
	c.mu.Unlock()
	signal(c.wake)
	signal(c.changed)
}

// prepare creates each different check once, before the lock is taken: it parses certificates.
func (c *Checker) prepare(groups []Group) []prepared {
	cas := authorities{}
	made := map[unique.Handle[string]]prepared{}
	out := make([]prepared, len(groups))
	for i, g := range groups {
		check := g.Check
		check.Port = 0 // part of the target's address
		key := unique.Make(fmt.Sprintf("%#v", check))
		p, ok := made[key]
		if !ok {
			p.key = key
			if p.ask, p.err = check.asker(cas, c.by); p.err != nil {
				c.log.Warn("check creation failed", "service", g.Service.String(), "error", p.err)
				p.ask = func(context.Context, Dial, target) error { return p.err }
			}
			made[key] = p
		}
		out[i] = p
	}
	return out
}

// markReady closes or replaces ready according to the table. A waiter keeps a channel that is
// not closed, so that its result is that of the latest Set.
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

// Ready waits until every target of the latest Set has its first result. It does not wait for checks
// of VIPs: the kernel may not have their virtual servers before the first Sync.
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

// Patience returns the longest time that Ready takes from now on, on a box that is not
// overloaded: it grows with the number of targets without a result.
func (c *Checker) Patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.patience(c.limit, time.Now())
}

// Changed receives a value when Health may differ from its state at the last value.
func (c *Checker) Changed() <-chan struct{} { return c.changed }

// Health returns the health of every Service with checks, at one instant. The maps are the
// caller's.
func (c *Checker) Health() map[lb.ServiceID]lb.Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.health()
}

// Turned returns the health of the Services that may have another one since the last call, or that of all Services
// with checks after Set. It is for one reader. The maps are the caller's.
func (c *Checker) Turned() (health map[lb.ServiceID]lb.Health, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.turns()
}

// Backends returns every backend of every port, sorted by Service, port and address.
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
		AtVIPs:   len(p.check.VIPs) > 0,
		State:    s.state.String(),
		Void:     p.void(),
		Since:    s.since,
		Error:    p.problem,
		Checked:  p.checked,
		Took:     p.took,
		Checks:   p.checks,
		Failures: p.failures,
		Flaps:    s.flaps,
	}
}

// Count counts the backends. The cost is that of those without a result.
func (c *Checker) Count() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.count()
}

// Stats returns the numbers of c as a whole.
func (c *Checker) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.table.totals, len(c.table.probes), c.table.asking, c.table.behind}
}

// recheck makes the checks of an address due.
func (c *Checker) recheck(at netip.AddrPort) {
	c.mu.Lock()
	c.table.recheck(at, time.Now())
	c.mu.Unlock()
	signal(c.wake)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
