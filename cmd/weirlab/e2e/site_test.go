package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

const (
	vip4 = "192.0.2.10"
	vip6 = "2001:db8:2::10"
)

var webs = []string{"web1", "web2", "web3"}

// site is the plain site with weir on its box.
type site struct {
	*lab.Lab
	box, client1, client2 *lab.Machine
	weir                  string
	daemon                *lab.Proc
	rules                 string // the owner of sets and rules, unless the configuration has one; "" is auto
}

func (s *site) web(i int) *lab.Machine { return s.Host(webs[i-1]) }

// within gives ctx a limit that no healthy lab reaches.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

const configFile = "/etc/weir/weir.toml"

// configure writes the configuration.
func (s *site) configure(t testing.TB, toml string) {
	t.Helper()
	must(t, s.box.WriteFile(within(t, 10*time.Second), configFile, s.complete(toml), 0o644))
}

// complete returns a configuration with [kernel]. Audits are as frequent as a test's
// patience wants, unless another interval is given.
func (s *site) complete(toml string) string {
	if !strings.Contains(toml, "[kernel]") {
		toml = "[kernel]\nsync_period = \"2s\"\n" + toml
	}
	if s.rules != "" && !strings.Contains(toml, "\nrules = ") {
		toml = strings.Replace(toml, "[kernel]\n", fmt.Sprintf("[kernel]\nrules = %q\n", s.rules), 1)
	}
	return toml
}

// start runs the daemon and waits until it is ready.
func (s *site) start(t testing.TB) *lab.Proc {
	t.Helper()
	p, err := s.box.Start(s.weir, "run")
	must(t, err)
	s.daemon = p
	if err := p.Expect(within(t, 3*time.Minute), "msg=ready"); err != nil {
		t.Fatalf("weir is not ready: %v\n%s", err, p.Output())
	}
	return p
}

// run configures and starts.
func (s *site) run(t testing.TB, toml string) {
	t.Helper()
	s.configure(t, toml)
	s.start(t)
}

// stop ends the daemon with a signal and waits for its end.
func (s *site) stop(t testing.TB, sig syscall.Signal) {
	t.Helper()
	must(t, s.daemon.Signal(sig))
	if _, err := s.daemon.Wait(within(t, 30*time.Second)); err != nil && sig != syscall.SIGKILL {
		t.Fatal(err)
	}
}

// reload loads a new configuration, which must be taken.
func (s *site) reload(t testing.TB, toml string) {
	t.Helper()
	s.configure(t, toml)
	s.box.Must(t, s.weir, "reload")
}

// serve has weir serve this configuration from now on: it is started, or reloads.
func (s *site) serve(t testing.TB, toml string) {
	t.Helper()
	if s.daemon == nil {
		s.run(t, toml)
		return
	}
	s.reload(t, toml)
}

// cleanSlate ends weir and takes what it left out of the kernel, for the next
// test on the same site.
func (s *site) cleanSlate(t testing.TB) {
	t.Helper()
	if s.daemon != nil {
		s.daemon.Kill()
		_, _ = s.daemon.Wait(within(t, 30*time.Second))
		s.daemon = nil
	}
	s.box.Must(t, s.weir, "cleanup")
}

// documents are the paths of the daemon's socket that commands read, and print: see printsDocuments.
var documents = map[string]string{
	"status": "/status", "members": "/members", "health": "/health", "services": "/services", "pools": "/pools",
	"bgp neighbors": "/bgp/neighbors", "bgp routes": "/bgp/routes",
}

// weirJSON reads what a reading command prints as JSON: from the socket, since tests ask thousands of times, or
// by the command where it is more than a document of the daemon. Exit codes of a daemon that is not all
// well are fine.
func (s *site) weirJSON(t testing.TB, doc any, args ...string) {
	t.Helper()
	if path, ok := documents[strings.Join(args, " ")]; ok {
		text, err := lab.Get(within(t, 30*time.Second), s.box, "unix", "/run/weir/weir.sock", path)
		must(t, err)
		if err := json.Unmarshal([]byte(text), doc); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
		return
	}
	out, err := s.box.Run(within(t, 30*time.Second), append(append([]string{s.weir}, args...), "-o", "json")...)
	if err != nil && out.Code > 1 {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out.Stdout), doc); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out.Stdout)
	}
}

// printsDocuments requires that commands print the documents that weirJSON takes for their output: the same
// keys, or as many entries of a list.
func (s *site) printsDocuments(t testing.TB, commands ...string) {
	t.Helper()
	for _, command := range commands {
		out, err := s.box.Run(within(t, time.Minute), append(append([]string{s.weir}, strings.Fields(command)...), "-o", "json")...)
		if err != nil && out.Code > 1 {
			t.Errorf("weir %s: %v", command, err)
			continue
		}
		text, err := lab.Get(within(t, time.Minute), s.box, "unix", "/run/weir/weir.sock", documents[command])
		must(t, err)
		if diff := cmp.Diff(keysOf(t, text), keysOf(t, out.Stdout)); diff != "" {
			t.Errorf("the keys of %s, and of weir %s (-want +got):\n%s", documents[command], command, diff)
		}
	}
}

