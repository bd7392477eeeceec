package k8ssync

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An API server with a restored older state of etcd.

func TestRestoredClusterIsAccepted(t *testing.T) {
	s, c := site(t)
	s.mu.Lock()
	s.version, s.history, s.first = 10, nil, 0
	web := testSlice("web", "10.1.0.7", "10.1.0.8", "10.1.0.9")
	web.ResourceVersion = "9"
	s.objects["endpointslices"]["shop/web-1"] = web
	s.mu.Unlock()
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if v := r.URL.Query().Get("resourceVersion"); len(v) < 3 {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGatewayTimeout)
		w.Write(mustJSON(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonTimeout,
			Message: "Too large resource version: 104, current: 10", Code: http.StatusGatewayTimeout,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}},
		}))
		return true
	})
	s.CloseClientConnections()
	if u := next(t, c); backends(u, "web") != 3 {
		t.Errorf("the restored slice is not believed: %+v", u)
	}
}

// A new access makes a new client. Its first list must not come from the cache of a server
// that lags: Services would go back in time.
func TestNewClientDoesNotListACache(t *testing.T) {
	s := newAPI()
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.stop)
	s.oldLists = true
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	file := kubeconfigFor(t, s.URL, "token: one")
	c := New(testConfig(file), silentLog())
	c.timing = impatient
	run(t, c)
	next(t, c)
	eventually(t, "connected", func() bool { return c.Status().Connected })

	s.put(testService("api", "10.96.0.9"))
	next(t, c)
	var cached atomic.Int64
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("resourceVersion") != anyState {
			return false
		}
		cached.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"apiVersion": "v1", "kind": "ServiceList", "metadata": {"resourceVersion": "1"}, "items": []}`))
		return true
	})
	lists := s.requests("list services")
	writeKubeconfig(t, file, s.URL, "token: two")
	s.CloseClientConnections()
	eventually(t, "a list of the new client", func() bool { return s.requests("list services") > lists && c.Status().Connected })
	if n := cached.Load(); n != 0 {
		t.Errorf("%d lists could come from a cache", n)
	}
	onlyLast(t, s, c)
}

// After a server was unreachable, a watch is opened only if its state is not older: the
// server would accept the watch as one of the future, and report no difference.
func TestWatchOfTheFutureIsNotOpened(t *testing.T) {
	s := newAPIServer(t)
	s.waits = true
	s.put(testSlice("web", "10.1.0.1"))
	c := testCluster(t, s)
	a, err := readAccess(c.cfg)
	must(t, err)
	with, err := newClient(a, "v", defaultTimeouts)
	must(t, err)
	defer with.close()
	l := &lister{feed: c.conn.feeds[slices.IndexFunc(c.conn.feeds, func(f *feed) bool { return f.name == "endpointslices" })], client: with}
	watch := func(from string) error {
		w, err := l.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from})
		if err == nil {
			w.Stop()
		}
		return err
	}
	if err := watch("900"); err != nil || s.requests("list endpointslices") != 0 {
		t.Errorf("a server that was not away is asked for a list, or not watched: %v", err)
	}
	s.misbehave(func(w http.ResponseWriter, _ *http.Request) bool {
		answer(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "storage is (re)initializing")
		return true
	})
	if err := watch("101"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a server that is away: %v", err)
	}
	s.misbehave(nil)
	if err := watch("900"); !apierrors.IsResourceExpired(err) {
		t.Errorf("a server with an older state: %v", err)
	}
	if err := watch("101"); err != nil || s.requests("list endpointslices") != 2 {
		t.Errorf("a server with the same state: %v", err)
	}
	if err := watch("101"); err != nil || s.requests("list endpointslices") != 2 {
		t.Errorf("again, without doubt: %v", err)
	}
}

// A server that lags behind another one at the same address answers a list with an older state. That is an error
// and changes nothing, and the next list comes from another server.
func TestStateOfALaggingServerIsNotAccepted(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain lists %v", plain), func(t *testing.T) {
			s := newAPIServer(t)
			s.oldLists = plain
			s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
			c := testCluster(t, s)
			c.timing.backoff = defaultTiming.backoff // an older state is accepted after twice that
			run(t, c)
			next(t, c)
			eventually(t, "connected", func() bool { return c.Status().Connected })
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				q := r.URL.Query()
				switch w.Header().Set("Content-Type", "application/json"); {
				case q.Get("watch") == "":
					w.Write([]byte(`{"apiVersion": "v1", "kind": "ServiceList", "metadata": {"resourceVersion": "1"}, "items": []}`))
				case q.Get("sendInitialEvents") == "" || plain:
					answer(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "down")
				default:
					writeEvent(w, "BOOKMARK", bookmark("services", 1, true))
				}
				return true
			})
			s.CloseClientConnections()
			eventually(t, "the error", func() bool {
				return strings.Contains(c.Status().Error, "list services: the API server has an older state")
			})
			s.misbehave(nil)
			eventually(t, "connected", func() bool { return c.Status().Connected })
			onlyLast(t, s, c)
		})
	}
}

// Feeds accept an older state together, if no list had another one for twice the longest pause.
func TestOlderStateIsAcceptedAtLast(t *testing.T) {
	const window = time.Minute
	var r rollback
	now := time.Now()
	for i, step := range []struct {
		after, want time.Duration
		ended       bool // by a current list before
	}{
		{0, 0, false}, {window, window, false}, {window, 2 * window, false}, {2*window + 1, 0, false}, {window, window, false}, {0, 0, true},
	} {
		if step.ended {
			r.end()
		}
		if now = now.Add(step.after); r.lasts(now, 2*window) != step.want {
			t.Errorf("step %d: it does not last %s", i, step.want)
		}
	}
	l := &lister{feed: &feed{known: 100, state: feedState{server: "https://a"}}, client: &client{server: "https://a"}}
	for at, want := range map[uint64]bool{99: true, 100: false, 101: false, 0: false} {
		if got := l.precedes(at); got != want {
			t.Errorf("resourceVersion %d is older than 100: %v", at, got)
		}
	}
	if l.client.server = "https://b"; l.precedes(99) {
		t.Error("resourceVersions of two servers are compared")
	}
}
