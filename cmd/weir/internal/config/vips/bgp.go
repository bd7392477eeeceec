package vips

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// readBGP returns nil without [bgp].
func readBGP(top schema.Section, k config.Kernel, files source.Files) *Speaker {
	if !top.Has("bgp") {
		return nil
	}
	s := &Speaker{Section: top.Sub("bgp"), BGP: &config.BGP{}}
	s.Read(bgpKeys(s))
	s.Speaker.NextHops = nextHops(s.Section)
	s.readListener()
	s.communities = readCommunities(s.Section)
	for _, t := range s.Subs("peer") {
		p := readPeer(t, s, k, files)
		p.readStandby(s)
		s.Peers = append(s.Peers, p)
	}
	s.samePeers()
	s.readRouterID()
	for i, t := range s.Subs("advertise") {
		s.Rules = append(s.Rules, readRule(t, "advertise "+strconv.Itoa(i+1), s.communities))
	}
	if len(s.Peers) == 0 && !s.Bad("peer") {
		s.Warn(source.Warning, "peer", "there is no peer, so no router receives the routes", "add a [[bgp.peer]]")
	}
	return s
}

func (s *Speaker) readListener() {
	for _, e := range s.Elements("listen_addresses") {
		a, f := parse.Router(e.Scalar.(string))
		if f == nil && slices.Contains(s.Speaker.ListenAddrs, a) {
			f = parse.Twice(a.String())
		}
		if f != nil {
			s.FailAt(e, "listen_addresses", f.Text, f.Fix)
			continue
		}
		s.Speaker.ListenAddrs = append(s.Speaker.ListenAddrs, a)
	}
	if s.Speaker.ListenPort == 0 && s.Written("listen_addresses") {
		s.Fail("listen_addresses", "has no effect with listen_port = 0", "remove one of them")
	}
}

// readRouterID reads router_id. Without it, the daemon uses the box's own address towards
// a peer with IPv4.
func (s *Speaker) readRouterID() {
	text := s.Text("router_id")
	if text == "" {
		is6 := func(p *Peer) bool { return p.Address.Is6() || p.Range.Addr().Is6() }
		other := func(p *Peer) bool { return !is6(p) } // or wrong
		if slices.ContainsFunc(s.Peers, is6) && !slices.ContainsFunc(s.Peers, other) && !s.Bad("router_id") {
			s.Fail("router_id", "is missing, and no peer has an IPv4 address to derive it from",
				`set one that is unique among the routers, such as router_id = "10.0.0.5"`)
		}
		return
	}
	a, f := parse.Addr(text)
	if f == nil && !a.Is4() {
		f = source.Faultf("use one that is unique among the routers", "%q is not an IPv4 address", a)
	}
	if f != nil {
		s.Fail("router_id", f.Text, f.Fix)
		return
	}
	s.Speaker.RouterID = a
}

// samePeers reports values that two peers must not have in common.
func (s *Speaker) samePeers() {
	names, addresses := map[string]source.Place{}, map[netip.Addr]*Peer{}
	for i, p := range s.Peers {
		if at, ok := names[p.Name]; ok && p.Name != "" {
			p.Fail("name", fmt.Sprintf("%q is also the name of the peer at %s", p.Name, at), "rename one of them")
		} else {
			names[p.Name] = p.At("name")
		}
		if p.Address.IsValid() {
			if q, ok := addresses[p.Address.WithZone("")]; ok {
				p.Fail("address", fmt.Sprintf("%q is also the address of %s at %s", p.Address, q.Called(), q.At("address")), "remove one of them")
			}
			addresses[p.Address.WithZone("")] = p // the address identifies the peer of an UPDATE
		}
		for _, q := range s.Peers[:i] {
			if p.Range.IsValid() && q.Range.IsValid() && p.Range.Overlaps(q.Range) {
				p.Fail("range", fmt.Sprintf("%q overlaps %q of %s at %s", p.Range, q.Range, q.Called(), q.At("range")), "narrow one of them")
			}
		}
	}
}
