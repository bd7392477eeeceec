package daemon

import (
	"context"
	"fmt"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/supervise"
)

// shutdown is the work of a stop.
type shutdown struct {
	drains   bool // first, clients are steered to other boxes
	cleansUp bool // at the end, the kernel state is removed
	leaves   bool // this box announces to the other members that it leaves
}

// shutdownOf returns the work of a stop. A restart does nothing. What may be either drains, and removes nothing.
func shutdownOf(cfg *config.Config, reason supervise.Ending) shutdown {
	out := shutdown{
		drains:   (reason == supervise.ForGood || reason == supervise.Unclear) && cfg.Daemon.OnStop != config.StopKeeps && drain.Possible(cfg),
		cleansUp: (reason == supervise.ByHand || reason == supervise.ForGood) && cfg.Daemon.OnStop == config.StopCleansUp,
	}
	out.leaves = cfg.Fleet != nil && (out.drains || out.cleansUp)
	return out
}

// awaitEnd returns after ctx has ended and the work of a stop is done. life is the context of the tasks, which work on
// meanwhile.
func (b *box) awaitEnd(ctx, life context.Context) {
	select {
	case <-ctx.Done():
	case <-life.Done():
		return // a task could not go on
	}
	supervise.Notify("STOPPING=1")
	reason := supervise.EndingOf(ctx)
	supervise.ExtendDuring(busyLimit, extension, func() { _ = b.calls.Do(life, func() { b.shutdown = shutdownOf(b.target.cfg, reason) }) })
	b.log.Info("stopping", "by", reason.String(), "drains", b.shutdown.drains, "cleans_up", b.shutdown.cleansUp)
	if b.shutdown.drains && b.published.view.Load().ready {
		b.drainToEnd(life)
	}
	if b.shutdown.leaves {
		_ = b.calls.Do(life, b.steering.fleet.Leave) // a loop that has ended has left
	}
}

const (
	// endingEvery is the interval between checks of the drain before a stop.
	endingEvery = time.Second
	// extension is the time requested from systemd each time. A check counts all connections of a big table.
	extension = 30 * time.Second
	// busyLimit is how long systemd is asked for time for a busy loop: one that hangs never ends.
	busyLimit = 5 * time.Minute
)

// drainToEnd drains the whole box. It returns when that is done, after daemon.stop_timeout, or at another signal.
func (b *box) drainToEnd(life context.Context) {
	begin, end := time.Now(), time.Now()
	var busy error
	supervise.ExtendDuring(busyLimit, extension, func() {
		busy = b.calls.Do(life, func() {
			end = begin.Add(b.target.cfg.Daemon.StopTimeout)
			b.steering.drains.Stopping = begin
			b.passes.progress.changed(begin)
			b.passes.sync(life)
		})
	})
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	for last := -1; busy == nil; {
		supervise.ExtendTimeout(extension)
		doc, err := b.answers.draining(life)
		left := query.OpenConnections(doc)
		switch {
		case err != nil:
			b.log.Warn("open connections not counted", "error", err)
		case doc.Done():
			b.log.Info("drained", "took", time.Since(begin).Round(time.Millisecond))
			return
		case left != last:
			b.log.Info("draining", "connections", left, "kept", doc.Retained, "at_most", time.Until(end).Round(time.Second))
			supervise.Notify(fmt.Sprintf("STATUS=stopping: %d connections left, %s at most", left, time.Until(end).Round(time.Second)))
			last = left
		}
		select {
		case <-life.Done():
			return
		case <-b.opts.Again:
			b.log.Warn("drain interrupted", "reason", "another signal", "connections", left)
			return
		case <-over.C:
			b.log.Warn("drain interrupted", "reason", "daemon.stop_timeout is over", "connections", left, "kept", doc.Retained)
			return
		case <-time.After(endingEvery):
		}
	}
}
