package k8ssync

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRetriesDouble(t *testing.T) {
	r := retries{longest: 3 * time.Second}
	now := time.Unix(0, 0)
	next := func() time.Duration {
		now = now.Add(time.Minute)
		return r.ended(now)
	}
	for _, want := range []time.Duration{0, firstRetry, 2 * firstRetry, 4 * firstRetry, 3 * time.Second, 3 * time.Second} {
		if got := next(); got != want {
			t.Fatalf("the pause is %s, not %s", got, want)
		}
	}
	// A watch that ends at once is no reason to hurry, one that lasted is.
	r.open(now)
	if got := r.ended(now.Add(time.Second)); got != 3*time.Second {
		t.Fatalf("after a short watch the pause is %s", got)
	}
	r.open(now)
	if got := r.ended(now.Add(time.Minute)); got != 0 {
		t.Fatalf("after a long watch the pause is %s", got)
	}
	if got := next(); got != firstRetry {
		t.Fatalf("the second failure after it pauses for %s", got)
	}
}

// A watch that ends after it was opened counts by its end, and not by the next attempt.
func TestAWatchThatIsCutAtOnceDoesNotEndTheDoubling(t *testing.T) {
	r := retries{longest: time.Minute, pause: 4 * time.Second}
	now := time.Unix(0, 0)
	r.open(now)
	r.close(now.Add(time.Second))
	if got := r.ended(now.Add(time.Hour)); got != 4*time.Second {
		t.Errorf("the pause is %s", got)
	}
}

// listers returns a lister for each feed of a Cluster, with one client.
func listers(t *testing.T, s *apiServer) map[string]*lister {
	t.Helper()
	c := testCluster(t, s)
	a, err := readAccess(c.cfg)
	must(t, err)
	with, err := newClient(a, "v", defaultTimeouts)
	must(t, err)
	t.Cleanup(with.close)
	out := map[string]*lister{}
	for _, f := range c.conn.feeds {
		out[f.name] = &lister{feed: f, client: with, retries: retries{longest: time.Hour}}
	}
	return out
}

// opens watches, and waits until the stream ends.
func opens(t *testing.T, l *lister) error {
	w, err := l.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "100"})
	if err != nil {
		return err
	}
	defer w.Stop()
	for range w.ResultChan() { //nolint:revive // the events are of no interest
	}
	return nil
}

// A feed in a long pause tries again when another one has reached the server, also if that was during its failing
// attempt: until then its objects are older than those of the other. An overloaded server gets its pause.
func TestAFeedThatReachesTheServerWakesTheOthers(t *testing.T) {
	s := newAPIServer(t)
	asked, hold := make(chan struct{}, 1), make(chan struct{})
	code, reason := http.StatusInternalServerError, metav1.StatusReasonInternalError
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "endpointslices") {
			asked <- struct{}{}
			<-hold
			answer(w, code, reason, "no")
			return true
		}
		return false
	})
	all := listers(t, s)
	late := all["endpointslices"]
	fails := func() chan error {
		late.retries = retries{longest: time.Hour, pause: time.Hour}
		failed := make(chan error, 1)
		go func() { failed <- opens(t, late) }()
		<-asked
		return failed
	}
	reaches := func() {
		w, err := all["services"].Watch(t.Context(), metav1.ListOptions{ResourceVersion: "100"})
		must(t, err)
		w.Stop()
	}
	failed := fails()
	reaches() // the attempt of the other has not failed yet
	close(hold)
	if err := <-failed; err == nil {
		t.Fatal("no error")
	}
	failed = fails()
	reaches()
	if err := <-failed; err == nil {
		t.Fatal("no error")
	}

	code, reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	began := time.Now()
	late.retries = retries{longest: time.Hour, pause: 200 * time.Millisecond}
	var other sync.WaitGroup
	other.Go(func() {
		<-asked
		reaches()
	})
	defer other.Wait() // it must not use t after the end of the test
	if err := opens(t, late); err == nil || time.Since(began) < 200*time.Millisecond {
		t.Errorf("an overloaded server had a pause of %s: %v", time.Since(began), err)
	}
}

// A server or a proxy that ends each watch at once, or no longer has its history, is asked for lists in growing pauses.
func TestPausesGrowWhileWatchesAreCut(t *testing.T) {
	for name, trouble := range map[string]func(http.ResponseWriter){
		"end": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
		},
		"expired": func(w http.ResponseWriter) { answer(w, http.StatusGone, metav1.StatusReasonExpired, "too old") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("watch") == "" {
					return false
				}
				trouble(w)
				return true
			})
			l := listers(t, s)["services"]
			l.retries.pause = time.Millisecond
			for range 2 {
				_, err := l.List(t.Context(), metav1.ListOptions{})
				must(t, err)
				_ = opens(t, l)
			}
			l.retries.begin(t.Context(), &l.client.reachable)
			if l.retries.pause != 2*firstRetry {
				t.Errorf("after two watches the pause is %s", l.retries.pause)
			}
		})
	}
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
