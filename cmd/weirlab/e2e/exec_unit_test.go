package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// execScript writes its rights, leaves a process behind, and fails or hangs for backends on request. Others run beside it:
// the file of the rights is whole at any time.
const execScript = `#!/bin/sh
{ id -un; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; env | sort; } >/tmp/rights.$$ 2>&1
mv /tmp/rights.$$ /tmp/rights
cat /etc/weir/credentials/secret 2>/dev/null && exit 9
touch /etc/written 2>/dev/null && exit 9
sysctl -w net.ipv4.ip_forward=0 >/dev/null 2>&1 && exit 9
setsid sleep 1000 >/dev/null 2>&1 </dev/null &
grep -qx "$1:$2" /srv/dead && { echo "is dead"; exit 2; }
grep -qx "$1:$2" /srv/hung && sleep 1000
[ "$1:$2" = "$WEIR_ADDRESS:$WEIR_PORT" ]
`

// noteScript writes its event to a file.
const noteScript = `#!/bin/sh
echo "$1 $WEIR_KIND $WEIR_TEXT $WEIR_BACKEND $WEIR_REASON" >>/tmp/notes
`

// receivesEvents opens a web server on a host that returns the events posted to it so far.
func (s *site) receivesEvents(t *testing.T, m *lab.Machine, port int) func() []string {
	t.Helper()
	l, err := m.Listen("tcp4", fmt.Sprintf(":%d", port))
	must(t, err)
	var mu sync.Mutex
	var events []string
	t.Cleanup(props.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Kind, Text string
			Attrs      map[string]string
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return // weir, or the test, ends meanwhile
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		events = append(events, strings.TrimSpace(fmt.Sprintf("%s %s %s%s", e.Kind, e.Text, e.Attrs["backend"], e.Attrs["state"])))
	})))
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(events)
	}
}

// hooked waits until the web server of a hook has these events.
func hooked(t *testing.T, posted func() []string, events ...string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		got := posted()
		for _, want := range events {
			if !slices.Contains(got, want) {
				return fmt.Errorf("the web server of a hook has no %q in %q", want, got)
			}
		}
		return nil
	})
}

