package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// providerTiming is how patient a Provider is. Tests are less so.
type providerTiming struct {
	election electionTiming
	// poll is how often it looks whether the home cluster can be talked to again.
	poll time.Duration
	// grace is how long a cluster has to tell of its Services, before others get
	// addresses.
	grace time.Duration
	// request is how long a request may take.
	request time.Duration
	// first and last bound how long whatever failed waits before it is tried again.
	first, last time.Duration
	// hidden is how often a Service is looked at that its watch does not show.
	hidden time.Duration
}

var usualProviderTiming = providerTiming{
	election: usualElection, poll: time.Second, grace: 30 * time.Second, request: 15 * time.Second,
	first: 500 * time.Millisecond, last: time.Minute, hidden: 5 * time.Minute,
}

// How many requests are made at once: to the home cluster for claims, to each cluster
// for statuses, and for claims before which the cluster itself is asked for a Service. A
// cluster that is slow keeps its own writers alone.
const (
	claimWriters  = 8
	statusWriters = 4
	goneWriters   = 4
	// batch is how many decisions are made before others may look.
	batch = 256
)

var errNotWriter = errors.New("this box is not the writer")

// Run gives addresses until ctx ends. What is wrong is for Status to say.
func (p *Provider) Run(ctx context.Context) error {
	quietKlog()
	for pause := time.Duration(0); ctx.Err() == nil; {
		life, stop := context.WithCancel(ctx)
		p.locked(func() { p.begin(stop) })
		began := time.Now()
		fell := p.live(life, stop)
		stop()
		if !fell || time.Since(began) > p.timing.last {
			pause = 0
		}
		if fell {
			pause = min(max(2*pause, p.timing.first), p.timing.last)
			rested(ctx, pause)
		}
	}
	return nil
}

// rested waits, unless ctx ends.
func rested(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// begin forgets everything but the configuration. stop is to be called when that is
// to be done again. p.mu is held.
func (p *Provider) begin(stop context.CancelFunc) {
	p.restart = stop
	p.alloc = ipam.New(p.cfg.IPAM)
	p.claims = &claimFeed{p: p}
	p.election = election{identity: p.cfg.Identity, timing: p.timing.election}
	p.writing, p.began, p.complete = false, time.Now(), false
	p.members, p.flights, p.claimErrors = map[string]*member{}, map[netip.Addr]claimWrite{}, map[lb.ServiceID]error{}
	p.retries = workqueue.NewTypedItemExponentialFailureRateLimiter[lb.ServiceID](p.timing.first, p.timing.last)
}

// again begins anew.
func (p *Provider) again() {
	p.mu.Lock()
	stop := p.restart
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// crew are the goroutines of one life. One that panics ends the life of all, and
// nothing else: the box serves on.
type crew struct {
	sync.WaitGroup
	log  *slog.Logger
	stop context.CancelFunc
	fell atomic.Bool
}

func (c *crew) do(f func()) {
	c.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				c.log.Error("giving addresses has failed; those that are given stay, and it begins anew", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
				c.fell.Store(true)
				c.stop()
			}
		}()
		f()
	})
}

// live works until ctx ends, and tells whether it ended in a panic.
func (p *Provider) live(ctx context.Context, stop context.CancelFunc) (fell bool) {
	if !p.wanted(ctx) {
		return false
	}
	p.locked(func() {
		p.writes = workqueue.NewTyped[netip.Addr]()
		p.due = workqueue.NewTypedDelayingQueue[lb.ServiceID]()
	})
	all := &crew{log: p.log, stop: stop}
	all.do(func() { p.followClaims(ctx) })
	all.do(func() { p.elect(ctx) })
	all.do(p.redecide)
	for range claimWriters {
		all.do(func() { p.writeClaims(ctx, p.writes) })
	}
	all.do(func() { p.plan(ctx, all) })
	<-ctx.Done()
	p.locked(func() {
		p.writes.ShutDown()
		p.due.ShutDown()
		for _, m := range p.members {
			m.end()
		}
	})
	all.Wait()
	return all.fell.Load()
}

// wanted waits until there are pools: without any, weir neither reads nor writes, and
// needs no right to.
func (p *Provider) wanted(ctx context.Context) bool {
	for {
		p.mu.Lock()
		some := len(p.cfg.IPAM.Pools) > 0
		p.mu.Unlock()
		if some {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-p.wake:
		}
	}
}

