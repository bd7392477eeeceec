package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

func TestRestart(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.serveAll(t, 8080)
	for _, i := range allWebs {
		serveEcho(t, s.web(i), 7000)
	}
	stories(t, s, []story{
		{"under load loses and writes nothing", restartUnderLoad},
		{"on_stop cleanup leaves nothing", stopCleansUp},
		{"kill -9 amid a sync of many services converges", killAmidSync},
		{"the power is cut", powerIsCut},
	})
}

func restartUnderLoad(t *testing.T, s *site) {
	s.run(t, service("web", "")+echoes(allWebs, ""))
	one := startStream(t, s.client1, vip4+":80", "["+vip6+"]:80")
	two := startStream(t, s.client2, "["+vip6+"]:80", vip4+":80")
	conns := holdMany(t, 5, s.client1, echo4, echo6)
	one.more(t, 50)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		before := s.dump(t)
		at := one.Answered() + two.Answered()
		s.stop(t, sig)
		down := one.Answered() + two.Answered()
		one.more(t, 20)
		begin := time.Now()
		s.start(t)
		t.Logf("%v: ready %s after start; %d requests were answered while it stopped, %d until it was ready again",
			sig, time.Since(begin).Round(time.Millisecond), down-at, one.Answered()+two.Answered()-down)
		s.auditOnce(t)
		sameState(t, sig.String()+" and start", before, s.dump(t))
		if ops := s.metrics(t, "weir_ops_total"); len(ops) > 0 {
			t.Errorf("%v: the restarted daemon has written to the kernel: %v", sig, ops)
		}
		if drift := s.metrics(t, "weir_drift_repairs_total"); len(drift) > 0 {
			t.Errorf("%v: the restarted daemon took what it found for drift: %v", sig, drift)
		}
		t.Logf("%v: messages since the start, all of which read: %v, programs run: %v",
			sig, s.metrics(t, "weir_netlink_messages_total"), s.metrics(t, "weir_execs_total"))
		one.more(t, 20)
	}
	mustHaveLostNothing(t, one, two)
	releaseAll(t, "held connections", conns)
}

// metrics reads all samples of a name, by their labels.
func (s *site) metrics(t testing.TB, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(s.box.Must(t, "curl", "-sf", "http://127.0.0.1:10266/metrics")) {
		if sample, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, labels, _ := strings.Cut(sample, "{"); n == name {
				out[strings.TrimSuffix(labels, "}")] = value
			}
		}
	}
	return out
}

// lastAudit is the end of the last audit.
func (s *site) lastAudit(t testing.TB) time.Time {
	t.Helper()
	var v struct {
		Kernel struct {
			LastAudit time.Time `json:"last_audit"`
		} `json:"kernel"`
	}
	s.weirJSON(t, &v, "status")
	return v.Kernel.LastAudit
}

// auditOnce waits until one more audit has ended, from its begin to its end.
func (s *site) auditOnce(t testing.TB) {
	t.Helper()
	seen := s.lastAudit(t)
	for range 2 { // the first may have begun before
		eventually(t, 30*time.Second, func() error {
			if now := s.lastAudit(t); !now.After(seen) {
				return fmt.Errorf("no audit since %s", seen)
			}
			return nil
		})
		seen = s.lastAudit(t)
	}
}

func stopCleansUp(t *testing.T, s *site) {
	before := s.dump(t)
	s.run(t, "[daemon]\non_stop = \"cleanup\"\n"+service("web", ""))
	mustGet(t, s.client1, vip4+":80", 3)
	s.stop(t, syscall.SIGTERM)
	if out := s.daemon.Output(); !strings.Contains(out, "cleaned up") {
		t.Errorf("the log does not tell of the cleanup:\n%s", out)
	}
	sameState(t, "run and stop with on_stop = cleanup", before, s.dump(t))
}

// twoEach is n services with two backends each, on 250 VIPs at most.
func twoEach(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[service]]\nname = \"s%d\"\nvips = [\"198.51.100.%d\"]\nports = [\"%d:8080\"]\nbackends = [\"10.2.0.11\", \"10.2.0.12\"]\n",
			i, i%250+1, 80+i/250)
	}
	return b.String()
}

type kill struct{ when, until string }

