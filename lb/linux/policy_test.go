package linux

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// policied returns a service on port 80 with traffic policy Local: backend1 is on this node,
// if near, and clients inside have backend2.
type policied struct {
	vip          netip.Addr
	port         uint16
	record, keep lb.Set
	near         bool
	mark         uint32
}

func (p policied) frontend() lb.Frontend {
	return lb.Frontend{Addr: p.vip, Port: p.port, Proto: lb.TCP}
}

func (p policied) inner() lb.Frontend { return lb.MarkFrontend(lb.FamilyOf(p.vip), p.mark) }

func (p policied) objects() []lb.Object {
	family := lb.FamilyOf(p.vip)
	member := func(set lb.Set) lb.Member {
		return lb.Member{Set: set, Addr: p.vip, Port: p.port, Proto: lb.TCP}
	}
	real := func(fe lb.Frontend, n int) lb.RealServer {
		return lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(p.vip, n), 8080), Weight: 1}
	}
	rr := lb.Scheduler{Name: "rr"}
	out := []lb.Object{
		member(p.record), member(p.keep), member(lb.SetIPVSPorts), lb.VirtualServer{Frontend: p.frontend(), Scheduler: rr},
	}
	if p.record != lb.SetNodePorts {
		out = append(out, lb.Address{Addr: p.vip}, lb.Member{Set: lb.SetIPVSIPs, Addr: p.vip})
	}
	if p.near {
		out = append(out, real(p.frontend(), 1))
	} else {
		out = append(out, member(lb.SetNoLocal))
	}
	if p.mark != 0 {
		lead := member(lb.SetInternal)
		lead.Mark = p.mark
		a := netip.AddrFrom4([4]byte{0, 0, 0, byte(p.mark)})
		if family == lb.IPv6 {
			a = netip.AddrFrom16([16]byte{15: byte(p.mark)})
		}
		out = append(out, lead, lb.Member{Set: lb.SetMarks, Addr: a},
			lb.VirtualServer{Frontend: p.inner(), Scheduler: rr}, real(p.inner(), 2))
	}
	return out
}

type kindOfVIP struct {
	name         string
	record, keep lb.Set
}

var allKinds = []kindOfVIP{
	{"LoadBalancer", lb.SetLoadBalancer, lb.SetLoadBalancerLocal},
	{"ExternalIP", lb.SetExternalIP, lb.SetExternalIPLocal},
	{"NodePort", lb.SetNodePorts, lb.SetNodePortsLocal},
}

// newCluster returns a site with the networks of the backends inside the cluster; its client
// is outside.
func newCluster(t *testing.T, byInterface bool) *site {
	return newSite(t, func(c *Config) {
		if byInterface {
			c.LocalInterfaces = []string{"to-backend1", "to-backend2+"}
			return
		}
		for _, cidr := range []string{"10.2.1.0/24", "10.2.2.0/24", "2001:db8:21::/64", "2001:db8:22::/64"} {
			c.ClusterCIDRs = append(c.ClusterCIDRs, netip.MustParsePrefix(cidr))
		}
	})
}

// hostAddr returns the address of the box, or of another host, in a network of the site.
func hostAddr(vip netip.Addr, network string, host int) string {
	if vip.Is4() {
		return fmt.Sprintf("10.%s.%d", map[string]string{"client": "1.0", "backend1": "2.1", "backend2": "2.2"}[network], host)
	}
	return fmt.Sprintf("2001:db8:%s::%d", map[string]string{"client": "1", "backend1": "21", "backend2": "22"}[network], host)
}

func testTrafficPolicyLocalHasTwoFaces(t *testing.T) {
	for _, by := range []string{"addresses", "interfaces"} {
		t.Run("inside by "+by, func(t *testing.T) {
			kinds := allKinds
			if by == "interfaces" {
				kinds = kinds[:1] // the others differ in shared parts
			}
			testTwoFaces(newCluster(t, by == "interfaces"), kinds)
		})
	}
}

