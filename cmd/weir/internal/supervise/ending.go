package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Ending is the reason why weir ends.
type Ending uint8

const (
	// ByHand: a signal from another program than systemd.
	ByHand Ending = iota
	// ToRestart: systemd starts it again immediately.
	ToRestart
	// ForGood: systemd stops it, for an operator or because the machine shuts down.
	ForGood
)

func (e Ending) String() string { return [...]string{"a signal", "restart", "stop"}[e] }

// whyTimeout bounds how long systemd has for its answer.
const whyTimeout = 3 * time.Second

// WhyEnds asks systemd for the job of weir's own unit: a restart and a stop send the same signal. A systemd that does not
// answer counts as a shutdown.
//
// RestartKillSignal= of the unit would distinguish them without a request. But then a stop of a unit of the operator's own,
// which lacks the setting, would count as a restart, and cut the connections that a drain saves.
func WhyEnds(ctx context.Context, warn func(string, ...any)) Ending {
	content, err := os.ReadFile("/proc/self/cgroup")
	unit := unitOf(string(content))
	if err != nil || unit == "" {
		return ByHand
	}
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, "systemctl", "list-jobs", "--no-legend", "--no-pager", unit).Output()
		switch {
		case err == nil:
			return endingOf(string(out), unit)
		case errors.Is(err, exec.ErrNotFound): // a container in the service of another program
			return ByHand
		}
		select {
		case <-ctx.Done():
			warn("systemd not reached; a stop assumed, not a restart", "unit", unit, "error", err)
			return ForGood
		case <-time.After(whyTimeout / 20):
		}
	}
}

// unitOf finds the service in a /proc/PID/cgroup (cgroups(7)); "" if it is none.
func unitOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 || fields[1] != "" && fields[1] != "name=systemd" {
			continue
		}
		parts := strings.Split(fields[2], "/")
		for i := len(parts) - 1; i >= 0; i-- {
			if strings.HasSuffix(parts[i], ".service") {
				return parts[i]
			}
		}
	}
	return ""
}

// endingOf reads the output of systemctl list-jobs: number, unit, type and state of each job. Without a job the signal came
// from another program.
func endingOf(jobs, unit string) Ending {
	for line := range strings.Lines(jobs) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != unit {
			continue
		}
		switch fields[2] {
		case "stop":
			return ForGood
		case "restart", "try-restart", "start", "reload-or-start": // a stop for which a start waits is a restart
			return ToRestart
		}
	}
	return ByHand
}
