package web

import (
	"html"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/cmd/weir/internal/status/traffic"
	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
	"weir/packaging/doc"
)

// troubled is a box with a bit of everything.
func troubled() Box {
	b := healthy()
	s := &b.Status
	s.Backend = status.Backends{Up: 3, Down: 1}
	s.Clusters = []status.Cluster{
		{Name: "prod", State: status.Connected, Since: noon.Add(-time.Hour), LastContact: noon.Add(-3 * time.Second), Services: 40, Endpoints: 410},
		{Name: "stage", State: status.Unreachable, Since: noon.Add(-7 * time.Minute), LastContact: noon.Add(-7 * time.Minute), Services: 3, Error: "no route to host"},
	}
	s.Notes = []status.Note{
		{Service: "prod/shop/none", Reason: "no-local", Text: "no backend is on this node", Informational: true},
		{Service: "prod/shop/cart", Reason: "conflict", Text: "192.0.2.10:80/tcp is static/web's"},
	}
	s.BGP = &status.BGP{
		ASN: 64500, RouterID: "10.1.0.1", Up: []string{"leaf1"}, Announced: 2, Withheld: map[string]int{"no-backend": 1},
		Down: []status.DownPeer{{Name: "leaf2", State: "Active", Since: noon.Add(-4 * time.Minute), Reason: "hold timer expired"}},
	}
	b.Neighbors = routing.Neighbors{ASN: 64500, Neighbors: []routing.Neighbor{
		{Name: "leaf1", Address: "10.1.0.254", ASN: 64501, State: routing.Established, Since: noon.Add(-25 * time.Hour), Advertised: 2, BFD: &routing.BFD{State: "up"}},
		{Name: "leaf2", Address: "10.1.0.253", ASN: 64501, State: "Active", Since: noon.Add(-4 * time.Minute), Down: "hold timer expired"},
		{Name: "rack", Range: "10.3.0.0/24", State: "Active"},
	}}
	b.Withheld = []routing.WithheldVIP{{Address: "192.0.2.44", Reason: "no-backend", Text: "no port has a backend", Services: []string{"prod/shop/front"}}}
	b.Members = status.Members{Fleet: "edge", Self: "edge1", Mode: "active-standby", Owned: 1, Members: []status.Member{
		{Name: "edge1", Address: "10.1.0.1:7946", Self: true, State: status.MemberServing, Since: noon.Add(-26 * time.Hour), Serves: 2, Owns: 1},
		{Name: "edge2", Address: "10.1.0.2:7946", State: status.MemberDead, Since: noon.Add(-time.Minute), Reason: "it answers nobody"},
	}}
	s.Fleet = &status.Fleet{Name: "edge", State: status.MemberServing, Members: map[status.MemberState]int{status.MemberServing: 1, status.MemberDead: 1}}
	s.L2 = &status.L2{Interfaces: []status.L2Interface{{Name: "eth1", Answered: 12}, {Name: "eth2", Error: "no carrier", Idle: 3}}}
	s.Addresses = &status.Addresses{Pools: 1, Used: 254, Writer: status.Writer{Self: true, Holder: "edge1"}}
	b.Pools = status.Pools{
		Pools:   []status.Pool{{Name: "public", Ranges: []string{"192.0.2.0/24"}, Size: 256, Used: 254, Free: 2}},
		Pending: []status.Pending{{Service: "prod/shop/new", Reason: "pool-exhausted", Text: "pool public has no free IPv4 address"}},
	}
	s.Drains = []status.Drain{{Frontend: "100.64.0.7:80/tcp", Backend: "10.128.7.3:8080", Deadline: noon.Add(40 * time.Second)}}
	s.Judge(noon)
	return b
}

