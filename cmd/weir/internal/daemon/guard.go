package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// guards are the limits of a configuration for what clusters may take away at
// once. The files are not guarded: who reloads them has asked for what is in them,
// and so for what a changed block of a cluster takes away.
func guards(cfg *config.Config) map[string]lb.GuardOptions {
	out := map[string]lb.GuardOptions{}
	for _, c := range cfg.Clusters {
		out[c.Name] = lb.GuardOptions{Share: c.Guard.Share, Least: c.Guard.Least, Window: c.Guard.Window, Hold: c.Guard.Hold}
	}
	return out
}

// How a hold ended.
const (
	confirmed = "confirmed" // somebody released it
	overdue   = "overdue"   // its time was over
	recovered = "recovered" // the source brought back what it took
)

// watchGuard logs and counts what the last pass began to hold, or let go.
func (b *box) watchGuard(now time.Time) {
	held := b.rec.Held()
	b.clusters.judged(held)
	of := func(holds []lb.Hold, source string) (lb.Hold, bool) {
		i := slices.IndexFunc(holds, func(h lb.Hold) bool { return h.Source == source })
		if i < 0 {
			return lb.Hold{}, false
		}
		return holds[i], true
	}
	for _, h := range held {
		if old, ok := of(b.holds, h.Source); ok && old.Since.Equal(h.Since) {
			continue
		}
		b.log.Warn("a source takes away much at once; it is served on until that is confirmed",
			"source", h.Source, "services", h.Services, "frontends", h.Frontends, "backends", h.Backends,
			"first", h.First, "until", h.Until, "to_confirm", "weir guard release "+h.Source)
	}
	for _, h := range b.holds {
		if _, still := of(held, h.Source); still {
			continue
		}
		how := recovered
		switch {
		case b.released == h.Source:
			how = confirmed
		case !h.Until.IsZero() && !now.Before(h.Until):
			how = overdue
		}
		b.metrics.releases.WithLabelValues(how).Inc()
		b.log.Info("nothing is held of a source any more", "source", h.Source, "why", how)
		b.moved = true
	}
	b.holds, b.released = held, ""
}

// release believes a source of which something is held.
func (b *box) release(ctx context.Context, source string) (status.Hold, error) {
	hold, err := status.Hold{}, fmt.Errorf("nothing is held of %q: see weir guard", source)
	busy := b.do(ctx, func() {
		for _, h := range holdsOf(b.rec.Held()) {
			if h.Source == source && b.rec.Release(source) {
				hold, err = h, nil
				b.released = source
				b.causes.add("weir guard release %s", source)
				// Whoever asked may go; what he asked for is done.
				b.pass(context.WithoutCancel(ctx), b.rec.Sync)
			}
		}
	})
	if busy != nil {
		return hold, busy
	}
	return hold, err
}

// holdsOf gives holds as the command line has them.
func holdsOf(holds []lb.Hold) []status.Hold {
	out := []status.Hold{}
	for _, h := range holds {
		out = append(out, status.Hold{
			Source: h.Source, Since: h.Since, Until: h.Until,
			Services: h.Services, Frontends: h.Frontends, Backends: h.Backends, First: slices.Concat([]string{}, h.First),
		})
	}
	return out
}
