package bgp

import (
	"net/netip"
	"testing"
)

// An unknown next hop stays as it was while its interface is being configured. One of another interface, to which the
// route to the router led for a while, does not.
func TestNextHopOfAnotherInterface(t *testing.T) {
	t.Parallel()
	addrs := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	p := Peer{Name: "r", Address: netip.MustParseAddr("10.1.0.254")}
	management, uplink := addrs("10.9.0.1", "2001:db8:9::1"), addrs("10.1.0.1")
	was := nextHops(p, management, false)
	for _, c := range []struct {
		when       string
		session    []netip.Addr
		interfaces [][]netip.Addr
		want       string
	}{
		{"there is no route to the router", nil, [][]netip.Addr{management, uplink}, "2001:db8:9::1"},
		{"no interface has the address, as while it changes", uplink, [][]netip.Addr{uplink}, "2001:db8:9::1"},
		{"another interface has it", uplink, [][]netip.Addr{management, uplink}, "invalid IP"},
		{"the session's own one has it", management, [][]netip.Addr{management, uplink}, "2001:db8:9::1"},
	} {
		got := nextHops(p, c.session, false).keepKnown(was.except(c.session, c.interfaces), false)
		if got.v6.addr.String() != c.want || !got.v4.self {
			t.Errorf("%s: %+v, want the IPv6 next hop %s", c.when, got, c.want)
		}
	}
}

// A reload keeps a next hop that is unknown at the moment, as a poll does, unless the peer has another session now.
func TestAReloadKeepsUnknownNextHops(t *testing.T) {
	t.Parallel()
	p := Peer{Name: "r", Address: loopback(), ASN: routerASN, Source: netip.MustParseAddr("192.0.2.9")}
	hop := netip.MustParseAddr("2001:db8::9")
	for what, c := range map[string]struct {
		change func(*Peer)
		want   netip.Addr
	}{
		"nothing":          {func(*Peer) {}, hop},
		"the prefix limit": {func(p *Peer) { p.MaxPrefixes = 5 }, hop},
		"the source":       {func(p *Peer) { p.Source = netip.MustParseAddr("192.0.2.10") }, netip.Addr{}},
	} {
		e := newEngine(quietLog(), newSpeaker(quietLog()).sessions)
		e.next.hops = map[string]hops{}
		addrs := []netip.Addr{p.Source, hop}
		e.next.interfaces = func() [][]netip.Addr { return [][]netip.Addr{addrs} }
		e.setActivePeers([]Peer{p})
		addrs = addrs[:1] // its address of IPv6 is not ready
		changed := p
		c.change(&changed)
		e.setActivePeers([]Peer{changed})
		if got := e.next.hops["r"].v6.addr; got != c.want {
			t.Errorf("a change of %s leaves the next hop %s, want %s", what, got, c.want)
		}
	}
}
