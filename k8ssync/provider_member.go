package k8ssync

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// member is a cluster to whose Services a Provider gives addresses. It is under
// Provider.mu.
type member struct {
	p       *Provider
	name    string
	cluster *Cluster
	tap     *tap
	queue   workqueue.TypedDelayingInterface[key]
	// writes are those of claims before which the cluster is asked for a Service.
	writes  workqueue.TypedInterface[netip.Addr]
	backoff workqueue.TypedRateLimiter[key]
	// fights slows down who writes the same again and again.
	fights workqueue.TypedRateLimiter[key]

	// services are as last heard; hidden are those that the watch does not show.
	services, hidden map[key]*service
	wants            map[key]*want
	// heard tells that it has told of its Services, from its file at least; live that
	// the API server has; synced that it is to be believed.
	heard, live, synced bool
	avoided             []netip.Addr
	errs                map[key]error // why statuses can't be written
}

// want is what the status of a Service is to be.
type want struct {
	decision ipam.Decision
	// since is when the status began to lack something.
	since time.Time
	// wrote is what was written last, version what the Service's became by it.
	wrote   string
	version uint64
	// again is when it may be written again, since somebody has undone it.
	again time.Time
}

func newMember(p *Provider, name string, c *Cluster, old *member) *member {
	m := &member{
		p: p, name: name, cluster: c, tap: c.attach(p.peek),
		queue:    workqueue.NewTypedDelayingQueue[key](),
		writes:   workqueue.NewTyped[netip.Addr](),
		backoff:  workqueue.NewTypedItemExponentialFailureRateLimiter[key](p.timing.first, p.timing.last),
		fights:   workqueue.NewTypedItemExponentialFailureRateLimiter[key](p.timing.first, p.timing.last),
		services: map[key]*service{}, hidden: map[key]*service{}, wants: map[key]*want{}, errs: map[key]error{},
	}
	if old != nil {
		m.succeed(old)
	}
	return m
}

// succeed takes over what another Cluster of the name told. What is to be written is
// decided again: the Allocator has said it, but not to this member. p.mu is held.
func (m *member) succeed(old *member) {
	m.services, m.hidden = old.services, old.hidden
	m.resume()
	for k := range m.hidden {
		m.p.alloc.Again(m.id(k))
		m.queue.Add(k)
	}
}

// resume has every Service looked at anew. p.mu is held.
func (m *member) resume() {
	for k := range m.services {
		m.p.alloc.Again(m.id(k))
		m.tidy(k)
	}
}

// end ends its goroutines.
func (m *member) end() {
	m.cluster.detach(m.tap)
	m.queue.ShutDown()
	m.writes.ShutDown() // those that are in it are made
}

func (m *member) id(k key) lb.ServiceID {
	return lb.ServiceID{Source: m.name, Namespace: k.Namespace, Name: k.Name}
}

// listen takes in what a cluster says. p.mu is held.
func (p *Provider) listen(m *member) {
	changed, whole, live, avoided := m.tap.take()
	p.avoid(m, avoided)
	if whole {
		for k := range m.services {
			if _, there := changed[k]; !there {
				changed[k] = nil
			}
		}
		for _, w := range m.wants {
			w.wrote = "" // who knows what versions mean now
		}
	}
	if whole || len(changed) > 0 {
		p.fresh.Store(true)
	}
	m.heard, m.live = m.heard || whole, live
	for _, k := range slices.SortedFunc(maps.Keys(changed), key.compare) {
		p.put(m, k, changed[k])
	}
	if m.synced {
		m.synced = live && m.cluster.connected()
	} else {
		m.synced = live && m.cluster.believable() == nil
	}
	p.alloc.Synced(m.name, m.synced)
}

// avoid has nobody given the addresses that a cluster's Nodes have, nor those of whom
// the box talks to: they are as taken as a Service's. p.mu is held.
func (p *Provider) avoid(m *member, addrs []netip.Addr) {
	slices.SortFunc(addrs, netip.Addr.Compare)
	if !slices.Equal(addrs, m.avoided) {
		m.avoided = addrs
		p.fresh.Store(true)
		p.alloc.Put(ipam.Request{ID: m.id(key{Name: "a Node, or a server that this box needs"}), Foreign: true, Status: addrs})
	}
}

// put takes in a Service as it is now, nil when it is gone. p.mu is held.
func (p *Provider) put(m *member, k key, s *service) {
	delete(m.hidden, k)
	if s == nil {
		delete(m.services, k)
		p.alloc.Delete(m.id(k))
		m.drop(k)
		return
	}
	m.services[k] = s
	p.ask(m, k, s)
}

// drop forgets what there was to do about a Service that is gone. p.mu is held.
func (m *member) drop(k key) {
	delete(m.wants, k)
	delete(m.errs, k)
	m.backoff.Forget(k)
	m.fights.Forget(k)
	m.p.settle(m.id(k))
}

// ask has a Service decided, if it is to do with addresses. p.mu is held.
func (p *Provider) ask(m *member, k key, s *service) {
	if r, some := p.cfg.request(m.name, s); some {
		p.alloc.Put(r)
	} else {
		p.alloc.Delete(m.id(k))
	}
	if m.ours(k) {
		m.want(k) // how long it waits begins now
	} else {
		delete(m.wants, k)
		m.tidy(k)
	}
}

// hide takes in a Service that the API server has and the watch does not show. It is
// nobody's of ours, and what it has is taken. p.mu is held.
func (p *Provider) hide(m *member, s *service) {
	if m.services[s.key] != nil {
		return // the watch was only late
	}
	r := ipam.Request{ID: m.id(s.key), UID: s.UID, Version: s.Version, Created: s.Created, Foreign: true, Status: s.given()}
	m.hidden[s.key] = s
	p.alloc.Put(r)
	m.tidy(s.key)
	m.queue.AddAfter(s.key, p.timing.hidden)
}

// service gives what is known of one.
func (m *member) service(k key) *service {
	if s := m.services[k]; s != nil {
		return s
	}
	return m.hidden[k]
}

// decided takes in what is to be written.
func (m *member) decided(d ipam.Decision) {
	k := key{d.Service.Namespace, d.Service.Name}
	if m.service(k) == nil {
		return
	}
	m.p.fresh.Store(true)
	w := m.want(k)
	w.decision = d
	if d.Apply {
		m.queue.Add(k)
	}
}

func (m *member) want(k key) *want {
	w := m.wants[k]
	if w == nil {
		w = &want{since: time.Now()}
		m.wants[k] = w
	}
	return w
}

// tidy has what weir wrote taken out of the status of a Service that is not ours any
// more.
func (m *member) tidy(k key) {
	if s := m.service(k); s != nil && s.Condition != (condition{}) && !m.ours(k) {
		m.queue.Add(k)
	}
}

func (m *member) ours(k key) bool {
	s := m.services[k]
	return s != nil && m.p.cfg.ours(s)
}

// look asks the API server for a Service, past all watches; nil is that there is none.
func (m *member) look(ctx context.Context, k key, within time.Duration) (*service, error) {
	l := m.cluster.borrow()
	if l == nil {
		return nil, fmt.Errorf("cluster %s: %w", m.name, errNotRead)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var list corev1.ServiceList
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, k.Name).String()}
	err := l.client.statuses.Get().Namespace(k.Namespace).Resource("services").VersionedParams(&opts, params).MaxRetries(0).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: list services: %w", m.name, short(err))
	}
	if list.ResourceVersion == "" {
		return nil, fmt.Errorf("cluster %s: list services: the API server sent no list", m.name)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	s := readService(&list.Items[0], nil)
	return &s, nil
}
