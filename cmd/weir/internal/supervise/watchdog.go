package supervise

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"weir/lb"
)

// Watchdog feeds systemd's watchdog from the loop: at each round, and at each step of a pass, which may take many
// where there are tens of thousands of services. No timer feeds it, so a loop that hangs is noticed. The loop owns it; other
// goroutines may read how long it has been silent, and how far a long pass is.
type Watchdog struct {
	every  time.Duration // a third of systemd's limit; 0 without a watchdog
	last   time.Time
	told   time.Time // when STATUS was last sent by Progress
	notify func(state string)

	// For readers in other goroutines.
	beat atomic.Pointer[time.Time] // the last one; a change of the clock is no silence
	work atomic.Pointer[[2]int]    // done and total of Progress
}

// NewWatchdog returns the watchdog that systemd set up for this process. Without one, Beat informs readers only.
func NewWatchdog() *Watchdog {
	w := &Watchdog{notify: Notify}
	w.Beat(time.Now()) // a loop that begins is no loop that hangs
	if d, err := sd.SdWatchdogEnabled(false); err == nil {
		w.every = d / 3
	}
	return w
}

// Beat reports that the loop is alive. The loop may call it at any rate.
func (w *Watchdog) Beat(now time.Time) {
	w.beat.Store(&now)
	if w.every == 0 || now.Sub(w.last) < w.every/4 {
		return
	}
	w.last = now
	w.notify("WATCHDOG=1")
}

// Silence returns the time since the last beat. It is safe for concurrent use.
func (w *Watchdog) Silence(now time.Time) time.Duration {
	return now.Sub(*w.beat.Load())
}

// Portion is the number of operations after which a long pass beats: the kernel takes less than a second for them.
const Portion = 10_000

// PerPass is lb.Options.PerPass. Changes of other Services wait for so many real servers: on Linux 7.3 they take 0.1 s at
// first, and 1.5 s after 38,000.
const PerPass = 2000

// Progress beats, and records that done of total operations of a pass have been tried.
func (w *Watchdog) Progress(done, total int) {
	now := time.Now()
	w.Beat(now)
	if done == total {
		w.work.Store(nil)
		return
	}
	w.work.Store(&[2]int{done, total})
	if now.Sub(w.told) >= time.Second {
		w.told = now
		w.notify(fmt.Sprintf("STATUS=weir is programming the kernel: %d of %d operations", done, total))
	}
}

// Working returns how far a long pass is: the numbers of Progress, or zeros without one. It is safe for concurrent use.
func (w *Watchdog) Working() (done, total int) {
	if p := w.work.Load(); p != nil {
		return p[0], p[1]
	}
	return 0, 0
}

// Before returns due, or the time of the next beat if that is earlier.
func (w *Watchdog) Before(due time.Time) time.Time {
	if next := w.last.Add(w.every); w.every > 0 && next.Before(due) {
		return next
	}
	return due
}

// Steps returns a function to call after each of many short steps. Each hundredth call is a beat: to read the clock
// is a system call on some machines.
func (w *Watchdog) Steps() func() {
	n := 0
	return func() {
		if n++; n%100 == 0 {
			w.Beat(time.Now())
		}
	}
}

// Paced returns a kernel that beats after each step.
func (w *Watchdog) Paced(k lb.Kernel) lb.Kernel { return paced{k, w} }

type paced struct {
	lb.Kernel
	watchdog *Watchdog
}

// Observe implements lb.Kernel.
func (k paced) Observe(ctx context.Context, expected *lb.Table, only ...lb.Frontend) (lb.Observation, error) {
	defer func() { k.watchdog.Beat(time.Now()) }()
	return k.Kernel.Observe(ctx, expected, only...)
}

// Apply implements lb.Kernel.
func (k paced) Apply(ctx context.Context, ops []lb.Op) []error {
	defer func() { k.watchdog.Beat(time.Now()) }()
	return k.Kernel.Apply(ctx, ops)
}
