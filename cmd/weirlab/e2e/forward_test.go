package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// around is the plain site with a router beside the box, which the replies of backends can take to
// the clients, and a fourth backend with a kernel of its own, which can end tunnels:
//
//	client1 10.1.0.2 --\          /-- box ----\          /-- web1 10.2.0.11
//	                    -- front -             -- back ----- web2 10.2.0.12
//	client2 10.1.0.3 --/          \- router --/          |-- web3 10.2.0.13
//	                                  .254               \-- server 10.2.0.14
func around() lab.Site {
	p := plain(lab.UML)
	beside := []string{"default via 10.2.0.254", "default via fd02::fe"}
	for i := range p.Hosts {
		if strings.HasPrefix(p.Hosts[i].Name, "web") {
			p.Hosts[i].Routes = beside
		}
	}
	p.Hosts = append(p.Hosts, lab.Host{
		Name: "router", Forward: true,
		Nets: lab.Nets{"front": "10.1.0.254/24 fd01::fe/64", "back": "10.2.0.254/24 fd02::fe/64"},
	})
	p.Boxes = append(p.Boxes, lab.Box{Name: "server", Kernel: lab.UML, Routes: beside, Nets: lab.Nets{"back": "10.2.0.14/24 fd02::e/64"}})
	return p
}

// endSums has a server require checksums of GRE.
const endSums = `
ip link add sums4 type gre local 10.2.0.14 icsum
ip link add sums6 type ip6gre local fd02::e icsum
ip address add 169.254.87.87/32 dev sums4 scope host
sysctl -qw net.ipv4.conf.sums4.rp_filter=2
ip link set sums4 up
ip link set sums6 up`

// tunnelKinds are the tunnels that a backend ends, one after the other: the flags of weir backend,
// and the keys of the service.
var tunnelKinds = []struct{ flags, keys string }{
	{"--tunnel ipip", ""}, {"--tunnel gre", `tunnel = "gre"`}, {"--tunnel gue", `tunnel = "gue"`},
	{"--tunnel gue", "tunnel = \"gue\"\ntunnel_checksum = \"full\""}, {"--tunnel gue", "tunnel = \"gue\"\ntunnel_checksum = \"remote\""},
	{"--tunnel gue --tunnel-port 7000", "tunnel = \"gue\"\ntunnel_port = 7000"},
}

// The targets of these tests.
var forwardTargets = []string{
	"tcp " + vip4 + ":80", "udp " + vip4 + ":5300", "tcp [" + vip6 + "]:80", "udp [" + vip6 + "]:5300",
}

// forwarded is a Service of both protocols with so many of the web servers.
func forwarded(method string, n int, more string) string {
	var backends []string
	for i := range n {
		backends = append(backends, fmt.Sprintf("%q, %q", fmt.Sprintf("10.2.0.%d", 11+i), fmt.Sprintf("fd02::%d", 11+i)))
	}
	return fmt.Sprintf(`
[[service]]
name = "shop"
vips = [%q, %q]
ports = [80, "5300/udp"]
forward = %q
backends = [%s]
%s`, vip4, vip6, method, strings.Join(backends, ", "), more)
}

// countReplies has the box count the packets that it gets from the backends, by protocol: TCP and UDP.
const countReplies = `
for x in iptables ip6tables; do for p in tcp udp; do $x -t raw -A PREROUTING -i back -p $p; done; done`

// fromBackends returns the counted packets of both families, and forgets them.
func (s *site) fromBackends(t testing.TB) (n int) {
	t.Helper()
	for _, program := range []string{"iptables", "ip6tables"} {
		for line := range strings.Lines(s.box.Must(t, program, "-t", "raw", "-nvxL", "PREROUTING", "-Z")) {
			var packets, bytes int
			if _, err := fmt.Sscan(line, &packets, &bytes); err == nil {
				n += packets
			}
		}
	}
	return n
}

// forwardKit boots the site around the box, with servers that have the VIPs.
func forwardKit(t *testing.T) *tomlKit {
	t.Helper()
	k := newKit(t, around())
	recipe := k.s.box.Must(t, k.s.weir, "backend", "--print", vip4, vip6)
	for i := range webs {
		k.s.web(i+1).Must(t, "sh", "-ec", recipe)
		greet(t, k.s.web(i+1), "tcp", ":80")
		for _, a := range []string{vip4, "[" + vip6 + "]", fmt.Sprintf("10.2.0.%d", 11+i), fmt.Sprintf("[fd02::%d]", 11+i)} {
			greet(t, k.s.web(i+1), "udp", a+":5300")
		}
	}
	k.s.box.Must(t, "sh", "-ec", countReplies)
	return k
}

