package e2e

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// groupPorts are the ports of a group. Each of the web servers answers on all of them.
var groupPorts = []string{"tcp 80", "tcp 8080", "udp 5300"}

// groupClients is the number of client addresses on one host.
const groupClients = 8

// clientAddrs gives the first client more addresses of the family of a VIP, and returns them.
func (s *site) clientAddrs(t testing.TB, vip string) (out []string) {
	t.Helper()
	form, more := "10.1.0.%d", "/24 dev front"
	if strings.Contains(vip, ":") {
		form, more = "fd01::%d", "/64 dev front nodad"
	}
	for i := range groupClients {
		addr := fmt.Sprintf(form, 20+i)
		s.client1.Must(t, "sh", "-ec", "ip address replace "+addr+more)
		out = append(out, addr)
	}
	return out
}

// oneBackend has several clients visit all ports of the VIPs. Each of them reaches one backend, and
// together they reach several. source is "masq" or "keep".
func (k *tomlKit) oneBackend(t *testing.T, source string, ports ...string) {
	t.Helper()
	for _, vip := range []string{vip4, vip6} {
		reached := map[string]bool{}
		for _, from := range k.s.clientAddrs(t, vip) {
			var first visitResult
			for i := range 2 * len(ports) {
				network, port, _ := strings.Cut(ports[i%len(ports)], " ")
				got := fromHost(k.s.client1, from)(t.Context(), 1, visitTime, network, net.JoinHostPort(vip, port))[0]
				if i == 0 {
					first = got
				}
				if got.Server != first.Server || got.End != "" {
					t.Errorf("%s to %s: %s answers on %s, and %+v on %s", from, vip, first.Server, ports[0], got, ports[i%len(ports)])
				}
				if got.End == "" && (got.Saw == from) != (source == "keep") {
					t.Errorf("%s to %s %s: the backend sees %s, want %s", from, vip, ports[i%len(ports)], got.Saw, source)
				}
			}
			reached[first.Server] = true
		}
		if len(reached) < 2 {
			t.Errorf("%d clients of %s reach %v only", groupClients, vip, reached)
		}
	}
}

// grouped is a Service of three ports with so many of the web servers.
func grouped(rules, method string, n int, more string) string {
	toml := strings.Replace(forwarded(method, n, more), `ports = [80, "5300/udp"]`, `ports = [80, 8080, "5300/udp"]`, 1)
	return fmt.Sprintf("[kernel]\nsync_period = \"2s\"\nrules = %q\n", rules) + toml
}

// TestForwardGroup has clients keep their backend on all ports of a group. The rules are those of
// iptables.
func TestForwardGroup(t *testing.T) {
	t.Parallel()
	soakOnly(t, "TestForwardGroupTable has the default owner of the rules")
	groupStory(t, "iptables")
}

// TestForwardGroupTable is the same with rules of nf_tables.
func TestForwardGroupTable(t *testing.T) {
	t.Parallel()
	groupStory(t, "nftables")
}

func groupStory(t *testing.T, rules string) {
	const affinity = "group = true\naffinity_timeout = \"60s\"\n"
	k := forwardKit(t)
	s := k.s

	// Each port selects a backend for itself.
	k.given(grouped(rules, "nat", 3, ""))
	for _, target := range forwardTargets {
		k.want("client2", target, "web1 web2 web3 masq")
	}

	k.given(grouped(rules, "nat", 3, affinity))
	k.oneBackend(t, "masq", groupPorts...)
	for _, a := range s.boxVisits(t, "tcp", vip4+":80", "udp", "["+vip6+"]:5300") {
		if !strings.HasPrefix(a.server, "web") {
			t.Errorf("the box itself reaches %q", a.server)
		}
	}
	if out := s.box.Must(t, s.weir, "explain", vip4+":80", "--from", "10.1.0.2"); !strings.Contains(out, "all ports of the group have one virtual server") || !strings.Contains(out, "masqueraded") {
		t.Errorf("explain:\n%s", out)
	}
	if out := s.box.Must(t, s.weir, "services"); strings.Count(out, "(group)") != 8 {
		t.Errorf("services:\n%s", out)
	}
	held := k.holds("client1", forwardTargets[0])
	s.restartWritesNothing(t)
	held.wantAlive(k.kit)
	_ = held.Close()
	k.repairsMarks(t)
	k.oneBackend(t, "masq", groupPorts...)
	held = k.holds("client1", forwardTargets[0])

	// Backends that reply to clients themselves, chosen by the client's address.
	k.given(grouped(rules, "direct", 3, "group = true\nscheduler = \"mh\"\n"))
	held.wantAlive(k.kit)
	_ = held.Close()
	k.marks(t, 2)
	k.oneBackend(t, "keep", groupPorts...)
	s.fromBackends(t)
	k.oneBackend(t, "keep", groupPorts...)
	if n := s.fromBackends(t); n != 0 {
		t.Errorf("%d packets of backends crossed the box", n)
	}
	s.restartWritesNothing(t)

	// One backend less, and then no group.
	k.given(grouped(rules, "direct", 2, affinity))
	k.oneBackend(t, "keep", groupPorts...)
	k.given(grouped(rules, "nat", 2, ""))
	k.want("client2", forwardTargets[0], "web1 web2 masq")
	k.marks(t, 0)
}

