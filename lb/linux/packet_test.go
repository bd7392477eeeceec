package linux

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/lb"
)

func testClientsAreMasqueradedOrKept(t *testing.T) {
	s := newSite(t)
	kept4, kept6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
	add(t, s.k, web(vip6, lb.SetLoadBalancer, 1)...)
	add(t, s.k, web(kept4, lb.SetLoadBalancer, 2, lb.SetLoadBalancerLocal)...)
	add(t, s.k, web(kept6, lb.SetLoadBalancer, 2, lb.SetLoadBalancerLocal)...)
	for _, policy := range []string{"ACCEPT", "DROP"} {
		if policy == "DROP" && testBackend == NFTables {
			continue // a table can't admit what another one drops
		}
		for _, family := range []string{"iptables", "ip6tables"} {
			sh(t, "%s -P INPUT %s && %s -P FORWARD %s", family, policy, family, policy)
			t.Cleanup(func() {
				sh(t, "%[1]s -P INPUT ACCEPT && %[1]s -P FORWARD ACCEPT; %[1]s -D INPUT -p ipv6-icmp -j ACCEPT 2>/dev/null; true", family)
			})
			sh(t, "%s -F INPUT", family)
			if policy == "DROP" && family == "ip6tables" {
				sh(t, "ip6tables -A INPUT -p ipv6-icmp -j ACCEPT")
			}
		}
		add(t, s.k, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6})
		s.expect(policy+": masqueraded", "client", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
		s.expect(policy+": masqueraded", "client", "tcp", "[2001:db8::1]:80", "backend1 2001:db8:21::1")
		s.expect(policy+": kept", "client", "tcp", "192.0.2.2:80", "backend2 10.1.0.2")
		s.expect(policy+": kept", "client", "tcp", "[2001:db8::2]:80", "backend2 2001:db8:1::2")
	}
	sh(t, "iptables -P INPUT ACCEPT && ip6tables -P INPUT ACCEPT")
	s.expect("the box itself, masqueraded", "", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
	s.expect("the box itself, kept", "", "tcp", "192.0.2.2:80", "backend2 10.2.2.1")
	s.expect("the box itself, kept", "", "tcp", "[2001:db8::2]:80", "backend2 2001:db8:22::1")
}

func testClusterIPsAreMasqueradedForOutsiders(t *testing.T) {
	s := newSite(t)
	add(t, s.k, web(vip4, lb.SetClusterIP, 1)...)
	p := netip.MustParsePrefix
	for _, test := range []struct {
		name  string
		all   bool
		cidrs []netip.Prefix
		want  string
	}{
		{"no cidr", false, nil, "backend1 10.1.0.2"},
		{"client outside", false, []netip.Prefix{p("10.244.0.0/16")}, "backend1 10.2.1.1"},
		{"client within the second", false, []netip.Prefix{p("10.244.0.0/16"), p("10.1.0.0/16")}, "backend1 10.1.0.2"},
		{"all", true, []netip.Prefix{p("10.1.0.0/16")}, "backend1 10.2.1.1"},
	} {
		c := s.k.config
		c.MasqueradeAll, c.ClusterCIDRs = test.all, test.cidrs
		must(t, s.k.Configure(c))
		add(t, s.k, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6})
		s.expect(test.name+": client", "client", "tcp", "192.0.2.1:80", test.want)
		s.expect(test.name+": the box", "", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
	}
}

func testNothingButServicesAnswersOnAVIP(t *testing.T) {
	s := newSite(t)
	s.in("", func() { s.listenTCP("daemon", ":2222"); s.listenUDP("daemon", ":2222") })
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
	add(t, s.k, web(vip6, lb.SetLoadBalancer, 1)...)
	for _, pool := range []string{"198.51.100.0/24", "2001:db8:100::/64"} {
		p := netip.MustParsePrefix(pool)
		add(t, s.k, lb.Member{Set: lb.SetIPVSNets, Net: p}, lb.PoolRoute{Prefix: p})
	}
	s.expect("the daemon's own address", "client", "tcp", "10.1.0.1:2222", "daemon 10.1.0.2")
	for _, vip := range []string{"192.0.2.1", "[2001:db8::1]", "198.51.100.7", "[2001:db8:100::7]"} {
		start := time.Now()
		s.expect("a daemon behind a VIP", "client", "tcp", vip+":2222", "connection refused")
		s.expect("a daemon behind a VIP, UDP", "client", "udp", vip+":2222", "connection refused")
		s.expect("from the box itself", "", "tcp", vip+":2222", "connection refused")
		if took := time.Since(start); took > time.Second {
			t.Errorf("refused after %v", took)
		}
		if !s.ping("client", strings.Trim(vip, "[]"), true) {
			t.Errorf("%s does not answer ping", vip)
		}
	}

	c := s.k.config
	c.Ping = false
	must(t, s.k.Configure(c))
	add(t, s.k, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6})
	for _, vip := range []string{"192.0.2.1", "2001:db8::1"} {
		if s.ping("client", vip, false) {
			t.Errorf("%s answers ping", vip)
		}
	}
	if !s.ping("client", "10.1.0.1", true) {
		t.Error("the box's own address does not answer ping")
	}
	s.expect("the service", "client", "tcp", "[2001:db8::1]:80", "backend1 2001:db8:21::1")
}

