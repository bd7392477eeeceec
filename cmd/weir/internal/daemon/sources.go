package daemon

import (
	"time"

	"weir/cmd/weir/internal/addresses"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// sources are the sources of Services, the pools of their addresses, and the reports to them: Notes and health ports. The
// loop owns it; clusters, pools and probes are set once.
type sources struct {
	*telemetry
	target   *target
	steering *steering
	clusters *kube.Clusters
	pools    *addresses.Pools
	probes   *kube.HealthPorts
	latency  kube.Latency
	guard    kube.Guard
	notes    kube.Notes
}

// receive applies the updates of clusters, and reports whether there were any.
func (c *sources) receive() bool {
	c.pools.Follow(c.clusters.Real())
	updates := c.clusters.Take()
	for _, u := range updates {
		c.target.causes.AddUpdate(u.Update)
		apply := c.target.rec.Update
		if u.Reloaded {
			apply = c.target.rec.UpdateUnguarded
		}
		c.update(u.Update, apply)
		c.latency.Add(u.Update)
	}
	return c.applyNode() || len(updates) > 0
}

// update applies an update of a source to the fleet and, by a method of it, to the Reconciler.
func (c *sources) update(u lb.Update, apply func(lb.Update)) {
	c.target.changes.services++
	c.steering.fleet.Receive(u)
	c.target.watchdog.Beat(time.Now())
	apply(u)
	c.target.watchdog.Beat(time.Now())
}

// programmed measures the changes of clusters that the kernel has now.
func (c *sources) programmed(now time.Time) {
	c.latency.Programmed(c.target.rec.Unfinished, now, c.metrics.Programmed)
}

// applyNode configures the kernel for the own Node, and reports whether the Node has changed.
func (c *sources) applyNode() bool {
	n := c.clusters.Node()
	if n.Equal(c.target.node) {
		return false
	}
	if err := c.target.configure(c.target.cfg, n); err != nil {
		c.log.Error("own Node not applied", "error", err)
		return false
	}
	c.target.causes.Add("the own Node")
	c.log.Info("own Node changed", "pod_cidrs", n.PodCIDRs, "addresses", n.Addrs)
	return true
}

// watchGuard logs and counts the sources that the last pass began or ceased to guard.
func (c *sources) watchGuard(now time.Time) {
	guarded := c.target.rec.GuardedSources()
	c.clusters.Commit(guarded)
	begun, ended := c.guard.Update(guarded, now)
	for _, h := range begun {
		c.log.Warn("mass deletion guarded: the objects are served until it is confirmed",
			"source", h.Source, "services", h.Services, "frontends", h.Frontends, "backends", h.Backends,
			"first", h.First, "until", h.Until, "confirm_with", "weir guard release "+h.Source)
	}
	for _, e := range ended {
		c.metrics.GuardReleased(e.Reason)
		c.log.Info("source no longer guarded", "source", e.Source, "reason", e.Reason)
	}
	c.target.changes.services += uint64(len(guarded) + len(ended)) // a pass may release one namespace of several
}

// note updates the Notes, and sends clusters theirs. unsupported are those of the kernel mode.
func (c *sources) note(unsupported []lb.Note) []status.Note {
	pools, fleet := c.pools.Summary(time.Now()).Notes, c.steering.fleet.View().Notes(time.Now())
	if c.notes.Update(c.target.rec, pools, c.probes.Notes(), unsupported, fleet) || c.clusters.Unreported() {
		c.clusters.Report(c.notes.Events)
	}
	return c.notes.Status
}

// assigned measures the assignments of addresses since the last call.
func (c *sources) assigned() {
	for _, d := range c.pools.Receive() {
		c.metrics.Assigned(d)
	}
}