// TestForwardDirect has backends that reply to clients themselves.
func TestForwardDirect(t *testing.T) {
	t.Parallel()
	k := forwardKit(t)
	s := k.s
	k.given(forwarded("nat", 3, ""))
	for _, target := range forwardTargets {
		k.want("client1", target, "web1 web2 web3 masq")
	}
	if n := s.fromBackends(t); n == 0 {
		t.Fatal("the box counts no replies")
	}

	loaded := func(n int) {
		t.Helper()
		load := startLoad(t, s.client2, traffic.Options{Ask: visiting(s.client2, "tcp")}, vip4+":80", "["+vip6+"]:80")
		load.more(t, n)
		mustHaveLostNothing(t, load)
	}
	loaded(20)
	masqueraded := k.holds("client1", forwardTargets[0])
	s.configure(t, forwarded("direct", 3, ""))
	s.prints(t, "impact: 12 changes from nat to direct with ", 0, "plan")
	_ = masqueraded.Close()
	// No masqueraded connection is left. Each of its packets could have IPVS keep a route without a link address
	// for the VIP, and lose what comes next: concepts.md.
	k.given(forwarded("direct", 3, ""))
	loaded(50)
	s.fromBackends(t)
	for _, target := range forwardTargets {
		k.want("client1", target, "web1 web2 web3 keep")
	}
	if n := s.fromBackends(t); n != 0 {
		t.Errorf("%d packets of backends crossed the box", n)
	}
	k.reusesPorts(t)
	k.want("box", forwardTargets[0], "dropped")
	if out := s.box.Must(t, s.weir, "explain", vip4+":80", "--from", "10.1.0.2"); !strings.Contains(out, "direct routing: the address and port stay, and replies do not pass this box") {
		t.Errorf("explain:\n%s", out)
	}
	if out := s.box.Must(t, s.weir, "services"); strings.Count(out, " Route ") != 12 {
		t.Errorf("services:\n%s", out)
	}

	held := k.holds("client1", forwardTargets[0])
	s.restartWritesNothing(t)
	held.wantAlive(k.kit)
	k.repairsForward(t)
	held.wantAlive(k.kit)
	k.drains(t)
	k.onePacket(t)

	// A backend behind a router.
	s.box.Must(t, "ip", "route", "add", "10.77.0.5", "via", "10.2.0.254")
	k.given(strings.Replace(forwarded("direct", 0, ""), "backends = []", `backends = ["10.77.0.5", "10.2.0.11", "fd02::11"]`, 1))
	behind := fault{check: "direct-path", names: `10.77.0.5 are behind a router, and forward is "direct"`}
	if out, err := s.box.Run(t.Context(), s.weir, "doctor", behind.check); err == nil || !strings.Contains(out.Stdout, behind.names) {
		t.Errorf("doctor: %v\n%s", err, out.Stdout)
	}
}

// countSYNs has the box count what a client sends from one port to begin connections, before IPVS and behind it.
const countSYNs = `
for x in iptables ip6tables; do
	$x -t mangle -I PREROUTING -i front -p tcp --sport 42000 --syn
	$x -t mangle -I POSTROUTING -o back -p tcp --sport 42000 --syn
done`

// reusesPorts has a client connect repeatedly from one port. conntrack would see one direction of its
// connections, and IPVS would drop each SYN but the first.
func (k *tomlKit) reusesPorts(t *testing.T) {
	t.Helper()
	k.s.box.Must(t, "sh", "-ec", countSYNs)
	for from, to := range map[string]string{"10.1.0.2": vip4, "fd01::2": vip6} {
		local := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 42000))
		for range 10 {
			c, err := k.s.client1.DialFrom(within(t, visitTime), "tcp", local, at(to, 80))
			must(t, err)
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		var counted [2]int
		for i, chain := range []string{"PREROUTING", "POSTROUTING"} {
			rule := strings.Split(k.s.box.Must(t, program, "-t", "mangle", "-nvxL", chain, "1"), "\n")[0]
			if _, err := fmt.Sscan(rule, &counted[i]); err != nil {
				t.Fatalf("%s: %v: %q", program, err, rule)
			}
		}
		if counted[0] < 10 || counted[0] != counted[1] {
			t.Errorf("%s: a client that reuses a port sent %d SYNs, and %d passed IPVS", program, counted[0], counted[1])
		}
	}
}