func testSourceRanges(t *testing.T) {
	s := newSite(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		add(t, s.k, web(vip, lb.SetLoadBalancer, 1, lb.SetFirewall)...)
	}
	s.expect("no range", "client", "tcp", "192.0.2.1:80", "timeout")
	s.expect("no range", "client", "tcp", "[2001:db8::1]:80", "timeout")
	s.expect("the box itself", "", "tcp", "192.0.2.1:80", "timeout")
	for vip, ranges := range map[netip.Addr]string{vip4: "10.1.0.0/28", vip6: "2001:db8:1::/64"} {
		add(t, s.k, lb.Member{Set: lb.SetSourceCIDR, Addr: vip, Port: 80, Proto: lb.TCP, Net: netip.MustParsePrefix(ranges)})
	}
	s.expect("in range", "client", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
	s.expect("in range", "client", "tcp", "[2001:db8::1]:80", "backend1 2001:db8:21::1")
	s.expect("not in range", "backend2", "tcp", "192.0.2.1:80", "timeout")
	s.expect("the box itself, with its VIP out of range", "", "tcp", "192.0.2.1:80", "timeout")
}

// The box is a client with its own addresses, with any source of its packets: the VIP (the
// kernel's choice for an address on the device), the source of a pool's route, or an address
// that a program has bound.
func testSourceRangesAdmitTheBoxByItsAddresses(t *testing.T) {
	s := newSite(t)
	a, n := netip.MustParseAddr, netip.MustParsePrefix
	pooled4, pooled6 := a("198.51.100.1"), a("2001:db8:100::1")
	host4, host6 := a("10.1.0.1"), a("2001:db8:1::1")
	pools := []lb.Object{
		lb.PoolRoute{Prefix: n("198.51.100.0/24"), Src: host4}, lb.PoolRoute{Prefix: n("2001:db8:100::/64"), Src: host6},
	}
	add(t, s.k, pools...)
	vips := []netip.Addr{vip4, vip6, pooled4, pooled6, host4, host6}
	refused := func(from string) {
		var all sync.WaitGroup
		for _, vip := range vips {
			all.Go(func() {
				s.expect(fmt.Sprintf("from %q to %s", from, vip), from, "tcp", netip.AddrPortFrom(vip, 80).String(), "timeout")
			})
		}
		all.Wait()
	}
	for _, vip := range vips {
		objects := slices.DeleteFunc(web(vip, lb.SetLoadBalancer, 1, lb.SetFirewall), func(o lb.Object) bool {
			m, guards := o.(lb.Member)
			_, address := o.(lb.Address)
			return vip != vip4 && vip != vip6 && (address || guards && m.Set == lb.SetIPVSIPs)
		})
		add(t, s.k, objects...)
	}
	refused("")
	for _, vip := range vips {
		to := netip.AddrPortFrom(vip, 80).String()
		add(t, s.k, lb.Member{Set: lb.SetSourceIP, Addr: vip, Port: 80, Proto: lb.TCP, Net: netip.PrefixFrom(vip, vip.BitLen())})
		own := netip.AddrPortFrom(backendAddr(vip, 1), 0).Addr().Prev() // ...1, beside the backend's ...2
		s.expect("the box", "", "tcp", to, "backend1 "+own.String())
		for _, bound := range []netip.Addr{a("10.2.2.1"), a("2001:db8:22::1")} {
			if bound.Is4() != vip.Is4() {
				continue
			}
			d := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(bound, 0))}
			c, err := s.dialWith(d, "", "tcp", to)
			if err != nil {
				t.Errorf("from %s to %s: %v", bound, to, err)
				continue
			}
			if got, err := ask(c); got != "backend1 "+own.String() {
				t.Errorf("from %s to %s: %q, %v", bound, to, got, err)
			}
		}
	}
	refused("client")
}

