package supervise

import (
	"context"
	"fmt"
	"time"
)

// Calls are functions that other goroutines run in the main loop, which receives and calls them.
type Calls chan func()

// Do runs f in the loop, and waits for its end. The error is that f did not run before the end of ctx.
func (c Calls) Do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case c <- func() { defer close(done); f() }:
	case <-ctx.Done():
		return fmt.Errorf("weir is busy: %w", context.Cause(ctx))
	}
	<-done
	return nil
}

// maxWait is how long an operator waits for a busy loop. A first sync of 50,000 services takes longer, and a loop that
// hangs never answers: weir status shows which.
const maxWait = 30 * time.Second

// Ask is Do for a person, who waits for maxWait at most until f begins.
func (c Calls) Ask(ctx context.Context, f func()) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxWait, loopBusy{})
	defer cancel()
	return c.Do(ctx, f)
}

// loopBusy is why an operator has waited in vain.
type loopBusy struct{}

func (loopBusy) Error() string {
	return fmt.Sprintf("its main loop has taken no request for %s; weir status has the reason", maxWait)
}

func (loopBusy) Unwrap() error { return context.DeadlineExceeded }
