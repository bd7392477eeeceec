package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestDoctorOfANode puts into a box what no other test of weir doctor does: a node of a
// cluster, with a router, a cable that it answers ARP on, and many clients.
func TestDoctorOfANode(t *testing.T) {
	must(t, lab.CheckPeers())
	e := newEdge(t, 1, lab.Host{Name: "kube1", Nets: lab.Nets{"back": "10.2.0.101/24 fd02::101/64"}})
	p := &patient{site: e.boxes[0], edge: e, kube: e.Kube(t, "kube1", lab.KubeOptions{})}
	p.rules = "iptables" // with its legacy tables, which some of the faults are about
	grant(t, p.kube)
	must(t, p.kube.AddNode(within(t, 30*time.Second), p.box))
	must(t, p.box.WriteFile(within(t, 10*time.Second), "/etc/weir/prod.kubeconfig", p.kube.Kubeconfig(lab.KubeWeir), 0o600))
	p.box.Must(t, "sh", "-ec", "ip link add spare type veth peer name other; ip link set other up; ip link set spare up")
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"before weir runs", p.beforeItRuns},
		{"on the box", p.onTheBox},
		{"beside the box", p.besideTheBox},
		{"with a wrong clock", p.wrongClock},
		{"with many clients", p.manyClients},
		{"in the configuration", p.inTheConfiguration},
	} {
		t.Run(part.name, part.test)
	}
}

// patient is that box.
type patient struct {
	*site
	edge *edge
	kube *lab.Kube
}

// text is the configuration; peer is more of the BGP peer, more is more of all.
func (p *patient) text(peer, more string) string {
	text := strings.Replace(peering(1, "", peer), `sync_period = "2s"`, "sync_period = \"5m\"\nudp_timeout = \"15s\"\ncluster_cidrs = [\"10.244.0.0/16\"]", 1)
	return text + service("web", `scheduler = "mh"`) + more + `
[[service]]
name = "dns"
vips = ["192.0.2.10"]
ports = ["53:5353/udp"]
backends = ["10.2.0.11"]
[l2]
interfaces = ["spare"]
vips = ["LoadBalancer"]
[[kubernetes]]
name = "prod"
kubeconfig = "prod.kubeconfig"
node_name = "$HOSTNAME"
`
}

// well waits until there is nothing to repair.
func (p *patient) well(t testing.TB) {
	t.Helper()
	eventually(t, time.Minute, func() error { return illness(p.doctor(t)) })
}

// finds waits until all faults are found at once.
func (p *patient) finds(t testing.TB, faults ...fault) []finding {
	t.Helper()
	var found []finding
	eventually(t, 2*time.Minute, func() error {
		found = p.doctor(t)
		for _, x := range faults {
			if !slices.ContainsFunc(found, x.is) {
				return fmt.Errorf("%s (%s) is not found among:\n%+v", x.check, x.names, found)
			}
		}
		return nil
	})
	return found
}

// cures waits until all faults are found at once, and repairs them.
func (p *patient) cures(t testing.TB, faults ...fault) {
	t.Helper()
	p.repair(t, p.finds(t, faults...), faults...)
}

// keptRight sets the kernel's state of the clock to synchronized, as a time service does
// (adjtimex(2): the status without STA_UNSYNC, and no error).
const keptRight = `perl -e '$t = pack("L x4 q q q q l x4", 0x14, 0, 0, 0, 0, 0) . "\0" x 200; syscall(159, $t) >= 0 or die $!'`

// instead puts a file of the test in the place of one of /proc or /lib, for a moment.
func instead(of, text string) (put, undo string) {
	return fmt.Sprintf("f=$(mktemp); %s >$f; mount --bind $f %s", text, of), "umount " + of
}

