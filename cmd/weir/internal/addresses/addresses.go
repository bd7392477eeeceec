// Package addresses runs the assignment of pool addresses to Services of clusters, and returns the pools and their use
// for the status. It never decides which Service gets which address, and never harms the box that serves them.
package addresses

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"maps"
	"os"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// Pools are the pools of the box. The loop owns it; Run has a goroutine of its own, and a View is for every goroutine.
type Pools struct {
	log       *slog.Logger
	allocator Allocator
	identity  string
	begin     chan struct{} // closed when a configuration has pools
	cfg       k8ssync.ProviderConfig
	active    bool // a configuration has had pools
	clusters  map[string]*k8ssync.Cluster
	changes   uint64 // of the allocator
	last      Summary
}

// Summary is the state of the allocator when the loop last asked for it.
type Summary struct {
	Notes     []lb.Note
	Addresses *status.Addresses // nil without pools

	numbers *k8ssync.ProviderStatus // without claims and decisions; nil without pools
	asked   time.Time               // zero: never, or not since a configuration
	changes uint64                  // that it includes
}

// askInterval is the minimal time between two Summaries. A Summary costs some work for each Service that wants an
// address, and while many get one there are changes twenty times a second. Few get one during an error, and its end is
// news: a start begins with one.
const (
	askInterval   = 3 * time.Second
	errorInterval = 250 * time.Millisecond
)

// New returns the pools of a configuration, with the allocator that a function makes.
func New(cfg k8ssync.ProviderConfig, log *slog.Logger, newAllocator func(k8ssync.ProviderConfig, *slog.Logger) Allocator) *Pools {
	p := &Pools{log: log, identity: identity(), begin: make(chan struct{})}
	p.allocator = newAllocator(p.adopt(cfg), log)
	return p
}

// Provider makes the allocator of Kubernetes clusters.
func Provider(cfg k8ssync.ProviderConfig, log *slog.Logger) Allocator {
	return k8ssync.NewProvider(cfg, log)
}

// identity returns a name for this process among those that may assign addresses. A process that restarts has another
// name: pending writes of the old one are void.
func identity() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "weir"
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails
	return host + "_" + hex.EncodeToString(salt[:])
}

// adopt begins the assignment when a configuration has pools; a later one without any does not end it.
func (p *Pools) adopt(cfg k8ssync.ProviderConfig) k8ssync.ProviderConfig {
	p.cfg = cfg
	if !p.active && len(cfg.IPAM.Pools) > 0 {
		p.active = true
		p.changes++
		close(p.begin)
	}
	cfg.Identity = p.identity
	return cfg
}

// Configure replaces the pools. The next Summary asks for them. If the allocator has to start with them, it has those
// before until it has.
func (p *Pools) Configure(cfg k8ssync.ProviderConfig) {
	p.allocator.Configure(p.adopt(cfg))
	p.last.asked = time.Time{}
}

// Follow replaces the clusters of which Services get addresses.
func (p *Pools) Follow(clusters map[string]*k8ssync.Cluster) {
	if !maps.Equal(clusters, p.clusters) {
		p.clusters = clusters
		p.allocator.Follow(clusters)
	}
}

// Run assigns addresses until ctx ends, from when there are pools. It restarts after a failure.
func (p *Pools) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-p.begin:
		supervise.Restart(ctx, p.log.With("task", "address assignment"), p.allocator.Run)
	}
	return nil
}

// Changed gets a value when Receive has something to do.
func (p *Pools) Changed() <-chan struct{} { return p.allocator.Changed() }

// Receive records a change of the allocator, and returns how long the assignments since the last call took.
func (p *Pools) Receive() []time.Duration {
	p.changes++
	return p.allocator.TakeLatencies()
}

// Next returns the time of the next Summary; the zero time without a change.
func (p *Pools) Next() time.Time {
	if p.last.changes == p.changes {
		return time.Time{}
	}
	if last := p.last.Addresses; last != nil && last.Writer.Error != "" && !last.Writer.Self {
		return p.last.asked.Add(errorInterval)
	}
	return p.last.asked.Add(askInterval)
}

// Summary returns the state of the allocator: a new one if there are changes and the last one is old enough.
func (p *Pools) Summary(now time.Time) Summary {
	if !p.last.asked.IsZero() && (p.last.changes == p.changes || now.Before(p.Next())) {
		return p.last
	}
	p.last = Summary{asked: now, changes: p.changes}
	var s k8ssync.ProviderStatus
	s, p.last.Notes = p.allocator.Summary()
	if p.active {
		p.last.Addresses, p.last.numbers = summaryDoc(s), &s
	}
	return p.last
}

// OutsidePool returns the addresses that Services would not get from other pools.
func (p *Pools) OutsidePool(cfg ipam.Config) []ipam.Note { return p.allocator.OutsidePool(cfg) }

// View returns what other goroutines may read. It does not change.
func (p *Pools) View() View {
	if p == nil {
		return View{}
	}
	return View{p.allocator, p.cfg, p.active, p.last}
}