func testBackendReachesItselfThroughAVIP(t *testing.T) {
	s := newSite(t)
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1, lb.SetLoadBalancerLocal)...)
	self := backendAddr(vip4, 1)
	add(t, s.k, lb.Member{Set: lb.SetLoopBack, Addr: self, Port: 8080, Proto: lb.TCP, Net: netip.PrefixFrom(self, 32)})
	s.expect("itself", "backend1", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
	s.expect("another", "backend2", "tcp", "192.0.2.1:80", "backend1 10.2.2.2")
}

func dns(vip netip.Addr, backends ...int) []lb.Object {
	fe := lb.Frontend{Addr: vip, Port: 53, Proto: lb.UDP}
	out := []lb.Object{lb.Member{Set: lb.SetIPVSIPs, Addr: vip}, lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}, lb.Address{Addr: vip}}
	for _, set := range []lb.Set{lb.SetLoadBalancer, lb.SetIPVSPorts} {
		out = append(out, lb.Member{Set: set, Addr: vip, Port: 53, Proto: lb.UDP})
	}
	for _, n := range backends {
		out = append(out, lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(vip, n), 5353), Weight: 1})
	}
	return out
}

func testUDPClientWithAFixedPortMovesAtOnce(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		vip       netip.Addr
		to, local string
	}{
		{vip4, "192.0.2.1:53", "10.1.0.2:4000"},
		{vip6, "[2001:db8::1]:53", "[2001:db8:1::2]:4000"},
	} {
		t.Run(lb.FamilyOf(test.vip).String(), func(t *testing.T) {
			add(t, s.k, dns(test.vip, 1)...)
			c, err := s.dial("client", "udp", test.to, test.local)
			must(t, err)
			if got, err := ask(c); !strings.HasPrefix(got, "backend1 ") {
				t.Fatalf("before: %q, %v", got, err)
			}
			fe := lb.Frontend{Addr: test.vip, Port: 53, Proto: lb.UDP}
			gone := lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(test.vip, 1), 5353)}
			add(t, s.k, lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(test.vip, 2), 5353), Weight: 1})
			if got, _ := ask(c); !strings.HasPrefix(got, "backend1 ") {
				t.Errorf("with two: %q", got)
			}
			remove(t, s.k, gone)
			start := time.Now()
			if got, err := ask(c); !strings.HasPrefix(got, "backend2 ") {
				t.Errorf("after: %q, %v", got, err)
			}
			t.Logf("the first datagram after the removal is answered after %v", time.Since(start))
			// A late answer of backend1 is a flow of its own, which takes no client there.
			flows := sh(t, "conntrack -f %s -L -p udp -d %s 2>/dev/null", strings.ToLower(lb.FamilyOf(test.vip).String()), test.vip)
			if strings.Contains(flows, backendAddr(test.vip, 1).String()) {
				t.Errorf("conntrack remembers backend1:\n%s", flows)
			}
		})
	}
}

// The same on an address of the box. A flow to that port of another host is not affected.
func testUDPClientOfANodePortMovesAtOnceAndNobodyElse(t *testing.T) {
	s := newSite(t)
	s.in("backend2", func() { s.listenUDP("foreign", ":30053") })
	for _, test := range []struct{ node, foreign, local string }{
		{"10.1.0.1", "10.2.2.2:30053", "10.1.0.2:4001"}, {"2001:db8:1::1", "[2001:db8:22::2]:30053", "[2001:db8:1::2]:4001"},
	} {
		node := netip.MustParseAddr(test.node)
		fe := lb.Frontend{Addr: node, Port: 30053, Proto: lb.UDP}
		real := func(n int) lb.RealServer {
			return lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(node, n), 5353), Weight: 1}
		}
		other, err := s.dial("client", "udp", test.foreign, test.local)
		must(t, err)
		if got, err := ask(other); !strings.HasPrefix(got, "foreign ") {
			t.Fatalf("the foreign one: %q, %v", got, err)
		}
		add(t, s.k, lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}, real(1),
			lb.Member{Set: lb.SetNodePorts, Addr: node, Port: 30053, Proto: lb.UDP},
			lb.Member{Set: lb.SetIPVSPorts, Addr: node, Port: 30053, Proto: lb.UDP})
		c, err := s.dial("client", "udp", netip.AddrPortFrom(node, 30053).String())
		must(t, err)
		if got, err := ask(c); !strings.HasPrefix(got, "backend1 ") {
			t.Fatalf("before: %q, %v", got, err)
		}
		family := strings.ToLower(lb.FamilyOf(node).String())
		kept := func() string {
			return sh(t, "conntrack -f %s -L -p udp --orig-src %s --sport 4001 -o id 2>/dev/null | grep -o ' id=.*'", family, netip.MustParseAddrPort(test.local).Addr())
		}
		before := kept()
		add(t, s.k, real(2))
		remove(t, s.k, real(1))
		if got, err := ask(c); !strings.HasPrefix(got, "backend2 ") {
			t.Errorf("after: %q, %v", got, err)
		}
		if after := kept(); after != before || before == "" {
			t.Errorf("the foreign flow was %q and is %q", before, after)
		}
	}
}

