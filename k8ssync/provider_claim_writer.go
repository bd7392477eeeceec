package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// errUnfollowed is of a Service that another box may follow.
var errUnfollowed = errors.New("its cluster, or its namespace, is not followed by this box")

// errChanged is that another writer has changed a claim first.
var errChanged = errors.New("another writer has changed the claim")

// errOlder is that the API server has an older claim than weir knows. If it has not just
// changed, the cluster has an older state, and its next list brings that.
var errOlder = errors.New("the lease cluster has an older claim than before: it may have been restored from a backup")

// errNotWriter is that another box writes.
var errNotWriter = errors.New("this box is not the writer")

// claimWriter writes claims.
type claimWriter struct{ *providerState }

// run makes the writes of a queue until it ends.
func (p claimWriter) run(ctx context.Context, queue workqueue.TypedInterface[netip.Addr]) {
	for {
		addr, over := queue.Get()
		if over {
			return
		}
		p.mu.Lock()
		w, ok := p.inFlight[addr]
		p.mu.Unlock()
		if ok {
			p.write(ctx, w)
		}
		queue.Done(addr)
	}
}

// write makes one write, records its result, and requests the decision for its Service
// again, later if it failed.
func (p claimWriter) write(ctx context.Context, w claimWrite) {
	addr, id := w.Claim.Addr, w.decision.Service
	err := p.mayRelease(ctx, w)
	if err == nil {
		err = p.try(ctx, w)
	}
	p.locked(func() {
		delete(p.inFlight, addr)
		p.alloc.Done(addr)
		if err != nil && p.members[id.Source] == nil {
			err = errUnfollowed // since it began: forget has cleared the errors of its Services
		}
		switch {
		case err == nil:
			p.retries.Forget(id)
			delete(p.claimErrors, id)
			p.count(w)
		case errors.Is(err, errChanged):
			p.counters.Conflicts++
			delete(p.claimErrors, id) // the next write will be another one
		case ctx.Err() == nil && !errors.Is(err, errNotWriter) && !errors.Is(err, errUnfollowed):
			p.counters.Errors++
			p.claimErrors[id] = err
		}
	})
	switch {
	case err == nil:
		p.report(w)
	case !errors.Is(err, errUnfollowed):
		p.retryLater(id, err)
	}
	p.update()
}

// try writes, and records the result. A claim with unknown holders, which only a check would
// write, is read: a write would destroy what a later version, or a person, has written.
func (p claimWriter) try(ctx context.Context, w claimWrite) error {
	if len(w.Claim.Holders) == 0 && !w.Delete {
		return p.resolve(ctx, w, nil)
	}
	lease, in, err := p.leaseFor(w)
	if err != nil {
		return err
	}
	verb := "update"
	ask, cancel := context.WithTimeout(ctx, p.timing.request)
	defer cancel()
	switch {
	case w.Delete:
		verb = "delete"
		err = in.remove(ask, lease.Name, lease.ResourceVersion)
	case w.Claim.Version == 0:
		verb = "create"
		err = in.put(ask, lease)
	default:
		err = in.put(ask, lease)
	}
	switch {
	case err == nil && w.Delete:
		p.locked(func() { p.alloc.Gone(w.Claim.Addr, w.Claim.Version) })
		return nil
	case err == nil:
		claim, ok := claimOf(lease)
		if !ok || claim.Version == 0 {
			return fmt.Errorf("%s leases: the API server answered with another object", verb)
		}
		return p.learn(claim)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err), apierrors.IsTooManyRequests(err):
		return in.failed(verb, err) // nothing was written
	}
	return p.resolve(ctx, w, in.failed(verb, err))
}

// leaseFor returns the object to write, and the client; an error if this box is not the
// writer.
func (p claimWriter) leaseFor(w claimWrite) (*coordinationv1.Lease, leases, error) {
	sess, namespace, err := p.leaseCluster()
	if err != nil {
		return nil, leases{}, err
	}
	lease, err := leaseOf(w.Claim, namespace, sess.prefix)
	if err == nil && !p.mayWrite() {
		err = errNotWriter
	}
	return lease, leases{sess.client.claims, namespace}, err
}

// resolve reads a claim after a write that may have failed, until the result is known: a
// lost answer must not assign an address twice. reason is the error if nothing was
// written.
func (p claimWriter) resolve(ctx context.Context, w claimWrite, reason error) error {
	wait := p.timing.first
	for {
		sess, namespace, err := p.leaseCluster()
		if err == nil {
			in := leases{sess.client.claims, namespace}
			ask, cancel := context.WithTimeout(ctx, p.timing.request)
			var list *coordinationv1.LeaseList
			list, err = in.find(ask, ipam.Name(w.Claim.Addr))
			cancel()
			if err == nil {
				return p.resolved(w, list, reason)
			}
			err = in.failed("list", err)
		}
		p.locked(func() {
			if p.members[w.decision.Service.Source] != nil {
				p.claimErrors[w.decision.Service] = err
			}
		})
		sleep(ctx, wait)
		wait = min(2*wait, p.timing.last)
		if ctx.Err() != nil || !p.mayWrite() {
			return errNotWriter // the next writer reads it
		}
	}
}

