package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
)

// How weir ends: why, what it does first, and what it leaves.

// ending is why weir ends.
type ending uint8

const (
	// byHand: somebody has sent the signal, and what comes after it only he knows.
	byHand ending = iota
	// toRestart: systemd starts it again at once.
	toRestart
	// forGood: systemd stops it, because an operator wants that or the machine goes
	// down.
	forGood
)

func (e ending) String() string { return [...]string{"a signal", "restart", "stop"}[e] }

// farewell is what a stop does.
type farewell struct {
	drains   bool // before it ends, clients are led elsewhere
	cleansUp bool // at the end the kernel is emptied
	leaves   bool // the other members are told that this one will not be back soon
}

// farewellOf is what a configuration wants of a stop. A restart leaves everything as it
// is, whatever the configuration says: weir is back in a moment.
func farewellOf(cfg *config.Config, why ending) farewell {
	out := farewell{
		drains:   why == forGood && cfg.Daemon.OnStop != config.StopKeeps && leadsElsewhere(cfg),
		cleansUp: why != toRestart && cfg.Daemon.OnStop == config.StopCleansUp,
	}
	out.leaves = cfg.Fleet != nil && (out.drains || out.cleansUp)
	return out
}

// awaitEnd returns when weir is to end: after ctx has ended, and what there is to do
// first is done. life is that of the tasks, which work on meanwhile.
func (b *box) awaitEnd(ctx, life context.Context) {
	select {
	case <-ctx.Done():
	case <-life.Done():
		return // a task could not go on
	}
	notify("STOPPING=1")
	why := whyEnds(life, b.log.Warn)
	_ = b.do(life, func() { b.farewell = farewellOf(b.cfg, why) })
	b.log.Info("stopping", "by", why.String(), "drains", b.farewell.drains, "cleans_up", b.farewell.cleansUp)
	if b.farewell.drains && b.published.Load().ready {
		b.drainToEnd(life)
	}
	if b.farewell.leaves {
		b.leaveFleet(life)
	}
}

const (
	// endingEvery is how often it is looked how far a last drain is.
	endingEvery = time.Second
	// extension is what systemd is asked for at each look, in which all connections of a
	// big table are counted.
	extension = 30 * time.Second
)

// drainToEnd drains the whole box, and returns when that is done, when
// daemon.stop_timeout is over, or when another signal says that it is enough.
func (b *box) drainToEnd(life context.Context) {
	begin, end := time.Now(), time.Now()
	busy := b.do(life, func() {
		end = begin.Add(b.cfg.Daemon.StopTimeout)
		b.drainer.stopping, b.stirred = begin, begin
		b.pass(life, b.rec.Sync)
	})
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	for last := -1; busy == nil; {
		notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extension.Microseconds()))
		doc, err := b.draining(life)
		left := connections(doc)
		switch {
		case err != nil:
			b.log.Warn("it can't be told whether connections are left", "error", err)
		case doc.Done():
			b.log.Info("drained", "took", time.Since(begin).Round(time.Millisecond))
			return
		case left != last:
			b.log.Info("draining", "connections", left, "kept", doc.Kept, "at_most", time.Until(end).Round(time.Second))
			notify(fmt.Sprintf("STATUS=stopping: %d connections left, %s at most", left, time.Until(end).Round(time.Second)))
			last = left
		}
		select {
		case <-life.Done():
			return
		case <-b.opts.Again:
			b.log.Warn("another signal: the drain is not waited for", "connections", left)
			return
		case <-over.C:
			b.log.Warn("daemon.stop_timeout is over: the drain is not waited for", "connections", left, "kept", doc.Kept)
			return
		case <-time.After(endingEvery):
		}
	}
}

// connections counts those of all VIPs.
func connections(d status.Drained) (n int) {
	for _, v := range d.VIPs {
		n += v.Connections
	}
	return n
}

// whyTimeout bounds how long systemd has for its answer.
const whyTimeout = 3 * time.Second

// whyEnds asks systemd what becomes of weir's own unit: of a restart and of a stop, a
// signal is the same. A systemd that is well answers; one that does not has begun to go
// down.
func whyEnds(ctx context.Context, warn func(string, ...any)) ending {
	content, err := os.ReadFile("/proc/self/cgroup")
	unit := unitOf(string(content))
	if err != nil || unit == "" {
		return byHand
	}
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, "systemctl", "list-jobs", "--no-legend", "--no-pager", unit).Output()
		switch {
		case err == nil:
			return endingOf(string(out), unit)
		case errors.Is(err, exec.ErrNotFound): // a container in somebody else's service
			return byHand
		}
		select {
		case <-ctx.Done():
			warn("systemd does not say whether this is a stop or a restart; taken for a stop", "unit", unit, "error", err)
			return forGood
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

// endingOf reads what systemctl list-jobs says of a unit: number, unit, type and state
// of each job. Without a job the signal was not systemd's.
func endingOf(jobs, unit string) ending {
	for line := range strings.Lines(jobs) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != unit {
			continue
		}
		switch fields[2] {
		case "stop":
			return forGood
		case "restart", "try-restart", "start", "reload-or-start": // a stop for which a start waits is a restart
			return toRestart
		}
	}
	return byHand
}