// Every problem comes with advice and a page of the documentation.
func TestEveryProblemHasAdvice(t *testing.T) {
	b := troubled()
	s := b.Status
	s.Kernel.Fallback, s.Kernel.Pending, s.Config.Error = true, 3, "bad"
	s.BGP.MinAnnounced = 2
	s.BGP.Problem = "the port is taken"
	s.Fleet.State, s.Fleet.Reason, s.Fleet.Error = status.MemberUnfit, "no carrier", "port taken"
	s.Fleet.Members = map[status.MemberState]int{status.MemberUnfit: 1, status.MemberDead: 2}
	s.Addresses.Writer.Error = "no lease"
	s.Config.RolledBack = &status.RolledBack{Since: noon, Reason: "nobody confirmed it"}
	s.Guarded = []status.GuardedSource{{Source: "prod", Frontends: 3}}
	s.Drained = &status.Drained{All: &status.DrainState{Since: noon, Stage: status.Shutting}}
	s.Judge(noon)
	problems := s.Problems
	s.Drained.Stopping = true
	s.Judge(noon)
	problems = append(problems, s.Problems...)
	s.Drained = &status.Drained{VIPs: []status.DrainedVIP{{Address: "192.0.2.1"}}}
	s.Judge(noon)
	problems = append(problems, s.Problems...)
	s.Kernel.Error = "operation not permitted"
	s.Judge(noon)
	problems = append(problems, s.Problems...)
	if len(problems) < 25 {
		t.Errorf("only %d: %q", len(problems), problems)
	}
	rows := problemRows()
	for _, p := range problems {
		if rows[string(p.Code)].Do == "" {
			t.Errorf("problems.md has no action for %q: %s", p.Code, p.Text)
		}
	}
	source, err := os.ReadFile("../status/problem.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`ProblemCode = "([^"]+)"`).FindAllSubmatch(source, -1)
	if len(codes) != len(rows) {
		t.Errorf("%d codes, and %d rows in problems.md", len(codes), len(rows))
	}
	page := get(t, pageOf(t, &fakeBox{box: b}), "/doc/problems.md")
	for _, code := range codes {
		a := rows[string(code[1])]
		if _, anchor, _ := strings.Cut(a.Doc, "#"); a.Means == "" || a.Do == "" || !strings.Contains(page, `<span id="`+anchor+`">| `) {
			t.Errorf("%s: no row of problems.md has this anchor: %+v", code[1], a)
		}
	}
}

// A document is shown as written, without its characters as tags.
func TestDocuments(t *testing.T) {
	p := pageOf(t, &fakeBox{box: troubled()})
	for _, name := range []string{"notes.md", "errors.md", "json.md"} {
		source, err := doc.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, got, _ := strings.Cut(get(t, p, "/doc/"+name), "<pre class=\"doc\">\n")
		got = html.UnescapeString(regexp.MustCompile(`<span id="[a-z0-9-]+">|</span>`).ReplaceAllString(got, ""))
		if got != string(source) {
			t.Errorf("%s differs from its source", name)
		}
	}
	if w := ask(p, http.MethodGet, "/doc/none.md"); w.Code != http.StatusNotFound {
		t.Errorf("a document that does not exist: %d", w.Code)
	}
}

func TestNotesHaveAdvice(t *testing.T) {
	rows := noteRows()
	if len(rows) < 20 {
		t.Fatalf("notes.md has %d reasons", len(rows))
	}
	for reason, a := range rows {
		if a.Means == "" || a.Do == "" {
			t.Errorf("%s: %v", reason, a)
		}
	}
	got := get(t, pageOf(t, &fakeBox{box: troubled()}), "/notes")
	if !strings.Contains(got, string(rows["conflict"].Do)) || strings.Index(got, ">conflict ") > strings.Index(got, ">no-local ") {
		t.Errorf("the action is missing, or informational notes come first:\n%s", got)
	}
}

func TestFiveThousandServicesArePages(t *testing.T) {
	f := &fakeBox{box: healthy(), doc: many(5000, 10)}
	p := pageOf(t, f)
	first := get(t, p, "/services")
	if len(first) > 64<<10 {
		t.Errorf("the page has %d bytes", len(first))
	}
	if n := strings.Count(first, `<tr class="frontend">`); n != rowsPerPage || strings.Contains(first, `class="backend"`) {
		t.Errorf("%d rows on the first page", n)
	}
	if at := strings.Index(first, "static/svc-00000"); at < 0 || at > strings.Index(first, "static/svc-00001") && strings.Contains(first, "static/svc-00001") {
		t.Errorf("what needs a look is not first:\n%s", first)
	}
	seen, fewer := map[string]bool{}, pageOf(t, &fakeBox{box: healthy(), doc: many(1000, 1)})
	for next := "/services"; next != ""; {
		body := get(t, fewer, next)
		for part := range strings.SplitSeq(body, `<tbody data-key="`) {
			if at, _, ok := strings.Cut(part, `"`); ok && strings.HasPrefix(at, "100.64.") {
				seen[at] = true
			}
		}
		_, link, _ := strings.Cut(body, `<a rel="next" data-go href="`)
		next, _, _ = strings.Cut(link, `"`)
	}
	if len(seen) != 1000 {
		t.Errorf("by the links from page to page there are %d of 1,000 frontends", len(seen))
	}
	for target, want := range map[string][]string{
		"/services?q=svc-04321":                   {"1 frontend</h2>", "static/svc-04321", `class="backend"`, "10.144.225.10:8080"},
		"/services?q=10.128.7.3":                  {"static/svc-00007"},
		"/services?state=partly&sort=-address":    {"static/svc-04985", "partly"},
		"/services?at=100.64.0.3%3A80%2Ftcp":      {"1 frontend at 100.64.0.3:80/tcp", "10.128.3.10:8080"},
		"/services?page=100000":                   {"Page 100 of 100"},
		"/services?q=no-such-thing":               {"No frontend matches"},
		"/services?page=-1&sort=nonsense&state=x": {"Page 1 of 100"},
	} {
		body := get(t, p, target)
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s: there is no %q:\n%s", target, text, body)
			}
		}
	}
}

