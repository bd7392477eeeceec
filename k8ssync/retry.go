package k8ssync

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// retries are the pauses between the attempts of a feed that can't list and watch for long. They
// double up to a longest one, before jitter, and end early when another feed of the same client reaches the
// server: those of Services and of EndpointSlices must not be out of step for the rest of a
// pause. One attempt follows the other, so they need no lock. The Reflector waits besides, for
// firstRetry to twice that.
type retries struct {
	longest time.Duration
	// pause is the next one. opened and closed are the times of the last watch, if no pause has followed it.
	pause          time.Duration
	opened, closed time.Time
	// reached is closed when any feed of the client opens a watch after the begin of this attempt.
	reached <-chan struct{}
}

// firstRetry is the least pause after a second failure, before jitter.
const firstRetry = 500 * time.Millisecond

// open and close record the begin and the end of a watch.
func (r *retries) open(now time.Time)  { r.opened, r.closed = now, time.Time{} }
func (r *retries) close(now time.Time) { r.closed = now }

// ended returns the pause after the end of an attempt; the first is none. A watch that lasted longer
// than the pause before it ends the doubling; one that ends at once, as behind a proxy that cuts it, does not.
func (r *retries) ended(now time.Time) time.Duration {
	if !r.closed.IsZero() {
		now = r.closed
	}
	if !r.opened.IsZero() && now.Sub(r.opened) > r.pause {
		r.pause = 0
	}
	r.opened, r.closed = time.Time{}, time.Time{}
	pause := r.pause
	r.pause = min(max(2*pause, firstRetry), r.longest)
	return pause
}

// begin begins an attempt. It waits if a watch before it has ended too soon.
func (r *retries) begin(ctx context.Context, server *reachable) {
	if !r.opened.IsZero() {
		waitForRetry(ctx, r.ended(time.Now()), r.reached)
	}
	r.reached = server.wait()
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
