package traffic

import (
	"context"
	"fmt"
	"time"
)

// pollBeat is the time between two calls of Eventually's condition.
const pollBeat = 20 * time.Millisecond

// lastLook is how long the last call of Eventually's condition may take.
const lastLook = 10 * time.Second

// Eventually calls do until it returns nil, and returns the time that took. The context of do ends at
// the limit. After that there is one more call: the last one may have been long ago on a machine that
// was busy with something else.
func Eventually(ctx context.Context, limit time.Duration, do func(context.Context) error) (time.Duration, error) {
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollBeat)
	defer tick.Stop()
	for limited.Err() == nil {
		if do(limited) == nil {
			return time.Since(begin), nil
		}
		select {
		case <-tick.C:
		case <-limited.Done():
		}
	}
	last, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	if err := do(last); err != nil {
		return time.Since(begin), fmt.Errorf("not within %s: %w", limit, err)
	}
	return time.Since(begin), nil
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
