package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/lab"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	webs := s.serveAll(t, 8080)
	for _, i := range allWebs {
		serveEcho(t, s.web(i), 7000)
	}
	stories(t, s, []story{
		{"reading commands beside other people's tools", readingCommands},
		{"without a daemon they say something useful", withoutDaemon},
		{"invalid configuration is exit code 2", invalidConfig},
		{"a socket elsewhere is found", socketElsewhere},
		{"plan prints what the reload then does", planIsTrue},
		{"systemd is told", systemdIsNotified},
		{"HTTP endpoints", func(t *testing.T, s *site) { endpoints(t, s, webs) }},
	})
}

// call runs weir and gives what came of it, whatever that is.
func (s *site) call(t testing.TB, args ...string) lab.Output {
	t.Helper()
	out, err := s.box.Run(within(t, time.Minute), append([]string{s.weir}, args...)...)
	if err != nil && out.Code == 0 {
		t.Fatal(err)
	}
	return out
}

func readingCommands(t *testing.T, s *site) {
	s.run(t, service("web", "affinity_timeout = \"300s\"")+echoes(allWebs, ""))
	conns := holdMany(t, 3, s.client1, echo4, echo6)
	for _, format := range []string{"table", "json", "yaml"} {
		for _, what := range []string{"status", "services", "conns"} {
			out := s.call(t, what, "-o", format)
			if out.Code != 0 || out.Stderr != "" {
				t.Errorf("weir %s -o %s: exit code %d: %s", what, format, out.Code, out.Stderr)
			}
			if format == "json" && !json.Valid([]byte(out.Stdout)) {
				t.Errorf("weir %s -o json is no JSON:\n%s", what, out.Stdout)
			}
			if format == "yaml" && strings.HasPrefix(out.Stdout, "{") {
				t.Errorf("weir %s -o yaml is JSON:\n%s", what, out.Stdout)
			}
			if format == "table" {
				t.Logf("weir %s:\n%s", what, out.Stdout)
			}
		}
	}
	s.printsDocuments(t, "status", "services", "health", "pools")
	// The same virtual and real servers as ipvsadm, weights and counters too,
	// but for the anchor.
	words := func(text string) []string {
		var out []string
		for _, line := range linesWith(text, ":") {
			f := strings.Fields(line)
			if strings.HasPrefix(line, "->") {
				out = append(out, strings.Join(f[1:6], " "))
			} else {
				out = append(out, strings.Join(f[:3], " "))
			}
		}
		out = slices.DeleteFunc(out, func(l string) bool {
			return strings.Contains(l, "192.0.0.8:21") || strings.Contains(l, "[100::8]:21") || strings.Contains(l, "Address:Port")
		})
		slices.Sort(out)
		return out
	}
	want := words(s.box.Must(t, "ipvsadm", "-Ln"))
	got := words(s.box.Must(t, s.weir, "services"))
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("weir services and ipvsadm -Ln differ (-ipvsadm +weir):\n%s", d)
	}
	var doc struct {
		Connections []struct{ Client, Frontend, Backend, State string }
	}
	s.weirJSON(t, &doc, "conns", vip4+":7000")
	if len(doc.Connections) != 3 {
		t.Errorf("weir conns %s:7000 has %d connections, want 3", vip4, len(doc.Connections))
	}
	ipvs := s.box.Must(t, "ipvsadm", "-Lnc")
	for _, c := range doc.Connections {
		found := slices.ContainsFunc(linesWith(ipvs, c.Client+" "), func(l string) bool {
			return strings.Contains(l, c.Frontend) && strings.Contains(l, c.Backend) && strings.Contains(l, c.State)
		})
		if !found {
			t.Errorf("ipvsadm -Lnc does not have %+v", c)
		}
	}
	if out := s.call(t, "conns", "--limit", "2"); len(strings.Split(strings.TrimSpace(out.Stdout), "\n")) != 4 || !strings.Contains(out.Stdout, "--limit shows more") {
		t.Errorf("weir conns --limit 2:\n%s", out.Stdout)
	}
	for _, wrong := range [][]string{{"status", "-o", "xml"}, {"conns", "somewhere"}, {"conns", "--limit", "0"}, {"plan", "--against", "x"}, {"status", "--nonsense"}} {
		if out := s.call(t, wrong...); out.Code != 2 || out.Stdout != "" || out.Stderr == "" {
			t.Errorf("weir %v: exit code %d, want 2 and a message: %s%s", wrong, out.Code, out.Stdout, out.Stderr)
		}
	}
	if out := s.call(t, "version"); out.Code != 0 || !strings.HasPrefix(out.Stdout, "weir ") {
		t.Errorf("weir version: %+v", out)
	}
	if out := s.call(t, "check"); out.Code != 0 || !strings.Contains(out.Stdout, "valid, 2 services") {
		t.Errorf("weir check: %+v", out)
	}
	before := s.dump(t)
	if out := s.call(t, "cleanup"); out.Code != 1 || !strings.Contains(out.Stderr, "stop weir first") {
		t.Errorf("weir cleanup beside the daemon: exit code %d: %s", out.Code, out.Stderr)
	}
	if out := s.call(t, "run"); out.Code != 1 || !strings.Contains(out.Stderr, "another weir") {
		t.Errorf("a second weir run: exit code %d: %s", out.Code, out.Stderr)
	}
	sameState(t, "a refused cleanup and a second daemon", before, s.dump(t))
	if r := conns.Release(); r.Cut > 0 {
		t.Errorf("a refused cleanup and a second daemon: held connections: %s", r)
	}
}

