package k8ssync

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// planner passes the Services of all clusters to the Allocator, and its decisions to the
// writers.
type planner struct {
	*providerState
	workers *workers
}

// gather reads the changes of all clusters.
func (p planner) gather(ctx context.Context) {
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
		m := newMember(p.providerState, name, p.clusters[name], old)
		p.members[name] = m
		for range statusWriters {
			p.workers.do(func() { statusWriter{p.providerState, m}.run(ctx) })
		}
		for range releaseWriters {
			p.workers.do(func() { claimWriter{p.providerState}.run(ctx, m.writes) })
		}
	}
	for _, m := range p.members {
		p.receive(m)
	}
	p.report()
	signal(p.gathered)
}

// report reports the holders of addresses to their clusters, once all claims were read. While some are ignored, an
// address without a claim keeps its holders; all are reported when none is. p.mu is held.
func (p planner) report() {
	if !p.claims.current().listed {
		return
	}
	changed, extent := p.alloc.TakeChanged(), allHolders
	if p.alloc.Obstacle() != "" {
		extent = someHolders
	}
	for name, m := range p.members {
		if m.informed < extent {
			p.reportAll(m, extent == someHolders)
		} else {
			for x, ids := range changed {
				m.cluster.store.hold(x, keysOf(ids, name))
			}
		}
		m.informed = extent
	}
}

// reportAll reports the holders of all addresses to a cluster. With keep, those of other addresses stay.
func (p planner) reportAll(m *member, keep bool) {
	all := map[netip.Addr][]key{}
	for _, c := range p.alloc.Claims() {
		if keys := keysOf(c.Assigned(), m.name); len(keys) > 0 {
			all[c.Addr] = keys
		}
	}
	m.cluster.store.holdAll(all, keep)
}

// keysOf returns the Services of a cluster.
func keysOf(ids []lb.ServiceID, cluster string) (out []key) {
	for _, id := range ids {
		if id.Source == cluster {
			out = append(out, key{id.Namespace, id.Name})
		}
	}
	return out
}

// forget drops a cluster that is no longer followed. Its claims stay.
func (p planner) forget(m *member) {
	p.alloc.Delete(m.nodes())
	p.alloc.Delete(m.servers())
	for k := range m.services {
		p.alloc.Delete(m.id(k))
	}
	for k := range m.hidden {
		p.alloc.Delete(m.id(k))
	}
	for id := range p.claimErrors {
		if id.Source == m.name {
			p.clearErrors(id)
		}
	}
	delete(p.members, m.name)
}

// decide makes a batch of decisions, and reports whether there may be more.
func (p planner) decide() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.writer() {
		p.alloc.Rest()
		return false
	}
	now := time.Now() // once: clocks are slow on some kernels
	for range batch {
		d, some := p.alloc.Next(now)
		if !some {
			return false
		}
		if len(d.Writes) == 0 {
			p.clearErrors(d.Service)
		}
		for _, w := range d.Writes {
			p.inFlight[w.Claim.Addr] = claimWrite{w, d}
			p.queueOf(d.Service).Add(w.Claim.Addr)
		}
		// With writes, the status is decided after them.
		if m := p.members[d.Service.Source]; m != nil && len(d.Writes) == 0 {
			m.decided(d)
		}
	}
	return true
}

// queueOf returns the queue for the writes of a Service. p.mu is held.
func (p planner) queueOf(id lb.ServiceID) workqueue.TypedInterface[netip.Addr] {
	if m := p.members[id.Source]; m != nil && m.services[key{id.Namespace, id.Name}] == nil {
		return m.writes
	}
	return p.writes
}

// receive reads the changes of a cluster. p.mu is held.
func (p planner) receive(m *member) {
	changed, whole, live, excluded := m.subscription.take()
	p.exclude(m, excluded)
	if whole {
		for k := range m.services {
			if _, there := changed[k]; !there {
				changed[k] = nil
			}
		}
		for _, w := range m.statuses {
			w.wrote = "" // versions may be those of another server
		}
	}
	if whole || len(changed) > 0 {
		p.updated.Store(true)
	}
	m.known, m.live = m.known || whole, live
	for _, k := range slices.SortedFunc(maps.Keys(changed), key.compare) {
		p.put(m, k, changed[k])
	}
	if m.synced {
		m.synced = live && m.cluster.connected()
	} else {
		m.synced = live && m.cluster.complete() == nil
	}
	p.alloc.Synced(m.name, m.synced)
}

// exclude records the addresses of a cluster's Nodes, and those of servers that the box
// needs: they count as taken. p.mu is held.
func (p planner) exclude(m *member, addrs excluded) {
	record := func(id lb.ServiceID, was, now []netip.Addr, hosts bool) (changed bool) {
		slices.SortFunc(now, netip.Addr.Compare)
		if changed = !slices.Equal(was, now); changed {
			p.updated.Store(true)
			p.alloc.Put(ipam.Request{ID: id, Foreign: true, Hosts: hosts, Status: now})
		}
		return changed
	}
	record(m.servers(), m.excluded.servers, addrs.servers, false)
	changed := record(m.nodes(), m.excluded.nodes, addrs.nodes, true)
	m.excluded = addrs
	if changed {
		p.countIgnored(m)
	}
}

// countIgnored records the addresses of a cluster's Nodes that do not count as taken, and logs
// the first ones. p.mu is held.
func (p *providerState) countIgnored(m *member) {
	odd := p.cfg.IPAM.Uncounted(m.name, m.excluded.nodes)
	m.ignored.IgnoredNodes = IgnoredNodes{Count: len(odd), First: slices.Clone(odd[:min(len(odd), mostIgnoredNodes)])}
	if len(odd) > 0 && !m.ignored.warned {
		m.ignored.warned = true // once: a kubelet writes them
		p.log.Warn("Node address ignored", "reason", "it is in a pool for other clusters", "cluster", m.name, "address", odd[0], "addresses", len(odd))
	}
}

// put records a Service, nil when it is gone. p.mu is held.
func (p planner) put(m *member, k key, s *service) {
	delete(m.hidden, k)
	if s == nil {
		delete(m.services, k)
		p.alloc.Delete(m.id(k))
		m.drop(k)
		return
	}
	m.services[k] = s
	p.request(m, k, s)
}
