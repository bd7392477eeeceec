package k8ssync

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// tap is where a Provider hears of a Cluster's Services, as they are and not as they
// are served.
type tap struct {
	bell func() // something is new; it returns at once

	mu      sync.Mutex
	begun   bool
	whole   bool // changed is all there is
	live    bool // the API server says so, and not the last-known-good file
	changed map[key]*service
	avoided []netip.Addr
}

// attach makes a tap, which first tells all Services. Another one that there was
// tells nothing any more.
func (c *Cluster) attach(bell func()) *tap {
	t := &tap{bell: bell}
	c.in.Lock()
	c.tap.Store(t)
	c.afresh = true
	c.in.Unlock()
	signal(c.wake)
	return t
}

// detach ends a tap.
func (c *Cluster) detach(t *tap) { c.tap.CompareAndSwap(t, nil) }

// hear takes in those of o that were touched, or all.
func (t *tap) hear(o *objects, touched map[key]struct{}, whole, live bool) {
	t.mu.Lock()
	whole = whole || !t.begun
	if whole {
		t.begun, t.whole, t.changed = true, true, make(map[key]*service, len(o.services))
		for k, s := range o.services {
			t.changed[k] = s
		}
	}
	t.live = live
	for k := range touched {
		if t.changed == nil {
			t.changed = map[key]*service{}
		}
		t.changed[k] = o.services[k]
	}
	news := len(t.changed) > 0 || t.whole
	t.mu.Unlock()
	if news {
		t.bell()
	}
}

// avoid takes in the addresses that no Service of the cluster can have: Nodes' and
// those that the box needs.
func (t *tap) avoid(addrs []netip.Addr) {
	t.mu.Lock()
	t.avoided = addrs
	t.mu.Unlock()
}

// take gives what has changed since the last time, nil for what is gone. whole tells
// that there is nothing else.
func (t *tap) take() (changed map[key]*service, whole, live bool, avoided []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed, whole = t.changed, t.whole
	t.changed, t.whole = nil, false
	return changed, whole, t.live, t.avoided
}

// ring has a Provider look how the Cluster stands.
func (c *Cluster) ring() {
	if t := c.tap.Load(); t != nil {
		t.bell()
	}
}

// lent is a client while it may be used.
type lent struct {
	client *client
	over   chan struct{} // closed when it is to be given back
	// held has somebody who needs it for one thing more after that, for parting at most.
	held chan struct{}
}

// parting is how long a client is waited for that somebody holds.
const parting = 2 * time.Second

// hold keeps the client from being closed, until the holder lets go; only one can.
func (l *lent) hold() bool {
	select {
	case l.held <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *lent) letGo() { <-l.held }

// lend lets others use a client until back is called.
func (c *Cluster) lend(with *client) (back func()) {
	l := &lent{with, make(chan struct{}), make(chan struct{}, 1)}
	c.mu.Lock()
	c.current = l
	c.mu.Unlock()
	c.ring()
	return func() {
		c.mu.Lock()
		c.current = nil
		c.mu.Unlock()
		close(l.over)
		late := time.NewTimer(parting)
		defer late.Stop()
		select {
		case l.held <- struct{}{}:
		case <-late.C:
		}
	}
}

// borrow gives the client that the Cluster is followed with; nil is none.
func (c *Cluster) borrow() *lent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Why a Provider must not believe a Cluster.
var (
	errNotRead = errors.New("it has not been read yet")
	errHeld    = errors.New("it took away too much at once, and weir waits whether it means so: weir guard")
)

// connected tells that the Cluster is up to date.
func (c *Cluster) connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status.Connected
}

// believable tells why what the Cluster says is not to be believed when it comes to
// taking addresses away: it is not connected, or has not been judged by the guard, or
// is held by it. nil is that it may be.
func (c *Cluster) believable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case slices.ContainsFunc(c.feeds, func(f *feed) bool { return !f.listed || !f.watching }):
		if why := c.wrong(); why != "" {
			return errors.New(why)
		}
		return errNotRead
	case c.judged != c.said || !c.status.Synced || c.status.Stale:
		return errNotRead
	case c.held:
		return errHeld
	}
	return nil
}
