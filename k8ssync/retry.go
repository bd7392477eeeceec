package k8ssync

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// retries are the pauses of a feed that can't reach its API server. They double up to a
// longest one, and end early when another feed of the same client reaches the server: those
// of Services and of EndpointSlices must not be out of step for the rest of a pause. They
// belong to the goroutine of the Reflector, which waits for firstRetry to twice that besides.
type retries struct {
	longest time.Duration
	// pause is the next one, before jitter, and opened the time of the last success.
	pause  time.Duration
	opened time.Time
}

// firstRetry is the least pause after a failure, before jitter.
const firstRetry = 500 * time.Millisecond

// succeeded notes that a watch was opened.
func (r *retries) succeeded(now time.Time) { r.opened = now }

// failed returns the pause after a failure, without jitter: the first is none. A watch that
// lasted longer than the pause before it ends the doubling, but one that ends at once doesn't.
func (r *retries) failed(now time.Time) time.Duration {
	if !r.opened.IsZero() && now.Sub(r.opened) > r.pause {
		r.pause = 0
	}
	r.opened = time.Time{}
	pause := r.pause
	r.pause = min(max(2*pause, firstRetry), r.longest)
	return pause
}

// waitForRetry waits for a pause with jitter, unless ctx ends or the server is reached.
func waitForRetry(ctx context.Context, pause time.Duration, reached <-chan struct{}) {
	if pause <= 0 {
		return
	}
	t := time.NewTimer(pause + rand.N(pause))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-reached:
	case <-t.C:
	}
}

// reachable notifies those who wait for a server as soon as it answers. The zero value is
// ready.
type reachable struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that the next call of notify closes.
func (r *reachable) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	return r.next
}

func (r *reachable) notify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}
