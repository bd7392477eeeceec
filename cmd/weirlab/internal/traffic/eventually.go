package traffic

import (
	"context"
	"fmt"
	"time"
)

// pollBeat is the least time between two calls of Eventually's condition, and pollRest how long it rests
// after a call, in lengths of that call: a start of weir takes a tenth of a second of a box's processor,
// which other boxes share.
const (
	pollBeat = 50 * time.Millisecond
	pollRest = 3
	maxRest  = time.Second
)

// Rest is how long to wait before a call that took so long is made again.
func Rest(took time.Duration) time.Duration { return min(max(pollBeat, pollRest*took), maxRest) }

// lastLook is how long the last call of Eventually's condition may take.
const lastLook = 10 * time.Second

// Eventually calls do until it returns nil. The context of do ends at the limit. After that there is one
// more call: the last one may have been long ago on a machine that was busy with something else.
func Eventually(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	return Every(ctx, pollBeat, limit, do)
}

// Every is Eventually with another least time between two calls.
func Every(ctx context.Context, beat, limit time.Duration, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for limited.Err() == nil {
		asked := time.Now()
		if do(limited) == nil {
			return nil
		}
		_ = Pause(limited, max(beat, Rest(time.Since(asked)))) // the limit ends the loop, too
	}
	last, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	if err := do(last); err != nil {
		return fmt.Errorf("not within %s: %w", limit, err)
	}
	return nil
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
