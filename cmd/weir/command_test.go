package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/plan"
)

// weir runs a command as a user would, and gives what it printed and its exit
// status.
func weir(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	now := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	code = run(context.Background(), env{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, now: now}, args)
	return out.String(), errs.String(), code
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.toml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const (
	validConfig = `
[[service]]
name = "web"
vips = ["192.0.2.10"]
ports = [80]
backends = ["10.0.0.1"]
`
	invalidConfig = `
[[service]]
name = "web"
vips = ["192.0.2.10"]
prots = [80]
scheduler = "wrrr"
backends = ["10.0.0.1"]
`
	bgpConfig = validConfig + `
[bgp]
asn = 64500
router_id = "10.0.0.5"
[[bgp.peer]]
name = "tor1"
address = "10.0.0.1"
asn = 64501
[[bgp.peer]]
name = "tor2"
address = "10.0.0.2"
asn = 64500
`
	clusterConfig = `[[kubernetes]]
name = "prod"
kubeconfig = "/nowhere/kubeconfig"
load_balancer_ranges = ["192.0.2.0/24"]
[[kubernetes]]
name = "in-this-pod"
serve = ["ExternalIP"]
external_ip_ranges = ["203.0.113.0/24"]
`
	warnedConfig = validConfig + `
[[service]]
name = "empty"
vips = ["192.0.2.11"]
ports = [80]
`
)

func TestCheckReportsEveryError(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		code         int
		out          string // of standard output and error together, FILE for the file
	}{
		{"valid", validConfig, 0, "FILE: valid, 1 service\n"},
		{"invalid", invalidConfig, exitInvalid, `FILE:2: service.web.ports: is missing; add ports = ["80:8080"]
FILE:5: service.web.prots: there is no such key; did you mean ports?
FILE:6: service.web.scheduler: "wrrr" is not a scheduler; did you mean "wrr"?
`},
		{"warned", warnedConfig, 0, ""},
		{"routers", bgpConfig, 0, "FILE: valid, 1 service, 2 BGP peers\n"},
		{"clusters", clusterConfig, 0, `FILE:3: warning: kubernetes.prod.kubeconfig: open /nowhere/kubeconfig: no such file or directory; weir waits until it exists
FILE: valid, 0 services, 2 clusters
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := write(t, tt.config)
			stdout, stderr, code := weir(t, "check", file)
			if code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			want := tt.code
			if strings.Contains(stderr, ": warning: ") {
				want = 1
			}
			if _, _, code := weir(t, "check", "--strict", "-c", file); code != want {
				t.Errorf("--strict: exit status %d, want %d", code, want)
			}
			got := strings.ReplaceAll(stderr+stdout, file, "FILE")
			if tt.out == "" {
				t.Log(got)
				return
			}
			if d := cmp.Diff(tt.out, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestPlanAgainstNothingPrintsAllInOrder(t *testing.T) {
	file := write(t, validConfig)
	stdout, stderr, code := weir(t, "plan", "--against", "nothing", "--all", file)
	if code != 0 || stderr != "" {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	want := []string{
		"sysctl net.ipv4.vs.conntrack=1", "device kube-ipvs0", "set IPVS-IPS IPv4 (hash:ip)", "rules IPv4",
		"member IPVS-IPS 192.0.2.10", "member LOAD-BALANCER 192.0.2.10,tcp:80",
		"virtual server 192.0.2.10:80/tcp rr", "real server 10.0.0.1:80 of 192.0.2.10:80/tcp weight 1",
		"member IPVS-PORTS 192.0.2.10,tcp:80", "address 192.0.2.10",
	}
	at := 0
	for line := range strings.Lines(stdout) {
		if at < len(want) && strings.TrimSpace(line) == "add "+want[at] {
			at++
		}
	}
	if at < len(want) {
		t.Errorf("no %q in its place in:\n%s", want[at], stdout)
	}
	again, _, _ := weir(t, "plan", "--against", "nothing", "--all", "-c", file)
	if d := cmp.Diff(stdout, again); d != "" {
		t.Errorf("the same input, other output:\n%s", d)
	}
	short, _, _ := weir(t, "plan", "--against", "nothing", file)
	if !strings.HasPrefix(short, "add base objects: 2 anchor real servers, 2 anchor virtual servers, 1 device, 2 rule sets, ") || strings.Contains(short, "add set ") || !strings.Contains(short, "add address 192.0.2.10\n") {
		t.Errorf("base objects are not one line:\n%s", short)
	}
	text, _, code := weir(t, "plan", "--against", "nothing", "-o", "json", file)
	var doc plan.Diff
	if err := json.Unmarshal([]byte(text), &doc); err != nil || code != 0 || len(doc.Operations) < 50 || doc.Operations[0].Verb != "add" {
		t.Errorf("%v, exit status %d: %d operations", err, code, len(doc.Operations))
	}
}

func TestPlanShowsRoutes(t *testing.T) {
	stdout, stderr, code := weir(t, "plan", "--against", "nothing", "-c", write(t, bgpConfig+`
[[bgp.advertise]]
peers = ["tor2"]
communities = ["no-export"]
[[bgp.advertise]]
`))
	want := "announce 192.0.2.10/32 to tor1\nannounce 192.0.2.10/32 to tor2 with no-export\n"
	if code != 0 || stderr != "" || !strings.Contains(stdout, want) || !strings.Contains(stdout, "\nroutes: 1 to announce, 0 to change, 0 to withdraw\n") {
		t.Errorf("exit status %d, says %q:\n%s", code, stderr, stdout)
	}
}

func TestCommandsReportInvalidArguments(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "weir.sock")
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"unknown command", []string{"serve"}, exitInvalid, `there is no command "weir serve"; use one of backend, bgp, check, cleanup`},
		{"unknown flag", []string{"status", "--jsno"}, exitInvalid, "unknown flag: --jsno; weir status --help lists the flags"},
		{"a similar command", []string{"chekc"}, exitInvalid, `there is no command "weir chekc"; did you mean check?`},
		{"help of an unknown command", []string{"help", "chekc"}, exitInvalid, `did you mean check?`},
		{"help of an unknown subcommand", []string{"help", "bgp", "neighbor"}, exitInvalid, `there is no command "weir bgp neighbor"; did you mean neighbors?`},
		{"an argument that is none", []string{"run", "now"}, exitInvalid, "1 argument given: the command is weir run [flags]; see weir run --help"},
		{"bad match", []string{"conns", "web"}, exitInvalid, `"web" is neither an address`},
		{"bad limit", []string{"conns", "--limit", "0"}, exitInvalid, "at least 1"},
		{"bad against", []string{"plan", "--against", "air", "-c", write(t, validConfig)}, exitInvalid, "neither kernel nor nothing"},
		{"invalid configuration", []string{"run", "-c", write(t, invalidConfig)}, exitUnconfigured, "did you mean"},
		{"no configuration", []string{"check", "-c", nowhere}, exitInvalid, "no such file"},
		{"status without a daemon", []string{"status", "--socket", nowhere}, exitNotRunning, "weir is not running"},
		{"an argument is missing", []string{"explain"}, exitInvalid, "0 arguments given: the command is weir explain ADDRESS[:PORT] [flags]; see weir explain --help"},
		{"an argument too many", []string{"check", "weir.toml", "more"}, exitInvalid, "see weir check --help"},
		{"an MTU without a tunnel", []string{"backend", "--print", "--mtu", "1400", "192.0.2.10"}, exitInvalid, "--mtu has no effect without --tunnel"},
		{"a tunnel without VIPs", []string{"backend", "check", "--tunnel", "ipip"}, exitInvalid, "no VIP is given"},
		{"two files", []string{"check", "weir.toml", "-c", "weir.toml"}, exitInvalid, "not both"},
		{"no vendor", []string{"bgp", "router-config"}, exitInvalid, `--vendor "" is not a kind of router; use one of arista,`},
		{"unknown vendor", []string{"bgp", "router-config", "--vendor", "acme"}, exitInvalid, `--vendor "acme" is not a kind of router; use one of arista, bird, frr, gobgp, junos`},
		{"no peers", []string{"bgp", "router-config", "--vendor", "frr", "-c", write(t, validConfig)}, exitInvalid, "no [[bgp.peer]]"},
		{"unknown peer", []string{"bgp", "router-config", "--vendor", "frr", "--peer", "tor9", "-c", write(t, bgpConfig)}, exitInvalid, `no peer "tor9"`},
		{"drain what is no VIP", []string{"drain", "web"}, exitInvalid, `"web" is not an address`},
		{"drain all and one", []string{"drain", "--all", "192.0.2.1"}, exitInvalid, "--all is every VIP"},
		{"undrain nothing", []string{"undrain"}, exitInvalid, "name the VIPs, or --all"},
		{"drain with an unknown format", []string{"drain", "--all", "--socket", nowhere, "-o", "xml"}, exitInvalid, `invalid argument "xml" for "-o, --output" flag: use one of table, json, yaml`},
		{"two ways to follow", []string{"events", "--follow", "--watch", "--socket", nowhere}, exitInvalid, "--follow and --watch: use one of them"},
		{"drain without a daemon", []string{"drain", "--all", "--socket", nowhere}, exitNotRunning, "weir is not running"},
		{"neighbors without a daemon", []string{"bgp", "neighbors", "--socket", nowhere}, exitNotRunning, "weir is not running"},
		{"pools without a daemon", []string{"pools", "--socket", nowhere}, exitNotRunning, "weir is not running"},
		{"confirm without a daemon", []string{"confirm", "--socket", nowhere}, exitNotRunning, "weir is not running"},
		{"a trial that is too short", []string{"reload", "--confirm", "1ms"}, exitInvalid, "must be between 1s and 24h0m0s"},
		{"a trial of no time", []string{"reload", "--confirm", "soon"}, exitInvalid, "invalid argument"},
		{"a trial that goes back", []string{"reload", "--confirm", "5m", "--back"}, exitInvalid, "use one of them"},
		{"a key that is not there", []string{"config", "explain", "kernel.sync_perod"}, exitInvalid, "did you mean kernel.sync_period?"},
		{"nothing to show", []string{"config", "show", "-c", nowhere}, exitInvalid, "no such file"},
		{"reload without a daemon", []string{"reload", "--socket", nowhere}, exitNotRunning, "weir is not running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, stderr, code := weir(t, tt.args...)
			if code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			if !strings.Contains(stderr, tt.says) {
				t.Errorf("says %q, want %q in it", stderr, tt.says)
			}
		})
	}
}

func TestStatusWithoutADaemonIsADocumentToo(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "weir.sock")
	stdout, stderr, code := weir(t, "status", "--socket", nowhere, "-c", nowhere, "-o", "json")
	var doc struct {
		State    string `json:"state"`
		Problems []status.Problem
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatalf("%v: %q", err, stdout)
	}
	if code != exitNotRunning || stderr != "" || doc.State != "not running" || len(doc.Problems) != 2 || !strings.Contains(doc.Problems[0].Text, nowhere) {
		t.Errorf("exit status %d, says %q, document %+v", code, stderr, doc)
	}
	if stdout, _, code := weir(t, "status", "--socket", nowhere, "-c", nowhere, "-o", "yaml"); code != exitNotRunning || !strings.Contains(stdout, "state: not running\n") {
		t.Errorf("exit status %d as YAML: %q", code, stdout)
	}
}

func TestReloadReportsThatTheDaemonEnded(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "weir.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = conn.Close() // as the kernel does for a killed daemon
		}
	}()
	stdout, stderr, code := weir(t, "reload", "--socket", socket)
	if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "weir: the daemon ended before it answered") {
		t.Errorf("exit status %d, prints %q and %q", code, stdout, stderr)
	}
}

func TestOutputThatCannotBeWrittenIsNoInvalidCommand(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	var errs bytes.Buffer
	e := env{stdout: full, stderr: &errs, now: time.Now}
	if code := run(t.Context(), e, []string{"config", "explain", "kernel.mode"}); code != 1 || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("exit status %d: %q", code, errs.String())
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if stdout, _, code := weir(t, arg); code != 0 || !strings.HasPrefix(stdout, "weir ") {
			t.Errorf("%s: exit status %d: %q", arg, code, stdout)
		}
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
