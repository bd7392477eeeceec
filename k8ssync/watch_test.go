package k8ssync

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// site is a followed server with two Services, after the first Update.
func site(t *testing.T, change ...func(*apiServer)) (*apiServer, *Cluster) {
	t.Helper()
	s := newAPIServer(t)
	for _, f := range change {
		f(s)
	}
	s.put(testService("web", "10.96.0.1"), testSlice("web", "10.1.0.1"), testService("db", "10.96.0.2"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	run(t, c)
	next(t, c)
	eventually(t, "connected", func() bool { return c.Status().Connected })
	return s, c
}

// onlyLast checks that the next update is about one new Service: nothing else was
// published before it.
func onlyLast(t *testing.T, s *apiServer, c *Cluster) {
	t.Helper()
	s.put(testService("last", "10.96.0.99"))
	u := next(t, c)
	if put, gone := names(u); !slices.Equal(put, []string{"shop/last"}) || len(gone) > 0 || u.Synced {
		t.Errorf("said %v, gone %v, synced %v; want only shop/last", put, gone, u.Synced)
	}
}

func TestExpiredHistoryIsListedAgainAndOnlyDifferencesPublished(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain lists %v", old), func(t *testing.T) {
			s, c := site(t, func(s *apiServer) { s.oldLists = old })
			before := c.Status().Relists
			s.compact()
			s.CloseClientConnections() // so that watches are opened again, from too long ago
			eventually(t, "three more lists", func() bool { return c.Status().Relists >= before+3 })
			eventually(t, "no error", func() bool { return c.Status().Error == "" && c.Status().Connected })
			onlyLast(t, s, c)
		})
	}
}

func TestNextListHasMissedEvents(t *testing.T) {
	s, c := site(t)
	down := func(w http.ResponseWriter, _ *http.Request) bool {
		answer(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "etcd is away")
		return true
	}
	s.misbehave(down)
	s.CloseClientConnections()
	eventually(t, "the error", func() bool {
		return strings.Contains(c.Status().Error, "services: etcd is away") && strings.Contains(c.Status().Error, "nodes: etcd is away")
	})
	if st := c.Status(); st.Connected || !st.Synced || st.Stale {
		t.Errorf("status while it is away: %+v", st)
	}
	s.put(testService("new", "10.96.0.3"))
	s.remove(testService("db", ""))
	s.compact()
	s.misbehave(nil)
	got := map[string]bool{}
	for len(got) < 2 {
		put, gone := names(next(t, c))
		for _, n := range slices.Concat(put, gone) {
			got[n] = true
		}
	}
	if !got["shop/new"] || !got["shop/db"] {
		t.Errorf("differences %v, want new and db", got)
	}
	eventually(t, "connected again", func() bool { return c.Status().Connected && c.Status().Error == "" })
}

func TestMissingPermissionIsNamedAndUsedOnceGranted(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "endpointslices") {
			return false
		}
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, `endpointslices.discovery.k8s.io is forbidden: User "weir" cannot list resource`)
		return true
	})
	c := testCluster(t, s)
	run(t, c)
	eventually(t, "the error", func() bool {
		return strings.Contains(c.Status().Error, `list endpointslices.discovery.k8s.io: endpointslices.discovery.k8s.io is forbidden: User "weir"`)
	})
	if _, ok := c.Take(); ok || c.Status().Synced || c.Status().Connected {
		t.Errorf("synced without EndpointSlices: %+v", c.Status())
	}
	s.misbehave(nil)
	if u := next(t, c); !u.Synced || len(u.Put) != 1 {
		t.Errorf("after the right was given: %+v", u)
	}
	eventually(t, "no error", func() bool { return c.Status().Error == "" })
}

func TestNewTokenLosesNothing(t *testing.T) {
	s := newAPI()
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.stop)
	valid := "one"
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer "+valid {
			return false
		}
		answer(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		return true
	})
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	file := kubeconfigFor(t, s.URL, "token: one")
	c := New(testConfig(file), silentLog())
	c.timing = impatient
	run(t, c)
	next(t, c)
	eventually(t, "connected", func() bool { return c.Status().Connected })

	s.mu.Lock()
	valid = "two"
	s.mu.Unlock()
	s.CloseClientConnections()
	eventually(t, "the error", func() bool { return strings.Contains(c.Status().Error, "Unauthorized") && !c.Status().Connected })
	writeKubeconfig(t, file, s.URL, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}")
	eventually(t, "plugins refused", func() bool {
		return strings.Contains(c.Status().Error, `"/bin/false", and weir runs no programs of others`)
	})
	writeKubeconfig(t, file, s.URL, "token: two")
	eventually(t, "connected again", func() bool { return c.Status().Connected && c.Status().Error == "" })
	onlyLast(t, s, c)
}

