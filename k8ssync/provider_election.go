package k8ssync

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writerLease is the Lease whose holder writes.
const writerLease = "weir-writer"

// election says whether this box writes. It works as client-go's leader election
// does, on the same fields of a Lease; that one would make weir twice as big, as it
// brings a client for every kind of Kubernetes.
//
// Nothing depends on its being right: two boxes that both believe to write harm
// nobody, since claims and statuses are written only onto what was read.
type election struct {
	identity string
	timing   electionTiming
	renewed  time.Time // when this box last tried to renew, as the Lease says it; only elect's goroutine knows it

	// What follows is under Provider.mu.
	until  time.Time // up to when this box writes
	lapsed bool      // until was over when it was renewed: what was due meanwhile was left
	since  time.Time // since when the holder does
	holder string    // as last seen
	seen   string    // the resourceVersion that was last seen
	at     time.Time // when that was
	lasts  time.Duration
	err    error
}

// electionTiming says how long a lease lasts unless it is renewed, how long its
// holder trusts in it, and how often everybody tries.
type electionTiming struct{ lease, deadline, retry time.Duration }

// usualElection is what Kubernetes' own controllers have.
var usualElection = electionTiming{lease: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second}

// writes tells whether this box is the writer.
func (e *election) writes(now time.Time) bool { return now.Before(e.until) }

// writer is who holds the lease, as far as that is known; empty is nobody.
func (e *election) writer(now time.Time) string {
	if e.holder != "" && now.Before(e.at.Add(e.lasts)) {
		return e.holder
	}
	return ""
}

// elect tries to become the writer, and to stay it, until ctx ends.
func (p *Provider) elect(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var held *lent // the client, so that the lease can be given back with it
	for {
		var over chan struct{}
		if held != nil {
			over = held.over
		}
		select {
		case <-ctx.Done():
		case <-over:
			rested(ctx, blink) // all may be about to end
		case <-tick.C:
		}
		if ctx.Err() != nil {
			p.resign(held)
		}
		if held != nil && (ctx.Err() != nil || closed(held.over)) {
			held.letGo()
			held = nil
		}
		if ctx.Err() != nil {
			return
		}
		if held == nil {
			held = p.holdHome()
		}
		retry := p.election.timing.retry
		p.tryElection(ctx)
		tick.Reset(retry + time.Duration(rand.Int64N(int64(retry)/5+1)))
	}
}

// blink is how much later one goroutine may hear than another that all ends.
const blink = 100 * time.Millisecond

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// holdHome gives the home cluster's client, held; nil is that there is none.
func (p *Provider) holdHome() *lent {
	home, _, err := p.home()
	if err != nil || !home.hold() {
		return nil
	}
	return home
}

// tryElection reads the lease, and takes or renews it if it may.
func (p *Provider) tryElection(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.election.timing.deadline/2)
	defer cancel()
	home, namespace, err := p.home()
	if err == nil {
		err = p.takeLease(ctx, home.client, namespace, began)
	}
	changed, now := false, false
	p.locked(func() {
		before := p.writing
		p.election.err = err
		p.writing = p.election.writes(time.Now())
		changed, now = before != p.writing, p.writing
		if changed {
			p.counters.Transitions++
		}
		if now && (changed || p.election.lapsed) {
			p.takeOver()
		}
		p.election.lapsed = false
	})
	if changed {
		p.log.Info("the writer of addresses", "this_box", now)
	}
	p.peek()
}

// takeLease does it, and notes what it saw.
func (p *Provider) takeLease(ctx context.Context, with *client, namespace string, began time.Time) error {
	lease := &coordinationv1.Lease{}
	in := leases{with.election, namespace}
	err := in.get(ctx, writerLease, lease)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return in.failed("get", err)
	}
	e := &p.election
	p.mu.Lock()
	free := missing || e.mayTake(lease, began)
	p.mu.Unlock()
	if !free {
		return nil
	}
	e.renew(lease, namespace, time.Now())
	verb := "update"
	if missing {
		verb = "create"
	}
	err = in.put(ctx, lease)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil // another was faster, and will be seen
	}
	if err != nil {
		return in.failed(verb, err)
	}
	p.mu.Lock()
	e.saw(lease, began)
	e.lapsed = e.lapsed || !e.writes(time.Now())
	e.until = began.Add(e.timing.deadline)
	p.mu.Unlock()
	return nil
}

// mayTake notes what was read, and tells whether this box may hold the lease now: it
// does, or nobody, or the holder has not renewed it for as long as it lasts. How long
// that is counts from when this box saw it change: clocks of others don't matter.
func (e *election) mayTake(lease *coordinationv1.Lease, now time.Time) bool {
	if lease.ResourceVersion != e.seen {
		e.saw(lease, now)
	}
	mine := e.holder == e.identity
	if !mine {
		e.until = time.Time{}
	}
	return mine || e.writer(now) == ""
}

func (e *election) saw(lease *coordinationv1.Lease, now time.Time) {
	e.seen, e.at = lease.ResourceVersion, now
	e.holder, e.lasts, e.since = "", e.timing.lease, time.Time{}
	if h := lease.Spec.HolderIdentity; h != nil {
		e.holder = *h
	}
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		e.lasts = time.Duration(*s) * time.Second
	}
	if t := lease.Spec.AcquireTime; t != nil {
		e.since = t.Time
	}
}

// renew makes a lease this box's.
func (e *election) renew(lease *coordinationv1.Lease, namespace string, now time.Time) {
	lease.Name, lease.Namespace = writerLease, namespace
	lease.Labels = managed(lease.Labels)
	stamp, seconds := metav1.NewMicroTime(now), int32(max(1, e.timing.lease/time.Second))
	s := &lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity != e.identity {
		transitions := int32(1)
		if s.LeaseTransitions != nil {
			transitions += *s.LeaseTransitions
		}
		s.HolderIdentity, s.AcquireTime, s.LeaseTransitions = &e.identity, &stamp, &transitions
	}
	s.RenewTime, s.LeaseDurationSeconds = &stamp, &seconds
	e.renewed = now
}

// resign gives the lease back, so that another box need not wait until it ends.
func (p *Provider) resign(home *lent) {
	p.mu.Lock()
	mine, seen, namespace := p.writing, p.election.seen, p.cfg.Namespace
	p.writing, p.election.until = false, time.Time{}
	p.mu.Unlock()
	if !mine || home == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	in, lease := leases{home.client.election, namespace}, &coordinationv1.Lease{}
	if in.get(ctx, writerLease, lease) != nil || lease.ResourceVersion != seen && !p.election.wrote(lease) {
		return
	}
	nobody, second := "", int32(1)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &second
	if err := in.put(ctx, lease); err != nil {
		p.log.Warn("the writer's lease can't be given back: others wait until it ends", "error", err)
	}
}

// wrote tells whether a lease is as this process last wrote it. It may not know that it
// did: what ends it cuts off the answer, too.
func (e *election) wrote(lease *coordinationv1.Lease) bool {
	s := lease.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity == e.identity && s.RenewTime != nil && s.RenewTime.UnixMicro() == e.renewed.UnixMicro()
}

// takeOver looks at every Service anew. p.mu is held.
func (p *Provider) takeOver() {
	for _, m := range p.members {
		m.resume()
	}
}
