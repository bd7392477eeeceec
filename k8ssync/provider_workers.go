package k8ssync

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// The numbers of concurrent requests: to the lease cluster for claims, to each cluster for
// statuses, and for claims that are released only after a request to the cluster. A slow
// cluster delays only its own writers.
const (
	claimWriters   = 8
	statusWriters  = 4
	releaseWriters = 4
	// batch is how many decisions are made without a release of the lock.
	batch = 256
)

// workers are the goroutines of one run. A panic of one ends the run, and nothing else:
// the box continues to serve.
type workers struct {
	sync.WaitGroup
	log      *slog.Logger
	stop     context.CancelFunc
	panicked atomic.Bool
}

func (c *workers) do(f func()) {
	c.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				c.log.Error("address assignment failed", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
				c.panicked.Store(true)
				c.stop()
			}
		}()
		f()
	})
}