func (p *patient) beforeItRuns(t *testing.T) {
	p.configure(t, p.text("", ""))
	// The lab has loaded all modules of IPVS. The table of connections is a small one from
	// now on, for the part with many clients.
	p.box.Must(t, "sh", "-ec", keptRight+`
mkdir -p /etc/modprobe.d
echo options ip_vs conn_tab_bits=8 >/etc/modprobe.d/small.conf
lsmod | awk '/^ip_vs_|^xt_ipvs/ {print $1}' >/tmp/modules
rmmod $(cat /tmp/modules) ip_vs`)
	listener, err := p.box.Start("gobgpd", "--api-hosts=127.0.0.1:10266", "--pprof-disable")
	must(t, err)
	list := "/lib/modules/$(uname -r)/modules.dep"
	p.box.Must(t, "sh", "-ec", "f=$(mktemp); grep -v ip_vs_mh "+list+" >$f; mount --bind $f "+list)
	p.cures(t, []fault{
		{check: "ipvs", names: "module ip_vs is not loaded"},
		{check: "modules", names: "lacks ip_vs_mh"},
		{check: "port-own", names: "gobgpd", repair: fmt.Sprint("kill ", listener.Pid(), "; while kill -0 ", listener.Pid(), "; do sleep 0.1; done 2>/dev/null")},
		{check: "running", names: "weir is not running", undo: "umount " + list + "; modprobe -a $(cat /tmp/modules)"},
	}...)
	p.start(t)
	p.edge.awaitRoutes(t, bothVIPs, 1)
	p.well(t)
	p.metricIs(t, `weir_bgp_advertised{address="10.1.1.254",peer="router"}`, float64(len(bothVIPs)))
	p.metricIs(t, `weir_l2_carrier{interface="spare"}`, 1)
	p.metricIs(t, `weir_kubernetes_snapshot_failed{cluster="prod"}`, 0)
	for _, part := range []string{"ipvs", "ipset", "route"} {
		messages, sends := p.metric(t, `weir_netlink_messages_total{part="`+part+`"}`), p.metric(t, `weir_netlink_sends_total{part="`+part+`"}`)
		if sends == 0 || sends > messages {
			t.Errorf("%s: %v system calls for %v messages", part, sends, messages)
		}
	}
}

