package linux

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

// Clients are masqueraded with an address that no box has, with their own ports; the box
// itself with its own address.
func testMasqueradedWithASharedSource(t *testing.T) {
	sources := []netip.Addr{netip.MustParseAddr("198.51.100.250"), netip.MustParseAddr("2001:db8:ff::250")}
	s := newSite(t, func(c *Config) { c.Sources = sources })
	b := lb.Base{Device: "kube-ipvs0", Sources: sources}
	for _, o := range b.Objects() {
		if u, ok := o.(lb.Unreachable); ok {
			add(t, s.k, u)
			t.Cleanup(func() { remove(t, s.k, u) })
		}
	}
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
	add(t, s.k, web(vip6, lb.SetLoadBalancer, 1)...)
	for name, back := range map[string]string{"198.51.100.250/32": "10.2.1.1", "2001:db8:ff::250/128": "2001:db8:21::1"} {
		sh(t, "ip -n backend1 route replace %s via %s", name, back)
	}
	s.expect("a client", "client", "tcp", "192.0.2.1:80", "backend1 198.51.100.250")
	s.expect("a client", "client", "tcp", "[2001:db8::1]:80", "backend1 2001:db8:ff::250")
	s.expect("the box itself", "", "tcp", "192.0.2.1:80", "backend1 10.2.1.1")
	s.expect("the box itself", "", "tcp", "[2001:db8::1]:80", "backend1 2001:db8:21::1")
	if s.ping("backend1", "198.51.100.250", false) {
		t.Error("what is no box's address answers ping")
	}
}

// Packets of a backend in an unknown connection are dropped, if the box may take over such
// connections: the client would answer with a reset. Packets of other hosts pass, and those of
// connections that IPVS may have from another kernel.
func TestRepliesBeforeTheirRequestAreDropped(t *testing.T) {
	s := newSite(t)
	kept := netip.MustParseAddr("192.0.2.2")
	add(t, s.k, append(web(kept, lb.SetLoadBalancer, 1, lb.SetLoadBalancerLocal), loopBackMember(backendAddr(kept, 1)))...)
	ports := uint16(20000) // a used port belongs to a known connection
	for _, tt := range []struct {
		name        string
		sloppy, syn bool
		from        string
		arrives     bool
	}{
		{"no takeover", false, false, "backend1", true},
		{"in the midst of a connection", true, false, "backend1", false},
		{"at the beginning of one", true, true, "backend1", true},
		{"of no backend", true, false, "backend2", true},
	} {
		for _, sync := range []bool{false, true} {
			c := s.k.config
			c.SloppyTCP, c.Sync = tt.sloppy, sync
			must(t, s.k.Configure(c))
			add(t, s.k, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6})
			want := tt.arrives || sync
			ports++
			if got := s.sendsSegment(tt.from, tt.syn, ports, 8080); got != want {
				t.Errorf("%s, synchronization %v: arrives: %v, want %v", tt.name, sync, got, want)
			}
		}
	}

	// As if IPVS had the connection from another kernel: conntrack does not know it.
	conn, err := s.dial("client", "tcp", "192.0.2.2:80")
	must(t, err)
	if who, err := ask(conn); err != nil || who != "backend1 10.1.0.2" {
		t.Fatalf("%q, %v", who, err)
	}
	port := netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
	for _, sync := range []bool{false, true} {
		c := s.k.config
		c.SloppyTCP, c.Sync = true, sync
		must(t, s.k.Configure(c))
		add(t, s.k, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6})
		sh(t, "conntrack -F")
		if got := s.sendsSegment("backend1", false, port, 80); got != sync {
			t.Errorf("of a connection that IPVS knows, synchronization %v: arrives from the VIP's port: %v", sync, got)
		}
	}
}

func loopBackMember(a netip.Addr) lb.Member {
	return lb.Member{Set: lb.SetLoopBack, Addr: a, Port: 8080, Proto: lb.TCP, Net: netip.PrefixFrom(a, a.BitLen())}
}

// sendsSegment sends a TCP segment from port 8080 of a backend to a port of the client, and
// reports whether it arrives, from port as.
func (s *site) sendsSegment(from string, syn bool, port, as uint16) bool {
	s.Helper()
	open := func(namespace, addr string) (c net.PacketConn) {
		s.in(namespace, func() {
			var err error
			if c, err = net.ListenPacket("ip4:tcp", addr); err != nil {
				s.Fatal(err)
			}
		})
		s.Cleanup(func() { c.Close() })
		return c
	}
	addr := map[string]string{"backend1": "10.2.1.2", "backend2": "10.2.2.2"}[from]
	in, out := open("client", "10.1.0.2"), open(from, addr)
	flags := byte(0x18) // PSH, ACK
	if syn {
		flags = 0x02
	}
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment, 8080)
	binary.BigEndian.PutUint16(segment[2:], port)
	binary.BigEndian.PutUint32(segment[4:], 1)
	segment[12], segment[13] = 5<<4, flags
	binary.BigEndian.PutUint16(segment[14:], 1024)
	src, dst := netip.MustParseAddr(addr).As4(), netip.MustParseAddr("10.1.0.2").As4()
	binary.BigEndian.PutUint16(segment[16:], checksum(append(append(append(src[:], dst[:]...), 0, 6, 0, 20), segment...)))
	buf := make([]byte, 100)
	for range 5 {
		if _, err := out.WriteTo(segment, &net.IPAddr{IP: dst[:]}); err != nil {
			s.Fatal(err)
		}
		_ = in.SetReadDeadline(time.Now().Add(silence / 2))
		for {
			n, _, err := in.ReadFrom(buf)
			if err != nil {
				break
			}
			if n >= 20 && binary.BigEndian.Uint16(buf[2:]) == port && binary.BigEndian.Uint16(buf) == as {
				return true
			}
		}
	}
	return false
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
