package k8ssync

import (
	"net/netip"

	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

func newMember(p *providerState, name string, c *Cluster, old *member) *member {
	m := &member{
		p: p, name: name, cluster: c, subscription: c.store.subscribe(p.check),
		queue:          workqueue.NewTypedDelayingQueue[key](),
		writes:         workqueue.NewTyped[netip.Addr](),
		backoff:        workqueue.NewTypedItemExponentialFailureRateLimiter[key](p.timing.first, p.timing.last),
		conflicts:      workqueue.NewTypedItemExponentialFailureRateLimiter[key](p.timing.first, p.timing.last),
		memberServices: newMemberServices(),
	}
	if old != nil {
		m.inherit(old)
	}
	return m
}

// inherit copies the Services of an earlier Cluster of the name, and requests their
// decisions again, which this member has not received. p.mu is held.
func (m *member) inherit(old *member) {
	m.services, m.hidden = old.services, old.hidden
	m.redecideAll()
	for k := range m.hidden {
		m.p.alloc.Again(m.id(k))
		m.queue.Add(k)
	}
}

// redecideAll requests all decisions again. p.mu is held.
func (m *member) redecideAll() {
	for k := range m.services {
		m.p.alloc.Again(m.id(k))
		m.cleanUp(k)
	}
}

// end ends its goroutines.
func (m *member) end() {
	m.cluster.store.unsubscribe(m.subscription)
	m.queue.ShutDown()
	m.writes.ShutDown() // queued ones are still made
}

func (m *member) id(k key) lb.ServiceID {
	return lb.ServiceID{Source: m.name, Namespace: k.Namespace, Name: k.Name}
}

// nodes and servers return the holders of the addresses of Nodes, and of servers that the box needs.
func (m *member) nodes() lb.ServiceID { return m.id(key{Name: "a Node"}) }

func (m *member) servers() lb.ServiceID { return m.id(key{Name: "a server that this box needs"}) }

// conditionType returns the type of weir's condition in statuses of the cluster.
func (m *member) conditionType() string { return m.cluster.cfg.prefix() + conditionName }

// drop forgets the work for a Service that is gone. p.mu is held.
func (m *member) drop(k key) {
	delete(m.statuses, k)
	delete(m.errs, k)
	m.backoff.Forget(k)
	m.conflicts.Forget(k)
	m.p.clearErrors(m.id(k))
}

// request requests the decision for a Service, if it concerns addresses. p.mu is held.
func (p *providerState) request(m *member, k key, s *service) {
	if r, some := p.cfg.request(&m.cluster.cfg, s); some {
		p.alloc.Put(r)
	} else {
		p.alloc.Delete(m.id(k))
	}
	if m.manages(k) {
		m.status(k) // its latency begins now
	} else {
		delete(m.statuses, k)
		m.cleanUp(k)
	}
}

// hide records a Service that the API server has and the watch does not show. It is not
// managed, and its addresses are taken. p.mu is held.
func (p *providerState) hide(m *member, s *service) {
	old := m.hidden[s.key]
	if m.services[s.key] != nil || old != nil && old.Version == s.Version {
		return // the watch was only late, or it is known: a decision would only repeat the request
	}
	r := ipam.Request{ID: m.id(s.key), UID: s.UID, Version: s.Version, Created: s.Created, Foreign: true, Status: s.assigned()}
	m.hidden[s.key] = s
	p.alloc.Put(r)
	m.cleanUp(s.key)
	m.queue.AddAfter(s.key, p.timing.hidden)
	p.update()
}

// decided records a decision.
func (m *member) decided(d ipam.Decision) {
	k := key{d.Service.Namespace, d.Service.Name}
	if m.service(k) == nil {
		return
	}
	m.p.updated.Store(true)
	w := m.status(k)
	w.decision = d
	if d.Apply {
		m.queue.Add(k)
	}
}

// cleanUp removes what weir wrote from the status of a Service that is no longer managed.
func (m *member) cleanUp(k key) {
	if s := m.service(k); s != nil && s.Condition != (condition{}) && !m.manages(k) {
		m.queue.Add(k)
	}
}

// manages reports whether weir assigns the addresses of a Service.
func (m *member) manages(k key) bool {
	s := m.services[k]
	return s != nil && m.p.cfg.manages(s)
}
