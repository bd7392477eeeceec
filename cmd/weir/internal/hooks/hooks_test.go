package hooks

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/eventlog"
	"weir/cmd/weir/internal/status"
)

// receiver is a web server that keeps the events it gets, and answers with a status.
type receiver struct {
	*httptest.Server
	events chan Event
	status atomic.Int32
}

func receive(t *testing.T, handle func()) *receiver {
	t.Helper()
	r := &receiver{events: make(chan Event, 10*mostQueued)}
	r.status.Store(http.StatusNoContent)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		handle()
		var e Event
		if err := json.NewDecoder(q.Body).Decode(&e); err != nil || q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", q.Method, q.Header, err)
		}
		r.events <- e
		w.WriteHeader(int(r.status.Load()))
	}))
	t.Cleanup(r.Close)
	return r
}

// counts are the results by their names.
type counts struct {
	mu sync.Mutex
	by map[string]int
	// changed gets a value after each result.
	changed chan struct{}
}

func newCounts() *counts { return &counts{by: map[string]int{}, changed: make(chan struct{}, 10000)} }

func (c *counts) add(result string) {
	c.mu.Lock()
	c.by[result]++
	c.mu.Unlock()
	c.changed <- struct{}{}
}

func (c *counts) of(result string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[result]
}

// started runs hooks on a log until the end of the test.
func started(t *testing.T, hooks []config.Hook, c *counts, state func() status.Status) *slog.Logger {
	t.Helper()
	lately := eventlog.New()
	log := lately.Wrap(slog.New(slog.DiscardHandler))
	r := New(log, hooks, c.add)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, lately, state) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return log
}

func ok() status.Status { return status.Status{State: status.OK} }

// TestKinds gives each hook the events of its kinds, in their order.
func TestKinds(t *testing.T) {
	r := receive(t, func() {})
	log := started(t, []config.Hook{{Name: "a", On: []string{config.OnBackend, config.OnVIP}, URL: r.URL, Timeout: time.Minute}}, newCounts(), ok)
	log.Info("backend down", "service", "static/web", "reason", "refused")
	log.Info("applied", "ops", 1)
	log.Info("member state changed", "state", "drained")
	log.Info("VIPs taken over", "vips", 2)
	log.Info("backend up", "service", "static/web")
	var got []string
	for range 3 {
		e := <-r.events
		got = append(got, fmt.Sprint(e.Kind, ": ", e.Text, " ", e.Attrs))
	}
	want := []string{
		"backend: backend down map[reason:refused service:static/web]", "vip: VIPs taken over map[vips:2]", "backend: backend up map[service:static/web]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestHealthEvents reports the changes of the state, with the first problem.
func TestHealthEvents(t *testing.T) {
	r := receive(t, func() {})
	var now atomic.Pointer[status.Status]
	now.Store(&status.Status{State: status.Starting})
	log := started(t, []config.Hook{{Name: "a", On: []string{config.OnHealth}, URL: r.URL, Timeout: time.Minute}}, newCounts(), func() status.Status { return *now.Load() })
	var got []string
	for _, s := range []status.Status{
		{State: status.OK}, {State: status.OK}, {State: status.Degraded, Problems: []status.Problem{{Text: "no router"}}}, {State: status.OK},
	} {
		before := now.Swap(&s)
		log.Info("applied") // any event is a reason to look
		if before.State != s.State {
			e := <-r.events
			got = append(got, fmt.Sprintf("%s %s %s", e.Attrs["was"], e.Attrs["state"], e.Attrs["problem"]))
		}
	}
	if want := []string{" ok ", "ok degraded no router", "degraded ok "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFullQueue drops events, counts them, and runs one hook at a time.
func TestFullQueue(t *testing.T) {
	var running, most atomic.Int32
	release := make(chan struct{})
	r := receive(t, func() {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		running.Add(-1)
	})
	c := newCounts()
	log := started(t, []config.Hook{
		{Name: "a", On: []string{config.OnBackend}, URL: r.URL, Timeout: time.Minute}, {Name: "b", On: []string{config.OnBackend}, URL: r.URL, Timeout: time.Minute},
	}, c, ok)
	const events = 200 // 400 runs
	for range events {
		log.Info("backend up")
	}
	for c.of(Dropped) < 2*events-mostQueued-1 {
		<-c.changed
	}
	close(release)
	for c.of(Done)+c.of(Dropped) < 2*events {
		<-c.changed
	}
	if done := c.of(Done); done != mostQueued && done != mostQueued+1 || c.of(Failed) > 0 || most.Load() != 1 {
		t.Errorf("%v, %d at once", c.by, most.Load())
	}
}

// TestFailures counts and logs the runs that fail.
func TestFailures(t *testing.T) {
	r := receive(t, func() {})
	r.status.Store(http.StatusFound)
	c := newCounts()
	lately := eventlog.New()
	log := lately.Wrap(slog.New(slog.DiscardHandler))
	run := New(log, []config.Hook{
		{Name: "web", On: []string{config.OnVIP}, URL: r.URL, Timeout: time.Minute},
		{Name: "program", On: []string{config.OnVIP}, Exec: []string{"/bin/true"}, Timeout: time.Minute},
	}, c.add)
	run.exec.Socket = "/nowhere/socket"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run.Run(ctx, lately, ok) }()
	log.Info("routes withdrawn")
	for c.of(Failed) < 2 {
		<-c.changed
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range lately.After(0).Events[1:] {
		got = append(got, fmt.Sprint(e.Level, " ", e.Text, " ", e.Attrs))
	}
	want := []string{
		"warn hook failed [{hook web} {event routes withdrawn} {error status 302, want 200-299}]",
		"warn hook failed [{hook program} {event routes withdrawn} {error /nowhere/socket: no such file or directory: start it with systemctl enable --now weir-exec.socket}]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEnvironment(t *testing.T) {
	got := strings.Join(environment(Event{Kind: "vip", Text: "VIPs taken over", Host: "edge1", Attrs: map[string]string{"first": "192.0.2.1", "a.b-c": "x y"}}), "|")
	if want := "WEIR_A_B_C=x y|WEIR_FIRST=192.0.2.1|WEIR_HOST=edge1|WEIR_KIND=vip|WEIR_TEXT=VIPs taken over"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNilRunner(t *testing.T) {
	var r *Runner
	r.Set([]config.Hook{{}})
}
