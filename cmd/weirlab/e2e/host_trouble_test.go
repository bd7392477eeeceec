package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// What may happen to the host that weir runs on. New connections, held ones and a UDP flow go on all the
// while, and the changes of a Service are served during or after each trouble.
func TestHostTrouble(t *testing.T) {
	t.Parallel()
	h := newHostTrouble(t)
	for _, tt := range []struct {
		name string
		test func(*hostTrouble, *testing.T)
	}{
		{"the state folder is full", (*hostTrouble).fullDisk},
		{"the state folder is read-only", (*hostTrouble).readOnly},
		{"the state folder has no room for another file", (*hostTrouble).noInodes},
		{"no more files can be opened", (*hostTrouble).noFiles},
		{"the clock is put forward and back", (*hostTrouble).clockSteps},
		{"a pool shrinks and moves", (*hostTrouble).poolMoves},
		{"the API server gets another CA", (*hostTrouble).anotherCA},
		{"the certificate of the API server expires", (*hostTrouble).expired},
		{"the API server is away for hours", (*hostTrouble).hoursAway},
		{"a flood of SYNs", (*hostTrouble).synFlood},
		{"the table of connections is full", (*hostTrouble).fullTable},
		{"weir panics", (*hostTrouble).panics},
		{"weir gets no more memory", (*hostTrouble).noMemory},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(h, t) })
	}
}

// hostTrouble is a site with a cluster, of which one Service changes, and static services. web3 is also a
// router with BFD.
type hostTrouble struct {
	*land
	backend string // of the Service of calmVIP
	addr    string // of that backend
	router  *lab.Router
	pid     int
}

const (
	echoVIP   = "192.0.2.11"
	udpVIP    = "192.0.2.12"
	stickyVIP = "192.0.2.13"
	otherVIP  = "192.0.2.14"
	pooledVIP = "198.51.100.64" // the first of usualPool
	weirDir   = "/var/lib/weir"
)

var usualPool = poolOf("usual", "198.51.100.64/30")

// config is that of the site. A flood has a VIP of its own.
func (h *hostTrouble) config(pools string) string {
	return service("web", "") + strings.NewReplacer(vip4, otherVIP, vip6, "2001:db8:2::14").Replace(service("other", "")) +
		follows("", "prod") + "[addresses]\nlease_cluster = \"prod\"\ndefault_class = false\n" + pools + fmt.Sprintf(`
[bgp]
asn = 64512
[[bgp.peer]]
name = "router"
address = "10.2.0.13"
source_address = "10.2.0.1"
asn = 64513
bfd = true
bfd_interval = "1s" # a busy machine is no fault of these tests
bfd_multiplier = 10

[[service]]
name = "echo"
vips = [%q]
ports = ["7000"]
backends = ["10.2.0.11", "10.2.0.12", "10.2.0.13"]

[[service]]
name = "names"
vips = [%q]
ports = ["53:5300/udp"]
backends = ["10.2.0.11"]

[[service]]
name = "sticky"
vips = [%q]
ports = ["80:8080"]
backends = ["10.2.0.11", "10.2.0.12", "10.2.0.13"]
affinity_timeout = "3h"
`, echoVIP, udpVIP, stickyVIP)
}

func newHostTrouble(t *testing.T) *hostTrouble {
	lab.Routers.Require(t)
	h := &hostTrouble{land: newLand(t, 1, lab.KubeOptions{})}
	h.weir = hurried(t)
	h.serveAll(t, 8080)
	for i := range webs {
		serveEcho(t, h.web(i+1), 7000)
		serveUDP(t, h.web(i+1), 5300)
	}
	h.box.Must(t, "sh", "-ec", "mkdir -p "+weirDir+"; mount -t tmpfs -o size=1m,nr_inodes=64 none "+weirDir)
	h.run(t, h.config(usualPool))
	h.pid = h.daemon.Pid()
	h.router = h.Router(t, "web3", lab.BIRD, h.box.Must(t, h.weir, "bgp", "router-config", "--vendor", "bird", "--peer", "router"))
	h.backend = "web1"
	h.balance(t, h.prod, "calm", calmVIP, "", "10.2.0.11")
	h.answers(t, calmVIP+":80", "web1")
	h.pooled(t, "pooled", "10.2.0.11")
	h.answers(t, pooledVIP+":80", "web1")
	h.metricIs(t, `weir_bgp_bfd_up{address="10.2.0.13",peer="router"}`, 1)
	return h
}

// clients are those of static services.
func (h *hostTrouble) clients(t *testing.T) *clients {
	t.Helper()
	return slowClients(t, h.client1, hostTargets)
}

var hostTargets = targets{[]string{at(vip4, 80), at(vip6, 80), at(otherVIP, 80)}, []string{at(echoVIP, 7000)}, at(udpVIP, 53)}

