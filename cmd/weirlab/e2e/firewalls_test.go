package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// firewallsFile is the page with the commands for each firewall.
const firewallsFile = "quickstart-firewalls.md"

// firewall is a firewall as its users set it up.
type firewall struct {
	section string // of the page
	setUp   string
	later   bool   // it is set up when weir runs
	owner   string // of weir's rules, in the end
	// opens are the beginnings of the commands that weir doctor prints; nil for a firewall that drops nothing
	// that weir does not accept first.
	opens []string
	loads []string // commands that load its rules, the first of them in make test
	end   string
	like  string // another firewall with the same owner, which make test has
}

const ownRuleset = `
flush ruleset
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state vmap { established : accept, related : accept, invalid : drop }
		iif lo accept
		meta l4proto { icmp, ipv6-icmp } accept
		tcp dport 22 accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
`

var firewalls = []firewall{{
	section: "firewalld", like: "nftables.service", owner: "nftables", opens: []string{"firewall-cmd "},
	setUp: "systemctl enable --now firewalld && firewall-cmd --state",
	loads: []string{"firewall-cmd --reload", "systemctl restart firewalld"},
	end:   "systemctl disable --now firewalld",
}, {
	section: "nftables.service", owner: "nftables", opens: []string{"nft insert "},
	setUp: "cat >/etc/nftables.conf <<'EOF'" + ownRuleset + "EOF\nsystemctl enable --now nftables",
	loads: []string{"systemctl restart nftables", "systemctl reload nftables"},
	end:   "systemctl disable --now nftables",
}, {
	section: "Docker", like: "ufw", owner: "iptables-nft",
	// As at a boot: Docker drops what is forwarded where it is the one that permits forwarding.
	setUp: `sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
		systemctl enable --now docker
		mkdir -p /tmp/image/bin && cp /bin/busybox /tmp/image/bin/ && tar -C /tmp/image -c . | docker import - web
		docker run -d --init --name web -p 80:80 -p 8088:80 web /bin/busybox httpd -f -p 80 -h /bin`,
	loads: []string{"systemctl restart docker", "docker restart web"},
	end:   "systemctl disable --now docker.socket docker containerd",
}, {
	section: "ufw", owner: "iptables-nft", opens: []string{"ufw ", "systemctl restart weir"}, later: true,
	// The lab's kernel lacks two matches of ufw's rules for IPv6, of hop limits and routing headers.
	setUp: `sed -i -e '/-m rt /d' -e 's/-m hl --hl-eq [0-9]*//' /etc/ufw/before6.rules
		ufw allow 22/tcp && ufw --force enable && systemctl enable --now ufw`,
	loads: []string{"ufw reload", "systemctl restart ufw"},
	end:   "ufw --force disable",
}}

