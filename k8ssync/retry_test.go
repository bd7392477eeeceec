package k8ssync

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetriesDouble(t *testing.T) {
	r := retries{longest: 3 * time.Second}
	now := time.Unix(0, 0)
	next := func() time.Duration {
		now = now.Add(time.Minute)
		return r.failed(now)
	}
	for _, want := range []time.Duration{0, firstRetry, 2 * firstRetry, 4 * firstRetry, 3 * time.Second, 3 * time.Second} {
		if got := next(); got != want {
			t.Fatalf("the pause is %s, not %s", got, want)
		}
	}
	// A watch that ends at once is no reason to hurry, one that lasted is.
	r.succeeded(now)
	if got := r.failed(now.Add(time.Second)); got != 3*time.Second {
		t.Fatalf("after a short watch the pause is %s", got)
	}
	r.succeeded(now)
	if got := r.failed(now.Add(time.Minute)); got != 0 {
		t.Fatalf("after a long watch the pause is %s", got)
	}
	if got := next(); got != firstRetry {
		t.Fatalf("the second failure after it pauses for %s", got)
	}
}

// A feed in a long pause tries again when another one has reached the server: until then its
// objects are older than those of the other.
func TestAFeedThatReachesTheServerWakesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := &client{}
		f := &feed{resource: resource{name: "endpointslices"}, changed: func(bool) {}}
		l := &lister{feed: f, client: c, retries: retries{longest: time.Hour, pause: time.Hour}}
		go func() {
			time.Sleep(10 * time.Second)
			c.reachable.notify()
		}()
		_ = l.failed(t.Context(), "watch", errors.New("connection refused"))
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the pause took %s", took)
		}
		// The notification was for those who waited before it.
		_ = l.failed(t.Context(), "watch", errors.New("connection refused"))
		if took := time.Since(began); took < time.Hour {
			t.Errorf("the second pause ended after %s", took)
		}
	})
}

func TestSlicesOfAnEarlierServiceAreIgnored(t *testing.T) {
	for _, c := range []struct {
		uid, owner string
		want       bool
	}{
		{"one", "one", true},
		{"one", "two", false},
		{"one", "", true}, // written by hand, or by another controller
		{"", "one", true}, // from a file
	} {
		s := &slice{Owner: c.owner}
		if got := s.of(&service{UID: c.uid}); got != c.want {
			t.Errorf("slice of %q, Service %q: %v", c.owner, c.uid, got)
		}
		svc, from := web(), slicing(t, "web-1", pods[0])
		svc.UID, from.Owner = c.uid, c.owner
		out, _ := translate(svc, []*slice{from}, world(onEdge()))
		if got := len(out.Ports[0].Backends) > 0; got != c.want {
			t.Errorf("slice of %q, Service %q: backends %v", c.owner, c.uid, out.Ports[0].Backends)
		}
	}
}
