package web

import (
	"context"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
)

var update = flag.Bool("update", false, "write the pages of testdata as they are now")

// ask gets an address of a page.
func ask(p *Page, method, target string, change ...func(r *http.Request)) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	p.Register(mux)
	r := httptest.NewRequest(method, target, nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func get(t *testing.T, p *Page, target string) string {
	t.Helper()
	w := ask(p, http.MethodGet, target)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	return w.Body.String()
}

func TestPagesAreCompleteWithoutJavaScript(t *testing.T) {
	for _, tt := range []struct{ name, target string }{
		{"overview", "/"}, {"services", "/services?sort=-conns"}, {"notes", "/notes"}, {"events", "/events?state=warn"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := get(t, pageOf(t, &fakeBox{box: troubled(), doc: many(2, 2)}), tt.target)
			golden := filepath.Join("testdata", tt.name+".html")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got), go test -update writes it:\n%s", diff)
			}
		})
	}
}

// Names, messages and errors come from clusters, routers and backends.
func TestForeignTextIsEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "\u202e\x00\xff"
	b := troubled()
	doc := many(3, 1)
	for i := range doc.Frontends {
		doc.Frontends[i].Service = "prod/shop/" + evil
		doc.Frontends[i].Servers[0].Error = evil
	}
	b.Name = evil
	b.Status.Notes = []status.Note{{Service: evil, Reason: evil, Text: evil + strings.Repeat("long", 1000)}}
	b.Status.Clusters = []status.Cluster{{Name: evil, State: status.Unreachable, Error: evil}}
	b.Status.Problems = []status.Problem{{Text: evil}}
	b.Neighbors.Neighbors[0].Name, b.Neighbors.Neighbors[0].Down = evil, evil
	b.Members.Members[0].Name, b.Members.Members[0].Reason = evil, evil
	b.Pools.Pending = []status.Pending{{Service: evil, Reason: evil, Text: evil}}
	b.Events.Events = []status.Event{{Seq: 1, Time: noon, Level: "info", Text: evil, Attrs: []status.Attr{{Key: evil, Value: evil}}}}
	p := pageOf(t, &fakeBox{box: b, doc: doc})
	for _, target := range []string{"/", "/services", "/notes", "/events", "/services?q=" + url.QueryEscape(evil), "/services?at=" + url.QueryEscape(evil)} {
		body := get(t, p, target)
		for _, bad := range []string{"<script>alert", "<img src=x", "\u202e", "\x00", "longlonglong" + strings.Repeat("long", 100)} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q in it", target, bad)
			}
		}
		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("%s: %d scripts", target, n)
		}
	}
	if body := get(t, p, "/notes"); !strings.Contains(body, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Errorf("the note is not there as text:\n%s", body)
	}
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	p := pageOf(t, &fakeBox{box: healthy(), doc: many(1, 1)})
	for _, target := range []string{"/", "/services", "/notes", "/events", "/weir.css", "/weir.js", "/weir.svg"} {
		w := ask(p, http.MethodGet, target)
		for name, want := range headers {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", target, name, got, want)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			if w := ask(p, method, target); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, target, w.Code)
			}
		}
		if w := ask(p, http.MethodHead, target); w.Code != http.StatusOK {
			t.Errorf("HEAD %s: %d", target, w.Code)
		}
	}
	if w := ask(p, http.MethodGet, "/../etc/passwd"); w.Code == http.StatusOK {
		t.Error("another path is answered")
	}
}

// A page may carry nothing that its own policy forbids, or that is elsewhere.
func TestPagesNeedNothingFromOutside(t *testing.T) {
	p := pageOf(t, &fakeBox{box: troubled(), doc: many(3, 3)})
	forbidden := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]|<style| style=| on[a-z]+=|javascript:|<iframe|@import|url\(`)
	for _, target := range []string{"/", "/services", "/notes", "/events", "/weir.css", "/weir.js"} {
		body := strings.ReplaceAll(get(t, p, target), "http://www.w3.org/2000/svg", "")
		if target == "/weir.js" { // where comments begin with two strokes
			body = regexp.MustCompile(`(?m)//.*$`).ReplaceAllString(body, "")
		}
		if m := forbidden.FindString(body); m != "" {
			t.Errorf("%s has %q in it", target, m)
		}
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	p := pageOf(t, &fakeBox{box: healthy(), doc: many(1, 1)})
	for _, tt := range []struct {
		local, host string
		want        int
	}{
		{"127.0.0.1:10266", "127.0.0.1:10266", 200},
		{"127.0.0.1:10266", "localhost:8080", 200}, // through ssh -L
		{"[::1]:10266", "[::1]:10266", 200},
		{"127.0.0.1:10266", "evil.example", 421},
		{"127.0.0.1:10266", "evil.example:10266", 421},
		{"127.0.0.1:10266", "", 421},
		{"192.0.2.7:10266", "edge1.example.net", 200},
	} {
		w := ask(p, http.MethodGet, "/", func(r *http.Request) {
			at, err := net.ResolveTCPAddr("tcp", tt.local)
			if err != nil {
				t.Fatal(err)
			}
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(at)))
			r.Host = tt.host
		})
		if w.Code != tt.want {
			t.Errorf("%s as %q: %d, want %d", tt.local, tt.host, w.Code, tt.want)
		}
	}
	w := ask(p, http.MethodGet, "/live?path=/", func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "no-cors")
	})
	if w.Code != http.StatusForbidden {
		t.Errorf("another site follows the box: %d", w.Code)
	}
}

func TestAssetsAreAskedForAgain(t *testing.T) {
	p := pageOf(t, &fakeBox{})
	w := ask(p, http.MethodGet, "/weir.css")
	again := ask(p, http.MethodGet, "/weir.css", func(r *http.Request) { r.Header.Set("If-None-Match", w.Header().Get("ETag")) })
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("%d with %d bytes", again.Code, again.Body.Len())
	}
}

func TestUnreadableKernelLeavesTheKnownState(t *testing.T) {
	f := &fakeBox{box: healthy(), err: errBusy}
	p := pageOf(t, f)
	if body := get(t, p, "/"); !strings.Contains(body, "The counters can't be read: netlink: the kernel is busy") || !strings.Contains(body, "/etc/weir/weir.toml") || strings.Contains(body, "No service has") {
		t.Errorf("%s", body)
	}
	f.change(func(f *fakeBox) { f.err, f.doc = nil, many(1, 1) })
	now := noon.Add(time.Minute)
	p.now = func() time.Time { return now }
	p.read.now = p.now
	get(t, p, "/")
	f.change(func(f *fakeBox) { f.err = errBusy })
	now = noon.Add(2 * time.Minute)
	if body := get(t, p, "/"); !strings.Contains(body, "the counters are 1m old") || !strings.Contains(body, "static/svc-00000") {
		t.Errorf("%s", body)
	}
}