func testTwoFaces(s *site, kinds []kindOfVIP) {
	mark := uint32(0)
	for _, kind := range kinds {
		for _, family := range []lb.Family{lb.IPv4, lb.IPv6} {
			mark += 3 // those of TCP
			p := policied{vip4, 80, kind.record, kind.keep, true, mark}
			if family == lb.IPv6 {
				p.vip = vip6
			}
			if kind.record == lb.SetNodePorts {
				p.vip, p.port = netip.MustParseAddr(hostAddr(p.vip, "client", 1)), 30080
			}
			to := netip.AddrPortFrom(p.vip, p.port).String()
			for _, p.near = range []bool{true, false} {
				what := fmt.Sprintf("%s %s, near %v: ", kind.name, family, p.near)
				add(s.T, s.k, p.objects()...)
				s.holds(p.objects()...)
				outside := "backend1 " + hostAddr(p.vip, "client", 2)
				if !p.near {
					outside = "timeout"
				}
				s.expect(what+"outside", "client", "tcp", to, outside)
				s.expect(what+"a pod", "backend1", "tcp", to, "backend2 "+hostAddr(p.vip, "backend1", 2))
				s.expect(what+"the box", "", "tcp", to, "backend2 "+hostAddr(p.vip, "backend2", 1))
				self := backendAddr(p.vip, 2)
				hairpin := lb.Member{Set: lb.SetLoopBack, Addr: self, Port: 8080, Proto: lb.TCP, Net: netip.PrefixFrom(self, self.BitLen())}
				add(s.T, s.k, hairpin)
				s.expect(what+"a pod that gets itself", "backend2", "tcp", to, "backend2 "+hostAddr(p.vip, "backend2", 1))
				remove(s.T, s.k, append(p.objects(), hairpin)...)
			}
		}
	}
}

// holds checks that objects are observed as they were applied, by a deep observation and by a
// shallow one.
func (s *site) holds(objects ...lb.Object) {
	s.Helper()
	for range 2 {
		have := snapshot(s.T, s.k, func(lb.Object) bool { return true })
		for _, o := range objects {
			if have[o.ID()] != o {
				s.Errorf("applied %v, observed %v", o, have[o.ID()])
			}
		}
	}
}

// Without another face (a ClusterIP), and without any backend.
func testNobodyNearIsDroppedAndNobodyAtAllRefused(t *testing.T) {
	s := newCluster(t, false)
	for _, want := range []string{"timeout", "connection refused"} {
		var all sync.WaitGroup
		for _, vip := range []netip.Addr{vip4, vip6} {
			if want == "timeout" {
				add(t, s.k, policied{vip: vip, port: 80, record: lb.SetClusterIP, keep: lb.SetLoadBalancerLocal}.objects()...)
			} else {
				remove(t, s.k, lb.Member{Set: lb.SetNoLocal, Addr: vip, Port: 80, Proto: lb.TCP})
			}
			for _, from := range []string{"client", "backend1", ""} {
				all.Go(func() { s.expect(fmt.Sprintf("%q", from), from, "tcp", netip.AddrPortFrom(vip, 80).String(), want) })
			}
		}
		all.Wait()
	}
}

func testConnectionsOutliveTheLastNearBackend(t *testing.T) {
	s := newCluster(t, false)
	p := policied{vip4, 80, lb.SetLoadBalancer, lb.SetLoadBalancerLocal, true, 1}
	add(t, s.k, p.objects()...)
	c, err := s.dial("client", "tcp", "192.0.2.1:80")
	must(t, err)
	if got, err := ask(c); got != "backend1 10.1.0.2" {
		t.Fatal(got, err)
	}
	near := lb.RealServer{Frontend: p.frontend(), Addr: netip.AddrPortFrom(backendAddr(vip4, 1), 8080)}
	apply(t, s.k, lb.Op{Verb: lb.Change, Object: near})
	add(t, s.k, lb.Member{Set: lb.SetNoLocal, Addr: vip4, Port: 80, Proto: lb.TCP})
	if got, err := ask(c); got != "backend1 10.1.0.2" {
		t.Errorf("%q, %v", got, err)
	}
	s.expect("a new one", "client", "tcp", "192.0.2.1:80", "timeout")
}

func testNodePortsAreMasqueraded(t *testing.T) {
	s := newSite(t)
	s.in("", func() { s.listenTCP("daemon", ":30081") })
	for _, vip := range []netip.Addr{vip4, vip6} {
		node := netip.MustParseAddr(hostAddr(vip, "client", 1))
		p := policied{vip: node, port: 30080, record: lb.SetNodePorts, keep: lb.SetIPVSPorts, near: true}
		add(t, s.k, p.objects()...)
		to := netip.AddrPortFrom(node, 30080).String()
		masqueraded := "backend1 " + hostAddr(vip, "backend1", 1)
		s.expect("outside", "client", "tcp", to, masqueraded)
		s.expect("the box", "", "tcp", to, masqueraded)
		s.expect("another port", "client", "tcp", netip.AddrPortFrom(node, 30081).String(), "daemon "+hostAddr(vip, "client", 2))
		for _, lo := range []string{"127.0.0.1:30080", "[::1]:30080"} {
			s.expect("localhost", "", "tcp", lo, "connection refused")
		}
		local := lb.Member{Set: lb.SetNodePortsLocal, Addr: node, Port: 30080, Proto: lb.TCP}
		add(t, s.k, local)
		s.expect("kept, outside", "client", "tcp", to, "backend1 "+hostAddr(vip, "client", 2))
		s.expect("kept, the box", "", "tcp", to, masqueraded)
	}
}