// marks waits until IPVS has so many virtual servers by mark.
func (k *tomlKit) marks(t *testing.T, n int) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		if out := k.s.box.Must(t, "ipvsadm", "-Ln"); strings.Count(out, "FWM") != n {
			return fmt.Errorf("not %d virtual servers by mark:\n%s", n, out)
		}
		return nil
	})
}

// repairsMarks has another program delete all virtual servers.
func (k *tomlKit) repairsMarks(t *testing.T) {
	t.Helper()
	s := k.s
	s.box.Must(t, "ipvsadm", "-C")
	eventually(t, 20*time.Second, func() error {
		if drift := s.metrics(t, "weir_drift_repairs_total"); drift[`kind="virtual_server"`] == "" {
			return errors.New("no repair of a virtual server")
		}
		return nil
	})
	k.marks(t, 2)
}

// markByIPTables and markByTable are rules of an administrator, which mark packets to two VIPs.
const (
	markByIPTables = `
for p in "-p tcp -m multiport --dports 80,8080" "-p udp --dport 5300"; do
	iptables -t mangle -A PREROUTING -i front -d ` + vip4 + ` $p -j MARK --set-mark 7
	ip6tables -t mangle -A PREROUTING -i front -d ` + vip6 + ` $p -j MARK --set-mark 7
done`
	markByTable = `nft -f - <<END
table inet marks {
	chain pre {
		type filter hook prerouting priority mangle
		iifname "front" ip daddr ` + vip4 + ` meta l4proto { tcp, udp } th dport { 80, 8080, 5300 } meta mark set 7
		iifname "front" ip6 daddr ` + vip6 + ` meta l4proto { tcp, udp } th dport { 80, 8080, 5300 } meta mark set 7
	}
}
END`
	// refuseAll is a firewall that knows no Service. NDP passes.
	refuseAll = `
iptables -A INPUT -i front -j DROP
ip6tables -A INPUT -i front ! -p ipv6-icmp -j DROP
for x in iptables ip6tables; do $x -A FORWARD -i back -j DROP; done`
)

// TestForwardMark has rules of the administrator select the packets of a Service.
func TestForwardMark(t *testing.T) {
	t.Parallel()
	soakOnly(t, "TestForwardMarkTable has the default owner of the rules")
	markStory(t, "iptables", markByIPTables+refuseAll)
}

// TestForwardMarkTable is the same with rules of nf_tables.
func TestForwardMarkTable(t *testing.T) {
	t.Parallel()
	markStory(t, "nftables", markByTable)
}

func markStory(t *testing.T, rules, marking string) {
	marked := func(method string, n int) string {
		toml := grouped(rules, method, n, "fwmark = 7\naffinity_timeout = \"60s\"\n")
		other := fmt.Sprintf("[[service]]\nname = \"other\"\nvips = [%q]\nports = [\"81:8080\"]\nbackends = [\"10.2.0.11\"]\n", vip4)
		return strings.Replace(toml, `ports = [80, 8080, "5300/udp"]`, "", 1) + other
	}
	k := forwardKit(t)
	s := k.s
	s.box.Must(t, "sh", "-ec", marking)
	k.given(marked("direct", 3))
	k.oneBackend(t, "keep", groupPorts...)
	k.want("client2", "tcp "+vip4+":81", "web1 masq") // another Service of the VIP
	k.want("client2", "tcp "+vip4+":82", "refused")
	for args, want := range map[string]string{
		"services":                "FWM  7 IPv6",
		"explain fwmark:7":        "chooses one of 3 backends",
		"explain " + vip4 + ":80": "static/shop has this VIP for packets with firewall mark 7 only",
	} {
		if out := s.box.Must(t, append([]string{s.weir}, strings.Fields(args)...)...); !strings.Contains(out, want) {
			t.Errorf("weir %s has no %q:\n%s", args, want, out)
		}
	}
	held := k.holds("client1", forwardTargets[0])
	s.restartWritesNothing(t)
	held.wantAlive(k.kit)
	_ = held.Close()
	k.repairsMarks(t)
	k.oneBackend(t, "keep", groupPorts...)

	// Replies through the box, past its firewall.
	for i := range webs {
		s.web(i+1).Must(t, "sh", "-ec", "ip route replace default via 10.2.0.1; ip -6 route replace default via fd02::1")
	}
	k.given(marked("nat", 2))
	s.fromBackends(t)
	k.oneBackend(t, "keep", groupPorts...)
	if n := s.fromBackends(t); n == 0 {
		t.Error("no reply crossed the box")
	}
	s.restartWritesNothing(t)
	k.given(grouped(rules, "nat", 2, ""))
	k.marks(t, 0)
}
