package daemon

import (
	"context"
	"os"
	"time"

	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
	"weir/lb/linux"
)

// passes run the Reconciler, and hand its results to clients, clusters and readers. The loop owns it.
type passes struct {
	*telemetry
	version      string
	kernelEvents *kernelmode.Events
	target       *target
	progress     *progress
	steering     *steering
	sources      *sources
	inForce      *inForce
	published    *published
	leftovers    kernelmode.Leftovers
	unsupported  kernelmode.Unsupported
	objects      query.Tally // objects in the kernel
	counter      *supervise.DrainCounter
	auditor      *supervise.Auditor
	derived      generations // from which the tally and the last pass were made
}

// work does what is due now: first the known changes, which without IPVS would wait for an audit. An audit begins, and ends
// when the auditor has read the kernel.
func (p *passes) work(ctx context.Context) {
	if !p.progress.since.IsZero() && !time.Now().Before(p.progress.floor) {
		p.sync(ctx)
	}
	if p.progress.audits.Begin(time.Now()) {
		p.auditor.Ask(p.target.rec.BeginAudit())
	}
	if !time.Now().Before(p.due()) {
		p.sync(ctx)
	}
}

// audited ends an audit that the auditor has read, unless it must read again.
func (p *passes) audited(ctx context.Context, audit *lb.Audit) {
	if p.target.rec.Reread(audit) {
		p.auditor.Ask(audit)
		return
	}
	p.metrics.Audited(time.Since(p.progress.audits.Begun))
	// This repairs what the watch has reported. Repaired by the audit it would be counted and logged twice. What it reports
	// from now on stays for the loop, which repairs it without another audit.
	p.changedByOthers(p.kernelEvents.Take())
	p.endAudit(ctx, func(ctx context.Context, now time.Time) (lb.Report, error) {
		return p.target.rec.EndAudit(ctx, now, audit)
	})
	supervise.FreeGarbage()
}

// sync programs the changes.
func (p *passes) sync(ctx context.Context) {
	defer p.progress.passed(time.Now(), p.target.cfg.Kernel.MinSyncPeriod)
	p.pass(ctx, p.target.rec.Sync)
}

// audit is the first pass. It reads the whole kernel, unless the checks needed that already, and returns the error of it.
func (p *passes) audit(ctx context.Context) error {
	p.endAudit(ctx, p.target.rec.Sync)
	return p.progress.audits.Err
}

// endAudit runs the pass at the end of an audit.
func (p *passes) endAudit(ctx context.Context, f func(context.Context, time.Time) (lb.Report, error)) {
	p.target.changes.services++ // foreign virtual servers may have come or gone
	p.pass(ctx, func(ctx context.Context, now time.Time) (lb.Report, error) {
		rep, err := f(ctx, now)
		if len(rep.Drift) > 0 || err != nil || !p.progress.ready {
			p.target.changes.kernel++
		}
		if ctx.Err() == nil {
			p.progress.audits.Audited(time.Now(), p.target.cfg.Kernel.SyncPeriod, err)
		}
		if len(rep.Ops)+rep.Failed > 0 { // otherwise it delays no change
			p.progress.passed(now, p.target.cfg.Kernel.MinSyncPeriod)
		}
		return rep, err
	})
}

// due returns the time of the next pass if nothing more happens.
func (p *passes) due() time.Time {
	if p.progress.later > 0 {
		return p.progress.lastPass // min_sync_period gathers changes; with it, a large service would take many of them
	}
	if !p.progress.since.IsZero() || p.derived.options != p.target.changes.options {
		return p.progress.floor
	}
	due := p.progress.audits.Next
	if !p.progress.audits.Begun.IsZero() {
		due = time.Now().Add(p.target.cfg.Kernel.SyncPeriod) // none before this one ends
	}
	for _, next := range []time.Time{p.target.rec.Next(), p.sources.probes.Retry(), p.progress.patience(), p.leftovers.Next(), p.steering.announcer.Next(), p.steering.drains.Due(), p.sources.pools.Next(), p.steering.fleet.Next()} {
		if !next.IsZero() && next.Before(due) {
			due = next
		}
	}
	if due.Before(p.progress.floor) {
		return p.progress.floor
	}
	return due
}

// changedByOthers applies changes of the kernel by other programs.
func (p *passes) changedByOthers(ev lb.Event) {
	lost := p.target.rec.Lost(ev.Lost)
	if len(lost) > 0 {
		p.objects.Lose(lost)
		p.drifted(lost, ev.What)
		p.target.causes.Add("others changed the kernel")
	}
	if ev.Host {
		p.target.causes.Add("%s", ev.What)
		p.progress.audits.Again()
	}
}

// drifted counts objects that other programs changed, and logs them in one line.
func (p *passes) drifted(objects []lb.Object, what string) {
	p.metrics.Drifted(objects)
	p.progress.drift += uint64(len(objects))
	p.log.Warn("drift found; repairing", "objects", len(objects), "first", objects[0].String(), "seen", what)
}

