package daemon

import (
	"sync/atomic"
	"time"

	"weir/cmd/weir/internal/addresses"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/membership"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
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
	counts   map[string]int // objects in the kernel, by lb.Kind
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

// status returns the published state, with the current results of checks and clusters. It is safe for concurrent use, and
// asks the address allocator for nothing.
func (p *published) status() status.Status {
	v := p.view.Load()
	s := v.status
	s.Kernel.Programming = status.ProgrammingOf(p.watchdog.Working())
	if !v.ready && s.Kernel.Error == "" {
		s.State, s.Problems = status.Starting, []status.Problem{{Code: status.ProblemStarting, Text: "the first state is not in the kernel yet"}}
		return s
	}
	s.Backend = query.CountBackends(p.target.checks)
	s.Backend.Draining = len(s.Drains)
	s.Clusters = v.clusterStatuses()
	s.BGP = p.steering.announcer.Reader().Status()
	s.Addresses = v.pools.Summary()
	s.Judge(time.Now())
	if !p.isAlive() {
		s.Hangs()
	}
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

// isDrained reports whether the whole box is drained, so that external load balancers steer clients elsewhere too.
func (v *view) isDrained() bool { return v.status.Drained != nil && v.status.Drained.All != nil }

// isAlive reports whether the loop runs: it beats in each round and in each step of a pass. Before the first pass it may wait
// for checks. An audit that hangs keeps no change waiting; its age is in the status and the metrics.
func (p *published) isAlive() bool {
	v := p.view.Load()
	return v.status.Kernel.LastSync.IsZero() || p.watchdog.Silence(time.Now()) < 2*v.period+time.Minute
}