// onePacket has the datagrams of one flow reach all backends, without an entry in the table of IPVS.
func (k *tomlKit) onePacket(t *testing.T) {
	t.Helper()
	k.given(forwarded("direct", 3, "one_packet = true\nscheduler = \"rr\""))
	k.want("client1", forwardTargets[1], "web1 web2 web3 keep")
	for _, addr := range []string{vip4 + ":5300", "[" + vip6 + "]:5300"} {
		c, err := dialerOf(k.s.client1)(t.Context(), "udp", addr)
		must(t, err)
		defer c.Close()
		met := map[string]bool{}
		for range 9 {
			a, err := readGreeting(within(t, visitTime), c, "udp")
			must(t, err)
			met[a.server] = true
		}
		if len(met) != 3 {
			t.Errorf("%s: the datagrams of a flow reached %v", addr, met)
		}
	}
	if out := k.s.box.Must(t, "ipvsadm", "-Ln"); !strings.Contains(out, "ops") {
		t.Errorf("no virtual server has one-packet scheduling:\n%s", out)
	}
}

// restartWritesNothing restarts weir, which adopts the kernel's state. The end of a drain is a write: on a busy machine
// one of the last change can end meanwhile, after its drain_timeout. Then there is another restart.
func (s *site) restartWritesNothing(t *testing.T) {
	t.Helper()
	restart := func() (before, after string, ended bool) {
		drains := s.draining(t).Drains
		before = s.dump(t)
		s.stop(t, syscall.SIGTERM)
		s.start(t)
		s.auditOnce(t)
		after = s.dump(t)
		for _, d := range drains {
			ended = ended || d.Deadline.Before(time.Now())
		}
		return before, after, ended
	}
	before, after, ended := restart()
	if ended {
		s.drained(t, time.Minute)
		before, after, _ = restart()
	}
	sameState(t, "a restart", before, after)
	if ops := s.metrics(t, "weir_ops_total"); len(ops) > 0 {
		t.Errorf("the restarted daemon has written to the kernel: %v", ops)
	}
}

// repairsForward has another program change the method of a backend.
func (k *tomlKit) repairsForward(t *testing.T) {
	t.Helper()
	s := k.s
	server := func() string { return s.box.Must(t, "ipvsadm", "-Ln", "-t", vip4+":80") }
	want := server()
	s.box.Must(t, "ipvsadm", "-e", "-t", vip4+":80", "-r", "10.2.0.12:80", "-m", "-w", "1")
	eventually(t, 20*time.Second, func() error {
		if drift := s.metrics(t, "weir_drift_repairs_total"); drift[`kind="real_server"`] == "" {
			return errors.New("no repair of a real server")
		}
		if got := server(); strings.Contains(got, "Masq") {
			return fmt.Errorf("not repaired:\n%s, at first\n%s", got, want)
		}
		return nil
	})
	k.want("client1", forwardTargets[0], "web1 web2 web3 keep")
}

// drains removes the backends with connections one by one.
func (k *tomlKit) drains(t *testing.T) {
	t.Helper()
	var held []heldConn
	for range 3 {
		held = append(held, k.holds("client1", forwardTargets[0]))
	}
	k.given(forwarded("direct", 2, `drain_timeout = "1h"`))
	k.want("client1", forwardTargets[0], "web1 web2 keep")
	k.want("client1", forwardTargets[1], "web1 web2 keep")
	for _, h := range held {
		h.wantAlive(k.kit)
	}
	if out := k.s.box.Must(t, k.s.weir, "services"); !strings.Contains(out, "draining") {
		t.Errorf("no backend drains:\n%s", out)
	}
}

// asTable has nf_tables own the sets and rules.
const asTable = "[kernel]\nsync_period = \"2s\"\nrules = \"nftables\"\n"

