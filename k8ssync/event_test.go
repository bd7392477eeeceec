package k8ssync

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"weir/lb"
)

// hasty writes Events as fast as it can.
func hasty(c *Cluster) *Cluster {
	c.events.pace = flowcontrol.NewFakeAlwaysRateLimiter()
	c.events.gap, c.events.retry = time.Nanosecond, 5*time.Millisecond
	return c
}

func note(name string, reason lb.Reason, text string) lb.Note {
	return lb.Note{Service: lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}, Reason: reason, Text: text}
}

func (s *apiServer) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, e := range s.events {
		out = append(out, fmt.Sprintf("%s %s/%s %s %s: %s", e.Type, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.InvolvedObject.UID, e.Reason, e.Message))
	}
	slices.Sort(out)
	return out
}

// eventSite is a followed server with Services web and db.
func eventSite(t *testing.T, gap time.Duration) (*apiServer, *Cluster) {
	t.Helper()
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testService("db", "10.96.0.2"), testNode("n1", "192.0.2.1"))
	c := hasty(testCluster(t, s, func(cfg *Config) { cfg.Events = true }))
	c.events.gap = gap
	run(t, c)
	next(t, c)
	return s, c
}

func TestEachNoteIsOneEvent(t *testing.T) {
	s, c := eventSite(t, time.Nanosecond)
	notes := []lb.Note{
		note("web", lb.NoBackends, "no backend"), note("web", lb.Conflict, "db has it"),
		note("nobody", lb.Conflict, "there is no such Service"),
		{Service: lb.ServiceID{Source: "static", Name: "web"}, Reason: lb.Conflict, Text: "not of this cluster"},
	}
	for range 3 {
		c.Report(notes)
	}
	want := []string{"Warning shop/web uid-of-web Conflict: db has it", "Warning shop/web uid-of-web NoBackends: no backend"}
	eventually(t, "both are written", func() bool { return slices.Equal(s.written(), want) })
	c.Report(nil) // it passes ...
	c.Report(notes)
	c.Report(append(notes[:1:1], note("web", lb.Conflict, "static has it"))) // ... and comes back, one other than it was
	want = append(want, "Warning shop/web uid-of-web Conflict: static has it")
	slices.Sort(want)
	eventually(t, "the new one is written", func() bool { return slices.Equal(s.written(), want) })
	eventually(t, "counted", func() bool { return c.Status().Events == 3 && c.Status().EventsError == "" })
	if n := s.requests("create events"); n != 3 {
		t.Errorf("%d requests for 3 Events", n)
	}
}

func TestEventsAreFoundAfterARestart(t *testing.T) {
	s, c := eventSite(t, time.Nanosecond)
	c.Report([]lb.Note{note("web", lb.Conflict, "db has it")})
	eventually(t, "written", func() bool { return len(s.written()) == 1 })
	again := hasty(New(c.cfg, silentLog()))
	again.timing = impatient
	run(t, again)
	next(t, again)
	again.Report([]lb.Note{note("web", lb.Conflict, "db has it")})
	eventually(t, "patched", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.patched) == 1 && strings.HasPrefix(s.patched[0], s.events[0].Name+` {"lastTimestamp":"20`)
	})
	if n := len(s.written()); n != 1 {
		t.Errorf("%d Events", n)
	}
}

func TestEventsOfAStaleClusterFollowLater(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	cfg := kept(t, s)
	cfg.Events = true
	s.misbehave(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true })
	c := hasty(New(cfg, silentLog()))
	c.timing = impatient
	run(t, c)
	next(t, c)
	c.Report([]lb.Note{note("web", lb.Conflict, "a")})
	s.misbehave(nil)
	eventually(t, "written", func() bool { return len(s.written()) == 1 })
}

// The loop of the daemon calls these methods. A translation takes seconds in a big cluster.
func TestNoMethodWaitsForATranslation(t *testing.T) {
	c := testCluster(t, newAPIServer(t), func(cfg *Config) { cfg.Events = true })
	c.store.mu.Lock() // as during a translation
	done := make(chan struct{})
	go func() {
		c.Report([]lb.Note{note("web", lb.Conflict, "a")})
		c.Refuse(Refused{Peers: map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "a router"}})
		c.Provide(pool198)
		c.store.unsubscribe(c.store.subscribe(func() {}))
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
	c.store.mu.Unlock()
	<-done
}

func TestForbiddenEventsAreHarmless(t *testing.T) {
	s, c := eventSite(t, time.Nanosecond)
	var asked atomic.Int32
	forbid := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		asked.Add(1)
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "events is forbidden")
		return true
	}
	s.misbehave(forbid)
	c.Report([]lb.Note{note("web", lb.Conflict, "a"), note("db", lb.Conflict, "b")})
	eventually(t, "the error", func() bool { return c.Status().EventsError == "create events: events is forbidden" })
	if st := c.Status(); st.Error != "" || !st.Synced {
		t.Errorf("status %+v", st)
	}
	onlyLast(t, s, c)
	s.misbehave(nil)
	eventually(t, "written once they may be", func() bool { return len(s.written()) == 2 && c.Status().EventsError == "" })
}