// keysOf returns the keys of a JSON document at the top, or its length if it is a list.
func keysOf(t testing.TB, text string) any {
	t.Helper()
	var doc any
	must(t, json.Unmarshal([]byte(text), &doc))
	switch d := doc.(type) {
	case map[string]any:
		return slices.Sorted(maps.Keys(d))
	case []any:
		return len(d)
	}
	return doc
}

// metric reads one sample from /metrics; name may have labels.
func (s *site) metric(t testing.TB, name string) float64 {
	t.Helper()
	v, ok := s.findMetric(t, name)
	if !ok {
		t.Fatalf("no metric %s", name)
	}
	return v
}

// findMetric is metric for one that may be missing.
func (s *site) findMetric(t testing.TB, name string) (v float64, ok bool) {
	t.Helper()
	text, err := lab.Get(within(t, 30*time.Second), s.box, "tcp", "127.0.0.1:10266", "/metrics")
	must(t, err)
	areDocumented(t, text)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatalf("metric %s: %v", name, err)
			}
			return v, true
		}
	}
	return 0, false
}

// eventually waits until f gives nil.
func eventually(t testing.TB, limit time.Duration, f func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	must(t, traffic.Eventually(context.WithoutCancel(t.Context()), limit, func(context.Context) error { return f() }))
	return time.Since(begin)
}

// figures are what tests have measured, in the order of their ends.
var figures struct {
	sync.Mutex
	lines []string
}

// figure notes what a test has measured, for the table at the end of all tests.
func figure(t testing.TB, what string, value any) {
	t.Helper()
	if d, ok := value.(time.Duration); ok {
		value = d.Round(time.Millisecond)
	}
	t.Logf("%s: %v", what, value)
	figures.Lock()
	defer figures.Unlock()
	figures.lines = append(figures.lines, fmt.Sprintf("  %s\t%v\t%s\n", what, value, t.Name()))
}

// artifactsFolder is the folder for files that outlast a test.
func artifactsFolder() string {
	if folder := os.Getenv("WEIR_LAB_ARTIFACTS"); folder != "" {
		return folder
	}
	return filepath.Join("..", "..", "..", "artifacts")
}

func printFigures(out io.Writer) {
	if len(figures.lines) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nmeasured\t\tby\n%s\n", strings.Join(figures.lines, ""))
	_ = w.Flush() // to a terminal or a log
}

// webServer answers every request with its host's name and the address of who
// asks, and /healthz with the value of health.
type webServer struct {
	name   string
	health atomic.Int32 // status of /healthz
	served atomic.Int64 // requests but those for /healthz
	stop   func()
}

// serveHTTP puts a web server on a host, at every address of it.
func serveHTTP(t testing.TB, m *lab.Machine, port int) *webServer {
	t.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	w := &webServer{name: m.Name()}
	w.health.Store(http.StatusOK)
	w.stop = props.Serve(l, w)
	t.Cleanup(w.stop)
	return w
}

func (w *webServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		rw.WriteHeader(int(w.health.Load()))
		return
	}
	w.served.Add(1)
	props.Named(w.name).ServeHTTP(rw, r)
}

// serveAll puts a web server on all three.
func (s *site) serveAll(t testing.TB, port int) []*webServer {
	t.Helper()
	var out []*webServer
	for i := range webs {
		out = append(out, serveHTTP(t, s.web(i+1), port))
	}
	return out
}

// answer is what came back: which server, and which client it saw.
type answer struct {
	server, saw string
}

// get asks a VIP over a new connection.
func get(ctx context.Context, from *lab.Machine, addr string) (answer, error) {
	a, err := props.Ask(ctx, from.DialContext, addr)
	return answer{a.Server, a.Saw}, err
}

// mustGet is get n times; it counts the answers of each server.
func mustGet(t testing.TB, from *lab.Machine, addr string, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		a, err := get(t.Context(), from, addr)
		if err != nil {
			t.Fatalf("%s asks %s: %v", from.Name(), addr, err)
		}
		got[a.server]++
	}
	return got
}

// fate is the outcome of an attempt to connect.
func fate(ctx context.Context, from *lab.Machine, network, addr string) traffic.Outcome {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second) // TCP tries again after 1 s and 3 s
	defer cancel()
	c, err := from.DialContext(ctx, network, addr)
	if err == nil {
		_ = c.Close()
	}
	return traffic.OutcomeOf(err)
}

// service is the text of a Service with the three web servers.
func service(name, extra string) string {
	return fmt.Sprintf(`
[[service]]
name = %q
vips = [%q, %q]
ports = ["80:8080"]
backends = ["10.2.0.11", "10.2.0.12", "10.2.0.13", "fd02::11", "fd02::12", "fd02::13"]
%s
`, name, vip4, vip6, extra)
}
