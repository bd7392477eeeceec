package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

func TestRules(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.rules = "iptables" // TestOwnerOfTables and TestRulesChangeHands have the other owner
	s.greetAll(t, "tcp", 8080)
	s.greetAll(t, "udp", 8080)
	s.unlimitRefusals(t)
	t.Run("source ranges", s.testSourceRanges)
	t.Run("other ports", s.testOtherPorts)
	t.Run("ping", s.testPing)
	t.Run("a VIP that is the box's own address", s.testHostAddress)
	t.Run("the operator's policies are DROP", s.testPolicies)
	t.Run("others' DNAT rules", s.testForeignDNAT)
	t.Run("a pool of VIPs", s.testPool)
	t.Run("the number of rules", s.testNumberOfRules)
	t.Run("sets grow", s.testSetsGrow)
}

// unlimitRefusals lets the box send "port unreachable" as often as a test asks:
// a kernel does so but once a second for each address, and of no route a few times.
func (s *site) unlimitRefusals(t *testing.T) {
	t.Helper()
	s.box.Must(t, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0", "net.ipv4.icmp_msgs_per_sec=100000", "net.ipv4.icmp_msgs_burst=10000", "net.ipv4.route.error_cost=0")
}

func (s *site) testSourceRanges(t *testing.T) {
	// On the same VIPs: port 80 with ranges, port 81 without.
	toml := func(ranges string) string {
		return declared("ranged", bothFamilies(vipOf), []string{"80:8080", "80:8080/udp"}, dualWebs, ranges) +
			declared("open", bothFamilies(vipOf), []string{"81:8080", "81:8080/udp"}, dualWebs)
	}
	const in, out = "web", silence
	tests := []struct {
		name             string
		ranges           string
		client1, client2 [2]string // by family
	}{
		{"none", "", [2]string{in, in}, [2]string{in, in}},
		{"one client", `source_ranges = ["10.1.0.2/32", "fd01::2/128"]`, [2]string{in, in}, [2]string{out, out}},
		{"other ranges", `source_ranges = ["10.77.0.0/16", "10.1.0.3/32", "fd01::3/128"]`, [2]string{out, out}, [2]string{in, in}},
		{"IPv4 alone closes IPv6", `source_ranges = ["10.1.0.0/24"]`, [2]string{in, out}, [2]string{in, out}},
		{"IPv6 alone closes IPv4", `source_ranges = ["fd01::/64"]`, [2]string{out, in}, [2]string{out, in}},
		{"everything of one family", `source_ranges = ["0.0.0.0/0"]`, [2]string{in, out}, [2]string{in, out}},
		{"none again", "", [2]string{in, in}, [2]string{in, in}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if i == 0 {
				s.fresh(t, toml(tt.ranges))
			} else {
				s.reload(t, toml(tt.ranges))
			}
			var all sync.WaitGroup // side by side, as silence takes its time
			for j, f := range families {
				for _, network := range []string{"tcp", "udp"} {
					all.Go(func() { expect(t, s.client1, network, at(f.vip, 80), tt.client1[j]) })
					all.Go(func() { expect(t, s.client2, network, at(f.vip, 80), tt.client2[j]) })
					all.Go(func() { expect(t, s.client2, network, at(f.vip, 81), in) })
				}
			}
			all.Wait()
			closed := tt.client1[0] != tt.client1[1]
			if note := s.noted(t, "static/ranged", "closed-family"); (note != "") != closed {
				t.Errorf("note of a closed family: %q, want one: %v", note, closed)
			}
		})
	}
}

// A daemon of the box listens on all of its addresses, VIPs included.
func (s *site) testOtherPorts(t *testing.T) {
	s.cleanSlate(t)
	s.greetOnBox(t, "tcp4", "0.0.0.0:2222", "tcp6", "[::]:2222", "udp4", "0.0.0.0:2222", "udp6", "[::]:2222")
	for _, mode := range []struct {
		name, kernel string
		addrs        []string // that must refuse
	}{
		{"address", "", []string{vip4, vip6}},
		{"route", `vip_mode = "route"
route_pools = ["192.0.2.0/24", "2001:db8:2::/64"]`,
			[]string{vip4, vip6, "192.0.2.77", "2001:db8:2::77"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			s.fresh(t, "[kernel]\nsync_period = \"2s\"\n"+mode.kernel+"\n"+
				declared("web", bothFamilies(vipOf), []string{"80:8080"}, dualWebs))
			for _, vip := range bothFamilies(vipOf) {
				expect(t, s.client1, "tcp", at(vip, 80), "web")
			}
			for _, network := range []string{"tcp", "udp"} {
				for _, addr := range mode.addrs {
					expect(t, s.client1, network, at(addr, 2222), refused)
					expect(t, s.client1, network, at(addr, 2223), refused)
				}
				for _, own := range []string{"10.1.0.1", "fd01::1"} {
					expect(t, s.client1, network, at(own, 2222), "box")
				}
			}
		})
	}
}

