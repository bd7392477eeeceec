package daemon

import (
	"os"
	"sync/atomic"
	"time"

	"weir/cmd/weir/internal/addresses"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/membership"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
	"weir/lb/linux"
)

// view is the state that the loop publishes after each pass, for all readers. It never changes once published.
type view struct {
	// status is that of the pass, without the parts that change between passes: see published.status.
	status   status.Status
	ready    bool
	draining map[lb.Drain]bool
	clusters []*kube.Follower // by name
	served   map[string]int
	period   time.Duration
	counts   map[string]int // objects that are held, by lb.Kind
	pools    addresses.View
	numbers  membership.Numbers
}

// published is the last view, and the state of checks and routers, which changes between passes. It is safe for concurrent
// use.
type published struct {
	view     atomic.Pointer[view]
	target   *target   // for its checks
	steering *steering // for the Reader of its announcer
	watchdog *supervise.Watchdog
}

// status returns the published state, with the current results of checks and clusters. It is safe for concurrent use.
func (p *published) status() status.Status { return p.statusWith(p.view.Load().pools.Summary()) }

// statusWith is status with a known summary of addresses.
func (p *published) statusWith(pools *status.Addresses) status.Status {
	v := p.view.Load()
	s := v.status
	s.Kernel.Programming = status.ProgrammingOf(p.watchdog.Working())
	if !v.ready && s.Kernel.Error == "" {
		s.State, s.Problems = status.Starting, []status.Problem{{Code: status.ProblemStarting, Text: "the first state is not in the kernel yet"}}
		return s
	}
	for _, x := range p.target.checks.Backends() {
		switch x.State {
		case "up":
			s.Backend.Up++
		case "down":
			s.Backend.Down++
		default:
			s.Backend.Unknown++
		}
	}
	s.Backend.Draining = len(s.Drains)
	s.Clusters = v.clusterStatuses()
	s.BGP = p.steering.announcer.Reader().Status()
	s.Addresses = pools
	s.Judge(time.Now())
	return s
}

// isHealthy reports whether the kernel holds its state and the loop runs.
func (p *published) isHealthy() bool {
	v := p.view.Load()
	return v.ready && v.status.Kernel.Error == "" && p.isAlive()
}

// clusterStatuses returns the status of the clusters now.
func (v *view) clusterStatuses() []status.Cluster {
	out := make([]status.Cluster, len(v.clusters))
	for i, f := range v.clusters {
		now := f.Snapshot()
		out[i] = now.Doc(v.served[now.Name])
	}
	return out
}

// isLeaving reports whether the box's own Node is being deleted, or about to be by the cluster autoscaler: load balancers
// in front of it must send new clients elsewhere, while it serves its open connections (KEP-3836).
func (v *view) isLeaving() bool {
	for _, f := range v.clusters {
		if s := f.Snapshot(); s.Node != "" && s.Status.NodeLeaving {
			return true
		}
	}
	return false
}

// isDrained reports whether the whole box is drained, so that external load balancers steer clients elsewhere too.
func (v *view) isDrained() bool { return v.status.Drained != nil && v.status.Drained.All != nil }

// isAlive reports whether the loop runs: it beats in each round and in each step of a pass. Before the first pass it may wait
// for checks. An audit that hangs keeps no change waiting; its age is in the status and the metrics.
func (p *published) isAlive() bool {
	v := p.view.Load()
	return v.status.Kernel.LastSync.IsZero() || p.watchdog.Silence(time.Now()) < 2*v.period+time.Minute
}

// publish makes a new view. An audit or a reload counts the objects of the kernel; between them the counts follow the ops,
// so that the cost of a change does not depend on the number of services.
func (p *passes) publish() {
	v := &view{ready: p.progress.ready, draining: map[lb.Drain]bool{}, served: map[string]int{}, period: p.target.cfg.Kernel.SyncPeriod}
	if p.published.view.Load() == nil || p.derived.kernel != p.target.changes.kernel {
		p.held = query.NewTally(p.target.rec.Have())
		if p.target.mode.Use == linux.ModeIPTables {
			p.unsupported.Load(p.target.rec.Have())
		}
		p.derived.kernel = p.target.changes.kernel
	}
	v.counts = p.held.Without(kernelmode.Base(p.target.cfg, p.target.mode), p.target.rec.Have())
	v.clusters = p.sources.clusters.Followers()
	for _, name := range p.sources.clusters.Names() {
		v.served[name] = p.target.rec.Catalog().LenOf(name)
	}
	catalog := p.target.rec.Catalog()
	s := &v.status
	s.Version, s.PID, s.Started = p.version, os.Getpid(), p.progress.started
	s.Config = p.inForce.status()
	s.Kernel = status.Kernel{
		Release: kernelmode.Release(), Mode: string(p.target.mode.Use), Fallback: p.target.mode.Fallback,
		IPTables: string(p.target.kernel.Backend(p.target.cfg.Kernel.Families[0])), Services: catalog.Len(),
		VirtualServers: v.counts["virtual_server"], RealServers: v.counts["real_server"],
		VIPs: catalog.VIPs(), SetMembers: v.counts["member"],
		LastSync: p.progress.lastPass, LastAudit: p.progress.audits.Last, Pending: p.target.rec.Pending(), Blocked: p.progress.waiting,
		Drift: p.progress.drift, Error: status.ErrorText(p.progress.audits.Err),
	}
	s.Clusters, s.Drains, s.Guarded = []status.Cluster{}, []status.Drain{}, kube.GuardedSources(p.sources.guard.Guarded)
	p.steering.announcer.Publish()
	v.pools = p.sources.pools.View()
	if drain.Possible(p.target.cfg) {
		s.Drained = p.steering.drains.Doc(p.steering.drains.Delay(p.target.cfg))
	}
	if f := p.steering.fleet; f != nil {
		s.Fleet, s.L2, v.numbers = f.View().Status(time.Now()), f.L2(), f.Numbers()
	}
	s.Notes = p.sources.note(p.unsupported.Notes(p.target.rec.Catalog()))
	for _, d := range p.target.rec.Drains() {
		s.Drains = append(s.Drains, status.Drain{Frontend: d.Frontend.String(), Backend: d.Backend.String(), Deadline: d.Deadline})
		v.draining[lb.Drain{Frontend: d.Frontend, Backend: d.Backend}] = true
	}
	p.published.view.Store(v)
}
