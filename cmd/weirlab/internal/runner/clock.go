package runner

import (
	"context"
	"sync"
	"time"
)

// A gap is a tick that came this late. Programs that need an answer within a second can't be judged by
// a machine that stops for half of one.
const (
	tick  = 100 * time.Millisecond
	gapAt = 500 * time.Millisecond
)

// Clock records when this machine's scheduler did not run a process that was ready. Only clocks on the
// machine itself count: a guest is delayed by its own load, too.
type Clock struct {
	mu   sync.Mutex
	gaps []gap
}

type gap struct{ from, to time.Time }

// Run ticks until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.ticked(last, time.Now())
			last = time.Now()
		}
	}
}

func (c *Clock) ticked(last, now time.Time) {
	if now.Sub(last) < tick+gapAt {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaps = append(c.gaps, gap{last, now})
}

// Starved returns for how long, between two instants, the machine stood still; 0 if it did not.
func (c *Clock) Starved(from, to time.Time) (total time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.gaps {
		if g.from.Before(to) && g.to.After(from) {
			total += g.to.Sub(g.from)
		}
	}
	return total
}