// kills are moments within a sync of n services, some of them random. Each is a shell
// script that ends when the moment has come for process $pid.
func kills(r *rand.Rand, n int) []kill {
	servers := func(n int) string {
		return fmt.Sprintf(`perl -e 'do { open F, "/proc/net/ip_vs"; @l = <F> } until @l > %d; kill 9, $ARGV[0]' $pid`, n)
	}
	at := func(n int) kill { return kill{fmt.Sprintf("at %d lines of ip_vs", n), servers(n)} }
	return []kill{
		{"at the first member", `until nft list set ip weir KUBE-IPVS-IPS 2>/dev/null | grep -q elements; do :; done`},
		at(20), at(20 + r.IntN(n)), at(20 + n + r.IntN(2*n-100)),
		{"at the first address", `until ip -o addr show dev kube-ipvs0 2>/dev/null | grep -q 198.51.100; do :; done`},
	}
}

func killAmidSync(t *testing.T, s *site) {
	// The foreign objects have rules in INPUT of iptables, beside which auto selects iptables.
	s.rules = "nftables"
	defer func() { s.rules = "" }()
	plantForeign(t, s)
	defer removeForeign(t, s)
	foreign := s.dump(t)
	n := sized(400, 1000)
	s.run(t, twoEach(n))
	want := s.dump(t)
	s.stop(t, syscall.SIGTERM)
	begin := time.Now()
	s.box.Must(t, s.weir, "cleanup")
	t.Logf("cleanup of %d services took %s", n, time.Since(begin).Round(time.Millisecond))
	sameState(t, "run and cleanup beside foreign objects", foreign, s.dump(t))

	partial := 0
	for _, k := range kills(random(t), n) {
		s.killedRun(t, k.until)
		had := s.dump(t)
		servers, reals := len(linesWith(had, "-A -t 198.51.100.")), len(linesWith(had, "-a -t 198.51.100."))
		members, addresses := strings.Count(had, " . tcp . "), len(linesWith(had, "kube-ipvs0 198.51.100."))
		if n := servers + reals + members + addresses; n > 0 && had != want {
			partial++
		}
		begin := time.Now()
		s.start(t)
		t.Logf("killed %s: %d of %d virtual servers, %d of %d real servers, %d set members and %d of 250 addresses were there; ready %s after the next start",
			k.when, servers, n, reals, 2*n, members, addresses, time.Since(begin).Round(time.Millisecond))
		sameState(t, "kill "+k.when+" and start", want, s.dump(t))
		if drift := s.metrics(t, "weir_drift_repairs_total"); len(drift) > 0 {
			t.Errorf("kill %s: counted as drift: %v", k.when, drift)
		}
		mustGet(t, s.client1, "198.51.100.150:81", 2)
		s.stop(t, syscall.SIGKILL)
		s.box.Must(t, s.weir, "cleanup")
	}
	if partial == 0 {
		t.Error("no kill came while weir was writing: the test shows nothing")
	}
	sameState(t, "kills, starts and cleanups", foreign, s.dump(t))
}

// killedRun runs the daemon in one command on the box, and kills it with SIGKILL
// when a script reports that the moment has come.
func (s *site) killedRun(t testing.TB, until string) {
	t.Helper()
	s.box.Must(t, "sh", "-c", s.weir+` run >/dev/null 2>&1 & pid=$!; `+until+`; kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null; true`)
}

// powerIsCut takes the power of a box that serves. All that outlives it is what
// is on disk, /etc/weir: a weir started on that serves as before.
func powerIsCut(t *testing.T, s *site) {
	s.run(t, service("web", ""))
	s.box.Must(t, "sync") // the configuration has long been on disk
	vips := []string{at(vip4, 80), at(vip6, 80)}
	for _, vip := range vips {
		mustGet(t, s.client1, vip, 3)
	}
	s.box.PowerCut()
	if _, err := s.daemon.Wait(within(t, 30*time.Second)); err == nil {
		t.Error("the end of weir was seen, though the power was cut")
	}
	if _, err := get(within(t, time.Second), s.client1, vips[0]); err == nil {
		t.Error("a box without power serves")
	}
	begin := time.Now()
	must(t, s.box.Boot(t.Context()))
	booted := time.Since(begin)
	if out := s.box.Must(t, "ipvsadm", "-Sn"); out != "" {
		t.Errorf("the kernel holds something before weir starts:\n%s", out)
	}
	s.start(t)
	for _, vip := range vips {
		eventually(t, 30*time.Second, func() error {
			_, err := get(t.Context(), s.client1, vip)
			return err
		})
	}
	served := time.Since(begin)
	figure(t, "power back, first requests answered after", served)
	figure(t, "  of that the boot of the kernel", booted)
	for _, vip := range vips {
		// A SYN that was on its way during the cut may arrive now and take a turn.
		if by := mustGet(t, s.client2, vip, 9); len(by) != 3 {
			t.Errorf("%s after the power cut: answers by %v, want all three", vip, by)
		}
	}
}
