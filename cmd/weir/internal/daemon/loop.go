package daemon

import (
	"context"
	"slices"
	"time"

	"weir/cmd/weir/internal/cause"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/kube"
	"weir/lb"
)

// loop owns the Reconciler. It begins when every backend with a check has its first result, so that no unchecked
// backend gets traffic. running ends when weir is asked to stop. This interrupts the start, and then the loop only runs
// functions, until ctx ends.
func (b *box) loop(ctx, running context.Context) error {
	starting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(running, stop)()
	b.sources.clusters.Set(ctx, kube.Configs(b.target.cfg, b.opts.Version, b.target.mode))
	b.sources.pools.Follow(b.sources.clusters.Real())
	b.steering.configure()
	b.steering.decide(nil, time.Now())
	if err := b.begin(starting); err != nil {
		return err
	}
	for begun := starting.Err() == nil; !begun; {
		select {
		case <-ctx.Done():
			return nil // not a failure
		case f := <-b.calls:
			f()
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		b.watchdog.Beat(time.Now())
		timer.Reset(time.Until(b.watchdog.Before(b.passes.due())))
		select {
		case <-ctx.Done():
			return nil
		case f := <-b.calls:
			f()
			continue
		case <-b.target.checks.Changed():
			if turned := b.target.rec.SetHealth(b.reloads.health()); len(turned) > 0 {
				b.target.causes.Add("checks of %s", cause.Some(turned))
			}
			b.passes.progress.changed(time.Now())
		case <-b.events.Signal:
			b.passes.changedByOthers(b.events.Take())
			b.passes.progress.changed(time.Now())
		case audit := <-b.passes.auditor.Done:
			b.passes.audited(ctx, audit)
		case count := <-b.passes.counter.Counts:
			if !b.target.rec.Counted(count) {
				continue
			}
			b.passes.progress.changed(time.Now())
		case <-b.sources.clusters.Signal:
			if !b.sources.receive() && b.passes.progress.since.IsZero() {
				continue
			}
			b.passes.progress.changed(time.Now())
		case <-b.steering.fleet.Changed():
			b.updateFleet(ctx, time.Now())
			continue // the kernel has no part in it
		case <-b.sources.pools.Changed():
			b.sources.assigned()
			continue // what that means for the kernel comes from the clusters
		case <-timer.C:
		}
		if !time.Now().Before(b.passes.due()) {
			b.passes.work(ctx)
		}
	}
}

// begin waits until each backend has been asked once, and makes the first pass; until then the kernel stays as it is.
func (b *box) begin(ctx context.Context) error {
	if len(b.target.cfg.Checks) > 0 {
		_ = b.target.rec.Adopt(ctx) // the first pass tries again, and reports a kernel that can't be read
		b.target.checks.Set(b.target.cfg.ChecksWith(b.target.rec.Have()))
		b.target.awaitChecks(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	b.target.rec.SetHealth(b.target.checks.Health(), true)
	b.sources.update(lb.Update{Source: config.Source, Put: b.target.cfg.Services, Synced: true}, b.target.rec.Update)
	b.sources.receive()
	b.target.keepUnreachable(ctx)
	b.target.causes.Add("the start")
	return b.passes.audit(ctx)
}

// updateFleet takes a change outside: of a member, an interface, or a session.
func (b *box) updateFleet(ctx context.Context, now time.Time) {
	b.steering.fleet.Refresh()
	b.steering.steer(ctx, nil, now, now)
	b.passes.publish()
}

// apply brings a configuration into force.
func (b *box) apply(ctx context.Context, cfg *config.Config) error {
	if err := b.target.timeouts.Set(ctx, b.target.kernel, b.target.mode, cfg, b.log); err != nil {
		return err
	}
	if !slices.Equal(cfg.Kernel.DecapsulateFrom, b.target.cfg.Kernel.DecapsulateFrom) {
		kernelmode.WarnTunnels(cfg, b.target.mode, b.log)
	}
	if err := b.target.configure(cfg, b.target.node); err != nil {
		return err
	}
	b.target.cfg, b.inForce.loaded = cfg, time.Now()
	b.target.changes.kernel++
	b.opts.Level.Set(cfg.Daemon.LogLevel)
	b.metrics.PerBackend(cfg.Daemon.MetricsBackends)
	b.hooks.Set(cfg.Hooks)
	b.steering.drains.Move(cfg.Daemon.StateDir)
	if b.steering.announcer != nil && cfg.BGP != nil { // that there is a [bgp] can't change
		b.steering.announcer.Configure(ctx, cfg.BGP, time.Now())
	}
	b.steering.configure()
	b.target.rec.SetSources(kernelmode.Sources(cfg)...)
	b.sources.pools.Configure(cfg.Addresses)
	b.sources.clusters.Set(ctx, kube.Configs(cfg, b.opts.Version, b.target.mode))
	b.sources.pools.Follow(b.sources.clusters.Real())
	b.target.rec.SetHealth(b.target.checks.Health(), true)
	b.sources.update(lb.Update{Source: config.Source, Put: cfg.Services, Synced: true}, b.target.rec.Update)
	b.target.causes.Add("the configuration")
	b.log.Info("configuration loaded", "file", b.opts.ConfigFile, "services", len(cfg.Services))
	b.passes.progress.audits.Hasten(time.Now(), cfg.Kernel.SyncPeriod)
	b.passes.sync(ctx)
	return nil
}