// Packets to an address before it is a VIP or NodePort bypass weir, and conntrack keeps their
// flow as long as the client sends.
func testUDPClientThatWasThereFirstIsServed(t *testing.T) {
	s := newSite(t)
	s.in("", func() { s.listenUDP("daemon", ":53") })
	sh(t, "ip route add 192.0.2.0/24 via 10.2.2.2; ip route add 2001:db8::/64 via 2001:db8:22::2")
	t.Cleanup(func() {
		sh(t, "ip route del 192.0.2.0/24; ip route del 2001:db8::/64")
	})
	for _, vip := range []netip.Addr{vip4, vip6, netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("2001:db8:1::1")} {
		c, err := s.dial("client", "udp", netip.AddrPortFrom(vip, 53).String())
		must(t, err)
		if vip != vip4 && vip != vip6 {
			if got, err := ask(c); !strings.HasPrefix(got, "daemon ") {
				t.Fatalf("%s before: %q, %v", vip, got, err)
			}
			add(t, s.k, slices.DeleteFunc(dns(vip, 1), func(o lb.Object) bool {
				m, ok := o.(lb.Member)
				_, address := o.(lb.Address)
				return address || ok && m.Set == lb.SetIPVSIPs
			})...)
		} else {
			for range 3 {
				c.Write([]byte("who?\n"))
			}
			add(t, s.k, dns(vip, 1)...)
		}
		own := backendAddr(vip, 1).Prev() // the box beside the backend
		if got, err := ask(c); got != "backend1 "+own.String() {
			t.Errorf("%s: %q, %v", vip, got, err)
		}
	}
}

// A client inside has the virtual server of a mark, which its flow does not show.
func testUDPClientInsideMovesAtOnce(t *testing.T) {
	s := newCluster(t, false)
	for i, vip := range []netip.Addr{vip4, vip6} {
		inner := lb.MarkFrontend(lb.FamilyOf(vip), uint32(1+3*i)) // one of UDP
		real := func(n int) lb.RealServer {
			return lb.RealServer{Frontend: inner, Addr: netip.AddrPortFrom(backendAddr(vip, n), 5353), Weight: 1}
		}
		add(t, s.k, append(dns(vip), lb.VirtualServer{Frontend: inner, Scheduler: lb.Scheduler{Name: "rr"}}, real(1),
			lb.Member{Set: lb.SetLoadBalancerLocal, Addr: vip, Port: 53, Proto: lb.UDP},
			lb.Member{Set: lb.SetInternal, Addr: vip, Port: 53, Proto: lb.UDP, Mark: inner.Mark})...)
		to := netip.AddrPortFrom(vip, 53).String()
		for _, from := range []string{"backend2", ""} {
			c, err := s.dial(from, "udp", to)
			must(t, err)
			if got, err := ask(c); !strings.HasPrefix(got, "backend1 ") {
				t.Fatalf("%q before: %q, %v", from, got, err)
			}
			add(t, s.k, real(2), lb.Member{Set: lb.SetLoopBack, Addr: backendAddr(vip, 2), Port: 5353, Proto: lb.UDP,
				Net: netip.PrefixFrom(backendAddr(vip, 2), vip.BitLen())})
			remove(t, s.k, real(1))
			if got, err := ask(c); !strings.HasPrefix(got, "backend2 ") {
				t.Errorf("%q after: %q, %v", from, got, err)
			}
			add(t, s.k, real(1))
			remove(t, s.k, real(2))
		}
	}
}

