package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/lab"
)

// flushAll is what firewall scripts begin with.
const flushAll = `
for x in iptables ip6tables; do
	for t in filter nat mangle raw; do $x -t $t -F; $x -t $t -X; done
done 2>/dev/null; true`

// incident is a change to weir's state in the kernel by another program.
type incident struct {
	name string
	do   string // a shell script
	// reloaded makes weir load its configuration again before.
	reloaded bool
	// kinds are what weir_drift_repairs_total must count, at least one each.
	kinds []string
	// seen is how weir learns of it.
	seen seen
	// cuts marks incidents that clients notice: a request may fail until it is
	// repaired. endsConns are those that end connections: only requests that were
	// under way may fail.
	cuts, endsConns bool
	// part marks a part of another incident, which only make soak has.
	part bool
}

// seen is how weir learns of changes by other programs. With a notification, the next audit is an
// hour away: the repair did not need one.
type seen bool

const (
	// The kernel announces links and addresses, and the legacy tables are checked.
	told seen = true
	// There is no notification of the rest; the audit sees it.
	audited seen = false
)

var incidents = []incident{
	{name: "iptables flushed", do: "iptables -F; iptables -t nat -F; iptables -t nat -X; iptables -X; true", kinds: []string{"rules"}, seen: told, cuts: true},
	{name: "ip6tables flushed", do: "ip6tables -F; ip6tables -t nat -F; ip6tables -t nat -X; ip6tables -X; true", kinds: []string{"rules"}, seen: told, cuts: true},
	{name: "iptables flushed after a reload", reloaded: true, do: "iptables -F; iptables -t nat -F", kinds: []string{"rules"}, seen: told, cuts: true},
	{name: "mangle flushed", do: "iptables -t mangle -F; iptables -t mangle -X; true", kinds: []string{"rules"}, seen: told},
	{name: "one rule deleted", do: "iptables -t nat -D KUBE-POSTROUTING 1", kinds: []string{"rules"}, seen: told},
	{name: "foreign rule before ours", do: "iptables -I INPUT 1 -p udp --dport 9 -j DROP", kinds: []string{"rules"}, seen: told},
	{name: "device deleted", do: "ip link del kube-ipvs0", kinds: []string{"device", "address"}, seen: told, cuts: true},
	{name: "address deleted", do: "ip addr del 192.0.2.10/32 dev kube-ipvs0", kinds: []string{"address"}, seen: told, cuts: true},
	{name: "weight edited", do: "ipvsadm -e -t 192.0.2.10:80 -r 10.2.0.12:8080 -m -w 7", kinds: []string{"real_server"}, seen: audited},
	{name: "scheduler edited", do: "ipvsadm -E -t 192.0.2.10:80 -s wlc", kinds: []string{"virtual_server"}, seen: audited},
	{name: "real server deleted", do: "ipvsadm -d -t 192.0.2.10:80 -r 10.2.0.12:8080", kinds: []string{"real_server"}, seen: audited, endsConns: true},
	{name: "alien real server added", do: "ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.99:8080 -m -w 1", kinds: []string{"real_server"}, seen: audited, cuts: true},
	{name: "virtual server deleted", do: "ipvsadm -D -t 192.0.2.10:80", kinds: []string{"virtual_server", "real_server"}, seen: audited, cuts: true, part: true},
	{name: "set flushed", do: "ipset flush KUBE-LOAD-BALANCER", kinds: []string{"member"}, seen: audited, cuts: true, part: true},
	{name: "all sets flushed", do: "ipset flush", kinds: []string{"member"}, seen: audited, cuts: true},
	{name: "alien set member added", do: "ipset add KUBE-IPVS-PORTS 192.0.2.10,tcp:22", kinds: []string{"member"}, seen: audited},
	{name: "sysctl altered", do: "sysctl -qw net.ipv4.ip_forward=0", kinds: []string{"sysctl"}, seen: audited, cuts: true},
	{name: "ipvsadm -C", do: "ipvsadm -C", kinds: []string{"virtual_server", "real_server"}, seen: audited, cuts: true},
}

