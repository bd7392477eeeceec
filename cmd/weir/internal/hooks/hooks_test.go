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
	"testing/synctest"
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

// TestFullQueue drops events of a slow hook, counts them, and delays no other hook.
func TestFullQueue(t *testing.T) {
	var running, most atomic.Int32
	release := make(chan struct{})
	slow := receive(t, func() {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		running.Add(-1)
	})
	other := receive(t, func() {})
	c := newCounts()
	log := started(t, []config.Hook{
		{Name: "slow", On: []string{config.OnBackend}, URL: slow.URL, Timeout: time.Minute}, {Name: "other", On: []string{config.OnVIP}, URL: other.URL, Timeout: time.Minute},
	}, c, ok)
	const events = 2 * mostQueued
	for range events {
		log.Info("backend up")
	}
	log.Info("VIPs taken over")
	<-other.events
	for c.of(Dropped) < events-mostQueued-1 {
		<-c.changed
	}
	close(release)
	for c.of(Done)+c.of(Dropped) < events+1 {
		<-c.changed
	}
	if done := c.of(Done); done != mostQueued+1 && done != mostQueued+2 || c.of(Failed) > 0 || most.Load() != 1 {
		t.Errorf("%v, %d at once", c.by, most.Load())
	}
}

// TestStop reports the end of weir, after the events before it. A hook that hangs delays it for a
// limited time.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lately := eventlog.New()
		log := lately.Wrap(slog.New(slog.DiscardHandler))
		c := newCounts()
		hook := func(name, url string) config.Hook {
			return config.Hook{Name: name, On: []string{config.OnVIP, config.OnHealth}, URL: url, Timeout: time.Hour}
		}
		r := New(log, []config.Hook{hook("quick", "http://quick"), hook("hangs", "http://hangs")}, c.add)
		var got []string
		r.web.Transport = transport(func(q *http.Request) (*http.Response, error) {
			if q.Host == "hangs" {
				<-q.Context().Done()
				return nil, q.Context().Err()
			}
			var e Event
			if err := json.NewDecoder(q.Body).Decode(&e); err != nil {
				t.Error(err)
			}
			got = append(got, e.Text+" "+e.Attrs["state"])
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = r.Run(ctx, lately, ok) }()
		synctest.Wait()
		time.Sleep(healthPeriod + time.Second)
		log.Info("routes withdrawn")
		cancel()
		begin := time.Now()
		<-done
		if want := []string{"state changed ok", "routes withdrawn ", "state changed stopped"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if took := time.Since(begin); took != stopTime {
			t.Errorf("the end took %s", took)
		}
		if c.of(Done) != 3 || c.of(Dropped) != 3 || c.of(Failed) != 0 {
			t.Errorf("%v", c.by)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// TestLastEvents gives hooks the events of a stop, which come after its signal.
func TestLastEvents(t *testing.T) {
	r := receive(t, func() {})
	lately := eventlog.New()
	log := lately.Wrap(slog.New(slog.DiscardHandler))
	run := New(log, []config.Hook{{Name: "a", On: []string{config.OnVIP}, URL: r.URL, Timeout: time.Minute}}, newCounts().add)
	ctx, signal := context.WithCancel(t.Context())
	stop := run.Start(ctx, lately, ok)
	signal()
	log.Info("routes withdrawn")
	stop()
	if e := <-r.events; e.Text != "routes withdrawn" {
		t.Errorf("%+v", e)
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
	slices.Sort(got) // each hook has a lane
	want := []string{
		"warn hook failed [{hook program} {event routes withdrawn} {error /nowhere/socket: no such file or directory: start it with systemctl enable --now weir-exec.socket}]",
		"warn hook failed [{hook web} {event routes withdrawn} {error status 302, want 200-299}]",
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

// TestReturningHook has a hook that is removed and comes back run one event at a time.
func TestReturningHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts()
		r := New(slog.New(slog.DiscardHandler), nil, c.add)
		running, most := 0, 0
		r.web.Transport = transport(func(*http.Request) (*http.Response, error) {
			running++
			most = max(most, running)
			time.Sleep(time.Second)
			running--
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
		})
		l := newLanes(t.Context(), r)
		run := job{hook: config.Hook{Name: "a", URL: "http://a", Timeout: time.Minute}}
		for range 2 {
			l.add(run)
			synctest.Wait()
			l.keep(nil)
		}
		if l.close(); c.of(Done) != 2 || most != 1 {
			t.Errorf("%v, %d at once", c.by, most)
		}
		if l.keep(nil); len(l.last) != 0 {
			t.Errorf("%d ended lanes are kept", len(l.last))
		}
	})
}
