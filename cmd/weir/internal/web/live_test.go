package web

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weirlab/fuzzing"
)

// follower is one who follows the box, and what has been sent to it.
type follower struct {
	mu       sync.Mutex
	header   http.Header
	code     int
	got      bytes.Buffer
	deadline time.Time
	fails    error
	leave    context.CancelFunc
	gone     chan struct{}
}

func (f *follower) Header() http.Header  { return f.header }
func (f *follower) WriteHeader(code int) { f.code = code }
func (f *follower) Flush()               {}
func (f *follower) SetWriteDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = t
	return nil
}

// text is all that has come so far; patience until when the last of it had to be taken.
func (f *follower) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got.String()
}

func (f *follower) patience() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.deadline)
}

func (f *follower) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return 0, f.fails
	}
	return f.got.Write(p)
}

// follow begins to follow a page, from this box.
func follow(t *testing.T, p *Page, target string) *follower {
	t.Helper()
	return followFrom(t, p, target, "127.0.0.1:4000")
}

func followFrom(t *testing.T, p *Page, target, client string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{header: http.Header{}, code: http.StatusOK, leave: cancel, gone: make(chan struct{})}
	go func() {
		defer close(f.gone)
		r := httptest.NewRequest(http.MethodGet, target, nil).WithContext(ctx)
		r.RemoteAddr = client
		p.live(f, r)
	}()
	return f
}

// events are all that have come so far.
func (f *follower) events(t *testing.T) []news {
	t.Helper()
	var out []news
	for block := range strings.SplitSeq(f.text(), "\n\n") {
		text, ok := strings.CutPrefix(block, "data: ")
		if !ok {
			continue
		}
		var n news
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		out = append(out, n)
	}
	return out
}

func parts(n news) string { return strings.Join(slices.Sorted(maps.Keys(n.Parts)), " ") }

func TestLiveSendsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &fakeBox{box: healthy(), doc: many(3, 2)}
		p := New(box)
		p.now = func() time.Time { return noon }
		f := follow(t, p, "/live?path=/services&sort=service")
		time.Sleep(time.Second)
		if got := f.events(t); len(got) != 1 || parts(got[0]) != "head services" || !strings.Contains(got[0].Parts["services"], "static/svc-00002") {
			t.Fatalf("at first: %v", got)
		}
		if !strings.HasPrefix(f.text(), "retry: 2000\n\n") || f.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("the stream begins as %q, %v", f.text()[:20], f.header)
		}
		time.Sleep(4 * time.Second) // rates come with the second reading
		n := len(f.events(t))
		time.Sleep(4 * time.Second)
		got := f.events(t)[n:]
		if len(got) != 2 || parts(got[0])+parts(got[1]) != "" {
			t.Errorf("nothing has changed: %v", got)
		}
		box.change(func(b *fakeBox) {
			b.doc = many(3, 2)
			b.doc.Frontends[2].Servers[0].Health, b.doc.Frontends[2].Servers[0].Weight = "down", 0
		})
		n = len(f.events(t))
		time.Sleep(2 * time.Second)
		got = f.events(t)[n:]
		if len(got) != 1 || parts(got[0]) != "services" || !strings.Contains(got[0].Parts["services"], `<span class="is warn">partly</span>`) {
			t.Errorf("a backend is down: %v", got)
		}
		box.change(func(b *fakeBox) {
			b.box.Status.State, b.box.Status.Problems = status.Degraded, []status.Problem{{Code: status.ProblemNotes, Text: "3 notes"}}
		})
		n = len(f.events(t))
		time.Sleep(2 * time.Second)
		got = f.events(t)[n:]
		if len(got) != 1 || got[0].State != "degraded" || got[0].Title != "edge1 - degraded (1)" || parts(got[0]) != "head" {
			t.Errorf("the state changed: %v", got)
		}
		f.leave()
		synctest.Wait()
		<-f.gone
	})
}

// However many pages are open, the kernel is read once in two seconds, and not at all without
// one; reading that takes long is done the less often.
func TestManyFollowersCostOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &fakeBox{box: healthy(), doc: many(3, 2)}
		p := New(box)
		var all []*follower
		for i := range maxListeners {
			time.Sleep(time.Duration(i) * time.Millisecond)
			all = append(all, follow(t, p, "/live?path=/"))
		}
		synctest.Wait()
		refused := follow(t, p, "/live?path=/")
		<-refused.gone
		if refused.code != http.StatusServiceUnavailable {
			t.Errorf("one too many: %d %s", refused.code, refused.text())
		}
		before := box.reads.Load()
		time.Sleep(20 * time.Second)
		if n := box.reads.Load() - before; n < 5 || n > 10 {
			t.Errorf("%d readings in 20 seconds", n)
		}
		for i, f := range all {
			if n := len(f.events(t)); n < 9 {
				t.Errorf("follower %d was told %d times", i, n)
			}
		}
		for _, f := range all[4:] {
			f.leave()
			<-f.gone
		}
		follow(t, p, "/live?path=/notes")
		time.Sleep(time.Second)
		box.change(func(f *fakeBox) { f.took = 3 * time.Second })
		time.Sleep(20 * time.Second)
		before = box.reads.Load()
		time.Sleep(90 * time.Second)
		if n := box.reads.Load() - before; n < 7 || n > 10 {
			t.Errorf("%d readings of three seconds in 90: more than a third of the time", n)
		}
		for _, f := range all[:4] {
			f.leave()
		}
	})
}