func withoutDaemon(t *testing.T, s *site) {
	s.run(t, service("web", ""))
	s.stop(t, syscall.SIGTERM)
	out := s.call(t, "status")
	if out.Code != 3 || !strings.Contains(out.Stderr, "weir is not running") ||
		!strings.Contains(out.Stderr, "has 2 virtual servers with 6 real servers and keeps forwarding to them") {
		t.Errorf("weir status: exit code %d, want 3 and what goes on:\n%s", out.Code, out.Stderr)
	}
	t.Logf("weir status says:\n%s", out.Stderr)
	mustGet(t, s.client1, vip4+":80", 3)
	for _, what := range []string{"services", "conns"} {
		out := s.call(t, what)
		if out.Code != 0 || !strings.Contains(out.Stderr, "not running") || !strings.Contains(out.Stdout, "10.2.0.11:8080") {
			t.Errorf("weir %s: exit code %d:\n%s%s", what, out.Code, out.Stderr, out.Stdout)
		}
	}
	if out := s.call(t, "reload"); out.Code != 3 || !strings.Contains(out.Stderr, "not running") {
		t.Errorf("weir reload: exit code %d: %s", out.Code, out.Stderr)
	}
	// A socket that a killed daemon left behind does not answer.
	s.start(t)
	s.stop(t, syscall.SIGKILL)
	if out := s.call(t, "status"); out.Code != 3 || !strings.Contains(out.Stderr, "not running") {
		t.Errorf("weir status after kill -9: exit code %d: %s", out.Code, out.Stderr)
	}
	// Other programs may have changed the rules.
	s.cleansUp(t, "nft", "flush", "chain", "ip", "weir", "KUBE-POSTROUTING")
	s.configure(t, "[kernel]\nrules = \"iptables\"\n"+service("web", ""))
	s.start(t)
	s.stop(t, syscall.SIGKILL)
	s.cleansUp(t, "iptables", "-t", "nat", "-F", "KUBE-POSTROUTING")
	if out := s.call(t, "status"); out.Code != 3 || !strings.Contains(out.Stderr, "has no objects of weir") {
		t.Errorf("weir status after cleanup: exit code %d: %s", out.Code, out.Stderr)
	}
}

