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
