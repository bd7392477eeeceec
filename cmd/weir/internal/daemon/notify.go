package daemon

import (
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// notify tells systemd, if there is one that wants to know. That it can't be
// told is no reason to do anything else differently.
func notify(state string) { _, _ = sd.SdNotify(false, state) }

// watchdogInterval is how often the loop must show that it is alive: a third of
// what systemd allows; 0 where nobody watches.
func watchdogInterval() time.Duration {
	d, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return d / 3
}

// monotonicMicros is the time that sd_notify(3) wants with RELOADING=1.
func monotonicMicros() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano() / 1000
}
