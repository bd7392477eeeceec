package supervise

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ending is the reason why weir ends.
type Ending uint8

const (
	// ByHand: a signal to a process outside of a systemd unit.
	ByHand Ending = iota
	// ToRestart: systemd starts it again immediately.
	ToRestart
	// Unclear: a stop or a restart by systemd. The unit does not distinguish them.
	Unclear
	// ForGood: systemd stops it, for an operator or because the machine shuts down.
	ForGood
)

func (e Ending) String() string {
	return [...]string{"a signal", "restart", "stop or restart", "stop"}[e]
}

// Signaled is the cause of a context that a signal has ended.
type Signaled struct{ Signal syscall.Signal }

// Error implements error.
func (s Signaled) Error() string { return s.Signal.String() }

// stopSignal is the variable with the name of the signal that systemd sends for a stop. For a restart, the unit has another
// one. Both would send the same signal by default, and only a request to systemd would distinguish them.
const stopSignal = "WEIR_STOP_SIGNAL"

// WarnStopSignal logs a value of the variable that is no signal: such a stop looks like a restart.
func WarnStopSignal(log *slog.Logger) {
	if stop := os.Getenv(stopSignal); stop != "" && unix.SignalNum(named(stop)) == 0 {
		log.Warn("stop signal unknown", "variable", stopSignal, "value", stop, "effect", "a stop and a restart are not distinguished", "fix", "the name of KillSignal= of the unit, such as SIGINT")
	}
}

// named returns the full name of a signal. systemd accepts it without SIG.
func named(signal string) string {
	if signal == "" || strings.HasPrefix(signal, "SIG") {
		return signal
	}
	return "SIG" + signal
}

// EndingOf returns the reason for the end of a context.
func EndingOf(ctx context.Context) Ending {
	return endingOf(context.Cause(ctx), os.Getenv(stopSignal), isUnit())
}

func endingOf(cause error, stop string, unit bool) Ending {
	var s Signaled
	stop = named(stop)
	switch known := unix.SignalNum(stop) != 0; {
	case !errors.As(cause, &s), !known && !unit:
		return ByHand
	case !known:
		return Unclear
	case stop == unix.SignalName(s.Signal):
		return ForGood
	}
	return ToRestart
}

// isUnit reports whether this process is the main one of a systemd unit. Its children have the same variable, with its
// process ID.
func isUnit() bool { return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid()) }