// pass runs a Sync or an Audit, and logs, counts and publishes the result.
func (p *passes) pass(ctx context.Context, f func(context.Context, time.Time) (lb.Report, error)) {
	p.derived.options = p.target.changes.options
	since := p.progress.take()
	begin, known, was := time.Now(), status.ErrorText(p.progress.audits.Err), p.before()
	rep, err := f(ctx, begin)
	took := time.Since(begin)
	if ctx.Err() != nil {
		return
	}
	p.metrics.Pass(rep, err, took)
	p.objects.Apply(rep.Ops)
	if p.derived.services != p.target.changes.services {
		p.target.changes.services++ // those received since the last pass are planned now
		p.derived.services = p.target.changes.services
	}
	if p.target.mode.Use == linux.ModeNetfilter {
		p.unsupported.Apply(rep.Ops)
	}
	if len(rep.Drift) > 0 {
		p.drifted(rep.Drift, "audit")
	}
	kernelmode.LogReport(p.log, rep, p.because(was, rep, begin), took)
	if err != nil && err.Error() != known {
		p.log.Error("kernel not readable; it stays as it is", "error", err)
	}
	p.progress.lastPass, p.progress.waiting, p.progress.later = time.Now(), rep.Deferred, rep.Postponed
	if err == nil {
		p.target.vips.Set(lb.CheckMarks(p.target.rec))
		p.counter.Ask(p.target.rec.UncountedDrains(p.progress.lastPass))
		p.sources.watchGuard(p.progress.lastPass)
		p.sources.programmed(p.progress.lastPass)
		differ := p.sources.probes.Set(p.target.changes.services, p.target.rec.Catalog().HealthChecks(), p.target.rec.NodeAddrs(), p.progress.lastPass)
		// What is admitted past the firewall is what the box answers on itself.
		if differ && p.target.rec.SetHealthPorts(p.sources.probes.Open()) {
			p.target.changes.options++
			p.target.causes.Add("healthCheckNodePorts")
		}
	}
	first := !p.progress.ready && err == nil && p.progress.mayBegin(p.target.rec.Catalog().Waiting(), p.progress.lastPass, p.log)
	if first {
		p.progress.ready = true // even if there was nothing to do
		p.target.changes.kernel++
	}
	p.steering.announce(ctx, err, since, p.progress.lastPass)
	if p.progress.ready && err == nil {
		p.leftovers.Forget(ctx, p.target.kernel, p.target.rec.TakenOver, p.target.cfg.Defaults.Drain, p.progress.lastPass, p.log)
	}
	p.publish()
	if first { // after publish: a client may ask for the status immediately
		supervise.Notify("READY=1")
		supervise.FreeMemory()
		kernelmode.LogReady(p.log, rep, p.target.rec.Catalog().Len(), took)
	}
	supervise.Notify("STATUS=" + p.published.status().Line())
}

// before is how the Reconciler was before a pass, as far as that may be a cause.
type before struct{ draining, pending int }

func (p *passes) before() before { return before{p.target.rec.Draining(), p.target.rec.Pending()} }

// because returns the causes of a pass that has just ended, and clears them: those that were added, and those that only
// the pass itself shows.
func (p *passes) because(was before, rep lb.Report, now time.Time) string {
	if len(rep.Drift) > 0 {
		p.target.causes.Add("another program changed the kernel")
	}
	for _, h := range p.sources.guard.Guarded {
		if !h.Until.IsZero() && !now.Before(h.Until) {
			p.target.causes.Add("guard_timeout of %s is over", h.Source)
		}
	}
	if p.target.rec.Draining() < was.draining {
		p.target.causes.Add("drains of backends are over")
	}
	if p.progress.later > 0 {
		p.target.causes.Add("operations were postponed")
	}
	if p.target.rec.Pending() < was.pending {
		p.target.causes.Add("it failed before")
	}
	out := p.target.causes.String()
	p.target.causes = nil
	return out
}

// publish makes a new view. An audit or a reload counts the objects of the kernel; between them the counts follow the ops,
// so that the cost of a change does not depend on the number of services.
func (p *passes) publish() {
	v := &view{ready: p.progress.ready, draining: map[lb.Drain]bool{}, served: map[string]int{}, period: p.target.cfg.Kernel.SyncPeriod}
	if p.published.view.Load() == nil || p.derived.kernel != p.target.changes.kernel {
		p.objects = query.NewTally(p.target.rec.Have())
		if p.target.mode.Use == linux.ModeNetfilter {
			p.unsupported.Load(p.target.rec.Have())
		}
		p.derived.kernel = p.target.changes.kernel
	}
	v.counts = p.objects.Without(kernelmode.Base(p.target.cfg, p.target.mode), p.target.rec.Have())
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
		Rules: p.target.kernel.Backend(p.target.cfg.Kernel.Families[0]).Name(), IPTablesReason: p.target.mode.IPTablesReason, Services: catalog.Len(),
		VirtualServers: v.counts["virtual_server"], RealServers: v.counts["real_server"],
		VIPs: catalog.VIPs(), SetMembers: v.counts["member"],
		LastSync: p.progress.lastPass, LastAudit: p.progress.audits.Last, Pending: p.target.rec.Pending(), Blocked: p.progress.waiting, Postponed: p.progress.later,
		Drift: p.progress.drift, Error: status.ErrorText(p.progress.audits.Err),
	}
	s.Clusters, s.Drains, s.Guarded = []status.Cluster{}, []status.Drain{}, kube.GuardedSources(p.sources.guard.Guarded)
	p.steering.announcer.Publish()
	if drain.Possible(p.target.cfg) {
		s.Drained = p.steering.drains.Doc(p.steering.drains.Delay(p.target.cfg))
	}
	if f := p.steering.fleet; f != nil {
		s.Fleet, s.L2, v.numbers = f.View().Status(time.Now()), f.L2(), f.Numbers()
	}
	s.Notes = p.sources.note(p.unsupported.Notes(p.target.changes.services, p.target.rec.Catalog()))
	v.pools = p.sources.pools.View() // with the Summary of the Notes
	for _, d := range p.target.rec.Drains() {
		s.Drains = append(s.Drains, status.Drain{Frontend: d.Frontend.String(), Backend: d.Backend.String(), Deadline: d.Deadline})
		v.draining[lb.Drain{Frontend: d.Frontend, Backend: d.Backend}] = true
	}
	p.published.view.Store(v)
}
