// Package supervise owns the goroutines of the daemon, restarts those that fail, and reports to systemd. It never
// decides what a goroutine does, and never reports a loop as alive that hangs.
package supervise

import (
	"fmt"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Notify sends a state to systemd (sd_notify(3)). Without systemd it does nothing; errors change nothing for the daemon.
func Notify(state string) { _, _ = sd.SdNotify(false, state) }

// NotifyReloading sends the begin of a reload, with the time that sd_notify(3) requires.
func NotifyReloading() {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) == nil {
		Notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", ts.Nano()/1000))
	}
}

// ExtendTimeout asks systemd to wait longer for a start or a stop.
func ExtendTimeout(d time.Duration) { Notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds())) }

// ExtendDuring calls f, and returns when f has. Meanwhile it asks systemd each second to wait for d, until limit is over.
func ExtendDuring(limit, d time.Duration, f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for range limit / time.Second {
		ExtendTimeout(d)
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
	}
	<-done
}
