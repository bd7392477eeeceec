package daemon

import (
	"context"
	"time"

	"weir/lb"
)

// watchdog is how the loop shows systemd's watchdog that it goes on: at each round, and at each
// step of a pass, which may take many where there are tens of thousands of services. No timer
// drives it. A loop that hangs is not alive because something else is.
type watchdog struct {
	every  time.Duration // a third of what systemd allows; 0 if nobody watches
	last   time.Time
	notify func(state string)
}

func newWatchdog() *watchdog { return &watchdog{every: watchdogInterval(), notify: notify} }

// beat is called by the loop, as often as it likes.
func (w *watchdog) beat(now time.Time) {
	if w.every == 0 || now.Sub(w.last) < w.every/4 {
		return
	}
	w.last = now
	w.notify("WATCHDOG=1")
}

// before is due, or when the loop must beat again, whichever comes first.
func (w *watchdog) before(due time.Time) time.Time {
	if next := w.last.Add(w.every); w.every > 0 && next.Before(due) {
		return next
	}
	return due
}

// paced is a kernel each of whose steps is a beat.
type paced struct {
	lb.Kernel
	watchdog *watchdog
}

// Observe implements lb.Kernel.
func (k paced) Observe(ctx context.Context, only ...lb.Frontend) (lb.Observation, error) {
	defer func() { k.watchdog.beat(time.Now()) }()
	return k.Kernel.Observe(ctx, only...)
}

// Apply implements lb.Kernel.
func (k paced) Apply(ctx context.Context, ops []lb.Op) []error {
	defer func() { k.watchdog.beat(time.Now()) }()
	return k.Kernel.Apply(ctx, ops)
}
