package k8ssync

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"weir/lb"
)

// translate says what objects mean, whenever they change.
func (c *Cluster) translate(ctx context.Context) {
	c.load()
	signal(c.wake)
	grace := time.NewTimer(c.timing.grace)
	defer grace.Stop()
	due := time.NewTimer(time.Hour)
	due.Stop()
	defer due.Stop()
	var rested time.Time
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-grace.C:
			c.late = true
			signal(c.wake)
		case <-c.wake:
			if !waiting {
				waiting = true
				due.Reset(time.Until(rested))
			}
		case <-due.C:
			waiting = false
			began := time.Now()
			c.flush()
			rested = time.Now().Add(max(calm, min(weary, restsFor*time.Since(began))))
		}
	}
}

// source gives the objects that count now; nil is none yet.
func (c *Cluster) source() *objects {
	synced, hindered := c.standing()
	switch {
	case synced:
		if c.saved != nil && c.from == nil {
			c.remember()
		}
		c.saved = nil
		return c.live
	case c.saved != nil && (c.late || hindered):
		return c.saved
	}
	return nil
}

// flush translates what has changed and lets it be taken.
func (c *Cluster) flush() {
	o := c.source()
	if o == nil {
		c.count(c.live)
		return
	}
	whole := c.from != o
	c.in.Lock()
	ch := o.take()
	if whole {
		c.from, c.env = o, newEnv(&c.cfg)
	}
	if whole || c.afresh {
		c.env.refused, c.env.provided, c.afresh, ch.nodes = c.refused, c.provided, false, true
	}
	if ch.nodes {
		c.env.setNodes(o.allNodes())
		for k := range o.services {
			ch.dirty[k] = struct{}{}
		}
	}
	if ch.nodes || len(ch.dirty) > 0 {
		c.turn++
	}
	turn := c.turn
	if tap := c.tap.Load(); tap != nil {
		if ch.nodes {
			tap.avoid(slices.Concat(slices.Collect(maps.Keys(c.env.nodeAddrs)), slices.Collect(maps.Keys(c.env.refused.Peers))))
		}
		tap.hear(o, ch.touched, whole, o == c.live)
	}
	c.claim(o, ch.dirty, whole)
	meant := make(map[key]*lb.Service, len(ch.dirty))
	var odd error
	for k := range ch.dirty {
		s, err := c.mean(o, k)
		meant[k] = s
		if err != nil {
			odd = err
		}
	}
	c.bound(o, meant, whole)
	c.in.Unlock()
	c.count(o)
	c.say(turn, meant, ch.triggered, whole, odd)
	if o == c.live && (whole || len(ch.dirty) > 0) {
		signal(c.unsaved)
	}
}

// remember translates the last-known-good objects for what they say of the past:
// a cluster that has shrunk while weir was away is measured by what it was.
func (c *Cluster) remember() {
	c.in.Lock()
	defer c.in.Unlock()
	c.env = newEnv(&c.cfg)
	c.env.refused, c.env.provided = c.refused, c.provided
	c.env.setNodes(c.saved.allNodes())
	all := make(map[key]struct{}, len(c.saved.services))
	for k := range c.saved.services {
		all[k] = struct{}{}
	}
	c.claim(c.saved, all, true)
	known := lb.Update{Source: c.cfg.Name, Synced: true}
	for _, k := range slices.SortedFunc(maps.Keys(all), key.compare) {
		if s, _ := c.mean(c.saved, k); s != nil {
			known.Put = append(known.Put, *s)
		}
	}
	c.mu.Lock()
	c.known = &known
	c.mu.Unlock()
}

// claim tells env which addresses the Services of dirty have and want, and adds
// to dirty those that mean something else by it.
func (c *Cluster) claim(o *objects, dirty map[key]struct{}, whole bool) {
	var more []key
	for k := range dirty {
		others := c.env.putService(k, o.services[k])
		if !whole {
			more = append(more, others...)
		}
	}
	for _, k := range more {
		dirty[k] = struct{}{}
	}
}

// mean translates one Service; nil is nothing to serve. Should it panic, that is
// no other Service's trouble.
func (c *Cluster) mean(o *objects, k key) (out *lb.Service, err error) {
	svc := o.services[k]
	if svc == nil {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("%s can't be served: %v", k, r)
			c.log.Error("a Service can't be served", "service", k.String(), "panic", r)
		}
	}()
	s, ok := translate(svc, o.of(k), c.env)
	if !ok {
		return nil, nil
	}
	s.Created = s.Created.UTC() // as the last-known-good file has it
	return &s, nil
}

// say puts what Services mean in place of what they meant.
func (c *Cluster) say(turn uint64, meant map[key]*lb.Service, triggered map[key]time.Time, whole bool, odd error) {
	if whole {
		for k := range c.out {
			if _, ok := meant[k]; !ok {
				meant[k] = nil
			}
		}
	}
	for k, s := range meant {
		if was, ok := c.out[k]; !whole && (s == nil && !ok || s != nil && ok && reflect.DeepEqual(was, *s)) {
			delete(meant, k)
		}
	}
	c.mu.Lock()
	if c.out == nil {
		c.out = map[key]lb.Service{}
	}
	for k, s := range meant {
		id := serviceID(&c.cfg, k)
		if s == nil {
			delete(c.out, k)
			delete(c.triggered, id)
		} else {
			c.out[k] = *s
			if t, ok := triggered[k]; ok && (c.triggered[id].IsZero() || t.Before(c.triggered[id])) {
				c.triggered[id] = t
			}
		}
		c.pending[k] = struct{}{}
	}
	c.whole = c.whole || whole
	if !whole && len(meant) == 0 { // nobody need take this turn
		if c.judged == c.said {
			c.judged = turn
		}
		if c.taken == c.said {
			c.taken = turn
		}
	}
	c.said = turn
	if whole || odd != nil {
		c.meaning = odd
	}
	c.status.Synced, c.status.Stale = true, c.from != c.live
	own := c.env.own
	c.stranger = nil
	if c.cfg.NodeName != "" && own.Name == "" {
		c.stranger = fmt.Errorf("there is no Node %q, so no endpoint is local: node_name must be as kubectl get nodes shows it", c.cfg.NodeName)
	}
	moved := !slices.Equal(c.status.NodePodCIDRs, own.PodCIDRs) || !slices.Equal(c.status.NodeAddrs, own.primary())
	c.status.NodePodCIDRs, c.status.NodeAddrs, c.status.NodeLeaving = own.PodCIDRs, own.primary(), own.Leaving
	c.mu.Unlock()
	if whole {
		c.log.Info("synced", "services", len(c.out), "stale", c.from != c.live)
		c.tell()
	}
	if whole || moved || len(meant) > 0 {
		signal(c.changes)
	}
}

// primary gives the Node's first address of each family.
func (n node) primary() []netip.Addr {
	var out []netip.Addr
	for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
		if !slices.ContainsFunc(out, func(b netip.Addr) bool { return b.Is4() == a.Is4() }) {
			out = append(out, a)
		}
	}
	return out
}

// count publishes how much there is.
func (c *Cluster) count(o *objects) {
	c.in.Lock()
	used := o.used
	c.in.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Objects = map[string]int{"services": used.services, "endpointslices": used.slices, "nodes": used.nodes}
	c.status.Endpoints = used.endpoints
}
