package daemon

import (
	"context"
	"fmt"
)

// calls are functions that other goroutines run in the loop.
type calls chan func()

// do runs f in the loop, and waits for it.
func (c calls) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case c <- func() { defer close(done); f() }:
	case <-ctx.Done():
		return fmt.Errorf("weir is busy: %w", ctx.Err())
	}
	<-done
	return nil
}
