package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// Foreign objects of the kernel: weir does not change them.

// foreignScript makes the foreign objects. kube-ipvs0 may be there or not.
const foreignScript = `
set -e
ip link show kube-ipvs0 >/dev/null 2>&1 || ip link add kube-ipvs0 type dummy
ip addr add 203.0.113.77/32 dev kube-ipvs0
ip link add foreign0 type dummy
ip link set foreign0 up
ip addr add 203.0.113.78/32 dev foreign0
ipvsadm -A -t 203.0.113.1:80 -s wrr
ipvsadm -a -t 203.0.113.1:80 -r 10.2.0.11:9000 -m -w 3
ipvsadm -A -t 192.0.2.10:9999 -s rr
ipvsadm -a -t 192.0.2.10:9999 -r 10.2.0.12:9000 -m -w 2
ipvsadm -A -u 172.31.0.1:53 -s rr
ipvsadm -a -u 172.31.0.1:53 -r 10.2.0.13:53 -m
ipvsadm -A -f 9 -s rr
ipvsadm -a -f 9 -r 10.2.0.13:9000 -m -w 2
ipset create FOREIGN hash:ip
ipset add FOREIGN 203.0.113.5
ipset create KUBE-FOREIGN bitmap:port range 0-65535
iptables -N FOREIGN
iptables -A FOREIGN -s 203.0.113.66 -j DROP
iptables -A INPUT -j FOREIGN
iptables -t nat -N KUBE-FOREIGN
iptables -t nat -A KUBE-FOREIGN -s 203.0.113.67 -j RETURN
iptables -t nat -A PREROUTING -j KUBE-FOREIGN
ip6tables -A FORWARD -s 2001:db8:66::/64 -j DROP
`

const foreignEnd = `
ipvsadm -D -t 203.0.113.1:80; ipvsadm -D -t 192.0.2.10:9999; ipvsadm -D -u 172.31.0.1:53; ipvsadm -D -f 9
iptables -D INPUT -j FOREIGN; iptables -F FOREIGN; iptables -X FOREIGN
iptables -t nat -D PREROUTING -j KUBE-FOREIGN; iptables -t nat -F KUBE-FOREIGN; iptables -t nat -X KUBE-FOREIGN
ip6tables -D FORWARD -s 2001:db8:66::/64 -j DROP
ipset destroy FOREIGN; ipset destroy KUBE-FOREIGN
ip link del foreign0; ip link del kube-ipvs0
true
`

func plantForeign(t testing.TB, s *site)  { t.Helper(); s.box.Must(t, "sh", "-c", foreignScript) }
func removeForeign(t testing.TB, s *site) { t.Helper(); s.box.Must(t, "sh", "-c", foreignEnd) }