// cleansUp calls weir cleanup twice after a change.
func (s *site) cleansUp(t *testing.T, change ...string) {
	t.Helper()
	s.box.Must(t, change...)
	if out := s.call(t, "cleanup"); out.Code != 0 || !regexp.MustCompile(`(?m)^\d+ objects removed from the kernel$`).MatchString(out.Stdout) {
		t.Errorf("weir cleanup after %v: exit code %d:\n%s%s", change, out.Code, out.Stdout, out.Stderr)
	}
	if out := s.call(t, "cleanup"); out.Code != 0 || out.Stdout != "0 objects removed from the kernel\n" {
		t.Errorf("weir cleanup once more: exit code %d:\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
}

func invalidConfig(t *testing.T, s *site) {
	before := s.dump(t)
	s.configure(t, strings.Replace(service("web", ""), "backends", "backend_list", 1))
	for cmd, code := range map[string]int{"run": 78, "check": 2, "plan": 2} {
		out := s.call(t, cmd)
		if out.Code != code || !strings.Contains(out.Stderr, configFile+":8: service.web.backend_list: there is no such key") {
			t.Errorf("weir %s: exit code %d, want %d and file, line and key:\n%s", cmd, out.Code, code, out.Stderr)
		}
	}
	s.box.Must(t, "rm", configFile)
	for _, cmd := range []string{"run", "check", "plan"} {
		if out := s.call(t, cmd); out.Code == 0 || cmd == "check" && out.Code != 2 || !strings.Contains(out.Stderr, configFile) {
			t.Errorf("weir %s without a file: exit code %d:\n%s", cmd, out.Code, out.Stderr)
		}
	}
	sameState(t, "commands with an invalid configuration", before, s.dump(t))
	s.configure(t, "")
}

func socketElsewhere(t *testing.T, s *site) {
	s.run(t, "[daemon]\nsocket = \"/run/elsewhere/weir.sock\"\n"+service("web", ""))
	before := s.dump(t)
	for _, cmd := range []string{"status", "services", "reload"} {
		if out := s.call(t, cmd); out.Code != 0 || out.Stderr != "" {
			t.Errorf("weir %s: exit code %d: %s", cmd, out.Code, out.Stderr)
		}
	}
	// To miss the daemon here would be to cut all traffic.
	if out := s.call(t, "cleanup"); out.Code != 1 || !strings.Contains(out.Stderr, "stop weir first") {
		t.Errorf("weir cleanup beside the daemon: exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	if out := s.call(t, "run"); out.Code != 1 {
		t.Errorf("a second weir run: exit code %d: %s", out.Code, out.Stderr)
	}
	// Nor is another socket a way to have two weirs.
	s.configure(t, "[daemon]\nsocket = \"/run/third/weir.sock\"\nhealth_listen = \"\"\nmetrics_listen = \"\"\npage_listen = \"\"\n[kernel]\nsync_period = \"2s\"\ntcp_timeout = \"77s\"\n")
	if out := s.call(t, "run"); out.Code != 1 || !strings.Contains(out.Stderr, "another weir") {
		t.Errorf("a second weir run with a socket of its own: exit code %d: %s", out.Code, out.Stderr)
	}
	if out := s.call(t, "cleanup", "--socket", "/run/third/weir.sock"); out.Code != 1 || !strings.Contains(out.Stderr, "another weir") {
		t.Errorf("weir cleanup that asks at another socket: exit code %d: %s", out.Code, out.Stderr)
	}
	if out := s.box.Must(t, "ipvsadm", "-L", "--timeout"); strings.Contains(out, "77") {
		t.Errorf("a refused weir has set timeouts: %s", out)
	}
	sameState(t, "a refused cleanup", before, s.dump(t))
}

func planIsTrue(t *testing.T, s *site) {
	debug := "[daemon]\nlog_level = \"debug\"\n"
	s.configure(t, debug+service("web", ""))
	planned := func() []string {
		t.Helper()
		var ops []string
		for line := range strings.Lines(s.box.Must(t, s.weir, "plan", "--all")) {
			if verb, _, _ := strings.Cut(line, " "); verb == "add" || verb == "change" || verb == "delete" {
				ops = append(ops, strings.TrimSpace(line))
			}
		}
		return ops
	}
	logged := func(from int) []string {
		var ops []string
		for _, line := range linesWith(s.daemon.Output()[from:], "msg=op ") {
			_, op, _ := strings.Cut(line, " op=")
			ops = append(ops, strings.Trim(op, `"`))
		}
		return ops
	}
	want := planned()
	s.start(t)
	eventually(t, 10*time.Second, func() error {
		if n := len(logged(0)); n < len(want) {
			return fmt.Errorf("%d of %d ops logged", n, len(want))
		}
		return nil
	})
	if d := cmp.Diff(want, logged(0)); d != "" {
		t.Errorf("a first start did something else than weir plan printed (-plan +start):\n%s", d)
	}
	t.Logf("first start: %d ops as planned", len(want))
	for _, change := range []struct{ name, toml string }{
		{"nothing", debug + service("web", "")},
		{"a service more and another scheduler", debug + service("web", `scheduler = "wlc"`) + echoes(allWebs, "source_ranges = [\"10.1.0.0/24\"]")},
		{"a backend less", debug + service("web", `scheduler = "wlc"`) + echoes([]int{1, 2}, "source_ranges = [\"10.1.0.0/24\"]")},
		{"a service less", debug + service("web", `scheduler = "wlc"`)},
		{"no service", debug},
	} {
		t.Run(change.name, func(t *testing.T) {
			s.drained(t, 20*time.Second) // of the change before
			s.configure(t, change.toml)
			want, at := planned(), len(s.daemon.Output())
			s.box.Must(t, s.weir, "reload")
			var got []string
			eventually(t, 10*time.Second, func() error { // the log is on its way
				if got = logged(at); len(got) < len(want) {
					return fmt.Errorf("%d of %d ops logged: %q", len(got), len(want), got)
				}
				return nil
			})
			if strings.HasSuffix(change.name, "less") || change.name == "no service" {
				got = got[:len(want)] // the ends of drains come later
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the reload did something else than weir plan printed (-plan +reload):\n%s", d)
			}
			t.Logf("%d ops as planned", len(want))
		})
	}
}

// receiver prints the messages to systemd, one line each, and with READY what
// the kernel holds at that moment.
const receiver = `use IO::Socket::UNIX; use Socket; $| = 1; unlink "/run/notify";
my $s = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => "/run/notify") or die;
print "listening\n";
while (defined $s->recv(my $b, 65536)) {
	if ($b =~ /READY=1/) {
		my $n = () = ` + "`ipvsadm -Sn`" + ` =~ /8080/g;
		my $a = () = ` + "`ip addr show dev kube-ipvs0`" + ` =~ /192\.0\.2\.10\/32/g;
		$b .= "\nholds=$n servers, $a address";
	}
	$b =~ s/\n/ | /g; print "$b\n";
}`

func systemdIsNotified(t *testing.T, s *site) {
	systemd, err := s.box.Start("perl", "-e", receiver)
	must(t, err)
	defer systemd.Kill()
	must(t, systemd.Expect(within(t, 20*time.Second), "listening"))

	// A backend that does not answer delays the result of the first check, and with it the
	// first state, for as long as its check may take. A host that is not there fails after three seconds.
	silent := func(do string) {
		t.Helper()
		s.web(3).Must(t, "sh", "-ec", fmt.Sprintf("for p in iptables ip6tables; do $p %s INPUT -p tcp --dport 8080 -j DROP; done", do))
	}
	silent("-I")
	defer silent("-D")
	s.configure(t, "[kernel]\nsync_period = \"1s\"\n"+service("web", "[service.check]\ntype = \"tcp\"\ninterval = \"10s\"\ntimeout = \"10s\"\n"))
	p, err := s.box.Launch(lab.Command{Args: []string{s.weir, "run"}, Env: []string{"NOTIFY_SOCKET=/run/notify", "WATCHDOG_USEC=1500000"}})
	must(t, err)
	s.daemon = p
	eventually(t, 20*time.Second, func() error {
		if out := s.call(t, "status"); out.Code != 1 || !strings.HasPrefix(out.Stdout, "weir is starting") {
			return fmt.Errorf("status while it starts: exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
		}
		return nil
	})
	if code := s.httpStatus(t, "/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("/healthz answers %d while weir starts, want 503", code)
	}
	if out := systemd.Output(); strings.Contains(out, "READY=1") {
		t.Errorf("ready before the first verdicts:\n%s", out)
	}
	must(t, systemd.Expect(within(t, 30*time.Second), "READY=1 | holds=6 servers, 1 address"))
	must(t, systemd.Expect(within(t, 10*time.Second), "STATUS=weir is degraded: 2 of 6 backends down"))

	// The loop feeds the watchdog, three times in its time.
	beats := func() int { return strings.Count(systemd.Output(), "WATCHDOG=1") }
	begin, seen := time.Now(), beats()
	figure(t, "6 beats of the watchdog, which waits for 1.5 s", eventually(t, time.Minute, func() error {
		if n := beats(); n < seen+6 {
			return fmt.Errorf("%d beats in %s", n-seen, time.Since(begin))
		}
		return nil
	}))
	told := func() string { return systemd.Output() }
	at := len(told())
	s.box.Must(t, s.weir, "reload")
	eventually(t, 10*time.Second, func() error {
		if !regexp.MustCompile(`(?s)RELOADING=1 \| MONOTONIC_USEC=[1-9]\d+\n.*READY=1`).MatchString(told()[at:]) {
			return fmt.Errorf("of the reload systemd was told:\n%s", told()[at:])
		}
		return nil
	})
	at = len(told())
	s.configure(t, "nonsense")
	if out := s.call(t, "reload"); out.Code != 1 {
		t.Errorf("a bad reload: exit code %d", out.Code)
	}
	eventually(t, 10*time.Second, func() error {
		if !regexp.MustCompile(`(?s)RELOADING=1.*READY=1.*STATUS=weir is degraded: the last reload was refused`).MatchString(told()[at:]) {
			return fmt.Errorf("of a bad reload systemd was told:\n%s", told()[at:])
		}
		return nil
	})
	s.stop(t, syscall.SIGTERM)
	must(t, systemd.Expect(within(t, 10*time.Second), "STOPPING=1"))
	t.Logf("systemd was told:\n%s", regexp.MustCompile(`(WATCHDOG=1\n)+`).ReplaceAllString(told(), "WATCHDOG=1 ...\n"))
	s.configure(t, "")
}

// httpStatus gives the status code of one of weir's HTTP endpoints.
func (s *site) httpStatus(t testing.TB, path string) int {
	t.Helper()
	out := s.box.Must(t, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:10266"+path)
	var code int
	if _, err := fmt.Sscan(out, &code); err != nil {
		t.Fatalf("curl says %q: %v", out, err)
	}
	return code
}

// samples reads /metrics: values by name and labels, sorted, as "name a=b c=d".
func (s *site) samples(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(s.box.Must(t, "curl", "-sf", "http://127.0.0.1:10266/metrics")) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line[:at], "{")
		labels := strings.Split(strings.TrimSuffix(rest, "}"), ",")
		slices.Sort(labels)
		key := strings.TrimSpace(name + " " + strings.ReplaceAll(strings.Join(labels, " "), `"`, ""))
		out[key] = strings.TrimSpace(line[at:])
	}
	return out
}

func endpoints(t *testing.T, s *site, webs []*webServer) {
	// The connections are counted by backend: none of them may miss two checks on a busy machine.
	s.run(t, service("web", calmCheck("http", httpCheck)))
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/metrics": 200, "/": 200, "/status": 404} {
		if got := s.httpStatus(t, path); got != want {
			t.Errorf("%s answers %d, want %d", path, got, want)
		}
	}
	if out := s.box.Must(t, "curl", "-s", "http://127.0.0.1:10266/healthz"); out != "weir is ok: 1 service on 2 VIPs\n" {
		t.Errorf("/healthz says %q", out)
	}
	mustGet(t, s.client1, vip4+":80", 9)
	const (
		port    = "port=80 protocol=tcp service=static/web"
		front   = port + " vip=192.0.2.10"
		backend = "backend=10.2.0.12:8080 "
	)
	want := map[string]string{
		"weir_up":                                           "1",
		"weir_services":                                     "1",
		"weir_objects kind=virtual_server":                  "2",
		"weir_backend_up " + backend + port:                 "1",
		"weir_service_connections_total " + front:           "9",
		"weir_backend_connections_total " + backend + front: "3",
		"weir_config_last_reload_successful":                "1",
		"weir_ops_pending":                                  "0",
		"weir_drains":                                       "0",
	}
	// The kernel adds its counters up every two seconds.
	eventually(t, 10*time.Second, func() error {
		have, got := s.samples(t), map[string]string{}
		for name := range want {
			got[name] = have[name]
		}
		if d := cmp.Diff(want, got); d != "" {
			return fmt.Errorf("metrics (-want +got):\n%s", d)
		}
		return nil
	})
	// One failed backend is worth a check, but no reason to send clients elsewhere.
	webs[0].health.Store(http.StatusServiceUnavailable)
	defer webs[0].health.Store(http.StatusOK)
	eventually(t, 30*time.Second, func() error {
		if got := s.samples(t)["weir_backend_up backend=10.2.0.11:8080 "+port]; got != "0" {
			return fmt.Errorf("weir_backend_up is %s", got)
		}
		return nil
	})
	if got := s.httpStatus(t, "/healthz"); got != 200 {
		t.Errorf("/healthz answers %d with a sick backend, want 200", got)
	}
}