// resolved records a claim, and compares it with the write.
func (p claimWriter) resolved(w claimWrite, list *coordinationv1.LeaseList, reason error) error {
	if len(list.Items) == 0 {
		p.locked(func() { p.alloc.Gone(w.Claim.Addr, max(w.Claim.Version, version(list.ResourceVersion))) })
		if w.Delete {
			return nil
		}
		if w.Claim.Version > 0 {
			return errChanged
		}
		return reason
	}
	claim, ok := claimOf(&list.Items[0])
	if !ok {
		return reason
	}
	if err := p.learn(claim); err != nil {
		return err
	}
	switch {
	case claim.Version == w.Claim.Version:
		return reason // nothing was written
	case !w.Delete && sameHolders(claim, w.Claim):
		return nil // it was written, and the answer is lost
	}
	return errChanged
}

// learn records a claim of the API server.
func (p claimWriter) learn(c ipam.Claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alloc.Learn(c) {
		return errOlder
	}
	return nil
}

// sameHolders reports whether two claims have the same holders.
func sameHolders(a, b ipam.Claim) bool {
	x, errX := a.MarshalText()
	y, errY := b.MarshalText()
	return errX == nil && errY == nil && slices.Equal(x, y)
}

// mayRelease returns an error unless the API server confirms that a Service without a
// watched object is gone, or has no right to the address: a watch may be late, or not show
// a Service (one with the label of another proxy).
func (p claimWriter) mayRelease(ctx context.Context, w claimWrite) error {
	id := w.decision.Service
	p.mu.Lock()
	m := p.members[id.Source]
	known := m != nil && m.services[key{id.Namespace, id.Name}] != nil
	p.mu.Unlock()
	if known {
		return nil
	}
	if m == nil || !m.cluster.cfg.follows(id.Namespace) {
		return errUnfollowed
	}
	if err := m.cluster.complete(); err != nil {
		return fmt.Errorf("cluster %s: %w", id.Source, err)
	}
	if _, guarded := m.cluster.out.commits(); slices.Contains(guarded, id.Namespace) {
		return fmt.Errorf("cluster %s, namespace %s: %w", id.Source, id.Namespace, errGuarded)
	}
	svc, err := m.cluster.fetch(ctx, key{id.Namespace, id.Name}, p.timing.request)
	switch {
	case err != nil:
		return err
	case svc == nil:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide(m, svc)
	if p.cfg.manages(svc) || slices.Contains(svc.assigned(), w.Claim.Addr) {
		return errChanged
	}
	return nil
}

// retryLater requests the decision for a Service again after a pause: an increasing one,
// or that which the API server requests.
func (p claimWriter) retryLater(id lb.ServiceID, err error) {
	wait := p.retries.When(id)
	if errors.Is(err, errChanged) && p.retries.NumRequeues(id) <= 2 {
		wait = 0 // it was late
	}
	p.due.AddAfter(id, max(wait, requestedDelay(err)))
}

// redecide requests the decisions that are due for a retry.
func (p claimWriter) redecide() {
	for {
		id, over := p.due.Get()
		if over {
			return
		}
		p.locked(func() {
			if !p.alloc.Knows(id) || !p.writer() {
				p.clearErrors(id)
			}
			p.alloc.Again(id)
		})
		p.due.Done(id)
		p.check()
	}
}

// report writes an Event for an address that is retained after the end of its Service.
func (p claimWriter) report(w claimWrite) {
	id := w.decision.Service
	k := key{id.Namespace, id.Name}
	p.mu.Lock()
	m := p.members[id.Source]
	gone := m != nil && m.service(k) == nil
	after := p.cfg.IPAM.Retention
	p.mu.Unlock()
	i := slices.IndexFunc(w.Claim.Holders, func(h ipam.Holder) bool { return h.Service == id && !h.Released.IsZero() })
	if !gone || i < 0 {
		return
	}
	m.event(subject{
		key: k, uid: w.Claim.Holders[i].UID, reason: eventReleased, normal: true,
		text: fmt.Sprintf("the Service is gone: %s is kept for one of this name for %s", w.Claim.Addr, after),
	})
}

// count counts the addresses that a write has released. p.mu is held.
func (p claimWriter) count(w claimWrite) {
	if slices.ContainsFunc(w.Claim.Holders, func(h ipam.Holder) bool { return h.Service == w.decision.Service && !h.Released.IsZero() }) {
		p.counters.Released++
	}
}