// A host port of a container is a DNAT rule after weir's.
func testLaterDNATGetsNoService(t *testing.T) {
	s := newSite(t)
	for i, kind := range []lb.Set{lb.SetLoadBalancer, lb.SetClusterIP, lb.SetExternalIP, lb.SetNodePorts} {
		p := policied{vip: vip4, port: uint16(80 + i), record: kind, keep: lb.SetIPVSPorts, near: true}
		if kind == lb.SetNodePorts {
			p.vip = netip.MustParseAddr("10.1.0.1")
		}
		add(t, s.k, p.objects()...)
		sh(t, "iptables -t nat -A PREROUTING -p tcp --dport %d -j DNAT --to-destination 10.2.2.2:8080", p.port)
		t.Cleanup(func() {
			sh(t, "iptables -t nat -D PREROUTING -p tcp --dport %d -j DNAT --to-destination 10.2.2.2:8080", p.port)
		})
		got := s.get("client", "tcp", netip.AddrPortFrom(p.vip, p.port).String(), patience)
		if !strings.HasPrefix(got, "backend1 ") {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

func testHealthCheckPortsAreAdmittedButNotOnVIPs(t *testing.T) {
	s := newSite(t)
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
	add(t, s.k, web(vip6, lb.SetLoadBalancer, 1)...)
	s.in("", func() { s.listenTCP("health", ":30001") })
	before := "timeout"
	for _, iptables := range []string{"iptables", "ip6tables"} {
		if testBackend == NFTables {
			before = "health" // a table can't admit what another one drops
			continue
		}
		sh(t, "%s -A INPUT -p tcp --dport 30001 -j DROP", iptables)
		t.Cleanup(func() { sh(t, "%s -D INPUT -p tcp --dport 30001 -j DROP", iptables) })
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		node := netip.MustParseAddr(hostAddr(vip, "client", 1))
		to := netip.AddrPortFrom(node, 30001).String()
		if got := s.get("client", "tcp", to, patience); !strings.HasPrefix(got, before) {
			t.Errorf("before: %q, want %q", got, before)
		}
		add(t, s.k, lb.Member{Set: lb.SetHealthCheckNodePort, Addr: unspecified(lb.FamilyOf(vip)), Port: 30001})
		s.expect("after", "client", "tcp", to, "health "+hostAddr(vip, "client", 2))
		s.expect("on a VIP", "client", "tcp", netip.AddrPortFrom(vip, 30001).String(), "connection refused")
	}
}

// The reply to a connection with the number of a NodePort as its port is no request to that
// NodePort.
func testRepliesToARestrictedPortPass(t *testing.T) {
	s := newSite(t)
	p := policied{vip: netip.MustParseAddr("10.2.1.1"), port: 30080, record: lb.SetNodePorts, keep: lb.SetFirewall, near: true}
	add(t, s.k, p.objects()...)
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
	sh(t, "iptables -t nat -I POSTROUTING -p tcp -d 10.2.1.2 -j SNAT --to-source 10.2.1.1:30080")
	t.Cleanup(func() { sh(t, "iptables -t nat -D POSTROUTING -p tcp -d 10.2.1.2 -j SNAT --to-source 10.2.1.1:30080") })
	s.expect("a connection from the NodePort's number", "client", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
	s.expect("a client", "client", "tcp", "10.2.1.1:30080", "timeout")
}

// A foreign mark 7 is not number 7 of weir's.
func TestForeignFirewallMarksStayUnchanged(t *testing.T) {
	s := newSite(t)
	sh(t, `ip addr add 192.0.2.99/32 dev lo && iptables -t mangle -A PREROUTING -d 192.0.2.99 -j MARK --set-mark 7 &&
		ipvsadm -A -f 7 -s rr && ipvsadm -a -f 7 -r 10.2.1.2:8080 -m`)
	t.Cleanup(func() {
		sh(t, "ipvsadm -D -f 7; iptables -t mangle -D PREROUTING -d 192.0.2.99 -j MARK --set-mark 7; ip addr del 192.0.2.99/32 dev lo")
	})
	p := policied{vip4, 80, lb.SetLoadBalancer, lb.SetLoadBalancerLocal, true, 7}
	add(t, s.k, p.objects()...)
	for range deepEvery + 1 { // deep and shallow observations
		for id := range snapshot(t, s.k, isServer) {
			vs, ok := id.(lb.VirtualServer)
			if ok && vs.Frontend.Mark != 0 && !vs.Frontend.Given && vs.Frontend != p.inner() {
				t.Fatalf("a foreign server is %v, one of weir's own marks", vs)
			}
			if m, ok := id.(lb.Member); ok && m.Set == lb.SetFWMarks {
				t.Fatalf("a foreign server has the record %v", m)
			}
		}
	}
	s.expect("the foreign server", "client", "tcp", "192.0.2.99:80", "backend1 10.1.0.2")
	remove(t, s.k, p.objects()...)
	if text := sh(t, "ipvsadm -Sn"); !strings.Contains(text, "-a -f 7 -r 10.2.1.2:8080") || strings.Contains(text, "-A -f 30") {
		t.Errorf("left are\n%s", text)
	}
	s.expect("the foreign server", "client", "tcp", "192.0.2.99:80", "backend1 10.1.0.2")
}

// A backend's packet out of the window is INVALID to conntrack, which then does not undo any
// NAT. ip_vs does: the client receives it from the VIP, and has no reason to reset the
// connection. Without ip_vs it is dropped.
func testInvalidPacketOfABackendResetsNobody(t *testing.T) {
	s := newSite(t)
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1, lb.SetLoadBalancerLocal)...)
	self := backendAddr(vip4, 1) // as for all services with client addresses
	add(t, s.k, lb.Member{Set: lb.SetLoopBack, Addr: self, Port: 8080, Proto: lb.TCP, Net: netip.PrefixFrom(self, 32)})
	fd := -1
	s.in("backend1", func() {
		var err error
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP); err != nil {
			t.Fatal(err)
		}
	})
	defer unix.Close(fd)
	c, err := s.dial("client", "tcp", "192.0.2.1:80")
	must(t, err)
	if got, err := ask(c); got != "backend1 10.1.0.2" {
		t.Fatal(got, err)
	}
	port, seq, ack := lastSegment(t, fd)
	segment := make([]byte, 24)
	binary.BigEndian.PutUint16(segment, 8080)
	binary.BigEndian.PutUint16(segment[2:], port)
	binary.BigEndian.PutUint32(segment[4:], ack+1<<30) // far outside
	binary.BigEndian.PutUint32(segment[8:], seq)
	segment[12], segment[13] = 5<<4, 0x18 // 20 bytes of header, PSH and ACK
	binary.BigEndian.PutUint16(segment[14:], 1000)
	copy(segment[20:], "late")
	client := netip.MustParseAddr("10.1.0.2")
	binary.BigEndian.PutUint16(segment[16:], tcpChecksum(backendAddr(vip4, 1), client, segment))
	before := sh(t, "cat /proc/net/stat/nf_conntrack")
	must(t, unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: client.As4()}))
	if got, err := ask(c); got != "backend1 10.1.0.2" {
		t.Errorf("after it: %q, %v", got, err)
	}
	if after := sh(t, "cat /proc/net/stat/nf_conntrack"); invalid(before) == invalid(after) {
		t.Errorf("conntrack found nothing invalid: the test has no teeth\n%s", after)
	}
}