// TestFirewalls has the firewalls of users on a box that serves, one after the other: weir doctor names
// what drops packets and prints the commands of the page, which are typed; then the firewall loads its rules
// again under load. make test has one firewall for each owner of weir's rules.
func TestFirewalls(t *testing.T) {
	t.Parallel()
	lab.RequireFirewalls(t)
	lab.Routers.Require(t)
	near := lab.Host{
		Name: "near", Nets: lab.Nets{linkOf(1): "10.1.1.7/24 fd01:1::7/64"},
		Routes: []string{"192.0.2.0/24 via " + boxAddr(1), "2001:db8::/32 via " + boxAddr6(1)},
	}
	plan := underSystemd(edgeSite(1, near))
	plan.Boxes[0].Firewalls = true
	plan.Boxes = append(plan.Boxes, lab.Box{Name: "box2", Nets: lab.Nets{linkOf(1): "10.1.1.2/24 fd01:1::2/64"}, Memory: 512})
	w := &walled{edge: openEdge(t, plan, 1)}
	w.site, w.member = w.boxes[0], w.boxes[1]
	if os.Getenv(lab.KernelVariable) == "uml-old" {
		t.Skip("SKIPPED: Debian's binary of user-mode Linux 6.1 has no NAT in nf_tables")
	}
	echoAll(t, w.edge.Lab)
	// Here the router connects: otherwise its packets are replies, which every firewall accepts.
	must(t, w.router.Reconfigure(within(t, time.Minute), strings.Replace(birdOf(1, ""), "passive on;", "connect delay time 1; connect retry time 2;", 1)))
	w.weir = "/usr/bin/weir"
	w.installUnit(t)
	w.box.Must(t, "sh", "-ec", keptRight)
	key := newKey() + "\n"
	w.box.Must(t, "mkdir", "-p", "/etc/weir/credentials")
	must(t, w.box.WriteFile(within(t, 10*time.Second), "/etc/weir/credentials/fleet.key", key, 0o600))
	must(t, w.member.box.WriteFile(within(t, 10*time.Second), "/etc/weir/fleet.key", key, 0o600))
	fleet := func(member int, key string) string {
		return fmt.Sprintf("[fleet]\nname = \"edge\"\nmember = \"box%d\"\nbind = \"10.1.1.%d:7946\"\njoin = [\"10.1.1.1\", \"10.1.1.2\"]\nkeys = [%q]\ntiming = \"wan\"\npreempt_delay = \"0s\"\n", member, member, key)
	}
	w.configure(t, peering(1, "", "passive = true")+"[daemon]\non_stop = \"keep\"\n"+fleet(1, "credential:fleet.key")+shared)
	w.member.run(t, fleet(2, "fleet.key")+shared)
	for _, f := range firewalls {
		t.Run(f.section, func(t *testing.T) {
			if f.like != "" {
				soakOnly(t, f.like+" has the same owner of the rules")
			}
			if f.section == "firewalld" && w.kernelBefore(t, 6, 9) {
				t.Skip("SKIPPED: beside firewalld on Linux 6.1, nft 1.0.6 aborts at list tables (corrupted double-linked list)")
			}
			w.lives(t, f)
		})
	}
}

// walled is box1 of an edge, on which firewalls are set up. The other member of its fleet has none.
type walled struct {
	*edge
	*site
	member *site
}

// lives is the life with a firewall, from its set-up to its end.
func (w *walled) lives(t *testing.T, f firewall) {
	near := w.edge.Host("near")
	defer w.ends(t, f)
	if f.later {
		w.box.Must(t, "systemctl", "start", "weir")
		mustGet(t, near, at(vip4, 80), 3)
	}
	w.box.Must(t, "sh", "-ec", f.setUp)
	if !f.later {
		w.box.Must(t, "systemctl", "start", "weir")
	}
	for _, vip := range bothVIPs {
		if f.opens == nil {
			mustGet(t, near, at(vip, 80), 3)
		} else if _, err := get(within(t, 3*time.Second), near, at(vip, 80)); err == nil {
			t.Errorf("before the commands %s is answered", vip)
		}
	}
	if f.opens != nil {
		w.reached(t, false)
	}
	w.printsThePage(t, f)

	q := &quickstart{Lab: w.edge.Lab, file: firewallsFile}
	for _, s := range readSection(t, firewallsFile, f.section) {
		t.Logf("%s: %s\n%s", s.machine, s.command, q.typeOne(t, s))
	}
	var doc struct{ Kernel struct{ Rules string } }
	if w.weirJSON(t, &doc, "status"); doc.Kernel.Rules != f.owner {
		t.Errorf("weir's rules are in %s, want %s", doc.Kernel.Rules, f.owner)
	}
	w.awaitRoutes(t, bothVIPs, 1)
	w.reached(t, true)
	w.gossips(t)
	if f.section == "Docker" {
		w.keepsItsPort(t)
	}
	for _, command := range f.loads[:sized(1, len(f.loads))] {
		w.survives(t, f.section+": "+command, command)
		w.gossips(t)
	}
	eventually(t, time.Minute, func() error { return illness(w.doctor(t)) })
}

