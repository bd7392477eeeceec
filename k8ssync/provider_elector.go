package k8ssync

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// elector tries to make this box the writer.
type elector struct{ *providerState }

// run tries until ctx ends, and then releases the lease.
func (p elector) run(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var reserved *session // to release the lease with
	for {
		var ended <-chan struct{}
		if reserved != nil {
			ended = reserved.life.Done()
		}
		select {
		case <-ctx.Done():
		case <-ended:
			sleep(ctx, shutdownSkew) // a shutdown may follow
		case <-tick.C:
		}
		if ctx.Err() != nil {
			p.resign(reserved)
		}
		if reserved != nil && (ctx.Err() != nil || reserved.life.Err() != nil) {
			reserved.release()
			reserved = nil
		}
		if ctx.Err() != nil {
			return
		}
		if reserved == nil {
			reserved = p.reserveLeaseCluster()
		}
		retry := p.election.timing.retry
		if !p.ready() {
			tick.Reset(retry / 10)
			continue
		}
		p.try(ctx)
		tick.Reset(retry + time.Duration(rand.Int64N(int64(retry)/5+1)))
	}
}

// shutdownSkew is how much later than another goroutine one may see a shutdown.
const shutdownSkew = 100 * time.Millisecond

// reserveLeaseCluster reserves the session of the lease cluster; nil is that there is none.
func (p elector) reserveLeaseCluster() *session {
	sess, _, err := p.leaseCluster()
	if err != nil || !sess.reserve() {
		return nil
	}
	return sess
}

// ready reports whether the claims, and the lease with them, are known: before that no box
// may write. An error of the connection is recorded by try.
func (p elector) ready() bool {
	_, _, err := p.leaseCluster()
	p.mu.Lock()
	defer p.mu.Unlock()
	return err != nil || p.claims.current().listed
}

// try reads the lease, and takes or renews it if possible.
func (p elector) try(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.election.timing.deadline/2)
	defer cancel()
	sess, namespace, err := p.leaseCluster()
	if err == nil {
		err = p.takeLease(ctx, sess.client, namespace, began)
	}
	changed, now := false, false
	p.locked(func() {
		before := p.election.writing
		p.election.err = err
		now = p.election.writes(time.Now())
		p.election.writing, changed = now, before != now
		if changed {
			p.counters.Transitions++
		}
		if now && (changed || p.election.lapsed) {
			p.redecideAll()
		}
		p.election.lapsed = false
	})
	if changed {
		p.log.Info("address writer changed", "this_box", now)
	}
	p.check()
}

// takeLease takes or renews the lease, and records it. A lease that is as this
// box wrote it last need not be read.
func (p elector) takeLease(ctx context.Context, with *client, namespace string, began time.Time) error {
	e, in := &p.election, leases{with.election, namespace}
	p.mu.Lock()
	due, lease := e.mustAsk(began), e.held
	e.held = nil // until the renewal has succeeded
	p.mu.Unlock()
	if !due {
		return nil
	}
	verb := "update"
	if lease == nil {
		lease = &coordinationv1.Lease{}
		err := in.get(ctx, writerLease, lease)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return in.failed("get", err)
		}
		p.mu.Lock()
		free := missing || e.mayTake(lease, began)
		p.mu.Unlock()
		if !free {
			return nil
		}
		if missing {
			verb = "create"
		}
	}
	e.renew(lease, namespace, time.Now())
	err := in.put(ctx, lease)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil // another box was faster
	}
	if err != nil {
		return in.failed(verb, err)
	}
	p.mu.Lock()
	if version(e.seen) <= version(lease.ResourceVersion) {
		e.saw(lease, began)
		e.held = lease
	}
	e.lapsed = e.lapsed || !e.writes(time.Now())
	e.until = began.Add(e.timing.deadline)
	p.mu.Unlock()
	return nil
}

// resign releases the lease, so that another box need not wait for its end.
func (p elector) resign(sess *session) {
	p.mu.Lock()
	mine, seen, namespace := p.election.writing, p.election.seen, p.cfg.Namespace
	p.election.writing, p.election.until = false, time.Time{}
	p.mu.Unlock()
	if !mine || sess == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	in := leases{sess.client.election, namespace}
	for {
		lease := &coordinationv1.Lease{}
		if in.get(ctx, writerLease, lease) != nil || lease.ResourceVersion != seen && !p.election.wrote(lease) {
			return
		}
		none, second := "", int32(1)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &none, &second
		err := in.put(ctx, lease)
		if apierrors.IsConflict(err) {
			continue // a renewal that the shutdown has cut off arrived in between
		}
		if err != nil {
			p.log.Warn("writer lease not released", "error", err)
		}
		return
	}
}

// redecideAll requests all decisions again. p.mu is held.
func (p elector) redecideAll() {
	for _, m := range p.members {
		m.redecideAll()
	}
}
