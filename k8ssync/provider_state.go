package k8ssync

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// providerState is what the parts of a Provider share: the planner, the elector, the
// writers and the view.
type providerState struct {
	log    *slog.Logger
	timing providerTiming
	wake   chan struct{} // the planner must run
	// gathered has a value when a session of the lease cluster may have begun.
	gathered chan struct{}
	updated  atomic.Bool // Status or Notes have changed since the last notification

	mu       sync.Mutex
	cfg      ProviderConfig
	clusters map[string]*Cluster
	providerRun
	counters  ProviderCounters
	latencies []time.Duration
}

// providerRun is the part of the state that each run of the workers resets (begin).
type providerRun struct {
	restart  context.CancelFunc
	alloc    *ipam.Allocator
	claims   *feed
	intake   ipam.Intake // of the list of claims that is on its way
	highest  uint64      // the latest version of the claims, in lists and events
	election election
	began    time.Time
	complete bool // every cluster was read, or had its time
	members  map[string]*member
	claimQueues
}

// claimQueues are the writes of claims that were decided.
type claimQueues struct {
	inFlight    map[netip.Addr]claimWrite
	claimErrors map[lb.ServiceID]error // why a claim can't be written
	writes      workqueue.TypedInterface[netip.Addr]
	retries     workqueue.TypedRateLimiter[lb.ServiceID]
	due         workqueue.TypedDelayingInterface[lb.ServiceID]
}

// claimWrite is one write that was decided.
type claimWrite struct {
	ipam.Write
	decision ipam.Decision
}

// member is a cluster with Services that get addresses of the Provider. It is under
// providerState.mu.
type member struct {
	p            *providerState
	name         string
	cluster      *Cluster
	subscription *subscription
	queue        workqueue.TypedDelayingInterface[key]
	// writes are the claims that need an answer of the cluster before they are written.
	writes  workqueue.TypedInterface[netip.Addr]
	backoff workqueue.TypedRateLimiter[key]
	// conflicts slows down repeated writes of the same status.
	conflicts workqueue.TypedRateLimiter[key]

	memberServices
	// known is that its Services were reported, from the file at least; live that they
	// are the API server's; synced that no deletion is in doubt.
	known, live, synced bool
	excluded            excluded
	ignored             ignoredNodes
	informed            extent
}

// extent is which holders of addresses a cluster has.
type extent int

const (
	_           extent = iota // none yet
	someHolders               // those of the known claims: some are ignored
	allHolders
)

// ignoredNodes are the addresses of Nodes in pools for other clusters.
type ignoredNodes struct {
	IgnoredNodes
	warned bool // about them
}

// memberServices are the Services of a member, and the statuses that they must have. It is
// under providerState.mu.
type memberServices struct {
	// services are as last reported; hidden are those that the watch does not show.
	services, hidden map[key]*service
	statuses         map[key]*wantedStatus
	errs             map[key]error // why statuses can't be written
}

func newMemberServices() memberServices {
	return memberServices{
		services: map[key]*service{}, hidden: map[key]*service{}, statuses: map[key]*wantedStatus{}, errs: map[key]error{},
	}
}

// service returns a Service, hidden or not.
func (m *memberServices) service(k key) *service {
	if s := m.services[k]; s != nil {
		return s
	}
	return m.hidden[k]
}

// status returns the wanted status of a Service, and makes one if there is none.
func (m *memberServices) status(k key) *wantedStatus {
	w := m.statuses[k]
	if w == nil {
		w = &wantedStatus{since: time.Now()}
		m.statuses[k] = w
	}
	return w
}

// wantedStatus is the status that a Service must have.
type wantedStatus struct {
	decision ipam.Decision
	// since is when the status began to differ.
	since time.Time
	// wrote is the text written last, version that of the Service after it.
	wrote   string
	version uint64
	// again is the earliest time of a write after another client has undone it.
	again time.Time
}

// providerTiming has the intervals of a Provider. Those of tests are shorter.
type providerTiming struct {
	election electionTiming
	// grace is the time of a cluster to report its Services before others get
	// addresses.
	grace time.Duration
	// request is the timeout of a request.
	request time.Duration
	// first and last limit the pause before a retry.
	first, last time.Duration
	// hidden is the interval of checks of a Service that its watch does not show.
	hidden time.Duration
}

var defaultProviderTiming = providerTiming{
	election: defaultElection, grace: 30 * time.Second, request: 15 * time.Second,
	first: 500 * time.Millisecond, last: time.Minute, hidden: 5 * time.Minute,
}

// again ends the run of the workers, and begins another one.
func (p *providerState) again() {
	p.mu.Lock()
	stop := p.restart
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// locked calls f under p.mu.
func (p *providerState) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// update runs the planner, and reports a change of Status or Notes.
func (p *providerState) update() {
	p.updated.Store(true)
	p.check()
}

// check runs the planner.
func (p *providerState) check() { signal(p.wake) }

// writer reports whether this box may write now. p.mu is held.
//
// All clusters are read first, from their files at least, or have had their time: the
// addresses that other controllers have assigned there are taken.
func (p *providerState) writer() bool {
	now := time.Now()
	if !p.complete {
		p.complete = now.Sub(p.began) > p.timing.grace || p.allKnown()
	}
	return p.complete && p.claims.current().listed && p.election.writes(now)
}

func (p *providerState) allKnown() bool {
	for name := range p.clusters {
		if m := p.members[name]; m == nil || !m.known {
			return false
		}
	}
	return true
}

func (p *providerState) mayWrite() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writer()
}

// leaseCluster returns the session of the lease cluster, and the namespace of the claims.
func (p *providerState) leaseCluster() (*session, string, error) {
	p.mu.Lock()
	name, namespace := p.cfg.LeaseCluster, p.cfg.Namespace
	m := p.members[name]
	p.mu.Unlock()
	if m == nil {
		return nil, "", fmt.Errorf("the lease cluster %q is not followed", name)
	}
	s := m.cluster.conn.current()
	if s == nil {
		return nil, "", fmt.Errorf("the lease cluster %q is not connected: %s", name, cmp.Or(m.cluster.Status().Error, "not yet"))
	}
	return s, namespace, nil
}

// clearErrors forgets the errors of claims of a Service for which none must be written,
// or not by this box. p.mu is held.
func (p *providerState) clearErrors(id lb.ServiceID) {
	p.retries.Forget(id)
	if p.claimErrors[id] != nil {
		delete(p.claimErrors, id)
		p.update()
	}
}
