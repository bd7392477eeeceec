package bgp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bgp/advertise"
)

func goodConfig() Config {
	return Config{
		ASN: boxASN, RouterID: netip.MustParseAddr("192.0.2.1"), ListenPort: 179, GracefulRestart: 2 * time.Minute,
		NextHops: NextHops{IPv6: netip.MustParseAddr("2001:db8::1")},
		Peers: []Peer{
			{Name: "tor", Address: netip.MustParseAddr("192.0.2.254"), ASN: routerASN, Password: "secret", TTLSecurity: 1, BFD: BFD{Enabled: true}},
			{Name: "far", Address: netip.MustParseAddr("203.0.113.1"), ASN: routerASN, Multihop: 3, Hold: 30 * time.Second, Keepalive: 10 * time.Second},
			{Name: "core", Address: netip.MustParseAddr("2001:db8::2"), ASN: boxASN, Passive: true},
			{Name: "link", Address: netip.MustParseAddr("fe80::1%eth0"), ASN: routerASN},
			{Name: "rack", Range: netip.MustParsePrefix("198.51.100.0/24")},
		},
	}
}

func TestCheckNamesTheFault(t *testing.T) {
	t.Parallel()
	if err := goodConfig().Check(); err != nil {
		t.Fatalf("a good Config: %v", err)
	}
	for want, spoil := range map[string]func(*Config){
		"ASN 0 is reserved":                       func(c *Config) { c.ASN = 0 },
		"ASN 23456 is reserved":                   func(c *Config) { c.Peers[0].ASN = 23456 },
		"router ID 2001:db8::1 is not an IPv4":    func(c *Config) { c.RouterID = netip.MustParseAddr("2001:db8::1") },
		"port 70000 to listen on":                 func(c *Config) { c.ListenPort = 70000 },
		"graceful restart of 1.5s":                func(c *Config) { c.GracefulRestart = 1500 * time.Millisecond },
		"graceful restart of 1h8m16s":             func(c *Config) { c.GracefulRestart = 4096 * time.Second },
		"IPv6 next hop 192.0.2.1 is no":           func(c *Config) { c.NextHops.IPv6 = netip.MustParseAddr("192.0.2.1") },
		`peer "far": hold time of 2s`:             func(c *Config) { c.Peers[1].Hold = 2 * time.Second },
		`peer "far": keepalive of 11s`:            func(c *Config) { c.Peers[1].Keepalive = 11 * time.Second },
		`peer "far": multihop of 1`:               func(c *Config) { c.Peers[1].Multihop = 1 },
		"multihop and TTL security exclude":       func(c *Config) { c.Peers[1].TTLSecurity = 2 },
		"multihop is for eBGP":                    func(c *Config) { c.Peers[1].ASN = boxASN },
		"not for multihop":                        func(c *Config) { c.Peers[1].BFD.Enabled = true },
		"BFD interval of 1ms":                     func(c *Config) { c.Peers[0].BFD.Interval = time.Millisecond },
		"BFD multiplier of 256":                   func(c *Config) { c.Peers[0].BFD.Multiplier = 256 },
		"TTL security of 255 hops":                func(c *Config) { c.Peers[0].TTLSecurity = 255 },
		"the password is longer than 80 bytes":    func(c *Config) { c.Peers[0].Password = Secret(strings.Repeat("x", 81)) },
		"it needs a name":                         func(c *Config) { c.Peers[0].Name = "" },
		"it needs either an address or a range":   func(c *Config) { c.Peers[0].Range = netip.MustParsePrefix("192.0.2.0/24") },
		"it needs the router's ASN":               func(c *Config) { c.Peers[0].ASN = 0 },
		"add the interface":                       func(c *Config) { c.Peers[3].Address = netip.MustParseAddr("fe80::1") },
		"meant is 198.51.100.0/24":                func(c *Config) { c.Peers[4].Range = netip.MustParsePrefix("198.51.100.7/24") },
		"but there is no port to listen on":       func(c *Config) { c.ListenPort = 0 },
		"a range has no port":                     func(c *Config) { c.Peers[4].Port = 1179 },
		"source 2001:db8::9 is not of the family": func(c *Config) { c.Peers[0].Source = netip.MustParseAddr("2001:db8::9") },
		`peer "tor" is there twice`:               func(c *Config) { c.Peers[1].Name = "tor" },
		`"tor" and "far" have the same address`:   func(c *Config) { c.Peers[1].Address = c.Peers[0].Address },
		"have the same range":                     func(c *Config) { c.Peers = append(c.Peers, Peer{Name: "again", Range: c.Peers[4].Range}) },
		"connect retry of 1s":                     func(c *Config) { c.Peers[0].ConnectRetry = time.Second },
		"a limit of -1 prefixes":                  func(c *Config) { c.Peers[0].MaxPrefixes = -1 },
	} {
		c := goodConfig()
		spoil(&c)
		err := c.Check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, have %v", want, err)
		}
		if s := newSpeaker(quietLog()); s.Configure(t.Context(), c) == nil || s.orders.config != nil {
			t.Errorf("%q: the Speaker took the Config", want)
		}
	}
}