func TestSilentWatchOverHTTP1IsReopened(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	c.timing.timeouts.http1 = 2 * time.Second // client-go lists again after a watch of less than a second
	run(t, c)
	next(t, c)
	before, lists := s.requests("watch services"), c.Status().Relists
	eventually(t, "watches begun again", func() bool { return s.requests("watch services") > before+1 })
	if now := c.Status(); now.Relists != lists || !now.Connected || now.Error != "" {
		t.Errorf("a silent watch is no reason to list again: %d lists, then %d; %+v", lists, now.Relists, now)
	}
	onlyLast(t, s, c)
}

// holdable passes TCP connections on, until it holds all bytes back.
type holdable struct {
	net.Listener
	mu   sync.Mutex
	held chan struct{} // nil passes
}

func (h *holdable) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make(chan struct{})
	h.held = held
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = nil
		close(held)
	}
}

func (h *holdable) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	return &heldConn{conn, h, make(chan struct{}), sync.Once{}}, err
}

type heldConn struct {
	net.Conn
	h      *holdable
	closed chan struct{}
	once   sync.Once
}

func (c *heldConn) wait() {
	c.h.mu.Lock()
	held := c.h.held
	c.h.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-c.closed:
		}
	}
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wait()
	return n, err
}

func (c *heldConn) Write(p []byte) (int, error) {
	c.wait()
	return c.Conn.Write(p)
}

func (c *heldConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestPingsDetectADeadConnection holds all bytes of an API server back, as if
// it were stopped: its TCP connections stay open.
func TestPingsDetectADeadConnection(t *testing.T) {
	s := newAPI()
	s.Server = httptest.NewUnstartedServer(s)
	h := &holdable{Listener: s.Listener}
	s.Listener = h
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.stop)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s)
	c.timing.timeouts.idle, c.timing.timeouts.ping, c.timing.timeouts.dial = 50*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
	run(t, c)
	next(t, c)
	eventually(t, "connected", func() bool { return c.Status().Connected })
	release := h.hold()
	eventually(t, "found dead", func() bool { return !c.Status().Connected }) // long before http2's 30 s are over
	s.put(testService("meanwhile", "10.96.0.5"))
	release()
	if put, _ := names(next(t, c)); !slices.Equal(put, []string{"shop/meanwhile"}) {
		t.Errorf("said %v", put)
	}
}

func TestDefaultTimeoutsDetectSilenceWithinAMinute(t *testing.T) {
	w := defaultTimeouts
	if over2 := w.idle + w.ping + w.dial; over2 > time.Minute || w.http1+w.dial > time.Minute {
		t.Errorf("HTTP/2 %s, HTTP/1 %s", over2, w.http1+w.dial)
	}
}

func TestInvalidObjectsAreHarmless(t *testing.T) {
	nonsense := []struct{ name, kind, body string }{
		{"no JSON", "application/json", "<html>503</html>"},
		{"half an object", "application/json", `{"kind":"ServiceList","apiVersion":"v1","items":[{"meta`},
		{"objects of another kind", "application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"x"}}]}`},
		{"a watch of another kind", "application/json", `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x","namespace":"y"}}}`},
		{"events of no type", "application/json", strings.Repeat(`{"type":"EXPLODED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"x"}}}`, 50)},
		{"an error that is none", "application/json", `{"type":"ERROR","object":{"kind":"Service","apiVersion":"v1"}}`},
		{"an empty answer", "application/json", ""},
		{"no protobuf", "application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff\xff\xff\xff"},
		{"a long frame", "application/vnd.kubernetes.protobuf;stream=watch", "\x7f\xff\xff\xff" + strings.Repeat("x", 1<<16)},
		{"unknown content", "text/plain", "hello"},
	}
	for _, tc := range nonsense {
		t.Run(tc.name, func(t *testing.T) {
			s, c := site(t)
			s.misbehave(func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", tc.kind)
				io.WriteString(w, tc.body)
				return true
			})
			before := s.requests("watch services")
			s.CloseClientConnections()
			eventually(t, "asked again and again", func() bool { return s.requests("watch services") > before+3 })
			if u, ok := c.Take(); ok {
				t.Errorf("nonsense was believed: %+v", u)
			}
			s.misbehave(nil)
			eventually(t, "all well again", func() bool { return c.Status().Connected && c.Status().Error == "" })
			onlyLast(t, s, c)
		})
	}
}

func TestRepeatedOldObjectIsIgnored(t *testing.T) {
	s, c := site(t)
	s.put(testSlice("web", "10.1.0.1", "10.1.0.2"))
	if u := next(t, c); backends(u, "web") != 2 {
		t.Fatal("no second backend")
	}
	old := testSlice("web", "10.1.0.1")
	old.ResourceVersion = "102"
	s.replay("MODIFIED", old)
	s.replay("DELETED", old)
	again := testSlice("web", "10.1.0.1", "10.1.0.2")
	again.ResourceVersion = "999"
	s.replay("MODIFIED", again)
	s.replay("MODIFIED", again)
	gone := testService("never-there", "")
	gone.ResourceVersion = "999"
	s.replay("DELETED", gone)
	onlyLast(t, s, c)
}

