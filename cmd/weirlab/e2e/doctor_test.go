package e2e

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fault is something that is wrong with a box.
type fault struct {
	check string
	// names must be part of the text of doctor's finding.
	names string
	// put puts it in, with sh; repair is for faults without a command of doctor. undo is typed
	// in place of doctor's command, where that can't help in a lab.
	put, repair, undo string
	// severity is that of the finding; empty is warning or error.
	severity string
}

// is reports whether a finding is this fault.
func (x fault) is(f finding) bool { return f.ID == x.check && strings.Contains(f.Text, x.names) }

// finding is a finding of weir doctor -o json.
type finding struct {
	ID, Severity, Text, Fix, Command string
}

// TestDoctor runs weir doctor on a healthy box, and then on one with so many
// faults; its commands are typed as they stand, and nothing is left to find.
func TestDoctor(t *testing.T) {
	e := newEdge(t, 1)
	s := e.boxes[0]
	// All is the operator's here, so that a fault stays until he repairs it.
	s.run(t, strings.Replace(peering(1, "", ""), "[kernel]", "[kernel]\nmanage_sysctls = false", 1)+service("web", ""))
	t.Run("before anybody has set the parameters", func(t *testing.T) {
		found := s.doctor(t)
		s.repair(t, found, fault{check: "sysctl", names: "net.ipv4.ip_forward is 0, and must be 1"}, fault{check: "sysctl", names: "net.ipv4.vs.conntrack is 0"})
		for _, x := range found {
			if x.ID == "sysctl" {
				s.box.Must(t, "sh", "-ec", x.Command)
			}
		}
		e.awaitRoutes(t, bothVIPs, 1)
		eventually(t, time.Minute, func() error { return illness(s.doctor(t)) })
		out := s.box.Must(t, s.weir, "doctor")
		if !strings.HasPrefix(out, "no problems: ") {
			t.Errorf("it says:\n%s", out)
		}
	})
	// So many that the entries of weir doctor, which end in half a minute, are few of all.
	mustGet(t, e.client1, vip4+":80", 150)
	listener, err := s.box.Start("gobgpd", "--api-hosts="+vip4+":80", "--pprof-disable")
	must(t, err)
	s.faults(t, []fault{
		{check: "rp-filter", names: "front1", put: "ip route add default via 10.2.0.11 dev back metric 900; sysctl -qw net.ipv4.conf.front1.rp_filter=1"},
		{check: "conntrack-room", names: "of at most", put: "sysctl -qw net.netfilter.nf_conntrack_max=$(($(cat /proc/sys/net/netfilter/nf_conntrack_count) * 10 / 9))"},
		{check: "port-vip", names: "gobgpd", put: "until grep -q ': 0A0200C0:0050 00000000:0000 0A ' /proc/net/tcp; do sleep 0.1; done", repair: fmt.Sprint("kill ", listener.Pid(), "; while kill -0 ", listener.Pid(), "; do sleep 0.1; done 2>/dev/null")},
		{check: "kube-proxy", names: "KUBE-PROXY-CANARY in table mangle", put: "iptables -t mangle -N KUBE-PROXY-CANARY; iptables -t mangle -A OUTPUT -m comment --comment 'a test' -j KUBE-PROXY-CANARY"},
		{check: "firewall", names: "replies of backend 10.2.0.11: rule 1 of chain FORWARD", put: "iptables -I FORWARD 1 -j DROP", undo: "iptables -D FORWARD -j DROP"}, // doctor has systemd restart weir: TestFirewalls
		{check: "firewall", names: "connections of BGP peer router: rule", put: "iptables -A INPUT -s 10.1.1.254 -p tcp --dport 179 -j REJECT"},
		{check: "route", names: "fd02::13", put: "ip route add blackhole fd02::13", repair: "ip route del blackhole fd02::13"},
		{check: "sysctl-file", names: "/etc/sysctl.d/50-hardening.conf:2", put: "mkdir -p /etc/sysctl.d; printf '# hardened\\nnet.ipv4.ip_forward = 0\\n' >/etc/sysctl.d/50-hardening.conf"},
		{check: "route-localnet", names: "net.ipv4.conf.all.route_localnet", put: "sysctl -qw net.ipv4.conf.all.route_localnet=1"},
		{check: "sysctl", names: "net.ipv4.vs.expire_nodest_conn is 0", put: "sysctl -qw net.ipv4.vs.expire_nodest_conn=0"},
		{check: "mtu", names: "back", put: "ip link set dev back mtu 1400"},
	})
	mustGet(t, e.client1, vip4+":80", 3) // what dropped replies lets them pass
	// A web server with a network that drops large packets, and sends no ICMP.
	e.Host("web1").Must(t, "ip", "link", "set", "dev", "back", "mtu", "1400")
	must(t, e.router.Kill(t.Context()))
	eventually(t, 30*time.Second, func() error { // for as long as a session needs to be missed
		if slices.ContainsFunc(s.doctor(t), func(x finding) bool { return x.ID == "bgp-peer" && x.Severity == "error" }) {
			return nil
		}
		return fmt.Errorf("no session is missed")
	})
	found := s.doctor(t)
	s.repair(t, found, fault{check: "path-mtu", names: "10.2.0.11 answers a small ping"}, fault{check: "path-mtu", names: "fd02::11 answers a small ping"}, fault{check: "bgp-peer", names: "router (10.1.1.254) refuses TCP port 179"})
	must(t, e.router.Start(t.Context()))
	e.awaitRoutes(t, bothVIPs, 1)
	eventually(t, time.Minute, func() error { return illness(s.doctor(t)) })

	s.stop(t, syscall.SIGTERM)
	s.box.Must(t, "iptables", "-P", "FORWARD", "DROP")
	s.repair(t, s.doctor(t), fault{check: "rules", severity: "ok", names: "weir selects iptables and ipset for its rules, not nftables: ", undo: "iptables -P FORWARD ACCEPT"})
	must(t, s.box.WriteFile(t.Context(), configFile, "[kernel]\nmodus = 1\n", 0o644))
	begin := time.Now()
	found = s.doctor(t)
	figure(t, "weir doctor looks at a box, without a daemon", time.Since(begin))
	s.repair(t, found, fault{check: "running", names: "weir is not running"}, fault{check: "config", names: "kernel.modus"})
}

