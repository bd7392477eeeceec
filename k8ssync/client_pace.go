package k8ssync

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// pace is the flow control of the writes of a client: the API server's own. A server that
// has no room answers 429, or 503 with a delay, and then all writes wait for so long. The
// number of writes at a time is limited by the number of writers, and a server with API
// Priority and Fairness queues them by user, so that they delay no other user. It is a RoundTripper
// that reads the answers, and a RateLimiter of client-go that waits.
type pace struct {
	next http.RoundTripper

	mu    sync.Mutex
	until time.Time // no write before
}

// RoundTrip implements http.RoundTripper.
func (p *pace) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(req)
	if err == nil {
		if wait := retryAfter(resp); wait > 0 {
			p.mu.Lock()
			if at := time.Now().Add(wait); at.After(p.until) {
				p.until = at
			}
			p.mu.Unlock()
		}
	}
	return resp, err
}

const (
	// defaultRetryAfter is the pause for a server that names none, as client-go has it.
	defaultRetryAfter = time.Second
	// maxRetryAfter limits the pause.
	maxRetryAfter = time.Minute
)

// retryAfter returns for how long a server wants no requests; 0 if it takes them.
func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	switch {
	case resp.StatusCode == http.StatusTooManyRequests && (err != nil || seconds <= 0):
		return defaultRetryAfter
	case resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable:
		return 0
	case err != nil || seconds <= 0:
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// left returns the rest of the pause.
func (p *pace) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.until)
}

// Wait implements flowcontrol.RateLimiter.
func (p *pace) Wait(ctx context.Context) error {
	for left := p.left(); left > 0; left = p.left() {
		sleep(ctx, left)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Accept implements flowcontrol.RateLimiter.
func (p *pace) Accept() { _ = p.Wait(context.Background()) }

// TryAccept implements flowcontrol.RateLimiter.
func (p *pace) TryAccept() bool { return p.left() <= 0 }

// Stop implements flowcontrol.RateLimiter.
func (p *pace) Stop() {}

// QPS implements flowcontrol.RateLimiter: there is no fixed rate.
func (p *pace) QPS() float32 { return 0 }