func (s *site) testPing(t *testing.T) {
	for _, mode := range []struct{ name, kernel string }{
		{"address", ""},
		{"route", "vip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\", \"2001:db8:2::/64\"]"},
	} {
		t.Run(mode.name, func(t *testing.T) {
			toml := func(ping string) string {
				return "[kernel]\nsync_period = \"2s\"\n" + mode.kernel + "\n" + ping + service("web", "")
			}
			s.fresh(t, toml(""))
			wantPing(t, s.client1, vip4, vip6)
			s.reload(t, toml("ping = false\n"))
			for _, vip := range []string{vip4, vip6} {
				if got := pinged(t, s.client1, vip, silence); got == "pong" {
					t.Errorf("%s answers echo requests, though ping is false", vip)
				}
				expect(t, s.client1, "tcp", at(vip, 80), "web")
			}
			wantPing(t, s.client1, "10.1.0.1", "fd01::1")
			s.reload(t, toml("ping = true\n"))
			wantPing(t, s.client1, vip4, vip6)
		})
	}
}

func wantPing(t *testing.T, from *lab.Machine, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		if got := pinged(t, from, addr, "pong"); got != "pong" {
			t.Errorf("%s asks %s for an echo: %s, want pong", from.Name(), addr, got)
		}
	}
}

func (s *site) testHostAddress(t *testing.T) {
	s.cleanSlate(t)
	s.greetOnBox(t, "tcp4", "0.0.0.0:2222", "tcp6", "[::]:2222")
	s.run(t, declared("own", []string{"10.1.0.1", "fd01::1"}, []string{"80:8080"}, dualWebs))
	for _, own := range []string{"10.1.0.1", "fd01::1"} {
		expect(t, s.client1, "tcp", at(own, 80), "web")
		expect(t, s.client1, "tcp", at(own, 2222), "box")
		wantPing(t, s.client1, own)
	}
	if note := s.noted(t, "static/own", "host-address"); !strings.Contains(note, "10.1.0.1") {
		t.Errorf("note %q, want one that names 10.1.0.1", note)
	}
	s.reload(t, service("web", ""))
	for _, own := range []string{"10.1.0.1", "fd01::1"} {
		expect(t, s.client1, "tcp", at(own, 80), refused) // no program listens there
		expect(t, s.client1, "tcp", at(own, 2222), "box")
	}
}

// An operator with a firewall that refuses what it does not know need not know weir's
// Services. What every IPv6 host must let in is neighbour discovery.
func (s *site) testPolicies(t *testing.T) {
	s.cleanSlate(t)
	s.greetOnBox(t, "tcp4", "0.0.0.0:2222", "tcp6", "[::]:2222")
	const toggle = `
for ipt in iptables ip6tables; do
	$ipt -P INPUT %[1]s; $ipt -P FORWARD %[1]s
	$ipt %[2]s INPUT -j %[1]s; $ipt %[2]s FORWARD -j %[1]s
done`
	const discovery = "for t in 133 134 135 136; do ip6tables %s INPUT -p icmpv6 --icmpv6-type $t -j ACCEPT; done"
	s.box.Must(t, "sh", "-ec", fmt.Sprintf(discovery, "-A")+fmt.Sprintf(toggle, "DROP", "-A"))
	defer s.box.Must(t, "sh", "-c", fmt.Sprintf(discovery, "-D")+`
for ipt in iptables ip6tables; do
	$ipt -P INPUT ACCEPT; $ipt -P FORWARD ACCEPT; $ipt -D INPUT -j DROP; $ipt -D FORWARD -j DROP
done; true`)
	s.run(t, declared("masked", bothFamilies(vipOf), tcpAndUDP, dualWebs)+
		declared("kept", bothFamilies(otherOf), tcpAndUDP, dualWebs, `source_address = "keep"`))
	for _, f := range families {
		sees(t, s.client1, at(f.vip, 80), f.box)
		sees(t, s.client1, at(f.other, 80), f.client1)
		expect(t, s.client1, "tcp", at(f.vip, 81), refused)
	}
	for _, own := range []string{"10.1.0.1", "fd01::1"} {
		expect(t, s.client1, "tcp", at(own, 2222), silence)
	}
	expect(t, s.client1, "tcp", "10.2.0.11:8080", silence) // past weir
}