// reached requires that a new connection and a datagram of the other member reach the port of gossip, or do not.
// Those of gossip itself may be replies, which every firewall accepts. conntrack forgets a dropped
// datagram. An empty one is nothing to weir. A busy machine may lose one, or be late with a connection: there are more.
func (w *walled) reached(t *testing.T, want bool) {
	t.Helper()
	try := func() (connected, arrived bool) {
		out := strings.Fields(w.member.box.Must(t, "bash", "-c", `
		perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Proto => "udp", PeerAddr => "10.1.1.1:7946"); defined $s->send("") or die $!; print $s->sockport, "\n"'
		timeout 2 bash -c '</dev/tcp/10.1.1.1/7946' && echo connected || true`))
		flows := w.box.Must(t, "cat", "/proc/net/nf_conntrack")
		return len(out) == 2, strings.Contains(flows, "src=10.1.1.2 dst=10.1.1.1 sport="+out[0]+" dport=7946")
	}
	if !want {
		if connected, arrived := try(); connected || arrived {
			t.Errorf("a connection of a member is accepted: %v, a datagram arrives: %v", connected, arrived)
		}
		return
	}
	eventually(t, 30*time.Second, func() error {
		if connected, arrived := try(); !connected || !arrived {
			return fmt.Errorf("a connection of a member is accepted: %v, a datagram arrives: %v", connected, arrived)
		}
		return nil
	})
}

// gossips waits until both members serve in the eyes of both.
func (w *walled) gossips(t *testing.T) {
	t.Helper()
	for _, s := range []*site{w.site, w.member} {
		eventually(t, time.Minute, func() error { return s.are(t, "box1 serving", "box2 serving") })
	}
}

// keepsItsPort requires that a container with the published ports 80 and 8088 has them, but not port 80 of a VIP.
func (w *walled) keepsItsPort(t *testing.T) {
	t.Helper()
	near := w.edge.Host("near")
	for _, addr := range []string{at(boxAddr(1), 80), at(boxAddr(1), 8088), at(vip4, 8088)} {
		if code := near.Must(t, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://"+addr+"/"); code != "404" {
			t.Errorf("the container answers %s at %s, want its 404", code, addr)
		}
	}
	for _, vip := range bothVIPs {
		if by := mustGet(t, near, at(vip, 80), 9); len(by) != len(webs) {
			t.Errorf("%s is answered by %v, want all web servers", vip, by)
		}
	}
}

// printsThePage requires that weir doctor prints the commands of the page, and no others.
func (w *walled) printsThePage(t *testing.T, f firewall) {
	t.Helper()
	var want []string
	for _, s := range readSection(t, firewallsFile, f.section) {
		for command := range strings.SplitSeq(blanks.ReplaceAllString(strings.ReplaceAll(s.command, "\\\n", ""), " "), " && ") {
			if slices.ContainsFunc(f.opens, func(o string) bool { return strings.HasPrefix(command, o) }) {
				want = append(want, command)
			}
		}
	}
	slices.Sort(want)
	var found []finding
	eventually(t, time.Minute, func() error {
		found = w.doctor(t)
		var got []string
		for _, x := range found {
			if x.Command != "" && (x.ID == "firewall" || x.ID == "nftables") {
				got = append(got, strings.Split(x.Command, " && ")...)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			return fmt.Errorf("weir doctor prints\n%s\nand the page has\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), found)
		}
		return nil
	})
	for _, x := range found {
		if x.Severity == "error" {
			t.Logf("%s  %s\n  fix: %s\n  run: %s", x.ID, x.Text, x.Fix, x.Command)
		}
	}
}

// survives loads the rules of a firewall again while clients send.
func (w *walled) survives(t *testing.T, what, command string) {
	t.Helper()
	c := startClients(t, w.edge.Host("near"), targets{[]string{at(vip4, 80), at(vip6, 80)}, []string{echo4, echo6}, at(vip4, 7000)})
	begin := time.Now()
	w.box.Must(t, "sh", "-ec", command)
	figure(t, what+" takes", time.Since(begin))
	c.served(t)
	if w.kernelBefore(t, 6, 9) { // weir's table has no owner, and new connections fail until it is repaired
		c.noneCut(t, what)
		return
	}
	c.unhurt(t, what)
}

// ends removes weir's rules and the firewall.
func (w *walled) ends(t *testing.T, f firewall) {
	t.Helper()
	if t.Failed() {
		t.Logf("%s", w.box.Must(t, "sh", "-c", "journalctl -o cat --no-pager -n 120; nft list ruleset | head -300; iptables-save"))
	}
	w.box.Must(t, "systemctl", "stop", "weir")
	w.box.Must(t, w.weir, "cleanup")
	w.box.Must(t, "sh", "-ec", f.end+"; nft flush ruleset")
}
