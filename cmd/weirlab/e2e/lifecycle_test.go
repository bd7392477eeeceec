package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

var (
	bothVIPs = []string{vip4, vip6}
	allWebs  = []int{1, 2, 3}
)

// serves is the text of a Service on VIPs, with some of the webs as backends.
func serves(name string, vips []string, port string, on []int, extra string) string {
	var backends []string
	for _, i := range on {
		for _, v := range vips {
			backend := fmt.Sprintf("\"10.2.0.%d\"", i+10)
			if strings.Contains(v, ":") {
				backend = fmt.Sprintf("\"fd02::%d\"", i+10)
			}
			if !slices.Contains(backends, backend) {
				backends = append(backends, backend)
			}
		}
	}
	return fmt.Sprintf("\n[[service]]\nname = %q\nvips = [\"%s\"]\nports = [%q]\nbackends = [%s]\n%s\n",
		name, strings.Join(vips, `", "`), port, strings.Join(backends, ", "), extra)
}

func echoes(on []int, extra string) string { return serves("echo", bothVIPs, "7000", on, extra) }

const echo4, echo6 = vip4 + ":7000", "[" + vip6 + "]:7000"

// drainView is the output of weir about drains.
type drainView struct {
	State  string `json:"state"`
	Drains []struct {
		Frontend, Backend string
		Deadline          time.Time
	} `json:"drains"`
}

func (s *site) draining(t testing.TB) drainView {
	t.Helper()
	var v drainView
	s.weirJSON(t, &v, "status")
	return v
}

// drained waits until no backend drains.
func (s *site) drained(t testing.TB, limit time.Duration) {
	t.Helper()
	eventually(t, limit, func() error {
		if v := s.draining(t); len(v.Drains) > 0 {
			return fmt.Errorf("still draining: %+v", v.Drains)
		}
		return nil
	})
}

// dump is the kernel's state in the output of other tools, in an order that
// does not depend on its history.
func (s *site) dump(t testing.TB) string {
	t.Helper()
	return s.box.Must(t, "sh", "-c", dumpScript)
}

const dumpScript = `
echo "# ipvs"; ipvsadm -Sn | sort
echo "# sets"; ipset save | sed 's/ hashsize [0-9]*//; s/ initval [^ ]*//' | sort
for x in iptables ip6tables; do
	# Without tables and chains that are only there because somebody looked.
	$x-save | awk -v x=$x '/^\*/ { t = $1 } /^-/ { print x, t, $0 } /^:/ && $2 != "ACCEPT" { print x, t, $1, $2 }'
done
for f in ip ip6; do nft list table $f weir 2>/dev/null | sed '/flags/d; /^table/d'; done # without their owner
echo "# addresses"; ip -o addr show scope global | awk '{print $2, $4}' | sort`

// sameState fails the test if two dumps differ.
func sameState(t testing.TB, what, before, after string) {
	t.Helper()
	if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); d != "" {
		t.Errorf("%s: the kernel's state differs (-before +after):\n%s", what, d)
	}
}

// storyOn is a subtest on a site that others use too.
type storyOn[S any] struct {
	name string
	tell func(*testing.T, S)
}

type story = storyOn[*site]

// stories runs subtests that share a site, each from a clean slate. It is cleaned when the
// clients of the story before have gone: one of a connection that is taken away waits for its patience.
func stories[S interface{ cleanSlate(testing.TB) }](t *testing.T, s S, list []storyOn[S]) {
	for i, story := range list {
		if i > 0 {
			s.cleanSlate(t)
		}
		t.Run(story.name, func(t *testing.T) { story.tell(t, s) })
	}
}