// gone returns the lines of before that are no longer in now.
func gone(before, now string) (out []string) {
	have := map[string]bool{}
	for line := range strings.Lines(now) {
		have[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(before) {
		if line = strings.TrimSpace(line); !have[line] {
			out = append(out, line)
		}
	}
	return out
}

// mustKeep fails the test if a line of before is no longer in now.
func mustKeep(t testing.TB, when, before, now string) {
	t.Helper()
	for _, line := range gone(before, now) {
		t.Errorf("%s: a foreign object is gone: %q", when, line)
	}
}

func TestForeignObjects(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.rules = "iptables" // TestOwnerOfTables and TestRulesChangeHands have the other owner
	s.serveAll(t, 8080)
	s.serveAll(t, 9000)
	stories(t, s, []story{
		{"stay untouched through a whole life", foreignObjectsStay},
		{"on a wanted tuple get a note, not a fight", foreignOnTuple},
		{"in exclude_cidrs keep their virtual server", foreignExcluded},
		{"kube-proxy is not fought with", kubeProxyRefused},
	})
}

func foreignObjectsStay(t *testing.T, s *site) {
	plantForeign(t, s)
	defer removeForeign(t, s)
	const visited = "198.51.100.78:80" // a foreign server that clients have a route to
	s.box.Must(t, "sh", "-ec", "sysctl -qw net.ipv4.ip_forward=1; ip addr add 198.51.100.78/32 dev foreign0; ipvsadm -A -t "+visited+" -s rr; ipvsadm -a -t "+visited+" -r 10.2.0.11:9000 -m")
	defer func() { s.box.Must(t, "ipvsadm", "-D", "-t", visited) }()
	before := s.dump(t)
	exclude := "[kernel]\nsync_period = \"1s\"\nexclude_cidrs = [\"172.31.0.0/16\"]\n"
	check := func(when string) { t.Helper(); mustKeep(t, when, before, s.dump(t)) }
	foreign := startStream(t, s.client2, visited)
	foreign.more(t, 3)

	s.run(t, exclude+service("web", ""))
	check("start")
	mustGet(t, s.client1, vip4+":80", 3)
	own := startStream(t, s.client1, at(vip4, 80), at(vip6, 80))
	// The foreign server on weir's VIP: weir refuses what is no port of its own on its
	// VIPs, and this port is not.
	t.Logf("a foreign port on a VIP of weir's: %s", fate(t.Context(), s.client1, "tcp", vip4+":9999"))
	s.auditOnce(t)
	check("audit")
	s.reload(t, exclude+service("web", "")+serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, ""))
	check("reload")
	if out := s.box.Must(t, s.weir, "services"); !strings.Contains(out, "203.0.113.1:80") {
		t.Errorf("weir services does not show the foreign server:\n%s", out)
	}
	s.stop(t, syscall.SIGTERM)
	check("stop")
	s.start(t)
	s.auditOnce(t)
	check("restart")
	mustHaveLostNothing(t, own)
	s.reload(t, exclude)
	check("reload without services")
	s.stop(t, syscall.SIGKILL)
	s.box.Must(t, s.weir, "cleanup")
	foreign.more(t, 3)
	mustHaveLostNothing(t, foreign)
	sameState(t, "a whole life and cleanup", before, s.dump(t))
}

func foreignOnTuple(t *testing.T, s *site) {
	s.box.Must(t, "sh", "-c", "ipvsadm -A -t "+vip4+":80 -s wlc; ipvsadm -a -t "+vip4+":80 -r 10.2.0.13:9000 -m -w 7")
	s.run(t, service("web", ""))
	s.auditOnce(t)
	if got := linesWith(s.box.Must(t, "ipvsadm", "-Sn"), vip4+":80"); len(got) != 2 || !strings.Contains(got[1], "-w 7") {
		t.Errorf("the foreign virtual server is now %q", got)
	}
	out, err := s.box.Run(t.Context(), s.weir, "status")
	if err == nil || out.Code != 1 || !strings.Contains(out.Stdout, "foreign") || !strings.Contains(out.Stdout, "192.0.2.10:80/tcp") {
		t.Errorf("status, exit code %d, does not report the foreign server:\n%s", out.Code, out.Stdout)
	}
	mustGet(t, s.client1, "["+vip6+"]:80", 3) // the rest of the service works
	for _, line := range linesWith(s.box.Must(t, s.weir, "services"), vip4+":80") {
		if strings.Contains(line, "web") {
			t.Errorf("weir services gives the foreign virtual server to a service: %q", line)
		}
	}
	if ops := s.metrics(t, "weir_drift_repairs_total"); len(ops) > 0 {
		t.Errorf("a foreign object counts as drift: %v", ops)
	}
	s.box.Must(t, "ipvsadm", "-D", "-t", vip4+":80")
	took := eventually(t, 15*time.Second, func() error {
		_, err := get(t.Context(), s.client1, vip4+":80")
		return err
	})
	t.Logf("taken over %s after the foreign server had gone (sync_period 2s)", took.Round(time.Millisecond))
	eventually(t, 15*time.Second, func() error { // the first answer may be before the last backend, and the end of the pass
		if got := mustGet(t, s.client1, vip4+":80", 6); got["web1"] != 2 || got["web3"] != 2 {
			return fmt.Errorf("answers after the take-over: %v", got)
		}
		if out, err := s.box.Run(t.Context(), s.weir, "status"); err != nil || strings.Contains(out.Stdout, "foreign") {
			return fmt.Errorf("the note stays: %v\n%s", err, out.Stdout)
		}
		return nil
	})
}

func foreignExcluded(t *testing.T, s *site) {
	exclude := func(cidrs string) string {
		return "[kernel]\nsync_period = \"1s\"\nexclude_cidrs = [" + cidrs + "]\n"
	}
	// In a range that is weir's for all it knows, but for the exclusion: the record
	// of a tuple in weir's set would make a virtual server its own.
	s.box.Must(t, "sh", "-c", "ipvsadm -A -t 192.0.2.99:80 -s wlc; ipvsadm -a -t 192.0.2.99:80 -r 10.2.0.13:9000 -m -w 7")
	defer func() { _, _ = s.box.Run(t.Context(), "ipvsadm", "-D", "-t", "192.0.2.99:80") }()
	before := linesWith(s.box.Must(t, "ipvsadm", "-Sn"), "192.0.2.99")
	s.run(t, exclude(`"192.0.2.99/32"`)+service("web", ""))
	s.box.Must(t, "ipset", "add", "KUBE-LOAD-BALANCER", "192.0.2.99,tcp:80")
	s.auditOnce(t)
	if after := linesWith(s.box.Must(t, "ipvsadm", "-Sn"), "192.0.2.99"); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("in exclude_cidrs there was %q and is %q", before, after)
	}
	mustGet(t, s.client1, vip4+":80", 3)
	// A service in an excluded range can't be: the file is refused.
	s.configure(t, exclude(`"192.0.2.0/24"`)+service("web", ""))
	out, err := s.box.Run(t.Context(), s.weir, "reload")
	if err == nil || !strings.Contains(out.Stderr, `"192.0.2.10" is in "192.0.2.0/24" of kernel.exclude_cidrs`) {
		t.Errorf("a service in exclude_cidrs: exit code %d: %s", out.Code, out.Stderr)
	}
	mustGet(t, s.client1, vip4+":80", 3)
	// A range that becomes foreign while weir has a virtual server there.
	had := linesWith(s.box.Must(t, "ipvsadm", "-Sn"), "192.0.2.10")
	s.reload(t, exclude(`"192.0.2.0/24"`)+serves("web", []string{vip6}, "80:8080", allWebs, ""))
	s.auditOnce(t)
	left := linesWith(s.box.Must(t, "ipvsadm", "-Sn"), "192.0.2.10")
	t.Logf("when a range is excluded at run time, of %d lines of ipvsadm -Sn %d stay", len(had), len(left))
	if out := s.box.Must(t, "ipset", "save"); strings.Contains(out, "192.0.2.10") {
		t.Errorf("weir's sets still hold the excluded VIP:\n%s", strings.Join(linesWith(out, "192.0.2.10"), "\n"))
	}
	if len(left) > 0 {
		s.box.Must(t, "ipvsadm", "-D", "-t", "192.0.2.10:80")
	}
}