// same requires that weir is the same process, with the session that it had.
func (h *hostTrouble) same(t *testing.T, what string) {
	t.Helper()
	if pid := h.weirPid(t); pid != h.pid {
		t.Errorf("%s: weir is process %d, and was %d", what, pid, h.pid)
	}
	if n := h.metric(t, `weir_bgp_flaps_total{address="10.2.0.13",peer="router"}`); n != 0 {
		t.Errorf("%s: the session with the router was lost %v times", what, n)
	}
}

// changes has the Service get another backend, and waits until that one serves.
func (h *hostTrouble) changes(t *testing.T) time.Duration {
	t.Helper()
	h.put(t)
	return h.answers(t, calmVIP+":80", h.backend)
}

func (h *hostTrouble) put(t *testing.T) {
	t.Helper()
	if h.backend == "web1" {
		h.backend, h.addr = "web2", "10.2.0.12"
	} else {
		h.backend, h.addr = "web1", "10.2.0.11"
	}
	h.sliceOf(t, h.prod, "PUT", "/calm", "calm", h.addr)
}

// programs has the Service get another backend, and waits until the kernel has it. Where connections are
// shed, a client is no judge of that.
func (h *hostTrouble) programs(t *testing.T) time.Duration {
	t.Helper()
	h.put(t)
	return eventually(t, 30*time.Second, func() error {
		table := h.box.Must(t, "ipvsadm", "-Ln", "-t", calmVIP+":80")
		if !strings.Contains(table, h.addr+":80") {
			return fmt.Errorf("%s is not a backend:\n%s", h.addr, table)
		}
		return nil
	})
}

// limitConntrack limits the table of connections until undo.
func (h *hostTrouble) limitConntrack(t *testing.T, n int) (undo func()) {
	t.Helper()
	was := h.metric(t, "weir_conntrack_limit")
	h.box.Must(t, "sysctl", "-qw", fmt.Sprintf("net.netfilter.nf_conntrack_max=%d", n))
	return func() { h.box.Must(t, "sysctl", "-qw", fmt.Sprintf("net.netfilter.nf_conntrack_max=%.0f", was)) }
}

// snapshotFails waits until weir reports that it can, or cannot, write the state of the cluster.
func (h *hostTrouble) snapshotFails(t *testing.T, want float64, reason string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		if v := h.metric(t, `weir_kubernetes_snapshot_failed{cluster="prod"}`); v != want {
			return fmt.Errorf("weir_kubernetes_snapshot_failed is %v", v)
		}
		return nil
	})
	if want == 1 {
		out, _ := h.box.Run(within(t, 10*time.Second), h.weir, "status")
		if !strings.Contains(out.Stdout, reason) {
			t.Errorf("weir status does not have %q:\n%s", reason, out.Stdout)
		}
	}
}

// noWrites has the state folder refuse every write: changes are served, and an operator learns what will
// not survive a restart.
func (h *hostTrouble) noWrites(t *testing.T, what, begin, end, reason string) {
	c := h.clients(t)
	h.box.Must(t, "sh", "-ec", begin)
	figure(t, "trouble: "+what+": until a change of a Service is served", h.changes(t))
	h.snapshotFails(t, 1, reason)
	if out := h.box.Must(t, h.weir, "drain", echoVIP); !strings.Contains(out, "save the drain state") || !strings.Contains(out, reason) {
		t.Errorf("weir drain does not say that the drain ends with weir:\n%s", out)
	}
	// A trial that could not end after a crash does not begin.
	h.configure(t, strings.ReplaceAll(h.config(usualPool), stickyVIP, "192.0.2.15"))
	if out := h.call(t, "reload", "--confirm", "5m"); out.Code == 0 || !strings.Contains(out.Stderr, reason) {
		t.Errorf("weir reload --confirm, exit code %d, does not say %q:\n%s%s", out.Code, reason, out.Stdout, out.Stderr)
	}
	if _, err := get(within(t, 10*time.Second), h.client1, at(stickyVIP, 80)); err != nil {
		t.Errorf("a VIP that the refused configuration lacks: %v", err)
	}
	h.box.Must(t, "sh", "-ec", end)
	h.reload(t, h.config(usualPool))
	h.changes(t)
	h.snapshotFails(t, 0, "")
	h.box.Must(t, h.weir, "drain", echoVIP)
	h.box.Must(t, h.weir, "undrain", echoVIP)
	c.unhurt(t, what)
	h.same(t, what)
}

func (h *hostTrouble) fullDisk(t *testing.T) {
	h.noWrites(t, "full disk", "cat /dev/zero >"+weirDir+"/large || true", "rm "+weirDir+"/large", "no space left on device")
}

func (h *hostTrouble) readOnly(t *testing.T) {
	soakOnly(t, "a full disk refuses the same writes, with another error")
	h.noWrites(t, "read-only disk", "mount -o remount,ro "+weirDir, "mount -o remount,rw "+weirDir, "read-only file system")
}

func (h *hostTrouble) noInodes(t *testing.T) {
	soakOnly(t, "a full disk refuses the same writes, with the same error")
	h.noWrites(t, "no inodes", "cd "+weirDir+"; touch $(seq -f small%g 100) || true", "rm "+weirDir+"/small*", "no space left on device")
}

