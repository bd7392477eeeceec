package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// What is here has no limit of time: how fast it is, is for weirlab bench.

// manyServices is a configuration of n services with 10 backends each, and one that clients use. Audits do
// not disturb what is counted. The first service gives its first backend a weight.
func manyServices(n, weight int) string {
	var b strings.Builder
	b.WriteString("[kernel]\nsync_period = \"1h\"\n")
	fmt.Fprintf(&b, "\n[[service]]\nname = \"first\"\nvips = [\"100.64.255.1\"]\nports = [80]\n")
	for j := range props.PerService {
		fmt.Fprintf(&b, "[[service.backend]]\naddress = \"10.2.255.%d:8080\"\n", j+1)
		if j == 0 {
			fmt.Fprintf(&b, "weight = %d\n", weight)
		}
	}
	return b.String() + props.Services(1, n) + service("web", "")
}

// effort is what weir has asked of the kernel: messages by part, and programs.
type effort map[string]int

var effortLine = regexp.MustCompile(`(?m)^weir_(?:netlink_messages_total\{part="(\w+)"\}|(execs)_total) (\S+)$`)

// effort reads the counters, but for those of the reading itself.
func (s *site) effort(t testing.TB) effort {
	t.Helper()
	text := s.box.Must(t, "sh", "-c", "curl -sSf http://127.0.0.1:10266/metrics | grep -E '^weir_(netlink_messages|execs)'")
	out := effort{}
	for _, m := range effortLine.FindAllStringSubmatch(text, -1) {
		var v float64
		if _, err := fmt.Sscan(m[3], &v); err != nil {
			t.Fatalf("metric %q: %v", m[0], err)
		}
		out[m[1]+m[2]] = int(v)
	}
	delete(out, "reader")
	if len(out) < 5 {
		t.Fatalf("metrics:\n%s", text)
	}
	return out
}

// since gives what was added after before, without what was not.
func (e effort) since(before effort) effort {
	out := effort{}
	for name, n := range e {
		if n != before[name] {
			out[name] = n - before[name]
		}
	}
	return out
}

// one reports whether this is the effort of one change: at most two messages, and
// no program.
func (e effort) one() bool {
	total := 0
	for _, n := range e {
		total += n
	}
	return total >= 1 && total <= 2 && e["execs"] == 0
}

// counted counts, with other people's tools, what the box holds for services.
const counted = `
ipvsadm -Sn > /tmp/now
echo virtual servers $(grep -c '^-A -t 100[.]64[.].* -s rr$' /tmp/now)
echo real servers $(grep -c '^-a -t 100[.]64[.].* -m -w [1-9]$' /tmp/now)
echo addresses $(ip -o -4 addr show dev kube-ipvs0 | grep -c ' 100[.]64[.]')
for s in LOAD-BALANCER IPVS-PORTS IPVS-IPS; do
	echo $s $(nft list set ip weir KUBE-$s | tr , '\n' | grep -c '100[.]64[.]')
done
for c in SERVICES IPVS-FILTER; do nft list chain ip weir KUBE-$c | grep -q '@KUBE-' && echo rules in $c; done`

func programmed(n int) string {
	return fmt.Sprintf("virtual servers %d\nreal servers %d\naddresses %d\n"+
		"LOAD-BALANCER %d\nIPVS-PORTS %d\nIPVS-IPS %d\nrules in SERVICES\nrules in IPVS-FILTER\n", n, 10*n, n, n, n, n)
}

// TestThousandServices has a box with a thousand services, and with ten: what is programmed,
// what a change of one costs, and what a start on all of that writes.
func TestThousandServices(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.serveAll(t, 8080)
	s.configure(t, manyServices(1000, 1))
	begin := time.Now()
	s.start(t)
	took := time.Since(begin)
	t.Run("all are programmed", func(t *testing.T) { programmedCompletely(t, s, 1000, took) })
	clients := startStream(t, s.client1, at(vip4, 80), at(vip6, 80))
	t.Run("a restart writes nothing", func(t *testing.T) { restartWritesNothing(t, s) })
	t.Run("a change takes the same effort as among ten", func(t *testing.T) {
		many := oneChange(t, s, 1000)
		mustHaveLostNothing(t, clients)
		s.cleanSlate(t)
		s.run(t, manyServices(10, 1))
		if few := oneChange(t, s, 10); !maps.Equal(few, many) {
			t.Errorf("with 10 services it took %v, with 1,000 %v", few, many)
		}
	})
}

func programmedCompletely(t *testing.T, s *site, n int, took time.Duration) {
	if got := s.box.Must(t, "sh", "-c", counted); got != programmed(n) {
		t.Fatalf("the box holds\n%swant\n%s", got, programmed(n))
	}
	s.box.Must(t, "sh", "-c", "ipvsadm -Sn | sort > /tmp/weirs; ip netns add other; ip -n other link set lo up")
	begin := time.Now()
	s.box.Must(t, "ip", "netns", "exec", "other", "sh", "-c", "ipvsadm -R < /tmp/weirs")
	peer := time.Since(begin)
	s.box.Must(t, "ip", "netns", "exec", "other", "sh", "-c", "ipvsadm -Sn | sort | cmp - /tmp/weirs")
	s.box.Must(t, "ip", "netns", "del", "other")
	begin = time.Now()
	s.box.Must(t, "curl", "-sSf", "--unix-socket", "/run/weir/weir.sock", "-o", "/dev/null", "http://weir/traffic")
	read := time.Since(begin)
	figure(t, "1,000 services of 10 backends: weir, for everything, from its start to READY", took)
	figure(t, "  ipvsadm -R, for IPVS alone", peer)
	figure(t, "  ratio", fmt.Sprintf("%.2f", took.Seconds()/peer.Seconds()))
	figure(t, "  what they have counted, read once (weir top)", read)
}

// oneChange changes a weight among n services, and gives the effort it took.
func oneChange(t *testing.T, s *site, n int) effort {
	before := s.effort(t)
	s.reload(t, manyServices(n, 5))
	got := s.effort(t).since(before)
	figure(t, fmt.Sprintf("messages for a weight changed among %d services", n), strings.TrimPrefix(fmt.Sprint(got), "map"))
	if !got.one() {
		t.Errorf("%d services: a changed weight took %v, want one or two messages and no program", n, got)
	}
	if now := s.box.Must(t, "ipvsadm", "-Sn"); !strings.Contains(now, "-t 100.64.255.1:80 -r 10.2.255.1:8080 -m -w 5\n") {
		t.Errorf("%d services: ipvsadm does not show the new weight", n)
	}
	return got
}

func restartWritesNothing(t *testing.T, s *site) {
	s.stop(t, syscall.SIGTERM)
	const state = "ipvsadm -Sn; ip addr show dev kube-ipvs0; nft list table ip weir | sed '/flags/d; /^table/d'"
	before := s.box.Must(t, "sh", "-c", state)
	begin := time.Now()
	s.start(t)
	figure(t, "started again on 1,000 services, READY after", time.Since(begin))
	if out := s.daemon.Output(); !strings.Contains(out, "msg=ready services=1001 ops=0 failed=0") {
		t.Errorf("the second start wrote to the kernel:\n%s", out)
	}
	if s.box.Must(t, "sh", "-c", state) != before {
		t.Error("the kernel does not hold what it held before the second start")
	}
	idle := s.effort(t)
	s.box.Must(t, s.weir, "reload")
	if got := s.effort(t).since(idle); len(got) != 0 {
		t.Errorf("a reload of the same took %v", got)
	}
}