// TestExecChecks has systemd run the programs of checks in their own unit, as another user.
func TestExecChecks(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	s := openSite(t, underSystemd(plain(lab.UML)))
	s.serveAll(t, 8080)
	s.installUnit(t)
	for name, file := range map[string]struct {
		text string
		mode uint32
	}{"/usr/local/bin/probe": {execScript, 0o755}, "/usr/local/bin/note": {noteScript, 0o755}, "/srv/dead": {"", 0o644}, "/srv/hung": {"", 0o644}, "/etc/weir/credentials/secret": {"x", 0o600}} {
		must(t, s.box.WriteFile(t.Context(), name, file.text, 0o644))
		s.box.Must(t, "chmod", fmt.Sprintf("%o", file.mode), name)
	}
	s.weir = "/usr/bin/weir"
	s.configure(t, "[daemon]\nallow_exec = true\nmetrics_listen = \"10.2.0.1:10267\"\n[[service]]\nname = \"web\"\nvips = [\"192.0.2.10\"]\nports = [\"80:8080\"]\n"+
		"backends = [\"10.2.0.11\", \"10.2.0.12\", \"10.2.0.13\"]\n"+
		"[service.check]\ntype = \"exec\"\nexec = [\"/usr/local/bin/probe\", \"$WEIR_ADDRESS\", \"$WEIR_PORT\"]\ninterval = \"3s\"\ntimeout = \"3s\"\nrise = 1\nfall = 1\n"+
		"[[hook]]\nname = \"note\"\non = [\"backend\"]\nexec = [\"/usr/local/bin/note\", \"edge\"]\n"+
		"[[hook]]\nname = \"web\"\non = [\"backend\", \"health\"]\nurl = \"http://10.2.0.13:9000/events\"\n")
	posted := s.receivesEvents(t, s.web(3), 9000)

	// The socket is disabled after an installation.
	if out, _ := s.box.Run(t.Context(), "systemctl", "is-enabled", "weir-exec.socket"); strings.TrimSpace(out.Stdout) != "disabled" {
		t.Errorf("weir-exec.socket is %q", out.Stdout)
	}
	s.box.Must(t, "systemctl", "start", "weir")
	eventually(t, time.Minute, func() error {
		out, _ := s.box.Run(t.Context(), "weir", "health")
		if !strings.Contains(out.Stdout, "start it with systemctl enable --now weir-exec.socket") {
			return fmt.Errorf("weir health shows no remedy:\n%s", out.Stdout)
		}
		return nil
	})
	s.box.Must(t, "systemctl", "enable", "--now", "weir-exec.socket")
	if out, err := s.box.Run(t.Context(), "systemd-analyze", "verify", "--man=no", "weir-exec.service", "weir-exec.socket"); err != nil || out.Stderr != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out.Stderr)
	}
	eventually(t, time.Minute, func() error {
		if got := s.servers(t, "192.0.2.10:80"); len(got) != 3 {
			return fmt.Errorf("%q serve", got)
		}
		return nil
	})
	if got := mustGet(t, s.client1, "192.0.2.10:80", 9); len(got) != 3 {
		t.Errorf("answers of %v", got)
	}
	// A backend without a result serves, too. The next failures would hide that the box is healthy.
	hooked(t, posted, "health state changed ok")
	for _, unit := range []string{"weir.service", "weir-exec.service"} {
		out, _ := s.box.Run(t.Context(), "systemd-analyze", "security", "--no-pager", unit)
		m := regexp.MustCompile(`Overall exposure level for ` + unit + `: ([0-9.]+)`).FindStringSubmatch(out.Stdout)
		if m == nil {
			t.Fatalf("systemd-analyze security says\n%s%s", out.Stdout, out.Stderr)
		}
		if score, err := strconv.ParseFloat(m[1], 64); err != nil || score > mostExposed {
			t.Errorf("exposure of %s is %s, want at most %.1f:\n%s", unit, m[1], mostExposed, out.Stdout)
		}
		figure(t, "exposure of "+unit+", of 10", m[1])
	}

	// The rights of a program.
	rights := s.box.Must(t, "sh", "-c", "cat /tmp/systemd-private-*-weir-exec.service-*/tmp/rights")
	for _, want := range []string{"weir-exec\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n", "\nWEIR_PORT=8080\n"} {
		if !strings.Contains(rights, want) {
			t.Errorf("no %q in the rights of a program:\n%s", want, rights)
		}
	}
	if strings.Contains(rights, "LISTEN_") || strings.Contains(rights, "INVOCATION_ID") {
		t.Errorf("the environment is not clean:\n%s", rights)
	}

	// A failure and a hang end with a backend that is down, and with no process left.
	must(t, s.box.WriteFile(t.Context(), "/srv/dead", "10.2.0.11:8080\n", 0o644))
	must(t, s.box.WriteFile(t.Context(), "/srv/hung", "10.2.0.12:8080\n", 0o644))
	eventually(t, time.Minute, func() error {
		if got := s.servers(t, "192.0.2.10:80"); len(got) != 1 || got[0] != "10.2.0.13:8080" {
			return fmt.Errorf("%q serve", got)
		}
		return nil
	})
	out, _ := s.box.Run(t.Context(), "weir", "health")
	for _, want := range []string{"exit status 2: is dead", "no answer within 3s"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("weir health does not show %q:\n%s", want, out.Stdout)
		}
	}
	// Hooks got the same events: a program of the unit, and a web server.
	eventually(t, time.Minute, func() error {
		out, _ := s.box.Run(t.Context(), "sh", "-c", "cat /tmp/systemd-private-*-weir-exec.service-*/tmp/notes")
		for _, want := range []string{"edge backend backend down 10.2.0.11:8080 exit status 2: is dead\n", "edge backend backend down 10.2.0.12:8080 no answer within 3s\n"} {
			if !strings.Contains(out.Stdout, want) {
				return fmt.Errorf("the program of a hook has no %q in %q", want, out.Stdout)
			}
		}
		return nil
	})
	hooked(t, posted, "backend backend down 10.2.0.11:8080", "backend backend down 10.2.0.12:8080")
	metrics := http.Client{Transport: &http.Transport{DialContext: s.web(3).DialContext}}
	answer, err := metrics.Get("http://10.2.0.1:10267/metrics")
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	areDocumented(t, string(text))
	if m := regexp.MustCompile(`weir_hook_runs_total\{result="done"\} (\d+)\n`).FindSubmatch(text); m == nil || string(m[1]) == "0" {
		t.Errorf("no run of a hook is counted: %q", m)
	}
	must(t, s.box.WriteFile(t.Context(), "/srv/hung", "", 0o644))
	s.box.Must(t, "systemctl", "stop", "weir")
	eventually(t, time.Minute, func() error {
		if out, err := s.box.Run(t.Context(), "pgrep", "-u", "weir-exec", "sleep"); err == nil {
			return fmt.Errorf("processes of programs are left: %q", out.Stdout)
		}
		if out, err := s.box.Run(t.Context(), "systemctl", "is-active", "weir-exec.socket"); err == nil {
			return fmt.Errorf("the socket is %s without weir", out.Stdout)
		}
		return nil
	})
	s.box.Must(t, "systemctl", "start", "weir")
	s.box.Must(t, "systemctl", "is-active", "weir-exec.socket")
	if mode := strings.TrimSpace(s.box.Must(t, "stat", "-c", "%U %G %a", "/run/weir-exec.socket")); mode != "weir weir 600" {
		t.Errorf("the socket is %s", mode)
	}
}
