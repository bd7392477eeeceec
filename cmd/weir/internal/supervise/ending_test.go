package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestReasonOfTheEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		cause error
		stop  string
		unit  bool
		want  Ending
	}{
		{"systemctl stop, or a shutdown", Signaled{syscall.SIGINT}, "SIGINT", true, ForGood},
		{"systemctl restart or kill", Signaled{syscall.SIGTERM}, "SIGINT", true, ToRestart},
		{"a stop of a process that a shell started in the unit", Signaled{syscall.SIGINT}, "SIGINT", false, ForGood},
		{"its restart", Signaled{syscall.SIGTERM}, "SIGINT", false, ToRestart},
		{"another signal for a stop", Signaled{syscall.SIGTERM}, "SIGTERM", true, ForGood},
		{"the signal without its prefix", Signaled{syscall.SIGINT}, "INT", true, ForGood},
		{"a unit without the variable", Signaled{syscall.SIGTERM}, "", true, Unclear},
		{"a unit with an unknown signal", Signaled{syscall.SIGTERM}, "SIGNONE", true, Unclear},
		{"an unknown signal outside of a unit", Signaled{syscall.SIGTERM}, "SIGNONE", false, ByHand},
		{"a wrapped cause", fmt.Errorf("run: %w", Signaled{syscall.SIGINT}), "SIGINT", true, ForGood},
		{"Ctrl-C in a terminal", Signaled{syscall.SIGINT}, "", false, ByHand},
		{"the end of a container", Signaled{syscall.SIGTERM}, "", false, ByHand},
		{"the end of a test", context.Canceled, "SIGINT", true, ByHand},
	} {
		if got := endingOf(tt.cause, tt.stop, tt.unit); got != tt.want {
			t.Errorf("%s: %s instead of %s", tt.name, got, tt.want)
		}
	}
}

// TestUnknownStopSignal is logged at the start.
func TestUnknownStopSignal(t *testing.T) {
	for value, want := range map[string]bool{"": false, "SIGINT": false, "INT": false, "SIGNONE": true, "2": true} {
		t.Setenv(stopSignal, value)
		var b strings.Builder
		WarnStopSignal(slog.New(slog.NewTextHandler(&b, nil)))
		if got := strings.Contains(b.String(), `msg="stop signal unknown"`); got != want {
			t.Errorf("%s=%s: logged %q", stopSignal, value, b.String())
		}
	}
}

func TestOnlyTheMainProcessOfAUnit(t *testing.T) {
	for value, want := range map[string]bool{fmt.Sprint(os.Getpid()): true, fmt.Sprint(os.Getppid()): false, "": false} {
		t.Setenv("SYSTEMD_EXEC_PID", value)
		if got := isUnit(); got != want {
			t.Errorf("SYSTEMD_EXEC_PID=%s: %v", value, got)
		}
	}
}
