package kernelmode

import (
	"errors"
	"time"

	"weir/lb/linux"
)

// Audits has the times of the last and the next audit, which reads the whole kernel.
type Audits struct {
	Last, Next time.Time
	Err        error // of the last audit
	// Begun is the start of the audit in progress, which other goroutines read for the loop; zero without one.
	Begun time.Time
	again bool // after the audit in progress
}

// auditRetry is the interval after an audit that could not read the kernel.
const auditRetry = time.Second

// Begin reports whether an audit must begin at now, and records that it does. No other one begins before it ends.
func (a *Audits) Begin(now time.Time) bool {
	due := a.Begun.IsZero() && !now.Before(a.Next)
	if due {
		a.Begun = now
	}
	return due
}

// Again makes an audit due: now, or after the one in progress, which may have read what has changed since.
func (a *Audits) Again() {
	if a.again = !a.Begun.IsZero(); !a.again {
		a.Next = time.Time{}
	}
}

// Audited records the result of an audit at now.
func (a *Audits) Audited(now time.Time, period time.Duration, err error) {
	again := a.again
	a.Err, a.Begun, a.again = err, time.Time{}, false
	if err != nil {
		a.Next = now.Add(min(auditRetry, period))
	} else {
		a.Last, a.Next = now, now.Add(period)
	}
	if again {
		a.Next = time.Time{}
	}
}

// Hasten moves the next audit forward if the period is shorter now.
func (a *Audits) Hasten(now time.Time, period time.Duration) {
	if next := now.Add(period); next.Before(a.Next) {
		a.Next = next
	}
}

// NoIPVS reports whether the kernel has no IPVS any more.
func (a *Audits) NoIPVS() bool { return errors.Is(a.Err, linux.ErrNoIPVS) }