// TestForwardTunnel has a backend that ends tunnels. The rules are those of nf_tables.
func TestForwardTunnel(t *testing.T) {
	t.Parallel()
	k := forwardKit(t)
	server := k.serverBox(t)
	server.Must(t, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=2") // the default of several distributions
	for _, kind := range tunnelKinds {
		t.Logf("kind: %+v", kind)
		command := append([]string{k.s.weir, "backend", vip4, vip6}, strings.Fields(kind.flags)...)
		server.Must(t, command...)
		k.given(asTable + strings.Replace(forwarded("tunnel", 0, kind.keys), "backends = []", `backends = ["10.2.0.14", "fd02::e"]`, 1))
		for _, target := range forwardTargets {
			k.want("client1", target, "server keep")
		}
		k.uploads(t)
		if out := server.Must(t, command...); out != "nothing to do\n" {
			t.Errorf("a second call:\n%s", out)
		}
	}

	server.Must(t, k.s.weir, "backend", vip4, vip6, "--tunnel", "gre")
	server.Must(t, "sh", "-ec", endSums)
	k.given(asTable + strings.Replace(forwarded("tunnel", 0, "tunnel = \"gre\"\ntunnel_checksum = \"full\""), "backends = []", `backends = ["10.2.0.14", "fd02::e"]`, 1))
	for _, target := range forwardTargets {
		k.want("client1", target, "server keep")
	}
	if out := k.s.box.Must(t, k.s.weir, "services"); !strings.Contains(out, "tunnel gre checksum full") {
		t.Errorf("services:\n%s", out)
	}
	server.Must(t, "sh", "-ec", "ip link del sums4; ip link del sums6")
	k.given(asTable + strings.Replace(forwarded("tunnel", 0, `tunnel = "gre"`), "backends = []", `backends = ["10.2.0.14", "fd02::e"]`, 1))
	k.repairsTunnel(t)
	if n := k.s.fromBackends(t); n != 0 {
		t.Errorf("%d packets of backends crossed the box", n)
	}
	k.s.restartWritesNothing(t)

	k.mixesFamilies(t, server)

	// A method for each backend.
	server.Must(t, k.s.weir, "backend", vip4, vip6, "--tunnel", "ipip")
	k.given(asTable + strings.Replace(forwarded("nat", 1, ""), "backends = ", "#", 1) + `
backend = [
  {address = "10.2.0.11"}, {address = "fd02::11"},
  {address = "10.2.0.12", forward = "direct"}, {address = "fd02::12", forward = "direct"},
  {address = "10.2.0.14", forward = "tunnel"}, {address = "fd02::e", forward = "tunnel"},
]`)
	for _, target := range forwardTargets {
		network, addr, _ := strings.Cut(target, " ")
		got := map[string]string{}
		for range 12 {
			a := mustVisit(t, k.s.client1, network, addr)
			got[a.server] = k.source("client1", a.saw)
		}
		if d := cmp.Diff(map[string]string{"web1": "masq", "web2": "keep", "server": "keep"}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", target, d)
		}
	}
}

// mixesFamilies reaches a backend by an address of the other family than the VIP.
func (k *tomlKit) mixesFamilies(t *testing.T, server *lab.Machine) {
	t.Helper()
	for _, kind := range []string{"ipip", "gue", "gre"} {
		server.Must(t, k.s.weir, "backend", vip4, vip6, "--tunnel", kind, "--mixed")
		toml := asTable
		for i, pair := range [][2]string{{vip4, "fd02::e"}, {vip6, "10.2.0.14"}} {
			toml += fmt.Sprintf("[[service]]\nname = \"shop%d\"\nvips = [%q]\nports = [80, \"5300/udp\"]\nforward = \"tunnel\"\ntunnel = %q\nbackends = [%q]\n", i, pair[0], kind, pair[1])
		}
		k.given(toml)
		for _, target := range forwardTargets {
			k.want("client1", target, "server keep")
		}
		k.uploads(t)
		if out := server.Must(t, k.s.weir, "backend", "check"); strings.Contains(out, "FAULT") {
			t.Errorf("%s: check:\n%s", kind, out)
		}
	}
	if out := k.s.box.Must(t, k.s.weir, "explain", "["+vip6+"]:80", "--from", "fd01::2"); !strings.Contains(out, "10.2.0.14:80 in use, weight 1, by tunnel gre") {
		t.Errorf("explain:\n%s", out)
	}
	k.s.restartWritesNothing(t)
}

// repairsTunnel has another program change the tunnel of a backend.
func (k *tomlKit) repairsTunnel(t *testing.T) {
	t.Helper()
	k.s.box.Must(t, "ipvsadm", "-e", "-t", vip4+":80", "-r", "10.2.0.14:80", "-i", "--tun-type", "gue", "--tun-port", "7000", "-w", "1")
	eventually(t, 20*time.Second, func() error {
		if drift := k.s.metrics(t, "weir_drift_repairs_total"); drift[`kind="real_server"`] == "" {
			return errors.New("no repair of a real server")
		}
		return nil
	})
	k.want("client1", forwardTargets[0], "server keep")
}

// uploads sends more than a window through the tunnel. The segments fit it, so no packet is too big
// for it.
func (k *tomlKit) uploads(t *testing.T) {
	t.Helper()
	for _, addr := range []string{vip4 + ":80", "[" + vip6 + "]:80"} {
		c, err := visit(t.Context(), dialerOf(k.s.client1), "tcp", addr)
		must(t, err)
		defer c.Close()
		raw, err := c.Conn.(*net.TCPConn).SyscallConn()
		must(t, err)
		var size int
		var failed error
		if err := raw.Control(func(fd uintptr) { size, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if size > 1440 {
			t.Errorf("%s: segments of %d bytes do not fit a tunnel", addr, size)
		}
		upload(t, c)
	}
}

// upload sends more than a window over a connection to a greeter, which sends it back.
func upload(t *testing.T, c net.Conn) {
	t.Helper()
	const most = 300_000
	go c.Write(make([]byte, most)) //nolint:errcheck // the other end counts
	must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	if n, err := io.CopyN(io.Discard, c, most); err != nil {
		t.Errorf("%s: %d of %d bytes came back: %v", c.RemoteAddr(), n, most, err)
	}
}

// serverBox runs greeters on the backend with a kernel of its own.
func (k *tomlKit) serverBox(t *testing.T) *lab.Machine {
	t.Helper()
	server := &site{Lab: k.s.Lab, box: k.s.Box("server"), weir: k.s.weir}
	server.box.Must(t, k.s.weir, "backend", vip4, vip6)
	server.launchIn(t, "", "listen", "server", "tcp", ":80", "udp", vip4+":5300", "udp", "["+vip6+"]:5300")
	return server.box
}

// TestBackendCommand configures a server, and reverts that.
func TestBackendCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	state := func() string {
		return s.box.Must(t, "sh", "-ec", "ip -o address show dev lo; sysctl net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce; nft list tables; ip -br link show up; ip fou show || true")
	}
	before := state()
	for _, flags := range [][]string{nil, {"--tunnel", "ipip"}, {"--tunnel", "gue"}, {"--tunnel", "gre"}} {
		vips := append([]string{s.weir, "backend", vip4, vip6}, flags...)
		check := append([]string{s.weir, "backend", "check", vip4, vip6}, flags...)
		if out, err := s.box.Run(t.Context(), check...); err == nil || out.Code != 1 || !strings.Contains(out.Stdout, "fix: ip address add "+vip4+"/32 dev lo") {
			t.Errorf("%v: check before: code %d, %v\n%s", flags, out.Code, err, out.Stdout)
		}
		s.box.Must(t, vips...)
		var report struct {
			OK    bool
			Parts []struct{ Wanted string }
		}
		s.weirJSON(t, &report, "backend", "check")
		if !report.OK || len(report.Parts) < 4 {
			t.Errorf("%v: check after: %+v", flags, report)
		}
		s.box.Must(t, "ip", "address", "del", vip4+"/32", "dev", "lo")
		if out, err := s.box.Run(t.Context(), s.weir, "backend", "check"); err == nil || !strings.Contains(out.Stdout, "FAULT") {
			t.Errorf("%v: check without a VIP: %v\n%s", flags, err, out.Stdout)
		}
		s.box.Must(t, vips...)
		s.box.Must(t, s.weir, "backend", "undo")
		if d := cmp.Diff(before, state()); d != "" {
			t.Errorf("%v: after undo (-before +after):\n%s", flags, d)
		}
	}
	if out, err := s.box.Run(t.Context(), s.weir, "backend", "check"); err == nil || !strings.Contains(out.Stderr, "this server is not configured") {
		t.Errorf("check after undo: %v\n%s", err, out.Stderr)
	}
}

// TestBackendUnit has systemd configure a server at its start.
func TestBackendUnit(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	s := openSite(t, underSystemd(plain(lab.UML)))
	s.installUnit(t)
	if out, err := s.box.Run(t.Context(), "systemd-analyze", "verify", "--man=no", "weir-backend.service"); err != nil || out.Stderr != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out.Stderr)
	}
	unit := func(verb, env, want string) {
		t.Helper()
		if env != "" {
			must(t, s.box.WriteFile(t.Context(), "/etc/weir/backend.env", env, 0o644))
		}
		s.box.Must(t, "systemctl", verb, "weir-backend")
		out := s.box.Must(t, "sh", "-c", "ip -o address show dev lo | grep -c -e "+vip4+" -e "+vip6+" || true")
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("%s with %q: %s VIPs, want %s\n%s", verb, env, got, want, s.box.Must(t, "journalctl", "-u", "weir-backend", "-o", "cat", "--no-pager"))
		}
	}
	unit("start", "", "0") // there is no configuration
	unit("start", "VIPS="+vip4+"\n", "1")
	unit("reload", "VIPS="+vip4+" "+vip6+"\n", "2")
	unit("stop", "", "0")
}