func TestRatesNeedTwoReadings(t *testing.T) {
	f := &fakeBox{box: healthy(), doc: many(2, 2)}
	p := pageOf(t, f)
	now := noon
	p.now = func() time.Time { return now }
	p.read.now = p.now
	if body := get(t, p, "/"); !strings.Contains(body, "Rates need two readings") || !strings.Contains(body, `<noscript><meta http-equiv="refresh"`) {
		t.Errorf("%s", body)
	}
	f.change(func(f *fakeBox) { f.doc = add(f.doc, 20, 5000) })
	now = now.Add(2 * time.Second)
	body := get(t, p, "/")
	if strings.Contains(body, "Rates need") || strings.Contains(body, "refresh") || !strings.Contains(body, `<td class="n">10.0</td><td class="n opt">20.0k</td><td class="n opt">200k</td>`) {
		t.Errorf("%s", body)
	}
	now = now.Add(time.Hour) // the rates of an hour are no rates of now
	if body := get(t, p, "/"); !strings.Contains(body, "Rates need two readings") {
		t.Errorf("%s", body)
	}
}

func TestBackendsThatTheKernelDoesNotHaveAreShown(t *testing.T) {
	b, doc := healthy(), many(1, 2)
	b.Health.Backends = []status.CheckedBackend{
		{Service: "static/svc-00000", Port: "80/tcp", Backend: "10.128.0.1:8080", State: "up"},
		{Service: "static/svc-00000", Port: "80/tcp", Backend: "10.128.0.9:8080", State: "down", Error: "no answer"},
		{Service: "static/svc-00000", Port: "80/tcp", Backend: "[2001:db8::9]:8080", State: "down", Error: "no answer"},
		{Service: "static/svc-00000", Port: "80/udp", Backend: "10.128.0.8:8080", State: "down", Error: "no answer"},
	}
	got := get(t, pageOf(t, &fakeBox{box: b, doc: doc}), "/services")
	for text, want := range map[string]bool{"10.128.0.9:8080": true, "2001:db8::9": false, "10.128.0.8:8080": false, ">partly<": true} {
		if strings.Contains(got, text) != want {
			t.Errorf("%q: want %v:\n%s", text, want, got)
		}
	}
}

