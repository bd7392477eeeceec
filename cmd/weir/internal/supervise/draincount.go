package supervise

import (
	"context"
	"log/slog"
	"time"

	"weir/lb"
)

// DrainCounter counts the connections of draining backends in a goroutine of its own: the kernel's table of connections
// takes seconds to read where there are many. One count is in flight at most, and its result is a message to the loop.
type DrainCounter struct {
	// Counts are the results.
	Counts chan lb.Count

	log    *slog.Logger
	took   func(time.Duration)
	kernel ConnCounter
	asked  chan []lb.RealServer // size 1: the loop never waits
}

// ConnCounter is the part of linux.Kernel that counts connections.
type ConnCounter interface {
	CountConns(ctx context.Context, servers []lb.RealServer) (map[lb.Object]lb.Conns, error)
}

// NewDrainCounter returns a counter that calls took with the duration of each count.
func NewDrainCounter(log *slog.Logger, kernel ConnCounter, took func(time.Duration)) *DrainCounter {
	return &DrainCounter{log: log, took: took, kernel: kernel, asked: make(chan []lb.RealServer, 1), Counts: make(chan lb.Count)}
}

// Ask requests a count. The loop calls it with what lb.Reconciler.UncountedDrains returns: nothing until the last count
// was delivered.
func (c *DrainCounter) Ask(servers []lb.RealServer) {
	if len(servers) > 0 {
		c.asked <- servers
	}
}

// Run counts until ctx ends, which ends a count in progress.
func (c *DrainCounter) Run(ctx context.Context) error {
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case servers := <-c.asked:
			count, err := c.count(ctx, servers)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it is stopped
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != "" && text != last {
				c.log.Error("connections of draining backends not counted; drains end at their deadlines", "error", err)
			}
			last = text
			select {
			case <-ctx.Done():
			case c.Counts <- count:
			}
		}
	}
}

// count counts once. A panic is an error: it must not harm the box that serves.
func (c *DrainCounter) count(ctx context.Context, servers []lb.RealServer) (count lb.Count, err error) {
	count.Begun = time.Now()
	err = Recover(ctx, func(ctx context.Context) (err error) {
		count.Conns, err = c.kernel.CountConns(ctx, servers)
		return err
	})
	count.Ended = time.Now()
	c.took(count.Ended.Sub(count.Begun))
	return count, err
}