// Container engines lead a host's ports to containers, on all of its addresses,
// and a VIP looks like one of them.
func (s *site) testForeignDNAT(t *testing.T) {
	s.fresh(t, declared("web", bothFamilies(vipOf), []string{"80:8080"}, dualWebs)+
		declared("inside", bothFamilies(otherOf), []string{"80:8080"}, dualWebs, `type = "ClusterIP"`))
	greet(t, s.web(3), "tcp", ":9999")
	const lead = `
for chain in PREROUTING OUTPUT; do
	iptables -t nat %[1]s $chain -p tcp --dport 80 -m addrtype --dst-type LOCAL -j DNAT --to-destination 10.2.0.13:9999
	ip6tables -t nat %[1]s $chain -p tcp --dport 80 -m addrtype --dst-type LOCAL -j DNAT --to-destination [fd02::13]:9999
done`
	s.box.Must(t, "sh", "-ec", fmt.Sprintf(lead, "-A"))
	defer s.box.Must(t, "sh", "-c", fmt.Sprintf(lead, "-D"))
	for i, f := range families {
		for _, vip := range []string{f.vip, f.other} {
			met := visits(t, s.client1, "tcp", at(vip, 80), 9)
			for range 3 {
				met[s.boxVisits(t, "tcp", at(vip, 80))[0].server]++
			}
			if met["web1"] != 4 || met["web2"] != 4 || met["web3"] != 4 {
				t.Errorf("%s: met %v, want 4 of each: a Service's connections are its own", vip, met)
			}
		}
		expect(t, s.client1, "tcp", at([]string{"10.1.0.1", "fd01::1"}[i], 80), "web3")
	}
}

// A pool of 4096 addresses and one of all that a /64 has, of which 1000 are VIPs.
func (s *site) testPool(t *testing.T) {
	const pools = `[kernel]
sync_period = "2s"
vip_mode = "route"
route_pools = ["100.64.0.0/20", "2001:db8:9::/64"]
route_source = ["10.1.0.1", "fd01::1"]
`
	var vips []string
	for i := range 500 {
		vips = append(vips, fmt.Sprintf("100.64.%d.%d", i*8/256, i*8%256+1), fmt.Sprintf("2001:db8:9::%x", i+1))
	}
	s.fresh(t, pools+declared("many", vips, []string{"80:8080", "80:8080/udp"}, dualWebs)+
		declared("outside", []string{vip4, vip6}, []string{"80:8080"}, dualWebs))
	for _, i := range []int{0, 1, 500, 501, len(vips) - 2, len(vips) - 1} {
		expect(t, s.client1, "tcp", at(vips[i], 80), "web")
		expect(t, s.client1, "udp", at(vips[i], 80), "web")
		expect(t, s.client1, "tcp", at(vips[i], 81), refused)
		expect(t, s.client1, "udp", at(vips[i], 81), refused)
		wantPing(t, s.client1, vips[i])
	}
	for _, unused := range []string{"100.64.15.255", "2001:db8:9::ffff:1"} {
		expect(t, s.client1, "tcp", at(unused, 80), refused)
	}
	for _, vip := range bothFamilies(vipOf) {
		expect(t, s.client1, "tcp", at(vip, 80), "web")
	}
	for _, want := range []struct{ flag, route, source string }{
		{"-4", "local 100.64.0.0/20 dev lo proto 87", "10.1.0.1"}, {"-6", "local 2001:db8:9::/64 dev lo proto 87", "fd01::1"},
	} {
		routes := s.box.Must(t, "ip", want.flag, "route", "show", "table", "local")
		if n := strings.Count(routes, want.route); n != 1 || !strings.Contains(routes, "src "+want.source) {
			t.Errorf("want one %q with src %s among\n%s", want.route, want.source, routes)
		}
		if n := strings.Count(routes, "\n"); n > 20 {
			t.Errorf("%d local routes, want one for the whole pool", n)
		}
	}
	s.wantsSource(t, vips[0], "10.1.0.1")
	s.wantsSource(t, vips[1], "fd01::1")
	for i, f := range families {
		s.boxIsSeenAs(t, f.box, at(vips[i], 80))
	}
}

