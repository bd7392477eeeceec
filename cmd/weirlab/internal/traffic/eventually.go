package traffic

import (
	"context"
	"fmt"
	"time"
)

// pollBeat is the time between two calls of Eventually's condition.
const pollBeat = 20 * time.Millisecond

// Eventually calls do until it returns nil, and returns the time that took. The context of do ends at
// the limit.
func Eventually(ctx context.Context, limit time.Duration, do func(context.Context) error) (time.Duration, error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollBeat)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return time.Since(begin), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Since(begin), fmt.Errorf("not within %s: %w", limit, err)
		}
	}
}

// Pause waits for a duration or the end of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