// kube-proxy and weir under the same names would remove each other's work.
func kubeProxyRefused(t *testing.T, s *site) {
	s.box.Must(t, "ipset", "create", "KUBE-NODE-PORT-TCP", "bitmap:port", "range", "0-65535")
	s.box.Must(t, "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	defer func() { s.box.Must(t, "sh", "-c", "ipset destroy KUBE-NODE-PORT-TCP; ip link del kube-ipvs0") }()
	before := s.dump(t)
	s.configure(t, service("web", ""))
	for _, cmd := range []string{"run", "plan", "cleanup"} {
		out := s.call(t, cmd)
		if out.Code != 1 || !strings.Contains(out.Stderr, "kube-proxy --cleanup") ||
			!strings.Contains(out.Stderr, "KUBE-NODE-PORT-TCP") || !strings.Contains(out.Stderr, "kernel.name_prefix") {
			t.Errorf("weir %s beside kube-proxy: exit code %d: %s%s", cmd, out.Code, out.Stdout, out.Stderr)
		}
	}
	sameState(t, "refused commands", before, s.dump(t))
	s.run(t, "[kernel]\nsync_period = \"2s\"\nname_prefix = \"WEIR\"\ndevice = \"weir0\"\n"+service("web", ""))
	mustGet(t, s.client1, vip4+":80", 3)
	mustGet(t, s.client1, "["+vip6+"]:80", 3)
	s.cleanSlate(t)
	sameState(t, "a life under another name", before, s.dump(t))
}
