package daemon

import (
	"log/slog"
	"time"

	"weir/cmd/weir/internal/kernelmode"
)

// progress is the state of the passes so far. The loop owns it.
type progress struct {
	started  time.Time
	ready    bool // the kernel has had the first state
	audits   kernelmode.Audits
	lastPass time.Time
	floor    time.Time // min_sync_period allows the next pass from then on
	since    time.Time // of the first change that no pass has handled; zero without a change
	waiting  int       // deletions that wait for a source
	later    int       // operations that wait for the next passes
	drift    uint64
}

// changed records that a pass is due for a change at now.
func (p *progress) changed(now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
}

// passed records the end of a pass, which may have written nothing. Two may follow each other at once, so that the end of a
// drain delays no change. Each further one waits for min_sync_period: after a reload, no longer than for the new one.
func (p *progress) passed(begin time.Time, period time.Duration) {
	p.floor = begin.Add(time.Since(begin) + min(period, max(0, p.floor.Sub(begin)+period)))
}

// take returns since, and clears it: a pass handles all changes.
func (p *progress) take() (since time.Time) {
	since, p.since = p.since, time.Time{}
	return since
}

// clusterPatience is how long READY waits for clusters to sync. An API server that is unreachable for longer does not
// keep the box from its other work; the kernel keeps the objects of its Services.
const clusterPatience = 4 * time.Second

// mayBegin reports whether READY waits no longer for the clusters that have not synced.
func (p *progress) mayBegin(waiting []string, now time.Time, log *slog.Logger) bool {
	if len(waiting) == 0 {
		return true
	}
	if now.Sub(p.started) < clusterPatience {
		return false
	}
	log.Warn("ready without all clusters: the objects of the others stay in the kernel", "clusters", waiting)
	return true
}

// patience returns the time at which READY waits no longer; the zero time when it does not wait.
func (p *progress) patience() time.Time {
	if p.ready || p.audits.Err != nil {
		return time.Time{}
	}
	return p.started.Add(clusterPatience)
}