// Of one address there are not as many that others find no place.
func TestOneAddressLeavesPlacesForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&fakeBox{box: healthy(), doc: many(3, 2)})
		var of []*follower
		for range maxListenersEach {
			of = append(of, followFrom(t, p, "/live?path=/", "192.0.2.7:4000"))
			synctest.Wait()
		}
		refused := followFrom(t, p, "/live?path=/", "[::ffff:192.0.2.7]:4001")
		<-refused.gone
		if want := "16 pages of 192.0.2.7 follow this box already: close one\n"; refused.code != http.StatusServiceUnavailable || refused.text() != want {
			t.Errorf("%d %q", refused.code, refused.text())
		}
		of = append(of, followFrom(t, p, "/live?path=/", "192.0.2.8:4000"))
		synctest.Wait()
		if n := p.listeners.taken(); n != maxListenersEach+1 {
			t.Errorf("%d places are taken", n)
		}
		for _, f := range of {
			f.leave()
			<-f.gone
		}
		if p.listeners.taken() != 0 || len(p.listeners.of) != 0 {
			t.Errorf("all have gone: %+v", p.listeners.of)
		}
	})
}

// A listener that breaks off costs no reading more than one that stays, and spoils it for no other.
func TestAnAbortedRequestKeepsTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &fakeBox{box: healthy(), doc: many(3, 2), took: time.Second}
		p := New(box)
		for range 100 {
			f := follow(t, p, "/live?path=/")
			time.Sleep(100 * time.Millisecond)
			f.leave()
			<-f.gone
			if x := p.read.last.Load(); x != nil && x.problem != "" {
				t.Fatalf("all are told: %s", x.problem)
			}
		}
		if n := box.reads.Load(); n < 3 || n > 10 {
			t.Errorf("%d readings by 100 who broke off", n)
		}
		box.change(func(f *fakeBox) { f.took = time.Hour })
		time.Sleep(time.Minute)
		if x := p.read.get(t.Context()); len(x.servers) != 3 || x.problem != "the reading took longer than 10s" {
			t.Errorf("%d servers, and %q", len(x.servers), x.problem)
		}
		before := box.reads.Load()
		if p.read.get(t.Context()); box.reads.Load() != before {
			t.Error("what took too long is read at once again")
		}
	})
}

func TestNoReadsWithoutClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &fakeBox{box: healthy(), doc: many(3, 2)}
		p := New(box)
		f := follow(t, p, "/live?path=/")
		time.Sleep(10 * time.Second)
		f.leave()
		<-f.gone
		before := box.reads.Load()
		time.Sleep(time.Hour)
		if n := box.reads.Load(); n != before || before < 4 {
			t.Errorf("%d readings while somebody looked, %d afterwards", before, n-before)
		}
		if got := p.listeners.taken(); got != 0 {
			t.Errorf("%d places are taken", got)
		}
	})
}

func TestSlowFollowerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&fakeBox{box: healthy(), doc: many(3, 2)})
		f := follow(t, p, "/live?path=/")
		time.Sleep(3 * time.Second)
		if left := f.patience(); left <= 0 || left > listenTime {
			t.Errorf("a write may take %s", left)
		}
		f.mu.Lock()
		f.fails = os.ErrDeadlineExceeded
		f.mu.Unlock()
		select {
		case <-f.gone:
		case <-time.After(time.Minute):
			t.Error("it is still told")
		}
	})
}

func TestLiveWantsAPage(t *testing.T) {
	p := pageOf(t, &fakeBox{box: healthy()})
	for _, path := range []string{"", "services", "/nowhere", "//", "/live"} {
		if w := ask(p, http.MethodGet, "/live?path="+path); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", path, w.Code)
		}
	}
}

// A server that ends takes its followers along, and leaves no goroutine.
func TestLiveEndsWithTheServer(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	mux := http.NewServeMux()
	p := New(&fakeBox{box: healthy(), doc: many(3, 2)})
	p.Register(mux)
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.BaseContext = func(net.Listener) context.Context { return life }
	srv.Start()
	defer srv.Close()
	resp, err := http.Get(srv.URL + "/live?path=/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 10)
	if _, err := resp.Body.Read(first); err != nil {
		t.Fatal(err)
	}
	end()
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(resp.Body); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Error(err)
	}
	if n := p.listeners.taken(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

// FuzzLive follows any page with any parameters: the first event has all sections of a page, and
// anything else is refused.
func FuzzLive(f *testing.F) {
	fuzzing.Wide(f)
	for _, s := range []string{"path=/services&q=web&sort=-conns&page=2", "path=/", "path=//", "path=/events&state=error", "path=/services&at=192.0.2.1%3A80%2Ftcp", "path=%ff&page=-1", "path=/x&path=/services"} {
		f.Add(s)
	}
	p := pageOf(f, &fakeBox{box: troubled(), doc: many(60, 2)})
	r := p.read.get(f.Context())
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		k, q, err := listened(values)
		if err != nil {
			return
		}
		to := httptest.NewRecorder()
		l := &listener{page: p, kind: k, query: q, to: to, control: http.NewResponseController(to), sent: map[string]uint64{}}
		if err := l.send(r); err != nil {
			t.Fatal(err)
		}
		sent, ok := strings.CutPrefix(to.Body.String(), "data: ")
		var n news
		if err := json.Unmarshal([]byte(sent), &n); !ok || err != nil || strings.Count(sent, "\n") != 2 || len(n.Parts) != len(k.sections) {
			t.Fatalf("%q is sent %q: %v", text, sent, err)
		}
	})
}

// taken returns the number of taken places.
func (x *places) taken() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all
}