func (p *patient) onTheBox(t *testing.T) {
	const stateDir = "/var/lib/weir"
	noMemory, memory := instead("/proc/meminfo", `sed 's/^MemAvailable:.*/MemAvailable: 9000 kB/' /proc/meminfo`)
	oldKernel, kernel := instead("/proc/sys/kernel/osrelease", "echo 5.4.0-1-amd64")
	pid := fmt.Sprint(p.daemon.Pid())
	p.box.Must(t, "sh", "-ec", "cp $(which sleep) /tmp/kube-router; "+lossy)
	router, err := p.box.Start("/tmp/kube-router", "1000")
	must(t, err)
	sender, err := p.box.Start("bash", "-c", "while :; do echo x >/dev/udp/198.18.1.2/9; sleep 0.1; done")
	must(t, err)
	p.faults(t, []fault{
		{check: "files", names: "there is no such file", put: "mv /etc/weir/prod.kubeconfig /etc/weir/gone", undo: "mv /etc/weir/gone /etc/weir/prod.kubeconfig"},
		{check: "disk", names: "of the space is free in " + stateDir, undo: "umount " + stateDir,
			put: "mkdir -p " + stateDir + "; mount -t tmpfs -o size=1m none " + stateDir + "; head -c 1010000 /dev/zero >" + stateDir + "/large"},
		{check: "memory", names: "of memory are available", put: noMemory, undo: memory},
		{check: "kernel", names: "kernel 5.4.0-1-amd64 is older than 5.9", put: oldKernel, undo: kernel},
		{check: "conn-reuse", names: "is not 0 on kernel 5.4.0", put: "sysctl -qw net.ipv4.vs.conn_reuse_mode=1"},
		{check: "accept-ra", names: "comes from router advertisements on front1", put: "ip -6 route add default via fd01:1::fe dev front1 proto ra metric 2000"},
		{check: "bridge-netfilter", names: "pods are on a bridge", put: "ip link add pods type bridge"},
		{check: "foreign-servers", names: "kube-router is running", undo: fmt.Sprint("kill ", router.Pid())},
		{check: "iptables-mixed", names: "rules in iptables-legacy and 1 in iptables-nft", put: "iptables-nft -A INPUT -s 203.0.113.9 -j ACCEPT", undo: "iptables-nft -F INPUT"},
		{check: "nftables", names: "chain sent of nf_tables table inet fence drops clients of static/dns: rule 1",
			put: "nft 'add table inet fence; add chain inet fence sent { type filter hook output priority 0; }; add rule inet fence sent udp dport 5353 drop'"},
		{check: "nftables", names: "chain guard of nf_tables table inet fence drops clients of static/web: rule 1",
			put: "nft 'add table inet fence; add chain inet fence guard { type filter hook input priority 0; }; add rule inet fence guard tcp dport 80 drop'"},
		{check: "vip-duplicate", names: "VIP 192.0.2.10 is also an address of back", put: "ip addr add 192.0.2.10/32 dev back", undo: "ip addr del 192.0.2.10/32 dev back"},
		{check: "link", names: "interface spare is down", put: "ip link set dev spare down"},
		{check: "lro", names: "large receive offload is enabled on bond9", put: glued, undo: "ip link del bond9"},
		{check: "drops", names: "tun9 has lost", undo: fmt.Sprint("kill ", sender.Pid(), "; ip link del tun9; ip route del blackhole 198.18.0.9")},
	})
	// By itself, and with connections that are idle, for less than a minute: weir has files left for what doctor asks.
	idle, err := p.box.Start("bash", "-c", `for i in $(seq 60); do exec {fd}<>/dev/tcp/127.0.0.1/10266
printf "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" >&$fd; done; sleep 1000`)
	must(t, err)
	files := "$(ls /proc/" + pid + "/fd | wc -l)"
	p.faults(t, []fault{{
		check: "open-files", names: "files and connections open, of at most", undo: fmt.Sprint("kill ", idle.Pid(), "; prlimit --pid ", pid, " --nofile=4096:"),
		put: "until [ " + files + " -gt 70 ]; do sleep 0.1; done; prlimit --pid " + pid + " --nofile=$((" + files + " * 6 / 5)):",
	}})
}

const (
	// glued makes an interface with large receive offload, which the kernel switches off
	// where packets are forwarded (ETHTOOL_GFLAGS, ETHTOOL_SFLAGS with ETH_FLAG_LRO; linux/ethtool.h).
	glued = `modprobe bonding max_bonds=0; ip link add bond9 type bond
perl -e 'socket(my $s, 2, 2, 0); my $v = pack("LL", 0x25, 0); sub ask { my $r = pack("a16 P", "bond9", $v) . "\0" x 16; ioctl($s, 0x8946, $r) or die $! }
ask(); $v = pack("LL", 0x26, (unpack("LL", $v))[1] | 1 << 15); ask()'`
	// lossy makes a tunnel with an unreachable other end.
	lossy = `ip route add blackhole 198.18.0.9; ip link add tun9 type ipip local 10.2.0.1 remote 198.18.0.9; ip addr add 198.18.1.1/24 dev tun9; ip link set tun9 up`
)

// besideTheBox takes away what the box needs of others.
func (p *patient) besideTheBox(t *testing.T) {
	must(t, p.kube.Kill(within(t, time.Minute)))
	p.edge.Host("web3").Must(t, "ip", "link", "set", "back", "down")
	p.box.Must(t, "bash", "-ec", "ip neigh flush dev back; echo x >/dev/udp/10.2.0.13/9")
	p.cures(t, []fault{
		{check: "status", names: "degraded", undo: "true"},
		{check: "api-server", names: "the API server of cluster prod (https://10.2.0.101:6443): connection refused", undo: "true"},
		{check: "neighbor", names: "backend 10.2.0.13 does not answer ARP or NDP on back", undo: "true"},
	}...)
	must(t, p.kube.Start(within(t, time.Minute)))
	web3 := p.edge.Host("web3")
	web3.Must(t, "sh", "-ec", "ip link set back up; ip addr replace fd02::13/64 dev back nodad")
	p.box.Must(t, "ip", "neigh", "flush", "dev", "back")
	p.well(t)
}

