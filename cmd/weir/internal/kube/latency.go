package kube

import (
	"slices"
	"time"

	"weir/lb"
)

// maxPending bounds the changes that wait while the kernel can't be written.
const maxPending = 10_000

// Latency measures the time from a change of a cluster until the kernel has it.
type Latency struct {
	// Since is the start of weir. Earlier changes are not measured.
	Since   time.Time
	pending []change
}

type change struct {
	service lb.ServiceID
	at      time.Time
}

// Add adds the changes of an update.
func (l *Latency) Add(triggered map[lb.ServiceID]time.Time) {
	for id, at := range triggered {
		if at.After(l.Since) && len(l.pending) < maxPending {
			l.pending = append(l.pending, change{id, at})
		}
	}
}

// Programmed measures the changes that the kernel has after a pass. A change of a Service that the kernel refused
// counts later; one that the guard retains is not measured.
func (l *Latency) Programmed(unfinished func() map[lb.ServiceID]lb.Reason, now time.Time, observe func(source string, seconds float64)) {
	if len(l.pending) == 0 {
		return
	}
	reasons := unfinished()
	l.pending = slices.DeleteFunc(l.pending, func(c change) bool {
		switch reasons[c.service] {
		case lb.Failed:
			return false
		case lb.Guarded:
		default:
			observe(c.service.Source, max(0, now.Sub(c.at).Seconds()))
		}
		return true
	})
}

// Pending returns the number of changes that the kernel does not have.
func (l *Latency) Pending() int { return len(l.pending) }