func TestMissingValuesHaveDefaults(t *testing.T) {
	t.Parallel()
	c := goodConfig()
	p := Peer{Name: "r", Address: netip.MustParseAddr("192.0.2.9"), ASN: routerASN, BFD: BFD{Enabled: true}}
	want := Peer{
		Name: "r", Address: p.Address, ASN: routerASN, LocalASN: boxASN, Port: 179,
		Hold: 9 * time.Second, Keepalive: 3 * time.Second, ConnectRetry: 5 * time.Second,
		BFD:      BFD{Enabled: true, Interval: 300 * time.Millisecond, Multiplier: 3},
		Families: advertise.Families{IPv4: true, IPv6: true}, MaxPrefixes: DefaultMaxPrefixes, NextHops: c.NextHops,
	}
	if got := p.WithDefaults(c); got != want {
		t.Errorf("have %+v\nwant %+v", got, want)
	}
	if got := want.WithDefaults(c); got != want {
		t.Errorf("defaults are not their own: %+v", got)
	}
	p.Hold = 3 * time.Second
	if got := p.WithDefaults(c).Keepalive; got != time.Second {
		t.Errorf("keepalive of a hold time of 3s is %s", got)
	}
}

func TestNextHops(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr
	on := []netip.Addr{a("fe80::b"), a("127.0.0.1"), a("192.0.2.11"), a("2001:db8::b")}
	over4, over6 := Peer{Address: a("192.0.2.254")}, Peer{Address: a("2001:db8::1")}
	link := Peer{Address: a("fe80::1%eth0")}
	self, none := nextHop{self: true}, nextHop{}
	given := over4
	given.NextHops = NextHops{IPv4: a("198.51.100.1"), IPv6: a("2001:db8::99")}
	for name, c := range map[string]struct {
		p       Peer
		on      []netip.Addr
		refused bool
		want    hops
	}{
		"IPv4":                      {over4, on, false, hops{v4: self, v6: nextHop{addr: a("2001:db8::b")}}},
		"IPv4 alone":                {over4, on[:3], false, hops{v4: self, v6: none}},
		"IPv6":                      {over6, on, false, hops{v4: nextHop{addr: a("192.0.2.11")}, v6: self}},
		"IPv6 alone":                {over6, on[3:], false, hops{v4: self, v6: self, extended: true}},
		"IPv6 alone, without 8950":  {over6, on[3:], true, hops{v4: none, v6: self, extended: true}},
		"link-local":                {link, on, false, hops{v4: nextHop{addr: a("192.0.2.11")}, v6: nextHop{addr: a("2001:db8::b")}}},
		"link-local alone":          {link, on[:1], false, hops{v4: self, v6: self, extended: true}},
		"given":                     {given, on, true, hops{v4: nextHop{addr: a("198.51.100.1")}, v6: nextHop{addr: a("2001:db8::99")}}},
		"nothing known of the link": {over4, nil, false, hops{v4: self, v6: none}},
	} {
		if got := nextHops(c.p, c.on, c.refused); got != c.want {
			t.Errorf("%s: have %+v, want %+v", name, got, c.want)
		}
	}
	had := hops{v4: self, v6: nextHop{addr: a("2001:db8::b")}}
	if got := (hops{v4: self}).keepKnown(had, false); got != had {
		t.Errorf("an interface without addresses for a moment: %+v", got)
	}
}

func TestInterfacesAreThoseOfTheKernel(t *testing.T) {
	t.Parallel()
	got := map[netip.Addr]bool{}
	for _, addrs := range interfaces() {
		for _, a := range addrs {
			got[a] = true
		}
	}
	addrs, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if ip = ip.Unmap(); ok && ip.Is4() && !got[ip] {
			t.Errorf("%s is not among %v", ip, got)
		}
	}
	lo := Peer{Address: netip.MustParseAddr("127.0.0.1"), Port: 179}
	if on := sessionInterface(lo, interfaces()); !slices.Contains(on, lo.Address) {
		t.Errorf("the interface of %s has %v", lo.Address, on)
	}
	// Of routers that connect, themselves not in the box's addresses, the route to them decides.
	rack := Peer{Range: netip.MustParsePrefix("127.9.0.0/31"), Port: 179}
	if on := sessionInterface(rack, interfaces()); !slices.Contains(on, lo.Address) {
		t.Errorf("the interface of routers of %s has %v", rack.Range, on)
	}
}

func TestErrorsWithoutEnds(t *testing.T) {
	for err, want := range map[string]string{
		"dial tcp 0.0.0.0:0->10.0.0.1:179: connect: network is unreachable": "connect: network is unreachable",
		"dial tcp [::]:0->[2001:db8::1]:179: i/o timeout":                   "i/o timeout",
		"no such thing: at all":                                             "no such thing: at all",
	} {
		if got := withoutAddresses(err); got != want {
			t.Errorf("%q: %q, want %q", err, got, want)
		}
	}
}
