package k8ssync

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// ProviderConfig is [addresses], with the pools and reservations of the file,
// already checked.
type ProviderConfig struct {
	// Home is the cluster that holds the claims of all pools.
	Home string
	// Namespace is where in Home claims are; weir does not create it.
	Namespace string
	// Class is the loadBalancerClass of the Services that get addresses;
	// DefaultClass is for those without any, too.
	Class        string
	DefaultClass bool
	// IPMode is what status.loadBalancer.ingress says of every address.
	IPMode IPMode
	// Identity tells this box from all others that may write; not empty.
	Identity string
	// IPAM is who may have what, and for how long. Without pools no address is given,
	// and those that were are kept.
	IPAM ipam.Config
}

// IPMode says what nodes do with packets to an address (KEP-1860).
type IPMode uint8

// The modes.
const (
	// ModeVIP lets the nodes short-cut packets of the cluster's own clients.
	ModeVIP IPMode = iota
	// ModeProxy has the nodes send them to the address, and so through weir.
	ModeProxy
)

func (m IPMode) String() string { return [...]string{"vip", "proxy"}[m] }

// Provider gives addresses to the LoadBalancer Services of all clusters of a box.
// Make one with NewProvider. All methods may be called at any time, before, while
// and after Run runs, and none but Run waits for the network.
type Provider struct {
	log     *slog.Logger
	timing  providerTiming
	changes chan struct{} // for whoever looks at Status and Notes
	wake    chan struct{} // the planner is to look
	fresh   atomic.Bool   // something has happened that changes had no value for yet

	mu       sync.Mutex
	cfg      ProviderConfig
	clusters map[string]*Cluster

	// What follows begins anew with each life (begin).
	restart     context.CancelFunc
	alloc       *ipam.Allocator
	claims      *claimFeed
	election    election
	writing     bool // as was last told
	began       time.Time
	complete    bool // every cluster was heard, or had its time
	seen        glance
	members     map[string]*member
	flights     map[netip.Addr]claimWrite
	claimErrors map[lb.ServiceID]error // why a claim can't be written
	writes      workqueue.TypedInterface[netip.Addr]
	retries     workqueue.TypedRateLimiter[lb.ServiceID]
	due         workqueue.TypedDelayingInterface[lb.ServiceID]

	counters  ProviderCounters
	latencies []time.Duration
}

// NewProvider makes a Provider. It asks nobody yet.
func NewProvider(cfg ProviderConfig, log *slog.Logger) *Provider {
	p := &Provider{
		log: log, timing: usualProviderTiming, cfg: cfg, clusters: map[string]*Cluster{},
		changes: make(chan struct{}, 1), wake: make(chan struct{}, 1),
	}
	p.begin(nil) // what Status reads
	return p
}

// Configure replaces the configuration. Services keep an address that they would
// not get any more; Notes tells of them.
func (p *Provider) Configure(cfg ProviderConfig) {
	moved := false
	p.locked(func() {
		was := p.cfg
		p.cfg = cfg
		moved = was.Home != cfg.Home || was.Namespace != cfg.Namespace || was.Identity != cfg.Identity ||
			(len(was.IPAM.Pools) == 0) != (len(cfg.IPAM.Pools) == 0)
		if !moved {
			p.reconsider()
		}
	})
	if moved {
		p.again()
	}
	p.news()
}

// reconsider has every Service decided by what is configured now. p.mu is held.
func (p *Provider) reconsider() {
	p.alloc.SetConfig(p.cfg.IPAM)
	for _, m := range p.members {
		for k, s := range m.services {
			p.ask(m, k, s)
			m.queue.Add(k) // it may be another ipMode
		}
	}
}

// Follow says which clusters there are, by their names: all of the box, Home
// included. One that takes the place of another is looked at anew.
func (p *Provider) Follow(clusters map[string]*Cluster) {
	p.mu.Lock()
	p.clusters = maps.Clone(clusters)
	p.mu.Unlock()
	p.news()
}

// Changed gets a value when Status or Notes may say something else.
func (p *Provider) Changed() <-chan struct{} { return p.changes }

// Stranded tells which addresses another configuration would strand.
func (p *Provider) Stranded(cfg ipam.Config) []ipam.Note {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alloc.Stranded(cfg)
}

// TakeLatencies gives, for each status written since the last call, how long after
// its Service was seen to want it; of very many the latest 1000.
func (p *Provider) TakeLatencies() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.latencies
	p.latencies = nil
	return out
}

// ProviderStatus is how well addresses are given.
type ProviderStatus struct {
	Home, Namespace, Identity string
	// Writer is who holds the lease, as far as this box knows; empty is nobody, or
	// that nobody can tell. Since is when it took it.
	Writer string
	Since  time.Time
	// Writing tells that this box is the writer. Otherwise Error is what hinders
	// it, empty if it is only that another is.
	Writing bool
	Error   string
	// Clusters are those that can't be written to or have not been read, and why.
	// Their last-known addresses count as taken.
	Clusters map[string]string
	// Known tells that the claims have been read; Usage and Claims are as they were
	// last known.
	Known  bool
	Usage  ipam.Usage
	Claims []ipam.Claim
	// Decisions are those of all Services that want an address, sorted by Service.
	Decisions []Decision
	Counters  ProviderCounters
}

// Decision is what is decided for a Service. On a box that does not write, it is
// what the Service's status says of it.
type Decision struct {
	Service lb.ServiceID
	// Addrs are its addresses, IPv4 first.
	Addrs []netip.Addr
	// Pending is why it has none, or not all that it wants; Notes is what else there
	// is to know of its addresses.
	Pending ipam.Pending
	Notes   []ipam.Note
	// Written tells that the Service's status says all this; Error is why it can't be
	// written.
	Written bool
	Error   string
}

// ProviderCounters count since the start of the process.
type ProviderCounters struct {
	// Assigned and Released count addresses given and taken back by this box.
	Assigned, Released uint64
	// Conflicts counts claims that somebody else had changed first.
	Conflicts uint64
	// StatusWrites counts statuses written, Errors requests that failed.
	StatusWrites, Errors uint64
	// Transitions counts how often this box became the writer or ceased to be.
	Transitions uint64
}