// Namespaces in which no Event can be written, as their quotas are used up, harm no other.
func TestNamespacesWithoutEventsHarmNoOther(t *testing.T) {
	s := newAPIServer(t)
	var notes []lb.Note
	for i, namespace := range []string{"a", "b", "c", "d"} {
		svc := testService("web", fmt.Sprintf("10.96.0.%d", i+1))
		svc.Namespace = namespace
		s.put(svc)
		notes = append(notes, lb.Note{Service: lb.ServiceID{Source: "prod", Namespace: namespace, Name: "web"}, Reason: lb.Conflict, Text: "x"})
	}
	s.put(testNode("n1", "192.0.2.1"))
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || strings.Contains(r.URL.Path, "/d/") {
			return false
		}
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota")
		return true
	})
	c := hasty(testCluster(t, s, func(cfg *Config) { cfg.Events = true }))
	run(t, c)
	next(t, c)
	for i := range maxQueued + 1 { // the present ones are no better
		c.events.once(subject{key: key{"a", "web"}, text: fmt.Sprint(i)})
	}
	c.Report(notes)
	eventually(t, "written", func() bool { return len(s.written()) == 1 })
	c.events.once(subject{key: key{"d", "web"}, text: "late"})
	eventually(t, "written, too", func() bool { return len(s.written()) == 2 })
	if got := c.Status().EventsError; !strings.Contains(got, "exceeded quota") {
		t.Errorf("the error is %q", got)
	}
}

func TestRejectedEventIsNotRepeated(t *testing.T) {
	s, c := eventSite(t, time.Nanosecond)
	var asked atomic.Int32
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || asked.Add(1) > 1 {
			return false
		}
		answer(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "no")
		return true
	})
	c.Report([]lb.Note{note("web", lb.Conflict, "a"), note("db", lb.Conflict, "b")})
	eventually(t, "the other is written", func() bool { return len(s.written()) == 1 })
	if n := asked.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestOneServiceHasFewEvents(t *testing.T) {
	s, c := eventSite(t, time.Hour)
	for i := range 50 {
		c.Report([]lb.Note{note("web", lb.Conflict, fmt.Sprint(i)), note("db", lb.Conflict, "b")})
	}
	eventually(t, "one of each", func() bool { return len(s.written()) == 2 })
	if n := s.requests("create events"); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// A tenant with many refused annotations learns first that the Service is not served.
func TestRefusedAnnotationsAreTheLastEvents(t *testing.T) {
	s, c := eventSite(t, time.Hour)
	c.Report([]lb.Note{note("web", lb.AnnotationRefused, "a"), note("web", lb.OverBudget, "b"), note("web", lb.AnnotationRefused, "c")})
	want := []string{"Warning shop/web uid-of-web OverBudget: b"}
	eventually(t, "one is written", func() bool { return len(s.written()) > 0 })
	if got := s.written(); !slices.Equal(got, want) {
		t.Errorf("written first: %q, want %q", got, want)
	}
}

func TestNoEventsIfDisabled(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	c := hasty(testCluster(t, s))
	run(t, c)
	next(t, c)
	c.Report([]lb.Note{note("web", lb.Conflict, "a")})
	onlyLast(t, s, c)
	if n := s.requests("create events"); n != 0 {
		t.Errorf("%d Events", n)
	}
}

func TestEventWriterIsLimited(t *testing.T) {
	w := newEventWriter(Config{})
	long := time.Now().Add(-2 * eventMemory)
	for i := range maxRemembered {
		w.known[subject{text: fmt.Sprint(i)}] = long
	}
	w.last[key{"a", "b"}] = long
	w.client = &client{}
	w.queue = []subject{{text: "new"}}
	if _, with := w.next(); with != nil {
		t.Error("no bound")
	}
	if _, err := w.state(); !strings.Contains(err, "no more until some expire") {
		t.Errorf("state %q", err)
	}
	w.set([]subject{{text: "new"}, {text: "7"}})
	if _, with := w.next(); with == nil || len(w.known) != 1 || len(w.last) != 0 {
		t.Errorf("%d known, %d last", len(w.known), len(w.last))
	}
}

// A namespace with many Notes and changes of addresses delays no other, and leaves it room.
func TestNamespacesTakeTurnsWithEvents(t *testing.T) {
	w := newEventWriter(Config{})
	w.client, w.gap = &client{}, time.Nanosecond
	var about []subject
	for i := range maxRemembered {
		about = append(about, subject{key: key{"a", fmt.Sprint(i)}})
		w.once(subject{key: key{"a", fmt.Sprint(i)}, text: "assigned"})
	}
	w.once(subject{key: key{"b", "web"}, text: "assigned"})
	w.set(append(about, subject{key: key{"b", "web"}}, subject{key: key{"c", "web"}}))
	written := map[string]int{}
	for range 5 {
		s, _ := w.next()
		written[s.Namespace]++
		w.tried[s.Namespace] = time.Now()
		w.done(s)
	}
	if written["b"] != 2 || written["c"] != 1 {
		t.Errorf("of the first five Events %v are of each namespace", written)
	}
	w.single = nil
	for _, s := range about[:maxRemembered/2] {
		w.known[s] = time.Now()
	}
	w.set(append(about, subject{key: key{"d", "web"}}))
	if s, _ := w.next(); s.Namespace != "d" {
		t.Errorf("the next Event is of namespace %q, which has half of all", s.Namespace)
	}
	if _, err := w.state(); !strings.Contains(err, "for namespace a within") {
		t.Errorf("state %q", err)
	}
}

func TestEventTexts(t *testing.T) {
	if got := camel("pool-covers-host"); got != "PoolCoversHost" {
		t.Error(got)
	}
	long := cut("ä"+strings.Repeat("ö", 2000), maxEventText)
	if len(long) > maxEventText || len(long) < maxEventText-4 || !utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
	if got := cut("a\xffb", 10); got != "a?b" {
		t.Error(got)
	}
}
