package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"weir/cmd/weir/internal/cause"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/hooks"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/metrics"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// telemetry is the log and the metrics, which the parts of the daemon share.
type telemetry struct {
	log     *slog.Logger
	metrics *metrics.Metrics
	hooks   *hooks.Runner // nil before the start
}

// target is the configuration in force, and the kernel, the checks and the Reconciler that it configures. The loop owns
// cfg, rec, node, timeouts, unreachable, changes and causes.
type target struct {
	*telemetry
	kernel *linux.Kernel
	mode   kernelmode.Mode
	checks *health.Checker
	vips   *linux.VIPDialer // of the checks
	cfg    *config.Config
	rec    *lb.Reconciler
	node   kernelmode.Node // the box's own
	// timeouts has those of IPVS, to set others.
	timeouts kernelmode.Timeouts
	// unreachable are the prefixes in which the kernel refuses the addresses that no Service has.
	unreachable []netip.Prefix
	changes     generations // of inputs
	causes      cause.List  // of the next pass
	// withdraw is lb.Options.Leaving.
	withdraw func([]netip.Addr)
	watchdog *supervise.Watchdog
}

// generations count the changes of the inputs of the loop. A result that was derived from an input is stale when it was
// derived from another generation: no flag must be cleared, and none can be forgotten.
type generations struct {
	services uint64 // updates of sources, ends of the guard, audits: virtual servers may have other owners
	kernel   uint64 // an audit or a reload: the whole content of the kernel may differ
	options  uint64 // of the Reconciler, which the next pass applies
	rules    uint64 // the configuration of the static rules
}

// options returns the options of a configuration and a Node, with the hooks of the announcement.
func (g *target) options(cfg *config.Config, n kernelmode.Node) lb.Options {
	out := kernelmode.LBOptions(cfg, g.mode, n)
	if drain.Possible(cfg) {
		out.Leaving = g.withdraw
	}
	out.RulesVersion = g.changes.rules
	out.Base.Unreachable, out.Planned = g.unreachable, g.watchdog.Steps()
	out.PerPass = supervise.PerPass
	if g.mode.Use == linux.ModeIPVS { // otherwise each portion is an iptables-restore of its own
		out.Portion, out.Progress = supervise.Portion, g.watchdog.Progress
	}
	return out
}

// configure configures kernel and Reconciler for a configuration and the own Node.
func (g *target) configure(cfg *config.Config, n kernelmode.Node) error {
	before, after := kernelmode.KernelConfig(g.cfg, g.mode, g.node, g.log), kernelmode.KernelConfig(cfg, g.mode, n, g.log)
	if err := g.kernel.Configure(after); err != nil {
		return err
	}
	if !kernelmode.SameRules(before, after) {
		g.changes.rules++
	}
	g.node = n
	g.rec.Configure(g.options(cfg, n))
	return nil
}

// refuse makes the kernel refuse packets for unserved addresses of some prefixes, in the next pass.
func (g *target) refuse(prefixes []netip.Prefix) {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	prefixes = slices.Compact(prefixes)
	if slices.Equal(prefixes, g.unreachable) {
		return
	}
	g.unreachable = prefixes
	g.changes.options++
	g.causes.Add("routes to aggregates")
	g.rec.Configure(g.options(g.cfg, g.node))
}

// refuses reports whether the kernel refuses packets for unserved addresses of a prefix.
func (g *target) refuses(p netip.Prefix) bool { return g.rec.Have().Has(lb.Unreachable{Prefix: p}) }

// keepUnreachable keeps the unreachable routes of an earlier run until the aggregates are known: routers may still have
// them.
func (g *target) keepUnreachable(ctx context.Context) {
	if g.cfg.BGP == nil || !g.cfg.BGP.Aggregates || g.rec.Adopt(ctx) != nil {
		return // the first Sync reports a kernel that can't be read
	}
	for o := range g.rec.Have().OnLinks() {
		if u, ok := o.(lb.Unreachable); ok {
			g.unreachable = append(g.unreachable, u.Prefix)
		}
	}
	slices.SortFunc(g.unreachable, netip.Prefix.Compare)
	g.rec.Configure(g.options(g.cfg, g.node))
}

// awaitChecks waits until each backend has been asked once, but not for ever.
func (g *target) awaitChecks(ctx context.Context) {
	const slack = 5 * time.Second // of a busy box
	patience := g.checks.Patience() + slack
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	supervise.ExtendTimeout(patience + slack)
	if err := g.checks.Ready(wait); err != nil && ctx.Err() == nil {
		g.log.Warn("backends unchecked; they keep their state, and new ones get no traffic")
	}
}
