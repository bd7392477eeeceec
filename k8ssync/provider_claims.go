package k8ssync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"weir/k8ssync/ipam"
)

// claimFeed has the claims of the home cluster, as its API server tells them. It is what
// client-go's Reflector calls.
type claimFeed struct {
	p *Provider
	leases

	// What follows is under Provider.mu.
	listed, watching bool
	highest          uint64 // version of a list
	err              error
}

// followClaims reads the claims until ctx ends, with whatever client the home cluster
// is followed with.
func (p *Provider) followClaims(ctx context.Context) {
	tick := time.NewTicker(p.timing.poll)
	defer tick.Stop()
	for {
		home, namespace, err := p.home()
		if err == nil {
			p.followWith(ctx, home, namespace)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// followWith reads them with one client, while it may be used.
func (p *Provider) followWith(ctx context.Context, home *lent, namespace string) {
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	defer stop()
	go func() {
		select {
		case <-home.over:
			stop()
		case <-ctx.Done():
		}
	}()
	c := p.claims
	c.leases = leases{home.client.claims, namespace}
	cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}, nil, c,
		cache.ReflectorOptions{
			Name: "claims", TypeDescription: "leases", Logger: new(klog.Logger),
			Backoff: &wait.Backoff{Duration: p.timing.first, Cap: p.timing.last, Factor: 2, Jitter: 1, Steps: 10},
		}).RunWithContext(ctx)
	c.broken(errors.New("the home cluster is being connected anew"))
}

func (c *claimFeed) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := c.with.Get().Namespace(c.namespace).Resource("leases").VersionedParams(&opts, params).MaxRetries(0).Do(ctx).Get()
	if _, ok := list.(*coordinationv1.LeaseList); err == nil && !ok {
		err = fmt.Errorf("the API server sent a %T", list)
	}
	if err != nil {
		return nil, c.told(ctx, "list", err)
	}
	return list, nil
}

func (c *claimFeed) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	listing := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	var lost lost
	w, err := c.with.Get().Namespace(c.namespace).Resource("leases").VersionedParams(&opts, params).MaxRetries(0).
		Watch(context.WithValue(ctx, lostKey{}, &lost))
	if err == nil && lost.err != nil {
		w.Stop()
		err = lost.err
	}
	switch {
	case err == nil:
		c.works()
		return newStream(w, func(e watch.Event) (watch.Event, bool) { return e, true }), nil
	case listing && apierrors.IsInvalid(err):
		return nil, err // the server does not know such lists, and will be asked for a plain one
	}
	err = c.told(ctx, "watch", err)
	if listing && !forgotten(err) {
		return nil, apierrors.FromObject(hidden(err))
	}
	return nil, err
}

// told notes an error, and gives it in weir's words.
func (c *claimFeed) told(ctx context.Context, verb string, err error) error {
	if ctx.Err() != nil || forgotten(err) {
		return err
	}
	err = c.failed(verb, err)
	c.broken(err)
	return err
}

func (c *claimFeed) works() {
	c.p.mu.Lock()
	c.watching, c.err = true, nil
	c.p.mu.Unlock()
	c.p.news()
}

func (c *claimFeed) broken(err error) {
	c.p.mu.Lock()
	c.watching, c.err = false, err
	c.p.mu.Unlock()
	c.p.news()
}

// Add is cache.ReflectorStore's.
func (c *claimFeed) Add(obj any) error { return c.Update(obj) }

// Update is cache.ReflectorStore's.
func (c *claimFeed) Update(obj any) error {
	if l, ok := obj.(*coordinationv1.Lease); ok {
		if claim, ok := claimOf(l); ok {
			c.p.locked(func() {
				c.p.alloc.Learn(claim)
				c.p.alloc.Passed(claim.Version)
			})
			c.p.news()
		}
	}
	return nil
}

// Delete is cache.ReflectorStore's. The object is at the version of its deletion.
func (c *claimFeed) Delete(obj any) error {
	if l, ok := obj.(*coordinationv1.Lease); ok {
		if claim, ok := claimOf(l); ok {
			c.p.locked(func() {
				c.p.alloc.Gone(claim.Addr, claim.Version)
				c.p.alloc.Passed(claim.Version)
			})
			c.p.news()
		}
	}
	return nil
}

// Replace is cache.ReflectorStore's. A list that is older than one before is that of
// a cluster restored from a backup: what is known of versions is worth nothing then,
// and all is read anew.
func (c *claimFeed) Replace(list []any, resourceVersion string) error {
	var all []ipam.Claim
	for _, obj := range list {
		if l, ok := obj.(*coordinationv1.Lease); ok {
			if claim, ok := claimOf(l); ok {
				all = append(all, claim)
			}
		}
	}
	v := version(resourceVersion)
	restored := false
	c.p.locked(func() {
		restored = v < c.highest
		c.highest = v
		if !restored {
			c.p.alloc.Relist(v, all)
			c.listed = true
		}
	})
	if restored {
		c.p.log.Warn("the home cluster has gone back in time: all addresses are read anew", "cluster", c.p.homeName())
		c.p.again()
	}
	c.p.news()
	return nil
}

// Resync is never asked for.
func (c *claimFeed) Resync() error { return nil }

// claimWrite is one write that was decided.
type claimWrite struct {
	ipam.Write
	decision ipam.Decision
}

// errUnfollowed tells that this box does not know a Service that another may have.
var errUnfollowed = errors.New("its cluster, or its namespace, is not followed by this box")

// errMoved tells that somebody else has changed a claim first.
var errMoved = errors.New("another writer has changed the claim")