// noFiles takes away weir's right to open a file more. What it needs is open.
func (h *hostTrouble) noFiles(t *testing.T) {
	c := h.clients(t)
	// Below the number of open files: one that is closed meanwhile makes no room.
	h.box.Must(t, "prlimit", "--pid", fmt.Sprint(h.pid), "--nofile=3:")
	h.put(t)
	if err := h.daemon.Expect(within(t, time.Minute), "too many open files"); err != nil {
		t.Errorf("no write of state and no audit has failed: %v", err)
	}
	h.box.Must(t, "prlimit", "--pid", fmt.Sprint(h.pid), "--nofile=4096:")
	h.answers(t, calmVIP+":80", h.backend)
	h.changes(t)
	c.unhurt(t, "no files")
	h.same(t, "no files")
}

// tracks waits until the kernel tracks so many connections. A request for metrics would need one more.
func (h *hostTrouble) tracks(t *testing.T, want int) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if n := h.tracked(t); n < want {
			return fmt.Errorf("%d connections, want %d", n, want)
		}
		return nil
	})
}

// tracked is the number of connections that the kernel tracks.
func (h *hostTrouble) tracked(t *testing.T) int {
	t.Helper()
	text, err := h.box.ReadFile(t.Context(), "/proc/sys/net/netfilter/nf_conntrack_count")
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(text))
	must(t, err)
	return n
}

// synFlood sends SYNs of random sources to a VIP, which no host completes. The kernel gives up such entries
// for others: held connections go on, most new ones are served, and at least 80 % of those of another VIP.
func (h *hostTrouble) synFlood(t *testing.T) {
	c := startClients(t, h.client1, hostTargets)
	limit := h.tracked(t) + 3000 // ended connections of earlier stories are not given up
	undo := h.limitConntrack(t, limit)
	defer undo()
	flood, err := h.client2.Start("perl", "-e", floodOfSYNs, vip4)
	must(t, err)
	defer flood.Kill()
	h.tracks(t, limit-100)
	full := time.Now()
	c.ended(t, 300)
	took := h.programs(t)
	over := time.Now()
	flood.Kill()
	c.noneCut(t, "SYN flood with a full table of connections")
	undo()
	other := c.fresh.Stop().To(at(otherVIP, 80)).Between(full, over)
	if lost := len(other.Lost()); len(other) == 0 || 5*lost > len(other) {
		t.Errorf("another VIP than that of the flood: %s, of at least 80 %%", other.Report())
	}
	figure(t, "trouble: SYN flood: another VIP", other.Report())
	figure(t, "trouble: SYN flood: until the kernel has a change of a Service", took)
	h.answers(t, calmVIP+":80", h.backend)
}

// floodOfSYNs sends SYNs of random sources in 198.18.0.0/15 to port 80 of an address, about 400 a second.
const floodOfSYNs = `
use Socket;
socket(my $s, AF_INET, SOCK_RAW, 255) or die $!;
setsockopt($s, 0, 3, 1) or die $!;
my $to = inet_aton($ARGV[0]);
sub sum { my $n = 0; $n += $_ for unpack("n*", $_[0]); $n = ($n & 0xffff) + ($n >> 16) while $n >> 16; ~$n & 0xffff }
while (1) {
	for (1 .. 40) {
		my $from = pack("CCCC", 198, 18, rand(256), rand(256));
		my $port = 1024 + int(rand(60000));
		my $tcp = pack("nnNNCCnnn", $port, 80, rand(2**32), 0, 0x50, 2, 8192, 0, 0);
		my $sum = sum($from . $to . pack("nn", 6, length($tcp)) . $tcp);
		substr($tcp, 16, 2) = pack("n", $sum);
		send($s, pack("CCnnnCCn", 0x45, 0, 40, rand(65536), 0, 64, 6, 0) . $from . $to . $tcp, 0, sockaddr_in(80, $to));
	}
	select(undef, undef, undef, 0.1);
}`

// fullTable has the kernel's table of connections be full: held connections go on, new ones are shed, and
// weir reports it. They are served when there is room.
func (h *hostTrouble) fullTable(t *testing.T) {
	c := startClients(t, h.client1, hostTargets)
	flood, err := h.client2.Start("bash", "-c", "while :; do for i in $(seq 50); do echo x >/dev/udp/"+udpVIP+"/53; done; sleep 0.05; done") // fills it in a second
	must(t, err)
	defer flood.Kill()
	undo := h.limitConntrack(t, 500)
	defer undo()
	h.tracks(t, 490)
	c.ended(t, 50)
	out, _ := h.box.Run(within(t, time.Minute), h.weir, "doctor")
	if !strings.Contains(out.Stdout, "of at most 500") {
		t.Errorf("weir doctor does not name the limit:\n%s", out.Stdout)
	}
	flood.Kill()
	undo()
	h.changes(t)
	c.noneCut(t, "full table of connections")
}