func TestServerWithoutWatchListWorks(t *testing.T) {
	s, c := site(t, func(s *apiServer) {
		s.oldLists = true
		for i := range 1200 {
			s.put(testService(fmt.Sprintf("s%04d", i), fmt.Sprintf("10.97.%d.%d", i/250, i%250)))
		}
	})
	if n := c.Status().Objects["services"]; n != 1202 {
		t.Errorf("%d Services, want 1202", n)
	}
	if n := s.requests("list services"); n != 3 {
		t.Errorf("%d pages of Services, want 3 of 500", n)
	}
	onlyLast(t, s, c)
}

func TestUnreadableObjectHarmsNoOther(t *testing.T) {
	s, c := site(t)
	f := c.conn.feeds[0]
	if _, ok := f.reduce(nil); ok {
		t.Error("nothing was read")
	}
	var none *corev1.Service
	if _, ok := f.reduce(none); ok {
		t.Error("a nil Service was read")
	}
	if !strings.Contains(c.Status().Error, "can't be read") {
		t.Errorf("error %q", c.Status().Error)
	}
	onlyLast(t, s, c)
}

func TestFailingClusterDelaysNoOther(t *testing.T) {
	_, well := site(t)
	sick := newAPIServer(t)
	hang := make(chan struct{})
	sick.misbehave(func(http.ResponseWriter, *http.Request) bool { <-hang; return false })
	t.Cleanup(func() { close(hang) })
	c := testCluster(t, sick)
	stop := run(t, c)
	for range 3 {
		if _, ok := c.Take(); ok {
			t.Error("a hanging server has said something")
		}
		c.Report(nil)
		_ = c.Status()
	}
	if !well.Status().Connected {
		t.Error("the other cluster suffers")
	}
	stop() // at once, although requests hang
}

func TestEndedWatchLeavesNoGoroutine(t *testing.T) {
	in := &fakeWatch{out: make(chan watchEvent)}
	running, finished := make(chan struct{}), false
	s := newStream(in, func(e watchEvent) []watchEvent {
		close(running)
		time.Sleep(20 * time.Millisecond)
		finished = true
		return []watchEvent{e}
	}, func() {})
	in.out <- watchEvent{} // taken by the stream, which has no reader
	<-running
	s.Stop()
	if !finished {
		t.Error("the stream's function runs after Stop")
	}
	s.Stop()
	if _, ok := <-s.ResultChan(); ok {
		t.Error("an event after Stop")
	}
}

func TestTransportEndsLongAndSilentAnswers(t *testing.T) {
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", 100))
		http.NewResponseController(w).Flush()
		if r.URL.Path == "/silent" {
			<-block
		}
	}))
	defer srv.Close()
	defer close(block)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	get := func(path string, limit int64) error {
		silence := time.Minute
		if strings.HasPrefix(path, "/silent") {
			silence = 50 * time.Millisecond
		}
		client := &http.Client{Transport: &timeoutTransport{transport, timeouts{http1: silence}, limit}}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, srv.URL+path, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	for _, tc := range []struct {
		path  string
		limit int64
		want  string
	}{
		{"/", 1000, "<nil>"},
		{"/", 50, errTooLong.Error()},
		{"/silent", 1000, "the API server was silent for 50ms"},
		{"/silent?watch=true", 50, io.ErrUnexpectedEOF.Error()},
	} {
		if got := fmt.Sprint(get(tc.path, tc.limit)); got != tc.want {
			t.Errorf("%s, limit %d: %s, want %s", tc.path, tc.limit, got, tc.want)
		}
	}
}

// The objects of a list in the form of a watch go on as one item at its end, as they are then.
func TestInitialEventsAreOneItem(t *testing.T) {
	t.Parallel()
	l := &lister{feed: New(testConfig(""), silentLog()).conn.feeds[0]}
	list := l.begin()
	event := func(kind watch.EventType, name, version string) []watchEvent {
		svc := testService(name, "10.96.0.1")
		svc.ResourceVersion = version
		if kind == watch.Bookmark {
			svc.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		return l.event(t.Context(), watchEvent{Type: kind, Object: svc}, &list)
	}
	for _, e := range []struct {
		kind          watch.EventType
		name, version string
	}{
		{watch.Added, "gone", "1"}, {watch.Added, "changed", "2"}, {watch.Added, "kept", "3"}, {watch.Deleted, "gone", "4"}, {watch.Modified, "changed", "5"},
	} {
		if out := event(e.kind, e.name, e.version); len(out) > 0 {
			t.Errorf("%s %s is passed on before the end of the list: %v", e.kind, e.name, out)
		}
	}
	out := event(watch.Bookmark, "", "5")
	if len(out) != 2 || out[0].Type != watch.Added || out[1].Type != watch.Bookmark {
		t.Fatalf("the list ends with %v", out)
	}
	got := map[string]string{}
	for _, it := range out[0].Object.(*item).all() {
		got[it.Name] = it.ResourceVersion
	}
	if diff := cmp.Diff(map[string]string{"changed": "5", "kept": "3"}, got); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	if out := event(watch.Modified, "kept", "6"); len(out) != 1 || out[0].Object.(*item).Name != "kept" {
		t.Errorf("after the list: %v", out)
	}
}