// wrongClock puts the clock two hours ahead, so that the last audit seems to be as old.
func (p *patient) wrongClock(t *testing.T) {
	const shift = `date -s "@$(($(date +%%s) %s 7200))"`
	p.faults(t, []fault{
		{check: "clock-skew", names: "ahead of that of cluster prod", put: fmt.Sprintf(shift, "+"), undo: fmt.Sprintf(shift, "-")},
		{check: "audit", names: "the last audit of the kernel was 2h", undo: "true"},
		{check: "clock", names: "the clock of this box is not synchronized", undo: keptRight},
	})
}

// manyClients fills small tables of connections.
func (p *patient) manyClients(t *testing.T) {
	const flood = `while :; do for i in $(seq 200); do echo x >/dev/udp/192.0.2.10/53; done; sleep 0.05; done`
	p.box.Must(t, "sysctl", "-qw", "net.netfilter.nf_conntrack_buckets=512", "net.netfilter.nf_conntrack_max=4400")
	clients, err := p.edge.client1.Start("bash", "-c", flood)
	must(t, err)
	full := []fault{
		{check: "conntrack-drops", names: "packets in one second"},
		{check: "conntrack-buckets", names: "conntrack has 512 buckets for"},
		{check: "conntrack-room", names: "of at most 4400"},
		{check: "ipvs-table", names: "connections in 256 buckets", undo: "true"}, // its command is for the next start of the box
	}
	found := p.finds(t, full...)
	p.metricIs(t, "weir_conntrack_limit", 4400)
	eventually(t, 30*time.Second, func() error { // entries end, and a busy client is late with others
		if n := p.metric(t, "weir_conntrack_entries"); n < 4096 || n > 4400 {
			return fmt.Errorf("weir_conntrack_entries is %v while the table is full", n)
		}
		return nil
	})
	clients.Kill()
	p.repair(t, found, full...)
	p.well(t)
}

// inTheConfiguration has weir want what others do not give.
func (p *patient) inTheConfiguration(t *testing.T) {
	p.box.Must(t, "iptables", "-I", "INPUT", "1", "-p", "udp", "--dport", "3784", "-j", "DROP")
	p.reload(t, p.text(withBFD, ""))
	bfdUp := `weir_bgp_bfd_up{address="10.1.1.254",peer="router"}`
	noBFD := []fault{
		{check: "firewall", names: "the firewall drops BFD of peer router: rule"},
		{check: "bfd", names: "BFD with peer router is down", undo: "true"},
	}
	found := p.finds(t, noBFD...)
	p.metricIs(t, bfdUp, 0)
	p.repair(t, found, noBFD...)
	p.well(t)
	p.metricIs(t, bfdUp, 1)

	p.box.Must(t, "ip", "route", "add", "10.77.0.0/24", "via", "10.2.0.11")
	must(t, p.box.WriteFile(within(t, 10*time.Second), "/etc/weir/fleet.key", newKey()+"\n", 0o600))
	p.reload(t, p.text(withBFD, `
[[service]]
name = "far"
vips = ["192.0.2.11"]
ports = [80]
backends = ["10.77.0.5"]
source_address = "keep"
[fleet]
name = "edge"
bind = "10.2.0.1:7946"
join = ["10.2.0.11"]
keys = ["fleet.key"]
`))
	p.metricIs(t, "weir_fleet_join_unreachable", 1)
	p.cures(t, []fault{
		{check: "member", names: "member 10.2.0.11:7946 refuses TCP port 7946", undo: "true"},
		{check: "return-path", names: "10.77.0.5 are behind a router", severity: "info", undo: "true"},
	}...)
	p.reload(t, p.text(withBFD, ""))
	p.well(t)
}
