package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/linux"
)

// loop owns the Reconciler. It begins when every backend with a check has its
// first verdict, so that no traffic goes where nobody has looked.
func (b *box) loop(ctx context.Context) error {
	b.clusters.set(ctx, b.followedOf(b.cfg))
	b.lend()
	b.setFleet(nil, time.Now())
	b.share(nil, time.Now())
	b.firstVerdicts(ctx)
	if ctx.Err() != nil {
		return nil // before weir began: not a failure
	}
	b.rec.SetHealth(b.checks.Health())
	b.update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
	b.hear()
	b.keepUnreachable(ctx)
	b.causes.add("the start")
	if b.audit(ctx); b.audits.err != nil {
		return b.audits.err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	pending := false // something has happened since the last pass
	for {
		b.watchdog.beat(time.Now())
		timer.Reset(time.Until(b.watchdog.before(b.due(pending))))
		select {
		case <-ctx.Done():
			return nil
		case f := <-b.calls:
			f()
			continue
		case <-b.checks.Changed():
			if turned := b.rec.SetHealth(b.health()); len(turned) > 0 {
				b.causes.add("checks of %s", some(turned))
			}
			pending = true
		case <-b.events.signal:
			b.meet(b.events.take())
			pending = true
		case <-b.clusters.signal:
			if !b.hear() && !pending {
				continue
			}
			pending = true
		case <-b.fleet.changed():
			b.meetFleet(ctx, time.Now())
			continue // the kernel has no part in it
		case <-b.provider.Changed():
			b.given()
			continue // what that means for the kernel comes from the clusters
		case <-timer.C:
		}
		if pending && b.stirred.IsZero() {
			b.stirred = time.Now()
		}
		if time.Now().Before(b.due(pending)) {
			continue
		}
		b.work(ctx)
		pending = false
	}
}

// work does what is due now.
func (b *box) work(ctx context.Context) {
	if time.Now().Before(b.audits.next) {
		b.pass(ctx, b.rec.Sync)
		return
	}
	// An audit sees for itself. What the watch saw meanwhile it has perhaps put
	// right already; believed, that would be repaired, counted and logged twice.
	b.events.take()
	b.audit(ctx)
	if ev := b.events.take(); ev.Host || len(ev.Lost) > 0 {
		b.audits.next = time.Time{}
	}
}

// audit reads the whole kernel, which is what the first pass must do, too.
func (b *box) audit(ctx context.Context) {
	b.changed, b.moved = true, true // an audit may find anything
	b.pass(ctx, func(ctx context.Context, now time.Time) (lb.Report, error) {
		rep, err := b.rec.Audit(ctx, now)
		if ctx.Err() == nil {
			b.audits.audited(time.Now(), b.cfg.Kernel.SyncPeriod, err)
		}
		return rep, err
	})
}

// schedule is when the kernel was read as a whole, and when it will be.
type schedule struct {
	last, next time.Time
	err        error // why the last attempt failed
}

// auditRetry is how soon an audit is made again that could not read the kernel.
const auditRetry = time.Second

// audited takes down how an audit ended that was tried at now.
func (s *schedule) audited(now time.Time, period time.Duration, err error) {
	s.err = err
	if err != nil {
		s.next = now.Add(min(auditRetry, period))
		return
	}
	s.last, s.next = now, now.Add(period)
}

// hasten makes the next audit come as soon as a new period says.
func (s *schedule) hasten(now time.Time, period time.Duration) {
	if next := now.Add(period); next.Before(s.next) {
		s.next = next
	}
}

// floor is when min_sync_period allows the next pass.
func (b *box) floor() time.Time { return b.lastPass.Add(b.cfg.Kernel.MinSyncPeriod) }

// due is when the loop has something to do even if nothing (more) happens.
func (b *box) due(pending bool) time.Time {
	if pending || b.again {
		return b.floor()
	}
	due := b.audits.next
	for _, next := range []time.Time{b.rec.Next(), b.probes.retry(), b.patience(), b.other.next, b.announcer.next(), b.drainer.due, b.provided.next(), b.fleet.next()} {
		if !next.IsZero() && next.Before(due) {
			due = next
		}
	}
	if due.Before(b.floor()) {
		return b.floor()
	}
	return due
}

// firstVerdicts begins to check, and waits until each backend has been asked
// once; until then the kernel stays as it is.
func (b *box) firstVerdicts(ctx context.Context) {
	if len(b.cfg.Checks) == 0 {
		return
	}
	// Whose objects these are does not matter: a stranger's frontend is no
	// Service's in the end. A kernel that can't be read is for the first Sync to
	// complain about.
	obs, _ := b.kernel.Observe(ctx)
	b.checks.Set(checks(b.cfg, obs.Objects))
	b.awaitVerdicts(ctx)
}

// awaitVerdicts waits until each backend has been asked once, but not for ever.
func (b *box) awaitVerdicts(ctx context.Context) {
	const slack = 5 * time.Second // of a busy box
	patience := b.checks.Patience() + slack
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (patience + slack).Microseconds()))
	if err := b.checks.Ready(wait); err != nil && ctx.Err() == nil {
		b.log.Warn("some backends have no verdict yet; they stay as they are until they do, and new ones get no traffic")
	}
}