func TestNumbersReadWell(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	if got := cut(strings.Repeat("ü", 400)); got != strings.Repeat("ü", 150)+"..." {
		t.Errorf("cut to %q", got)
	}
}

// TestServersOfMarksHaveChecks shows a backend by firewall mark with its check, and one that is not in the
// kernel because it is down.
func TestServersOfMarksHaveChecks(t *testing.T) {
	key := lb.GivenFrontend(lb.IPv4, 7)
	doc := status.Services{Frontends: []status.Frontend{{
		Key: key, Service: "static/media", Mark: 7, Given: true,
		Servers: []status.Server{{Key: netip.MustParseAddrPort("10.0.0.1:0"), Address: "10.0.0.1:0", Weight: 1, Health: "up"}},
	}}}
	health := status.Health{Backends: []status.CheckedBackend{
		{Service: "static/media", Port: lb.PortKey{}.String(), Backend: "10.0.0.1:0", State: "up"},
		{Service: "static/media", Port: lb.PortKey{}.String(), Backend: "10.0.0.2:0", State: "down"},
		{Service: "static/other", Port: lb.PortKey{}.String(), Backend: "10.0.0.3:0", State: "down"},
	}}
	s := serversOf(doc, health, doc.CountedAt(noon).Since(traffic.Totals{}))[0]
	if len(s.Backends) != 2 || s.Backends[0].Check != &health.Backends[0] || s.Backends[1].Is != down || s.Is != partly {
		t.Errorf("%s with %+v", s.Is, s.Backends)
	}
}

// TestDownBackendsOfTheOtherFamilyAreShown shows UDP backends behind a VIP of the other family that are down, so that
// the kernel has none of them.
func TestDownBackendsOfTheOtherFamilyAreShown(t *testing.T) {
	key := lb.Frontend{Addr: netip.MustParseAddr("2001:db8::1"), Port: 53, Proto: lb.UDP}
	health := status.Health{Backends: []status.CheckedBackend{{Service: "static/dns", Port: "53/udp", Backend: "10.0.0.1:53", State: "down"}}}
	for mixed, want := range map[bool]condition{true: down, false: empty} {
		doc := status.Services{Frontends: []status.Frontend{{Key: key, Service: "static/dns", Mixed: mixed}}}
		if s := serversOf(doc, health, doc.CountedAt(noon).Since(traffic.Totals{}))[0]; s.Is != want || len(s.Backends) > 0 != mixed {
			t.Errorf("mixed %t: %s with %+v", mixed, s.Is, s.Backends)
		}
	}
}

func FuzzQuery(f *testing.F) {
	fuzzing.Wide(f)
	for _, s := range []string{"", "q=web&sort=-conns&state=down&page=3", "at=192.0.2.1%3A80%2Ftcp", "page=99999999999999999999&q=%ff%00", "sort=--state"} {
		f.Add(s)
	}
	box := troubled()
	r := &reading{Box: box, at: noon}
	doc := many(60, 2)
	r.servers = serversOf(doc, status.Health{}, doc.CountedAt(noon).Since(traffic.Totals{}))
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q := parseQuery(values)
		again, err := url.ParseQuery(strings.TrimPrefix(q.encode(), "?"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(q, parseQuery(again)); diff != "" {
			t.Errorf("%q does not lead back to itself (-want +got):\n%s", q.encode(), diff)
		}
		for _, k := range kinds {
			if _, err := newView(k, r, q, noon).Sections(); err != nil {
				t.Error(err)
			}
		}
	})
}

func BenchmarkServicesPage(b *testing.B) {
	f := &fakeBox{box: troubled(), doc: many(5000, 10)}
	p := pageOf(b, f)
	r := p.read.get(b.Context())
	for b.Loop() {
		if _, err := newView(kinds[1], r, parseQuery(nil), noon).Sections(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReading(b *testing.B) {
	f := &fakeBox{box: troubled(), doc: many(5000, 10)}
	p := pageOf(b, f)
	for b.Loop() {
		p.read.next = time.Time{}
		p.read.get(b.Context())
	}
}