// doctor gives what weir doctor finds.
func (s *site) doctor(t testing.TB) []finding {
	t.Helper()
	begin := time.Now()
	var doc struct{ Findings []finding }
	s.weirJSON(t, &doc, "doctor")
	if took := time.Since(begin); took > time.Minute { // ten seconds, and a busy machine
		t.Errorf("it takes %s", took)
	}
	return doc.Findings
}

// illness are the errors and warnings among findings.
func illness(found []finding) error {
	var out []string
	for _, x := range found {
		if x.Severity == "error" || x.Severity == "warning" {
			out = append(out, x.ID+": "+x.Text)
		}
	}
	if len(out) > 0 {
		return fmt.Errorf("it is found: %s", strings.Join(out, "\n"))
	}
	return nil
}

// faults puts faults in, has all of them found, runs the commands of the findings, and has
// nothing found.
func (s *site) faults(t testing.TB, faults []fault) {
	t.Helper()
	for _, x := range faults {
		if x.put != "" {
			if _, err := s.box.Run(within(t, time.Minute), "sh", "-ec", x.put); err != nil {
				t.Errorf("%s: %v", x.check, err) // the rest of its output shows more
			}
		}
	}
	s.repair(t, s.doctor(t), faults...)
	eventually(t, time.Minute, func() error { return illness(s.doctor(t)) })
}

// repair types the command of each fault that was found.
func (s *site) repair(t testing.TB, found []finding, faults ...fault) {
	t.Helper()
	for _, x := range faults {
		i := slices.IndexFunc(found, x.is)
		if i < 0 {
			t.Errorf("%s (%s) is not found among:\n%+v", x.check, x.names, found)
			continue
		}
		f := found[i]
		if ill := f.Severity == "error" || f.Severity == "warning"; f.Fix == "" && f.Severity != "ok" || x.severity == "" && !ill || x.severity != "" && f.Severity != x.severity {
			t.Errorf("%s has no fix, or another severity: %+v", x.check, f)
		}
		command := cmp.Or(x.undo, f.Command, x.repair)
		if command != "" {
			t.Logf("%s: %s\n# %s", f.ID, f.Text, command)
			if _, err := s.box.Run(within(t, time.Minute), "sh", "-ec", command); err != nil {
				t.Errorf("%s: %v", x.check, err)
			}
		}
	}
}

// unprovoked are the checks of weir doctor that no box can have, and why.
var unprovoked = map[string]string{}

// TestEveryCheckIsPutIntoABox finds each check of packaging/doc/doctor.md among the
// faults of these tests, so that a new check needs one.
func TestEveryCheckIsPutIntoABox(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../packaging/doc/doctor.md")
	must(t, err)
	put := faultsOfTests(t)
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| [^|]+ \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 47 {
		t.Errorf("only %d checks are found in doctor.md", len(rows))
	}
	for _, row := range rows {
		if reason := unprovoked[row[1]]; put[row[1]] == (reason != "") {
			t.Errorf("check %s: a fault of a test is %v, and unprovoked has %q", row[1], put[row[1]], reason)
		}
	}
}

// faultsOfTests gives the checks of all composite literals fault{check: "..."}.
func faultsOfTests(t testing.TB) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	out := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if pair, ok := n.(*ast.KeyValueExpr); ok && fmt.Sprint(pair.Key) == "check" {
				if lit, ok := pair.Value.(*ast.BasicLit); ok {
					out[strings.Trim(lit.Value, `"`)] = true
				}
			}
			return true
		})
	}
	return out
}
