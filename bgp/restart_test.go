package bgp

import (
	"net/netip"
	"testing"

	"weir/bgp/advertise"
)

// GoBGP reports no end of its sessions when it is stopped. A router that does not come back then must not count as
// connected: a box that no router reaches would stay fit.
func TestARestartEndsAllSessions(t *testing.T) {
	parallel(t)
	one, own := newRouter(t, routerASN), newRouter(t, routerASN)
	b := newBox(t)
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("rack", "own")})
	b.configure(func(c *Config) {
		c.ListenPort, c.ListenAddrs = freePort(t, b.addr), []netip.Addr{b.addr}
		c.Peers = []Peer{{Name: "rack", Range: netip.PrefixFrom(one.addr, 32), ASN: routerASN}, own.peer("own", b.addr)}
	})
	one.expect(b.addr, boxASN, one.connecting(b))
	own.expect(b.addr, boxASN, nil)
	b.established("rack", "own")
	before := b.status("own").Messages
	b.configure(func(c *Config) { c.ASN = 65099 }) // neither of them knows it
	for _, p := range b.Status().Peers {
		if p.State == Established {
			t.Errorf("%s, %s, is %s after the restart", p.Name, p.Address, p.State)
		}
	}
	if p := b.status("rack"); p.Address.IsValid() {
		t.Errorf("%s is known before it connects", p.Address)
	}
	p := b.status("own")
	if p.Flaps != 1 || p.Down == "" {
		t.Errorf("own has flapped %d times, and is down because %q", p.Flaps, p.Down)
	}
	if p.Messages.SentTotal < before.SentTotal {
		t.Errorf("it has sent %d messages, and had sent %d", p.Messages.SentTotal, before.SentTotal)
	}
}
