package health

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// soon is when a check is made again that said nothing of the backend. It also
// keeps a check without a valid interval from spinning.
const retryInterval = time.Second

// result is what a job came back with.
type result struct {
	probe   *probe
	err     error
	started time.Time
	took    time.Duration
}

// Run asks the backends until ctx ends, and returns nil when all checks under way
// have ended too. One Run at a time.
//
// There is one goroutine that knows when what is due, and one for each check
// under way, which lives as long as the check.
func (c *Checker) Run(ctx context.Context) error {
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

// settle takes down a result and tells who wants to know.
func (c *Checker) store(ctx context.Context, r result) {
	a := answer{r.probe, problem(r.err), r.started.Add(r.took), r.took}
	due := nextDue(&r.probe.check, r.started, a.ended)

	c.mu.Lock()
	wasReady := c.table.unknown == 0
	var transitions []transition
	switch {
	case r.err != nil && ctx.Err() != nil:
		// Cut off by the end of Run, so asked again first thing in the next.
		c.table.requeue(r.probe, r.started)
	case r.err != nil && localFault(r.err, r.took, r.probe.check.Timeout):
		c.table.discard(a, a.ended.Add(min(retryInterval, r.probe.check.Interval)))
	default:
		transitions = c.table.finish(a, due)
	}
	if !wasReady {
		c.markReady()
	}
	c.mu.Unlock()

	if len(transitions) > 0 {
		signal(c.changed)
	}
	for _, t := range transitions {
		c.report(t, a.problem)
	}
}

// report logs a verdict. That a backend is found up at first is no news: with thousands of
// them it would hide what is. Nobody but Run's goroutine alters a seat that Set has made,
// so it can be read without the lock.
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

// nextDue is when to ask again: the interval counts from one beginning to the
// next, but a check that takes longer doesn't overlap with its successor.
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