// writeClaims makes the writes of a queue until it ends.
func (p *Provider) writeClaims(ctx context.Context, queue workqueue.TypedInterface[netip.Addr]) {
	for {
		addr, over := queue.Get()
		if over {
			return
		}
		p.mu.Lock()
		w, ok := p.flights[addr]
		p.mu.Unlock()
		if ok {
			p.writeClaim(ctx, w)
		}
		queue.Done(addr)
	}
}

// writeClaim makes one write, learns what came of it, and has its Service decided
// again, later if it failed.
func (p *Provider) writeClaim(ctx context.Context, w claimWrite) {
	addr, id := w.Claim.Addr, w.decision.Service
	err := p.mayLetGo(ctx, w)
	if err == nil {
		err = p.tryClaim(ctx, w)
	}
	p.locked(func() {
		delete(p.flights, addr)
		p.alloc.Done(addr)
		switch {
		case err == nil:
			p.retries.Forget(id)
			delete(p.claimErrors, id)
			p.counted(w)
		case errors.Is(err, errMoved):
			p.counters.Conflicts++
			delete(p.claimErrors, id) // what is to be written is another thing now
		case ctx.Err() == nil && !errors.Is(err, errNotWriter) && !errors.Is(err, errUnfollowed):
			p.counters.Errors++
			p.claimErrors[id] = err
		}
	})
	switch {
	case err == nil:
		p.tellClaim(w)
	case !errors.Is(err, errUnfollowed):
		p.retryLater(id, err)
	}
	p.news()
}

// tryClaim writes, and learns.
func (p *Provider) tryClaim(ctx context.Context, w claimWrite) error {
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
		p.locked(func() { p.alloc.Learn(claim) })
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err), apierrors.IsTooManyRequests(err):
		return in.failed(verb, err) // nothing was written
	}
	return p.whatBecame(ctx, w, in.failed(verb, err))
}

// leaseFor gives the object to write, and where; not if this box is not the writer.
func (p *Provider) leaseFor(w claimWrite) (*coordinationv1.Lease, leases, error) {
	home, namespace, err := p.home()
	if err != nil {
		return nil, leases{}, err
	}
	lease, err := leaseOf(w.Claim, namespace)
	if err == nil && !p.mayWrite() {
		err = errNotWriter
	}
	return lease, leases{home.client.claims, namespace}, err
}

// whatBecame reads a claim after a write that failed, or of which nobody knows whether
// it did, until it is known: that the answer is lost is no reason to give an address
// twice. why is what to say if nothing was written.
func (p *Provider) whatBecame(ctx context.Context, w claimWrite, why error) error {
	wait := p.timing.first
	for {
		home, namespace, err := p.home()
		if err == nil {
			in := leases{home.client.claims, namespace}
			ask, cancel := context.WithTimeout(ctx, p.timing.request)
			var list *coordinationv1.LeaseList
			list, err = in.find(ask, ipam.Name(w.Claim.Addr))
			cancel()
			if err == nil {
				return p.became(w, list, why)
			}
			err = in.failed("list", err)
		}
		p.locked(func() { p.claimErrors[w.decision.Service] = err })
		rested(ctx, wait)
		wait = min(2*wait, p.timing.last)
		if ctx.Err() != nil || !p.mayWrite() {
			return errNotWriter // who writes next reads it
		}
	}
}

// became learns what a claim is now, and compares it with what was written.
func (p *Provider) became(w claimWrite, list *coordinationv1.LeaseList, why error) error {
	if len(list.Items) == 0 {
		p.locked(func() { p.alloc.Gone(w.Claim.Addr, max(w.Claim.Version, version(list.ResourceVersion))) })
		if w.Delete {
			return nil
		}
		if w.Claim.Version > 0 {
			return errMoved
		}
		return why
	}
	claim, ok := claimOf(&list.Items[0])
	if !ok {
		return why
	}
	p.locked(func() { p.alloc.Learn(claim) })
	switch {
	case claim.Version == w.Claim.Version:
		return why // nothing was written
	case !w.Delete && sameHolders(claim, w.Claim):
		return nil // it was, and the answer lost
	}
	return errMoved
}

// sameHolders tells whether two claims say the same.
func sameHolders(a, b ipam.Claim) bool {
	x, errX := a.MarshalText()
	y, errY := b.MarshalText()
	return errX == nil && errY == nil && slices.Equal(x, y)
}

// mayLetGo asks the API server of a Service that is said to be gone whether it is:
// a watch may be late, or not show a Service (one with another proxy's label). nil is
// that it is gone, or that nothing of the kind is to be written.
func (p *Provider) mayLetGo(ctx context.Context, w claimWrite) error {
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
	if err := m.cluster.believable(); err != nil {
		return fmt.Errorf("cluster %s: %w", id.Source, err)
	}
	svc, err := m.look(ctx, key{id.Namespace, id.Name}, p.timing.request)
	switch {
	case err != nil:
		return err
	case svc == nil:
		return nil
	}
	p.locked(func() { p.hide(m, svc) })
	return errMoved
}

// home gives the client of the home cluster, and the namespace there.
func (p *Provider) home() (*lent, string, error) {
	p.mu.Lock()
	name, namespace := p.cfg.Home, p.cfg.Namespace
	m := p.members[name]
	p.mu.Unlock()
	if m == nil {
		return nil, "", fmt.Errorf("the home cluster %q is not followed", name)
	}
	l := m.cluster.borrow()
	if l == nil {
		return nil, "", fmt.Errorf("the home cluster %q is not connected: %s", name, cmp.Or(m.cluster.Status().Error, "not yet"))
	}
	return l, namespace, nil
}

func (p *Provider) homeName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg.Home
}

func (p *Provider) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}
