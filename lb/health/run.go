package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"weir/lb"
)

// retryInterval is the time after a check without a result. It also bounds a check without a
// valid interval.
const retryInterval = time.Second

// warnInterval is the time after which a lasting fault of this box is logged again. Each fault is
// logged once until then, and mostWarnings of them: their texts may have the addresses of backends.
const (
	warnInterval = time.Hour
	mostWarnings = 10
)

// result is the outcome of a job.
type result struct {
	probe   *probe
	err     error
	started time.Time
	took    time.Duration
}

// Run checks the backends until ctx ends, and returns nil when all checks under way have ended
// too. Only one Run at a time is allowed.
//
// One goroutine has the schedule, and each check under way has a goroutine of its own.
func (c *Checker) Run(ctx context.Context) error {
	c.by.bfd.start(ctx)
	defer c.by.bfd.wait()
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var jobs []job
	for {
		var wait time.Duration
		jobs, wait = c.take(jobs[:0])
		for _, j := range jobs {
			go c.ask(ctx, j, results)
		}
		clear(jobs)
		timer.Stop()
		if wait >= 0 {
			timer.Reset(wait)
		}
		select {
		case r := <-results:
			c.store(ctx, r)
		case <-c.wake:
		case <-timer.C:
		case <-ctx.Done():
			for c.Stats().Asking > 0 {
				c.store(ctx, <-results)
			}
			return nil
		}
	}
}

func (c *Checker) take(jobs []job) ([]job, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.take(jobs, c.limit, time.Now())
}

func (c *Checker) ask(ctx context.Context, j job, results chan<- result) {
	started := time.Now()
	within, cancel := context.WithTimeout(ctx, j.probe.check.Timeout)
	err := j.ask(within, c.dial, j.probe.target)
	cancel()
	results <- result{j.probe, err, started, time.Since(started)}
}

// store records a result and reports changes.
func (c *Checker) store(ctx context.Context, r result) {
	a := answer{r.probe, problem(r.err), r.started.Add(r.took), r.took}
	due := nextDue(&r.probe.check, r.started, a.ended)

	c.mu.Lock()
	wasReady := c.table.unknown == 0
	var transitions []transition
	switch {
	case r.err != nil && ctx.Err() != nil:
		// Ended by the end of Run, so repeated first in the next one.
		c.table.requeue(r.probe, r.started)
	case r.err != nil && localFault(r.err, r.took, r.probe.check.Timeout):
		if !lacksMeans(r.err) {
			a.problem = fmt.Sprintf("the check took %s: %s", r.took.Round(100*time.Millisecond), a.problem)
		}
		c.table.discard(a, a.ended.Add(min(retryInterval, r.probe.check.Interval)))
	default:
		transitions = c.table.finish(a, due)
	}
	if !wasReady {
		c.markReady()
	}
	void := r.probe.void()
	c.mu.Unlock()

	if len(transitions) > 0 {
		signal(c.changed)
	}
	for _, t := range transitions {
		c.report(t, a.problem)
	}
	// A missing virtual server is a failed operation, or one that is still to come.
	if void && !errors.Is(r.err, lb.ErrNoCheckServer) {
		c.warn(a)
	}
}

// warn logs that a check has no result, once in a while for all backends with this fault.
func (c *Checker) warn(a answer) {
	maps.DeleteFunc(c.warned, func(_ string, last time.Time) bool { return time.Since(last) >= warnInterval })
	if _, ok := c.warned[a.problem]; ok || len(c.warned) >= mostWarnings {
		return
	}
	c.warned[a.problem] = time.Now()
	c.log.Warn("checks without a result", "error", a.problem, "service", a.probe.target.service.String(), "backend", a.probe.target.address)
}

// report logs a transition. A first state up is logged at level debug: with thousands of
// backends it would hide the others. Only Run's goroutine changes a backendState that Set has
// created, so it can be read without the lock.
func (c *Checker) report(t transition, reason string) {
	if reason == "" {
		reason = "check passed"
	}
	message := "backend up"
	if t.state == down {
		message = "backend down"
	}
	level := slog.LevelInfo
	if t.was == unknown && t.state == up {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, message, "service", t.port.service.id.String(), "port", t.port.key.Port.String(),
		"backend", t.addr.String(), "reason", reason)
}

// nextDue returns the time of the next check. The interval counts from one start to the next,
// but a check that takes longer does not overlap with its successor.
func nextDue(c *Check, started, ended time.Time) time.Time {
	wait := time.Duration(float64(c.Interval) * (1 + c.Jitter*(2*rand.Float64()-1)))
	if c.Interval <= 0 {
		wait = retryInterval
	}
	if due := started.Add(wait); due.After(ended) {
		return due
	}
	return ended
}