// TestForeignFlushCutsNoConnection needs the anchors: without them the kernel removes
// conntrack's hooks with the last rule that needs them.
func TestForeignFlushCutsNoConnection(t *testing.T) {
	for _, anchored := range []bool{true, false} {
		t.Run(fmt.Sprintf("anchored=%v", anchored), func(t *testing.T) {
			s := newSite(t)
			add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
			add(t, s.k, web(vip6, lb.SetLoadBalancer, 1)...)
			if !anchored {
				remove(t, s.k, s.anchors()...)
			}
			c4, err4 := s.dial("client", "tcp", "192.0.2.1:80")
			c6, err6 := s.dial("client", "tcp", "[2001:db8::1]:80")
			if err4 != nil || err6 != nil {
				t.Fatal(err4, err6)
			}
			for _, step := range []string{
				"true",
				"for i in iptables ip6tables; do for t in filter nat mangle raw; do $i -t $t -F; $i -t $t -X; done; done",
				"sleep 0.3",
			} {
				sh(t, "%s", step)
				_, err4 = ask(c4)
				_, err6 = ask(c6)
				if anchored && (err4 != nil || err6 != nil) {
					t.Errorf("after %s: %v, %v", step, err4, err6)
				}
			}
			if !anchored && (err4 == nil || err6 == nil) {
				t.Errorf("without the anchors: %v, %v; this kernel needs none, or the test has no teeth", err4, err6)
			}
			if !anchored {
				return
			}
			add(t, s.k, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6})
			if _, err := ask(c4); err != nil {
				t.Errorf("after the repair: %v", err)
			}
			if _, err := ask(c6); err != nil {
				t.Errorf("after the repair: %v", err)
			}
			s.expect("a new one", "client", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
		})
	}
}

func TestTrafficAndConnections(t *testing.T) {
	s := newSite(t)
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
	c, err := s.dial("client", "tcp", "192.0.2.1:80")
	must(t, err)
	for range 10 {
		if _, err := ask(c); err != nil {
			t.Fatal(err)
		}
	}
	fe := frontend("192.0.2.1:80", lb.TCP)
	var got []ServerTraffic
	// The kernel counts every two seconds, a virtual server and its real servers one after the other: in the
	// midst of the requests, too.
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		got, err = s.k.Traffic(t.Context(), fe)
		if err != nil || len(got) != 1 || len(got[0].Backends) != 1 {
			t.Fatalf("traffic %v, %v", got, err)
		}
		if st := got[0].Stats; st.PacketsIn >= 10 && st.PacketsOut >= 10 && got[0].Backends[0].Stats.PacketsIn >= st.PacketsIn {
			break
		}
	}
	if st := got[0].Stats; st.Conns != 1 || st.PacketsIn < 10 || st.PacketsOut < 10 || st.BytesIn < 500 || st.BytesOut < 500 {
		t.Errorf("stats %+v", st)
	}
	// A real server that existed a moment ago continues with its old counters.
	if b := got[0].Backends[0]; b.Stats.PacketsIn < got[0].Stats.PacketsIn || b.Conns.Active != 1 {
		t.Errorf("backend %+v", b)
	}
	all, err := s.k.Traffic(t.Context())
	if err != nil || len(all) != 3 { // with two anchors
		t.Errorf("all traffic %v, %v", all, err)
	}
	var conns []Connection
	must(t, s.k.Connections(t.Context(), func(c Connection) bool { conns = append(conns, c); return true }))
	if len(conns) != 1 || conns[0].Frontend() != fe || conns[0].State != "ESTABLISHED" || conns[0].Client.Addr() != netip.MustParseAddr("10.1.0.2") {
		t.Errorf("connections %v", conns)
	}
	s.closedIsNotCounted(got[0].Backends[0].Server, c)
}

// closedIsNotCounted closes the last connection of a real server. IPVS counts it for two more
// minutes.
func (s *site) closedIsNotCounted(rs lb.RealServer, c net.Conn) {
	s.Helper()
	gone := lb.RealServer{Frontend: frontend("192.0.2.77:80", lb.TCP), Addr: rs.Addr}
	count := func() lb.Conns {
		s.Helper()
		counted, err := s.k.CountConns(s.Context(), []lb.RealServer{rs, gone})
		if n, ok := counted[gone.ID()]; err != nil || !ok || n != (lb.Conns{}) {
			s.Fatalf("a real server that is not there: %v, %v", counted, err)
		}
		return counted[rs.ID()]
	}
	if got := count(); got != (lb.Conns{Active: 1}) {
		s.Errorf("an open connection: %+v", got)
	}
	c.Close()
	for end := time.Now().Add(10 * time.Second); count() != (lb.Conns{}); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("a closed connection: %+v", count())
		}
	}
	traffic, err := s.k.Traffic(s.Context(), rs.Frontend)
	if err != nil || traffic[0].Backends[0].Conns.Inactive != 1 {
		s.Errorf("the kernel's counter knows it: %+v, %v", traffic, err)
	}
}
