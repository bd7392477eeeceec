package k8ssync

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// answers is an API server that answers each request at once, the first ones as given.
type answers struct {
	mu    sync.Mutex
	first []*http.Response
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &http.Response{StatusCode: http.StatusOK}
	if len(a.first) > 0 {
		out, a.first = a.first[0], a.first[1:]
	}
	out.Body, out.Request = http.NoBody, r
	return out, nil
}

func refusal(code int, after string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {after}}}
}

// write makes one write, in virtual time.
func write(t *testing.T, limit flowcontrol.RateLimiter, rt http.RoundTripper) {
	t.Helper()
	must(t, limit.Wait(t.Context()))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://api", http.NoBody)
	must(t, err)
	resp, err := rt.RoundTrip(r)
	must(t, err)
	must(t, resp.Body.Close())
}

// Writes wait for nothing but the API server: 20,000 take no time of their own, and all
// wait while the server refuses one.
func TestWritesHaveThePaceOfTheServer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		first []*http.Response
		want  time.Duration
	}{
		{"a server with room", nil, 0},
		{"429", []*http.Response{refusal(http.StatusTooManyRequests, "3")}, 3 * time.Second},
		{"429 twice", []*http.Response{refusal(http.StatusTooManyRequests, "3"), refusal(http.StatusTooManyRequests, "4")}, 7 * time.Second},
		{"429 without a delay", []*http.Response{refusal(http.StatusTooManyRequests, "")}, defaultRetryAfter},
		{"503 with a delay", []*http.Response{refusal(http.StatusServiceUnavailable, "2")}, 2 * time.Second},
		{"503 without a delay", []*http.Response{refusal(http.StatusServiceUnavailable, "")}, 0},
		{"a delay beyond reason", []*http.Response{refusal(http.StatusTooManyRequests, "99999")}, maxRetryAfter},
		{"another error", []*http.Response{refusal(http.StatusConflict, "9")}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pace{next: &answers{first: tt.first}}
				begin := time.Now()
				for range 20_000 {
					write(t, p, p)
				}
				if took := time.Since(begin); took != tt.want {
					t.Errorf("20,000 writes took %s, want %s", took, tt.want)
				}
			})
		})
	}
}

// The clients of claims and statuses share the pace; the election never waits.
func TestPaceOfClients(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	c := testCluster(t, s)
	a, err := readAccess(c.cfg)
	must(t, err)
	with, err := newClient(a, "v", defaultTimeouts)
	must(t, err)
	defer with.close()
	limit, ok := with.claims.GetRateLimiter().(*pace)
	if !ok || with.statuses.GetRateLimiter() != flowcontrol.RateLimiter(limit) {
		t.Fatalf("claims have %T, statuses %T", with.claims.GetRateLimiter(), with.statuses.GetRateLimiter())
	}
	limit.until = time.Now().Add(time.Hour)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if limit.Wait(ended) == nil || limit.TryAccept() {
		t.Error("a write does not wait")
	}
	if err := with.election.GetRateLimiter().Wait(ended); err != nil || !with.election.GetRateLimiter().TryAccept() {
		t.Errorf("the election waits: %v", err)
	}
}