// meet takes in what others did to the kernel.
func (b *box) meet(ev lb.Event) {
	lost := b.rec.Lost(ev.Lost)
	if len(lost) > 0 {
		b.held.lose(lost)
		b.drifted(lost, ev.What)
		b.causes.add("others changed the kernel")
	}
	if ev.Host {
		b.causes.add("%s", ev.What)
		b.audits.next = time.Time{}
	}
}

// drifted counts what others altered, and logs it as one line.
func (b *box) drifted(objects []lb.Object, what string) {
	for _, o := range objects {
		b.metrics.drift.WithLabelValues(lb.Kind(o)).Inc()
	}
	b.drift += uint64(len(objects))
	b.log.Warn("somebody else changed the kernel; putting it right",
		"objects", len(objects), "first", objects[0].String(), "seen", what)
}

// pass runs a Sync or an Audit, and logs, counts and publishes what it did.
func (b *box) pass(ctx context.Context, f func(context.Context, time.Time) (lb.Report, error)) {
	b.again = false
	begin, known, was := time.Now(), errorText(b.audits.err), b.before()
	rep, err := f(ctx, begin)
	took := time.Since(begin)
	if ctx.Err() != nil {
		return
	}
	b.metrics.pass(rep, err, took)
	b.held.follow(rep.Ops)
	if b.mode.Use == linux.ModeIPTables {
		b.cant.follow(rep.Ops)
	}
	if len(rep.Drift) > 0 {
		b.drifted(rep.Drift, "audit")
	}
	b.logOps(rep, b.because(was, rep, begin), took)
	b.logErrors(rep.Errors)
	if err != nil && err.Error() != known {
		b.log.Error("the kernel can't be read; it stays as it is", "error", err)
	}
	b.lastPass, b.waiting = time.Now(), rep.Held
	if err == nil {
		b.watchGuard(b.lastPass)
		b.programmed(b.lastPass)
		b.probes.set(b.rec.Catalog().HealthChecks(), b.rec.NodeAddrs(), b.lastPass)
		// What is admitted past the firewall is what the box answers on itself.
		if b.again = b.rec.SetHealthPorts(b.probes.open()); b.again {
			b.causes.add("healthCheckNodePorts")
		}
	}
	first := !b.ready && err == nil && b.mayBegin(b.lastPass)
	if first {
		b.ready, b.changed = true, true // even if there was nothing to do
	}
	b.announce(ctx, err, b.lastPass)
	if b.ready && err == nil {
		b.forgetOther(ctx, b.lastPass)
	}
	b.publish()
	if first { // whoever hears it may ask for the status at once
		notify("READY=1")
		b.log.Info("ready", "services", b.rec.Catalog().Len(), "ops", len(rep.Ops), "failed", rep.Failed, "took", took)
	}
	notify("STATUS=" + b.statusWith(b.provided.addresses).Line())
}

func (b *box) logOps(rep lb.Report, because string, took time.Duration) {
	if len(rep.Ops) == 0 {
		return
	}
	b.log.Info("applied", "ops", len(rep.Ops), "first", rep.Ops[0].String(), "because", because, "took", took)
	if !b.log.Enabled(context.Background(), slog.LevelDebug) {
		return // thousands of lines need not even be made
	}
	for _, op := range rep.Ops {
		b.log.Debug("op", "op", op.String())
	}
}

// maxErrorLines bounds the log of one pass; the rest is in the count.
const maxErrorLines = 5

func (b *box) logErrors(errs []error) {
	for i, err := range errs {
		if i == maxErrorLines {
			b.log.Error("and more ops failed", "errors", len(errs)-i)
			return
		}
		b.log.Error("op failed; trying again", "error", err)
	}
}