func (s *site) testNumberOfRules(t *testing.T) {
	count := func() string {
		return s.box.Must(t, "sh", "-c", "iptables-save | grep -c ^-A; ip6tables-save | grep -c ^-A")
	}
	s.fresh(t, service("web", ""))
	one := count()
	var many strings.Builder
	for i := range 500 {
		many.WriteString(declared(fmt.Sprintf("s%d", i),
			[]string{fmt.Sprintf("198.51.%d.%d", 100+i/250, i%250+1), fmt.Sprintf("2001:db8:5::%x", i+1)},
			[]string{"80:8080"}, dualWebs, `source_ranges = ["10.1.0.0/24"]`))
	}
	s.reload(t, many.String())
	expect(t, s.client1, "tcp", "198.51.100.200:80", "web")
	if now := count(); now != one {
		t.Errorf("rules of IPv4 and IPv6: %q with 1 service, %q with 500, want the same", one, now)
	}
	t.Logf("rules of IPv4 and IPv6: %q", one)
}

// The set of source ranges begins with room for 65536. More than that come in by
// a reload, and the client with the old range is admitted throughout.
func (s *site) testSetsGrow(t *testing.T) {
	const vips, ports, ranges = 8, 32, 300
	toml := func(ranges int) string {
		var v, p, r []string
		for i := range vips {
			v = append(v, fmt.Sprintf("198.51.100.%d", i+1))
		}
		for i := range ports {
			p = append(p, fmt.Sprintf("%d:8080", 1000+i))
		}
		r = append(r, "10.1.0.2/32")
		for i := range ranges - 1 {
			r = append(r, fmt.Sprintf("%q", fmt.Sprintf("172.16.%d.%d/32", i/250, i%250+1)))
		}
		for i := range r {
			r[i] = strings.Trim(r[i], `"`)
		}
		return "[kernel]\nsync_period = \"10s\"\n" + declared("grows", v, p, []string{"10.2.0.11"},
			"source_ranges = [\""+strings.Join(r, "\", \"")+"\"]")
	}
	s.fresh(t, toml(1))
	set := regexp.MustCompile(`(?s)Name: (KUBE-[A-Z-]*SOURCE-CIDR)\n.*?maxelem (\d+).*?Number of entries: (\d+)`)
	size := func() (name string, room, members int) {
		m := set.FindStringSubmatch(s.box.Must(t, "ipset", "list", "-t"))
		if m == nil {
			t.Fatalf("no set of source ranges among\n%s", s.box.Must(t, "ipset", "list", "-t"))
		}
		room, _ = strconv.Atoi(m[2])
		members, _ = strconv.Atoi(m[3])
		return m[1], room, members
	}
	if _, room, members := size(); members != vips*ports || room != 65536 {
		t.Errorf("%d members in room for %d, want %d in 65536", members, room, vips*ports)
	}
	visits := startLoad(t, s.client1, traffic.Options{Ask: visiting(s.client1, "tcp"), Beat: 5 * time.Millisecond, Patience: holdPatience}, at("198.51.100.8", 1000))
	begin := time.Now()
	s.reload(t, toml(ranges))
	name, room, members := size()
	if members != vips*ports*ranges || room < members {
		t.Errorf("%d members in room for %d, want %d", members, room, vips*ports*ranges)
	}
	t.Logf("%s grew to %d members in room for %d within %s",
		name, members, room, time.Since(begin).Round(time.Millisecond))
	mustAllBeAnswered(t, "visits in the meantime", visits.Stop(), time.Time{}, time.Time{})
	s.box.Must(t, "ipset", "test", name, "198.51.100.8,tcp:1031,172.16.1.49")
	if spare := s.box.Must(t, "sh", "-c", "ipset list -n | grep GROW || true"); spare != "" {
		t.Errorf("left behind: %s", spare)
	}
	expect(t, s.client2, "tcp", at("198.51.100.8", 1031), silence)
	s.client2.Must(t, "ip", "addr", "add", "172.16.1.49/32", "dev", "front")
	defer s.client2.Must(t, "ip", "addr", "del", "172.16.1.49/32", "dev", "front")
	s.box.Must(t, "ip", "route", "add", "172.16.1.49/32", "via", "10.1.0.3")
	defer s.box.Must(t, "ip", "route", "del", "172.16.1.49/32")
	if a := visitFrom(t, s.client2, netip.MustParseAddr("172.16.1.49"), at("198.51.100.8", 1031)); a.server != "web1" {
		t.Errorf("the last range: met %s, want web1", a.server)
	}
}