func TestDrift(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.rules = "iptables" // TestOwnerOfTables and TestRulesChangeHands have the other owner
	s.serveAll(t, 8080)
	for _, i := range allWebs {
		serveEcho(t, s.web(i), 7000)
	}
	period := driftPeriods[told]
	s.run(t, driftConfig(period))
	for _, in := range incidents {
		t.Run(in.name, func(t *testing.T) {
			if in.part {
				soakOnly(t, "it is a part of another incident")
			}
			if now := driftPeriods[in.seen]; in.reloaded || period != now {
				s.reload(t, driftConfig(now))
				period = now
			}
			before := s.withoutForeignRule(t)
			drift, log := s.driftCounts(t), len(s.daemon.Output())
			v4, v6 := startStream(t, s.client1, vip4+":80"), startStream(t, s.client2, "["+vip6+"]:80")
			v4.more(t, 3)
			if in.seen == audited {
				s.betweenAudits(t)
			}
			// weir looks for changes every half second. It would repair the first part of an incident before the last one.
			must(t, s.daemon.Signal(syscall.SIGSTOP))
			from := time.Now()
			_, failed := s.box.Run(t.Context(), "sh", "-c", in.do)
			to := time.Now()
			must(t, s.daemon.Signal(syscall.SIGCONT))
			must(t, failed)
			// The output of weir is cheap to read; whether it is true comes after.
			took := eventually(t, 30*time.Second, func() error {
				if lines := linesWith(s.daemon.Output()[log:], "msg=applied"); len(lines) == 0 {
					return fmt.Errorf("weir has applied nothing:\n%s", s.daemon.Output()[log:])
				}
				return nil
			})
			v4.more(t, 5)
			v6.more(t, 5)
			// An alien real server stays with weight 0 while clients try to open connections to it.
			eventually(t, 2*time.Minute, func() error {
				if now := s.withoutForeignRule(t); now != before {
					return fmt.Errorf("not as it was (-before +after):\n%s", cmp.Diff(strings.Split(before, "\n"), strings.Split(now, "\n")))
				}
				return nil
			})
			tries := append(v4.Stop(), v6.Stop()...)
			spared := tries
			if in.endsConns {
				before, _, after := tries.Split(from, to)
				spared = append(before, after...)
			}
			if err := spared.Err(3); err != nil && !in.cuts {
				t.Errorf("requests failed meanwhile: %v", err)
			}
			now := s.driftCounts(t)
			for _, kind := range in.kinds {
				if now[kind] <= drift[kind] {
					t.Errorf("weir_drift_repairs_total{kind=%q} was %v and is %v", kind, drift[kind], now[kind])
				}
			}
			lines := linesWith(s.daemon.Output()[log:], "drift found; repairing")
			if len(lines) != 1 {
				t.Errorf("logged %d times, want once:\n%s", len(lines), strings.Join(lines, "\n"))
			}
			if out := linesWith(s.daemon.Output()[log:], "level=ERROR"); len(out) > 0 {
				t.Errorf("errors in the log:\n%s", strings.Join(out, "\n"))
			}
			t.Logf("put right after %s; requests: %s", took.Round(time.Millisecond), tries.Report())
		})
	}
	s.cleanSlate(t)
	stories(t, s, []story{
		{"a flush of all tables cuts no connection", flushCutsNothing},
		{"without the anchor it does", flushWithoutAnchor},
	})
}

// betweenAudits waits for the end of an audit. The next one begins two seconds later: one that is under
// way would see a part of an incident, and the next one the rest.
func (s *site) betweenAudits(t testing.TB) {
	t.Helper()
	count := func() float64 { return s.metric(t, "weir_audit_duration_seconds_count") }
	last := count()
	eventually(t, time.Minute, func() error {
		if count() == last {
			time.Sleep(30 * time.Millisecond) // leaves the box some of its processor
			return errors.New("no audit has ended")
		}
		return nil
	})
}

// driftPeriods are sync_period while weir learns so of what others did.
var driftPeriods = map[seen]time.Duration{told: time.Hour, audited: 2 * time.Second}

// driftConfig is the configuration of TestDrift with audits so often.
func driftConfig(period time.Duration) string {
	return fmt.Sprintf("[kernel]\nsync_period = %q\n", period) + service("web", "")
}

// withoutForeignRule is the state without the rule that an incident adds and
// that weir has to leave in place.
func (s *site) withoutForeignRule(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(s.dump(t)) {
		if !strings.Contains(line, "--dport 9 ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// driftCounts gives weir_drift_repairs_total by kind.
func (s *site) driftCounts(t testing.TB) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for labels, value := range s.metrics(t, "weir_drift_repairs_total") {
		v, err := strconv.ParseFloat(value, 64)
		must(t, err)
		out[strings.Trim(strings.TrimPrefix(labels, "kind="), `"`)] = v
	}
	return out
}

// flushCutsNothing: a flush of all tables takes the last rule away that needs conntrack. What
// keeps the connections then is the anchor; without it they are lost.
func flushCutsNothing(t *testing.T, s *site) {
	s.run(t, echoes(allWebs, ""))
	for round := range sized(1, 3) {
		conns := holdMany(t, 10, s.client1, echo4, echo6)
		begin := time.Now()
		s.box.Must(t, "sh", "-c", flushAll)
		flushed := time.Since(begin)
		took := eventually(t, 10*time.Second, func() error {
			if n := strings.Count(s.dump(t), "KUBE-IPVS-FILTER"); n < 2 {
				return fmt.Errorf("no rules")
			}
			return nil
		})
		for _, h := range conns {
			if h.Err() == nil {
				moves(t, h)
			}
		}
		releaseAll(t, fmt.Sprintf("round %d, masqueraded connections", round+1), conns)
		t.Logf("flush %d took %s, rules were back %s later", round+1, flushed.Round(time.Millisecond), took.Round(time.Millisecond))
	}
}

func flushWithoutAnchor(t *testing.T, s *site) {
	s.run(t, echoes(allWebs, ""))
	s.stop(t, syscall.SIGTERM) // or it would put the anchor back
	conns := holdMany(t, 10, s.client1, echo4, echo6)
	s.box.Must(t, "sh", "-c", "ipvsadm -D -t 192.0.0.8:21 && ipvsadm -D -t [100::8]:21")
	moves(t, conns...)
	s.box.Must(t, "sh", "-c", flushAll)
	// With the rules back at once nothing is repaired.
	s.start(t)
	r := conns.Report(t.Context(), time.Now(), 3*time.Second)
	if r.Cut == 0 {
		t.Errorf("none of %d connections was lost: the other test shows nothing", len(conns))
	}
	t.Logf("control without the anchor: %s", r)
}