// plan hears what is new, and decides, until ctx ends.
func (p *Provider) plan(ctx context.Context, all *crew) {
	p.news()
	due, tell := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer due.Stop()
	defer tell.Stop()
	for telling := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tell.C:
			telling = false
			signal(p.changes)
			continue
		case <-p.wake:
		case <-due.C:
		}
		p.gather(ctx, all)
		for p.decide() {
			if ctx.Err() != nil {
				return
			}
		}
		var at time.Time
		p.locked(func() { at = p.alloc.Wake() })
		due.Reset(time.Hour)
		if !at.IsZero() {
			due.Reset(max(0, min(time.Hour, time.Until(at))))
		}
		if p.noticed() && !telling {
			telling = true
			tell.Reset(weary)
		}
	}
}

// news has the planner look at what has happened.
func (p *Provider) news() {
	p.fresh.Store(true)
	p.peek()
}

// peek has the planner look whether something has happened.
func (p *Provider) peek() { signal(p.wake) }

// gather takes in what the clusters say.
func (p *Provider) gather(ctx context.Context, all *crew) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.members)) {
		m := p.members[name]
		if next := p.clusters[name]; next != m.cluster {
			m.end()
			p.alloc.Synced(name, false)
			if next == nil {
				p.forget(m)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.clusters)) {
		old := p.members[name]
		if old != nil && old.cluster == p.clusters[name] {
			continue
		}
		m := newMember(p, name, p.clusters[name], old)
		p.members[name] = m
		for range statusWriters {
			all.do(func() { p.writeStatuses(ctx, m) })
		}
		for range goneWriters {
			all.do(func() { p.writeClaims(ctx, m.writes) })
		}
	}
	for _, m := range p.members {
		p.listen(m)
	}
}

// forget drops a cluster that is followed no longer. Its claims stay.
func (p *Provider) forget(m *member) {
	for k := range m.services {
		p.alloc.Delete(m.id(k))
	}
	for k := range m.hidden {
		p.alloc.Delete(m.id(k))
	}
	delete(p.members, m.name)
}

// decide makes decisions, some at a time; true is that there may be more.
func (p *Provider) decide() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range batch {
		if !p.writer() {
			return false
		}
		d, some := p.alloc.Next(time.Now())
		if !some {
			return false
		}
		if len(d.Writes) == 0 {
			p.settle(d.Service)
		}
		for _, w := range d.Writes {
			p.flights[w.Claim.Addr] = claimWrite{w, d}
			p.writersOf(d.Service).Add(w.Claim.Addr)
		}
		// With writes, what the status is to be is decided when they are made.
		if m := p.members[d.Service.Source]; m != nil && len(d.Writes) == 0 {
			m.decided(d)
		}
	}
	return true
}

// writersOf gives the queue of who makes the writes of a Service. p.mu is held.
func (p *Provider) writersOf(id lb.ServiceID) workqueue.TypedInterface[netip.Addr] {
	if m := p.members[id.Source]; m != nil && m.services[key{id.Namespace, id.Name}] == nil {
		return m.writes
	}
	return p.writes
}

// writer tells whether this box may write now. p.mu is held.
//
// All clusters are heard first, from their files at least, or have had their time:
// what Services have there that weir did not give counts as taken.
func (p *Provider) writer() bool {
	now := time.Now()
	if !p.complete {
		p.complete = now.Sub(p.began) > p.timing.grace || p.allHeard()
	}
	return p.complete && p.claims.listed && p.election.writes(now)
}

func (p *Provider) allHeard() bool {
	for name := range p.clusters {
		if m := p.members[name]; m == nil || !m.heard {
			return false
		}
	}
	return true
}

func (p *Provider) mayWrite() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writer()
}

// retryLater has a Service decided again after a while, longer each time, or when the
// API server wants it.
func (p *Provider) retryLater(id lb.ServiceID, err error) {
	wait := p.retries.When(id)
	if errors.Is(err, errMoved) && p.retries.NumRequeues(id) <= 2 {
		wait = 0 // it was only late
	}
	p.due.AddAfter(id, max(wait, asked(err)))
}

// settle forgets what went wrong with the claims of a Service for which none is to be
// written, or not by this box. p.mu is held.
func (p *Provider) settle(id lb.ServiceID) {
	p.retries.Forget(id)
	if p.claimErrors[id] != nil {
		delete(p.claimErrors, id)
		p.news()
	}
}

// asked is how long an API server wants to be left alone, if that is sane.
func asked(err error) time.Duration {
	const sane = time.Minute
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return min(sane, time.Duration(seconds)*time.Second)
}

// redecide has Services decided again whose time has come.
func (p *Provider) redecide() {
	for {
		id, over := p.due.Get()
		if over {
			return
		}
		p.locked(func() {
			if !p.alloc.Knows(id) || !p.writer() {
				p.settle(id)
			}
			p.alloc.Again(id)
		})
		p.due.Done(id)
		p.peek()
	}
}
