package kube

import (
	"maps"
	"time"

	"weir/lb"
)

// maxPending bounds the Services with changes that wait while the kernel can't be written.
const maxPending = 10_000

// Latency measures the time from a change of a cluster until the kernel has it.
type Latency struct {
	// Since is the start of weir. Earlier changes are not measured.
	Since   time.Time
	pending map[lb.ServiceID]time.Time // the first change of each Service
}

// Add adds the changes of an update. Those of a removed Service end without a measurement.
func (l *Latency) Add(u lb.Update) {
	for _, id := range u.Delete {
		delete(l.pending, id)
	}
	for id, at := range u.Triggered {
		if _, waits := l.pending[id]; waits || !at.After(l.Since) || len(l.pending) >= maxPending {
			continue
		}
		if l.pending == nil {
			l.pending = map[lb.ServiceID]time.Time{}
		}
		l.pending[id] = at
	}
}

// Programmed measures the changes that the kernel has after a pass. A change of a Service that the kernel refused
// counts later; one that the guard retains is not measured.
func (l *Latency) Programmed(unfinished func() map[lb.ServiceID]lb.Reason, now time.Time, observe func(source string, seconds float64)) {
	if len(l.pending) == 0 {
		return
	}
	reasons := unfinished()
	maps.DeleteFunc(l.pending, func(id lb.ServiceID, at time.Time) bool {
		switch reasons[id] {
		case lb.Failed:
			return false
		case lb.Guarded:
		default:
			observe(id.Source, max(0, now.Sub(at).Seconds()))
		}
		return true
	})
}

// Pending returns the number of Services with changes that the kernel does not have.
func (l *Latency) Pending() int { return len(l.pending) }
