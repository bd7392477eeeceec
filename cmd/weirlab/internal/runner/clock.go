package runner

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// A gap is a tick that came this late. Programs that need an answer within a second can't be judged by
// a machine that stops for half of one.
const (
	tick     = 100 * time.Millisecond
	gapAt    = 500 * time.Millisecond
	diskTick = 500 * time.Millisecond // between two writes to the disk
)

// Clock records when this machine's scheduler did not run a process that was ready, and when its disk did
// not answer: an API server that waits for that misses the deadlines of its clients. Only clocks on the
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

// WatchDisk writes a little to a file and waits for the disk, repeatedly until ctx ends.
func (c *Clock) WatchDisk(ctx context.Context, folder string) error {
	f, err := os.CreateTemp(folder, "weirlab-clock-")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	for ctx.Err() == nil {
		begin := time.Now()
		_, err := f.WriteAt([]byte{byte(begin.Second())}, 0)
		if err := errors.Join(err, f.Sync()); err != nil {
			return err
		}
		c.wrote(begin, time.Now())
		select {
		case <-ctx.Done():
		case <-time.After(diskTick):
		}
	}
	return nil
}

func (c *Clock) wrote(begin, end time.Time) { c.ticked(begin.Add(-tick), end) }

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
