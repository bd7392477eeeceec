package kube

import (
	"slices"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// The reasons why a source is no longer guarded.
const (
	Confirmed = "confirmed" // the operator released it
	Overdue   = "overdue"   // guard_timeout is over
	Recovered = "recovered" // the source restored the deleted objects
)

// Guard compares the guarded sources of two passes. The zero value has none.
type Guard struct {
	Guarded  []lb.GuardedSource // after the last Update
	released string             // by the operator, since then
}

// Ended is a source that is no longer guarded.
type Ended struct{ Source, Reason string }

// Release records that the operator has released a source.
func (g *Guard) Release(source string) { g.released = source }

// Update replaces the guarded sources, and returns those that are new and those that are no longer guarded.
func (g *Guard) Update(guarded []lb.GuardedSource, now time.Time) (begun []lb.GuardedSource, ended []Ended) {
	for _, h := range guarded {
		if old, ok := find(g.Guarded, h.Source); !ok || !old.Since.Equal(h.Since) {
			begun = append(begun, h)
		}
	}
	for _, h := range g.Guarded {
		if _, still := find(guarded, h.Source); still {
			continue
		}
		reason := Recovered
		switch {
		case g.released == h.Source:
			reason = Confirmed
		case !h.Until.IsZero() && !now.Before(h.Until):
			reason = Overdue
		}
		ended = append(ended, Ended{h.Source, reason})
	}
	g.Guarded, g.released = guarded, ""
	return begun, ended
}

func find(guarded []lb.GuardedSource, source string) (lb.GuardedSource, bool) {
	i := slices.IndexFunc(guarded, func(h lb.GuardedSource) bool { return h.Source == source })
	if i < 0 {
		return lb.GuardedSource{}, false
	}
	return guarded[i], true
}

// GuardedSources returns guarded sources in the form of the status.
func GuardedSources(guarded []lb.GuardedSource) []status.GuardedSource {
	out := []status.GuardedSource{}
	for _, h := range guarded {
		out = append(out, status.GuardedSource{
			Source: h.Source, Since: h.Since, Until: h.Until,
			Services: h.Services, Frontends: h.Frontends, Backends: h.Backends, First: slices.Concat([]string{}, h.First),
		})
	}
	return out
}