// lastSegment reads all received packets, and returns the next segment from the client.
func lastSegment(t *testing.T, fd int) (port uint16, seq, ack uint32) {
	t.Helper()
	must(t, unix.SetNonblock(fd, true))
	buf := make([]byte, 1500)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			break
		}
		b := buf[:n]
		b = b[int(b[0]&15)*4:]
		data := uint32(len(b) - int(b[12]>>4)*4)
		if binary.BigEndian.Uint16(b[2:]) == 8080 {
			port, seq, ack = binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[4:])+data, binary.BigEndian.Uint32(b[8:])
		}
	}
	if port == 0 {
		t.Fatal("the backend has seen nothing")
	}
	return port, seq, ack
}

func tcpChecksum(src, dst netip.Addr, segment []byte) uint16 {
	s, d := src.As4(), dst.As4()
	b := append(append(append([]byte{}, s[:]...), d[:]...), 0, 6, 0, byte(len(segment)))
	b = append(b, segment...)
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// invalid returns the sum of the column of that name over all CPUs.
func invalid(stat string) string {
	var out []string
	column := 0
	for i, line := range strings.Split(strings.TrimSpace(stat), "\n") {
		fields := strings.Fields(line)
		for j, f := range fields {
			if i == 0 && f == "invalid" {
				column = j
			}
		}
		if i > 0 {
			out = append(out, fields[column])
		}
	}
	return strings.Join(out, " ")
}

// Clients inside and outside keep their backend as long as affinity lasts, and no longer,
// although the backends' port is not that of the VIP.
func TestTrafficPolicyLocalKeepsAffinity(t *testing.T) {
	s := newCluster(t, false)
	// For connections from inside IPVS sees only the packets to the client (insideports.go): the
	// backend's FIN, after which it keeps them for tcpfin, and no reset. Those from outside are
	// reset, which it keeps for 10 s: less than the affinity.
	sh(t, "ipvsadm --set 900 2 300")
	t.Cleanup(func() { sh(t, "ipvsadm --set 900 120 300") })
	const affinity = 12 // s
	var to []netip.AddrPort
	for i, vip := range []netip.Addr{vip4, vip6} {
		p := policied{vip, 80, lb.SetLoadBalancer, lb.SetLoadBalancerLocal, true, uint32(3 + 3*i)}
		objects := p.objects()
		for i, o := range objects {
			if vs, ok := o.(lb.VirtualServer); ok {
				if vs.Affinity = affinity; vs.Frontend.Mark != 0 {
					vs.Port = 8080
				}
				objects[i] = vs
			}
		}
		for _, rs := range []lb.RealServer{{Frontend: p.frontend(), Addr: netip.AddrPortFrom(backendAddr(vip, 2), 8080), Weight: 1}, {Frontend: p.inner(), Addr: netip.AddrPortFrom(backendAddr(vip, 1), 8080), Weight: 1}} {
			hairpin := lb.Member{Set: lb.SetLoopBack, Addr: rs.Addr.Addr(), Port: 8080, Proto: lb.TCP, Net: netip.PrefixFrom(rs.Addr.Addr(), rs.Addr.Addr().BitLen())}
			objects = append(objects, rs, hairpin)
		}
		add(t, s.k, objects...)
		t.Cleanup(func() { remove(t, s.k, objects...) })
		s.holds(objects...)
		to = append(to, netip.AddrPortFrom(vip, 80))
		s.restartsWith(objects)
		s.expect("the backends' port from outside", "client", "tcp", netip.AddrPortFrom(vip, 8080).String(), "connection refused")
		s.expect("the backends' port from a pod", "backend1", "tcp", netip.AddrPortFrom(vip, 8080).String(), "connection refused")
	}
	first := map[string]string{}
	visit := func(from string, vip netip.AddrPort) string {
		t.Helper()
		c, err := s.dial(from, "tcp", vip.String())
		if err != nil {
			t.Fatalf("%q to %s: %v", from, vip, err)
		}
		if from == "client" {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		defer c.Close()
		answer, err := ask(c)
		backend, _, _ := strings.Cut(answer, " ")
		if err != nil || backend == "" {
			t.Fatalf("%q to %s: %q, %v", from, vip, answer, err)
		}
		return backend
	}
	for _, vip := range to {
		for _, from := range []string{"client", "backend1", ""} {
			first[from+vip.String()] = visit(from, vip)
			for range 5 {
				if got := visit(from, vip); got != first[from+vip.String()] {
					t.Errorf("%q to %s: %s after %s", from, vip, got, first[from+vip.String()])
				}
			}
		}
	}
	time.Sleep((affinity + 4) * time.Second)
	// In another order than before, so that each would get the other backend.
	for _, vip := range to {
		for _, from := range []string{"", "backend1", "client"} {
			if got := visit(from, vip); got == first[from+vip.String()] {
				t.Errorf("%q to %s, after the affinity: %s again", from, vip, got)
			}
		}
	}
}

// restartsWith checks that another process finds objects and the wanted rules.
func (s *site) restartsWith(objects []lb.Object) {
	s.Helper()
	k := newKernel(s.T, func(c *Config) { *c = s.k.config })
	defer k.Close()
	obs, err := k.Observe(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range append(objects, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6}) {
		if got, _ := obs.Objects.Get(o); got != o {
			s.Errorf("after a restart %v instead of %s", got, o)
		}
	}
}
