package k8ssync

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"k8s.io/client-go/util/workqueue"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// Provider assigns addresses to the LoadBalancer Services of all clusters of a box. Make
// one with NewProvider. All methods may be called at any time, before, while and after Run
// runs, and only Run waits for the network.
type Provider struct {
	*providerState
	changes  chan struct{} // Status or Notes have changed
	reported overview      // at the last value of changes
}

// NewProvider returns a Provider. It sends no request before Run.
func NewProvider(cfg ProviderConfig, log *slog.Logger) *Provider {
	p := &Provider{
		providerState: &providerState{
			log: log, timing: defaultProviderTiming, cfg: cfg, clusters: map[string]*Cluster{}, wake: make(chan struct{}, 1), gathered: make(chan struct{}, 1),
		},
		changes: make(chan struct{}, 1),
	}
	p.begin(nil) // Status reads it
	return p
}

// Configure replaces the configuration. Services keep an address that they would not get
// any more; Summary has their Notes.
func (p *Provider) Configure(cfg ProviderConfig) {
	moved := false
	p.locked(func() {
		was := p.cfg
		p.cfg = cfg
		moved = was.LeaseCluster != cfg.LeaseCluster || was.Namespace != cfg.Namespace || was.Identity != cfg.Identity ||
			(len(was.IPAM.Pools) == 0) != (len(cfg.IPAM.Pools) == 0)
		if !moved {
			p.requestAll()
		}
	})
	if moved {
		p.again()
	}
	p.update()
}

// requestAll requests a decision for every Service by the present configuration. p.mu is
// held.
func (p *Provider) requestAll() {
	p.alloc.SetConfig(p.cfg.IPAM)
	for _, m := range p.members {
		m.ignored.warned = false // the pools may differ
		p.countIgnored(m)
		for k, s := range m.services {
			p.request(m, k, s)
			m.queue.Add(k) // the ipMode may differ
		}
	}
}

// Follow replaces the clusters, by name: all of the box, the lease cluster included. A Cluster that
// replaces another of its name is read from the start.
func (p *Provider) Follow(clusters map[string]*Cluster) {
	p.mu.Lock()
	p.clusters = maps.Clone(clusters)
	p.mu.Unlock()
	p.update()
}

// Changed receives a value when Status or Notes may have changed.
func (p *Provider) Changed() <-chan struct{} { return p.changes }

// OutsidePool returns the addresses that another configuration would not permit.
func (p *Provider) OutsidePool(cfg ipam.Config) []ipam.Note {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alloc.OutsidePool(cfg)
}

// TakeLatencies returns, for each status written since the last call, the time from the
// need of its Service to the write; the latest 1000 at most.
func (p *Provider) TakeLatencies() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.latencies
	p.latencies = nil
	return out
}

// Run assigns addresses until ctx ends. Status reports errors.
func (p *Provider) Run(ctx context.Context) error {
	quietKlog()
	for pause := time.Duration(0); ctx.Err() == nil; {
		life, stop := context.WithCancel(ctx)
		p.locked(func() { p.begin(stop) })
		signal(p.changes) // what the last run had is gone
		began := time.Now()
		panicked := p.runOnce(life, stop)
		stop()
		if !panicked || time.Since(began) > p.timing.last {
			pause = 0
		}
		if panicked {
			pause = min(max(2*pause, p.timing.first), p.timing.last)
			sleep(ctx, pause)
		}
	}
	return nil
}

// begin resets everything but the configuration. stop ends this run, so that the next one
// begins. p.mu is held.
func (p *Provider) begin(stop context.CancelFunc) {
	p.providerRun = providerRun{
		restart: stop, alloc: ipam.New(p.cfg.IPAM), began: time.Now(), members: map[string]*member{},
		election: election{identity: p.cfg.Identity, timing: p.timing.election},
		claimQueues: claimQueues{
			inFlight: map[netip.Addr]claimWrite{}, claimErrors: map[lb.ServiceID]error{},
			retries: workqueue.NewTypedItemExponentialFailureRateLimiter[lb.ServiceID](p.timing.first, p.timing.last),
		},
	}
	p.claims = &feed{
		resource: claimResource, sink: claimSink{p.providerState}, limit: most,
		changed: func(bool) { p.update() }, versions: map[key]uint64{},
	}
}

// runOnce runs the workers until ctx ends, and reports whether one of them panicked.
func (p *Provider) runOnce(ctx context.Context, stop context.CancelFunc) (panicked bool) {
	if !p.waitForPools(ctx) {
		return false
	}
	p.locked(func() {
		p.writes = workqueue.NewTyped[netip.Addr]()
		p.due = workqueue.NewTypedDelayingQueue[lb.ServiceID]()
	})
	all := &workers{log: p.log, stop: stop}
	claims := claimWriter{p.providerState}
	all.do(func() { followClaims(ctx, p.providerState) })
	all.do(func() { elector{p.providerState}.run(ctx) })
	all.do(claims.redecide)
	for range claimWriters {
		all.do(func() { claims.run(ctx, p.writes) })
	}
	all.do(func() { p.plan(ctx, planner{p.providerState, all}) })
	<-ctx.Done()
	p.locked(func() {
		p.writes.ShutDown()
		p.due.ShutDown()
		for _, m := range p.members {
			m.end()
		}
	})
	all.Wait()
	return all.panicked.Load()
}

// waitForPools waits until there are pools: without any, weir neither reads nor writes,
// and needs no right to. It returns false when ctx ends.
func (p *Provider) waitForPools(ctx context.Context) bool {
	for {
		p.mu.Lock()
		some := len(p.cfg.IPAM.Pools) > 0
		p.mu.Unlock()
		if some {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-p.wake:
		}
	}
}

// plan decides whenever something has changed, until ctx ends, and reports changes.
func (p *Provider) plan(ctx context.Context, by planner) {
	p.update()
	due, report := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer due.Stop()
	defer report.Stop()
	for waiting := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-report.C:
			waiting = false
			signal(p.changes)
			continue
		case <-p.wake:
		case <-due.C:
		}
		by.gather(ctx)
		for by.decide() {
			if ctx.Err() != nil {
				return
			}
		}
		var at time.Time
		p.locked(func() { at = p.alloc.Wake() })
		due.Reset(time.Hour)
		if !at.IsZero() {
			due.Reset(max(0, min(time.Hour, time.Until(at))))
		}
		if p.changedView() && !waiting {
			waiting = true
			report.Reset(maxInterval)
		}
	}
}