// chapters runs subtests that share a site, each from what those before it left.
func chapters[S any](t *testing.T, s S, list []storyOn[S]) {
	for _, story := range list {
		t.Run(story.name, func(t *testing.T) { story.tell(t, s) })
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	for _, i := range allWebs {
		serveEcho(t, s.web(i), 7000)
		serveUDP(t, s.web(i), 5300)
	}
	stories(t, s, []story{
		{"removed backend keeps its connections until the deadline", backendDrainsToDeadline},
		{"drain ends with the last connection", drainEndsEarly},
		{"removed service keeps its connections and refuses others", serviceDrains},
		{"no drain cuts at once", noDrain},
		{"removed UDP backend is left at once", udpMoves},
		{"drain goes on after a restart", drainSurvivesRestart},
		{"backend that comes back ends its drain", drainIsUndone},
	})
}

func backendDrainsToDeadline(t *testing.T, s *site) {
	const drain = 10 * time.Second
	s.run(t, echoes(allWebs, `drain_timeout = "10s"`))
	conns := holdMany(t, 6, s.client1, echo4, echo6)
	by := conns.By()
	if len(by["web3"]) != 4 {
		t.Fatalf("web3 has %d of 12 held connections, want a third", len(by["web3"]))
	}
	begin := time.Now()
	s.reload(t, echoes([]int{1, 2}, `drain_timeout = "10s"`))

	v := s.draining(t)
	if len(v.Drains) != 2 || v.Drains[0].Backend != "10.2.0.13:7000" || v.Drains[1].Backend != "[fd02::13]:7000" {
		t.Errorf("weir status tells of the drains %+v, want web3's two", v.Drains)
	}
	if out := s.box.Must(t, s.weir, "status"); !strings.Contains(out, "Draining (2):") || !strings.Contains(out, "10.2.0.13:7000 of 192.0.2.10:7000/tcp, at most") {
		t.Errorf("weir status does not show the drain:\n%s", out)
	}
	for _, line := range linesWith(s.box.Must(t, s.weir, "services"), "13:7000") {
		if !strings.Contains(line, "draining") || !strings.Contains(line, " 0 ") {
			t.Errorf("weir services says of the drained backend %q", line)
		}
	}
	later := holdMany(t, 6, s.client2, echo4, echo6)
	for _, h := range later {
		if h.Server == "web3" {
			t.Error("a new connection went to the backend that is being drained")
		}
	}
	for _, h := range by["web3"] {
		// The box's clock may be behind, and never goes faster.
		if d := mustBeCut(t, h, time.Minute).Sub(begin); d < drain {
			t.Errorf("a connection to the removed backend ended after %s, before its drain of %s", d, drain)
		} else {
			t.Logf("connection to the removed backend lived %s (drain %s), longest gap %s", d.Round(time.Millisecond), drain, h.Gap())
		}
	}
	s.drained(t, 20*time.Second)
	if out := s.box.Must(t, "ipvsadm", "-Sn"); strings.Contains(out, "13:7000") {
		t.Errorf("the kernel still holds the drained backend:\n%s", out)
	}
	rest := append(append(later, by["web1"]...), by["web2"]...)
	releaseAll(t, "connections to other backends", rest)
}

func linesWith(text, part string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func drainEndsEarly(t *testing.T, s *site) {
	s.run(t, echoes(allWebs, `drain_timeout = "10m"`))
	by := holdMany(t, 3, s.client1, echo4, echo6).By()
	s.reload(t, echoes([]int{1, 2}, `drain_timeout = "10m"`))
	if v := s.draining(t); len(v.Drains) != 2 {
		t.Fatalf("draining: %+v, want web3's two", v.Drains)
	}
	for _, h := range by["web3"] {
		moves(t, h)
		if err := h.Release(); err != nil {
			t.Errorf("a connection to the removed backend was cut: %v", err)
		}
	}
	took := eventually(t, 20*time.Second, func() error {
		if out := s.box.Must(t, "ipvsadm", "-Sn"); strings.Contains(out, "13:7000") {
			return fmt.Errorf("no connection is left, but the backend is: %s", s.box.Must(t, "ipvsadm", "-Lnc"))
		}
		return nil
	})
	t.Logf("the drained backend was gone %s after its last connection ended (drain 10m)", took.Round(time.Millisecond))
}

func serviceDrains(t *testing.T, s *site) {
	other := serves("other", []string{"192.0.2.77"}, "7000", []int{1}, "")
	s.run(t, echoes(allWebs, `drain_timeout = "20s"`)+other) // what is asked meanwhile takes seconds
	conns := holdMany(t, 3, s.client1, echo4, echo6)
	elsewhere := hold(t, s.client1, "192.0.2.77:7000")
	begin := time.Now()
	s.reload(t, other)
	for _, a := range []string{echo4, echo6} {
		if got := fate(t.Context(), s.client2, "tcp", a); got != traffic.Refused {
			t.Errorf("a new connection to the removed service on %s: %s, want refused", a, got)
		}
	}
	moves(t, conns...)
	t.Logf("%d connections live on, new ones are refused %s after the removal began", len(conns), time.Since(begin).Round(time.Millisecond))
	s.drained(t, time.Minute) // which costs less to ask than the kernel
	took := eventually(t, time.Minute, func() error {
		if left := linesWith(s.dump(t), vip4+"/"); len(left) > 0 {
			return fmt.Errorf("still there: %q", left)
		}
		return nil
	})
	dump := s.dump(t)
	for _, trace := range []string{vip4 + ":", vip4 + ",", vip4 + "/", vip6 + "]", vip6 + ",", vip6 + "/", "IPS " + vip4 + "\n", "IPS " + vip6 + "\n"} {
		if strings.Contains(dump, trace) {
			t.Errorf("of the removed service the kernel still holds %q", linesWith(dump, strings.TrimSpace(trace)))
		}
	}
	t.Logf("nothing is left of the removed service after %s (drain 20s; seen %s later)", time.Since(begin).Round(time.Millisecond), took.Round(time.Millisecond))
	if err := elsewhere.Release(); err != nil {
		t.Errorf("the connection of another service: %v", err)
	}
}

func noDrain(t *testing.T, s *site) {
	s.run(t, echoes(allWebs, `drain_timeout = "0s"`))
	by := holdMany(t, 3, s.client1, echo4).By()
	begin := time.Now()
	s.reload(t, echoes([]int{1, 2}, `drain_timeout = "0s"`))
	cut := mustBeCut(t, by["web3"][0], time.Minute)
	t.Logf("with drain_timeout = 0s the connection to the removed backend was cut after %s", cut.Sub(begin).Round(time.Millisecond))
	for _, i := range []string{"web1", "web2"} {
		if err := by[i][0].Release(); err != nil {
			t.Errorf("the connection to %s: %v", i, err)
		}
	}
}

func udpMoves(t *testing.T, s *site) {
	dns := func(on ...int) string { return serves("dns", bothVIPs, "5300/udp", on, "") }
	other := serves("other", []string{"192.0.2.77"}, "5300/udp", []int{3}, "")
	s.run(t, dns(1, 2, 3)+other)
	for _, addr := range []string{vip4 + ":5300", "[" + vip6 + "]:5300"} {
		f := startFlow(t, s.client1, 40001, addr)
		old := f.answered(t, 5).Server
		bystander := startFlow(t, s.client2, 40002, addr) // rr: another backend
		side := bystander.answered(t, 5).Server
		if side == old {
			t.Fatalf("both flows are on %s", old)
		}
		unrelated := startFlow(t, s.client1, 40003, "192.0.2.77:5300")
		unrelated.answered(t, 5)
		track := func() []string {
			// With its id: an entry that was made again would have another one.
			return linesWith(s.box.Must(t, "conntrack", "-L", "-p", "udp", "-o", "id"), "dport=5300 src=10.2.0.13")
		}
		idOf := func(lines []string, port string) string {
			for _, l := range lines {
				if strings.Contains(l, "sport="+port) && strings.Contains(l, "dst=192.0.2.77") {
					return l[strings.LastIndex(l, "id="):]
				}
			}
			return ""
		}
		before := idOf(track(), "40003")
		var left []int
		for _, i := range allWebs {
			if "web"+strconv.Itoa(i) != old {
				left = append(left, i)
			}
		}
		begin := time.Now()
		s.reload(t, dns(left...)+other)
		eventually(t, 10*time.Second, func() error {
			if d, _ := f.Last(); d.Server == old || d.At.Before(begin) {
				return fmt.Errorf("the flow is still on %s", old)
			}
			return nil
		})
		f.answered(t, 20)
		now, _ := f.Last()
		lost, gap := f.Stop()
		answers := f.Answers()
		moved := answers[slices.IndexFunc(answers, func(d traffic.Datagram) bool { return d.Server != old })].At
		t.Logf("%s: flow from port 40001 moved from %s to %s %s after the reload began: %d datagrams lost, longest gap %s",
			addr, old, now.Server, moved.Sub(begin).Round(time.Millisecond), lost, gap.Round(time.Millisecond))
		if lost > 5 {
			t.Errorf("%s: %d datagrams were lost when the flow moved, want 5 at most", addr, lost)
		}
		if d := bystander.answered(t, 3); d.Server != side {
			t.Errorf("%s: a flow of another client moved from %s to %s", addr, side, d.Server)
		}
		if lost, gap := bystander.Stop(); lost > 0 {
			t.Errorf("%s: a flow on a backend that stays lost %d datagrams, longest gap %s", addr, lost, gap)
		}
		after := idOf(track(), "40003")
		if before == "" || before != after {
			t.Errorf("%s: the conntrack entry of another service's flow was %q and is %q", addr, before, after)
		}
		unrelated.answered(t, 3)
		if lost, _ := unrelated.Stop(); lost > 0 {
			t.Errorf("%s: a flow of another service lost %d datagrams", addr, lost)
		}
		s.reload(t, dns(1, 2, 3)+other)
	}
}

func drainSurvivesRestart(t *testing.T, s *site) {
	s.run(t, "[defaults]\ndrain_timeout = \"15s\"\n"+echoes(allWebs, ""))
	by := holdMany(t, 3, s.client1, echo4, echo6).By()
	s.reload(t, "[defaults]\ndrain_timeout = \"15s\"\n"+echoes([]int{1, 2}, ""))
	before := s.dump(t)
	s.stop(t, syscall.SIGKILL)
	begin := time.Now()
	s.start(t)
	sameState(t, "restart amid a drain", before, s.dump(t))
	if v := s.draining(t); len(v.Drains) != 2 {
		t.Errorf("after the restart weir drains %+v, want web3's two", v.Drains)
	}
	moves(t, by["web3"]...)
	for _, h := range by["web3"] {
		t.Logf("drained connection ended %s after the restart (drain 15s)", mustBeCut(t, h, time.Minute).Sub(begin).Round(time.Millisecond))
	}
	for _, h := range append(by["web1"], by["web2"]...) {
		if err := h.Release(); err != nil {
			t.Errorf("a connection to another backend: %v", err)
		}
	}
}

func drainIsUndone(t *testing.T, s *site) {
	s.run(t, echoes(allWebs, `drain_timeout = "10s"`))
	by := holdMany(t, 3, s.client1, echo4).By()
	s.reload(t, echoes([]int{1, 2}, `drain_timeout = "10s"`))
	if v := s.draining(t); len(v.Drains) != 2 && len(v.Drains) != 1 {
		t.Errorf("draining %+v", v.Drains)
	}
	s.reload(t, echoes(allWebs, `drain_timeout = "10s"`))
	if v := s.draining(t); len(v.Drains) != 0 {
		t.Errorf("the backend is back, but draining %+v", v.Drains)
	}
	// Another drain of the same length, which began later, ends: the first one would have.
	s.reload(t, echoes(allWebs, `drain_timeout = "10s"`)+serves("later", []string{"192.0.2.77"}, "7000", []int{1}, `drain_timeout = "10s"`))
	later := hold(t, s.client1, "192.0.2.77:7000")
	s.reload(t, echoes(allWebs, `drain_timeout = "10s"`))
	mustBeCut(t, later, time.Minute)
	moves(t, by["web3"]...)
	if got := mustHold(t, s.client2, echo4, 6); got["web3"] != 2 {
		t.Errorf("of 6 new connections %v, want 2 for the backend that came back", got)
	}
}

// mustHold opens n connections and counts who answers.
func mustHold(t testing.TB, from *lab.Machine, addr string, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, h := range holdMany(t, n, from, addr) {
		got[h.Server]++
		_ = h.Release()
	}
	return got
}
