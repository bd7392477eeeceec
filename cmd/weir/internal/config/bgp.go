package config

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bgp"
	"weir/lb"
)

// BGP is the table [bgp] with its peers and rules.
type BGP struct {
	// Speaker says who is told. If its RouterID is the zero Addr, that is to be the
	// box's own address towards the first peer that has IPv4 (there is one): only the
	// routing table knows it.
	Speaker bgp.Config
	// Policy says what they are told.
	Policy bgp.Policy
	// DrainDelay is how long peers are asked to prefer others before what is drained
	// is withdrawn.
	DrainDelay time.Duration
	// Announced are the prefixes that all that may ever be announced is of, as far as
	// the configuration knows, sorted; Aggregates tells whether anything but host
	// routes is announced.
	Announced  []netip.Prefix
	Aggregates bool
	// PasswordFiles are the names of the files by the names of their peers.
	PasswordFiles map[string]string
}

// RouterSide is what bgp.RouterConfig needs to know for one peer.
func (b *BGP) RouterSide(vendor, peer string) bgp.RouterSide {
	return bgp.RouterSide{
		Vendor: vendor, Config: b.Speaker, Peer: peer,
		Prefixes: b.Announced, Aggregates: b.Aggregates, PasswordFile: b.PasswordFiles[peer],
	}
}

// speaker is [bgp] that is being read.
type speaker struct {
	section
	*BGP
	communities communities
	peers       []*peer
	rules       []*rule
}

// readBGP gives nil if there is no [bgp].
func readBGP(top section, c *Config, files Files) *speaker {
	if !top.has("bgp") {
		return nil
	}
	s := &speaker{section: top.sub("bgp"), BGP: &BGP{}}
	s.DrainDelay = s.duration("drain_delay")
	s.Policy = bgp.Policy{HoldDown: s.duration("hold_down"), Floor: s.share("floor")}
	s.Speaker = bgp.Config{
		ASN:             s.asn("asn"),
		ListenPort:      s.integer("listen_port"),
		NextHops:        s.nextHops(),
		GracefulRestart: s.wholeSeconds("graceful_restart"),
	}
	for _, e := range s.elements("listen_addresses") {
		a, f := parseRouter(e.scalar.(string))
		if f == nil && slices.Contains(s.Speaker.ListenAddrs, a) {
			f = faultf("remove one", "%q is in the list twice", a)
		}
		if f != nil {
			s.failAt(e, "listen_addresses", f.text, f.fix)
			continue
		}
		s.Speaker.ListenAddrs = append(s.Speaker.ListenAddrs, a)
	}
	if s.Speaker.ListenPort == 0 && s.written("listen_addresses") {
		s.fail("listen_addresses", "does nothing with listen_port = 0", "remove one of them")
	}
	s.communities = s.readCommunities()
	for _, t := range s.subs("peer") {
		p := readPeer(t, s, c.Kernel, files)
		p.readStandby(s)
		s.peers = append(s.peers, p)
	}
	s.samePeers()
	s.readRouterID()
	for i, t := range s.subs("advertise") {
		s.rules = append(s.rules, readRule(t, "advertise "+strconv.Itoa(i+1), s.communities))
	}
	if len(s.peers) == 0 && !s.bad("peer") {
		s.warn(Warning, "peer", "there is no peer, so nobody is told", "add a [[bgp.peer]]")
	}
	return s
}

// The numbers that no system has: AS_TRANS (RFC 6793), and the last ones of both
// sizes (RFC 7300).
var reservedASNs = map[int]string{23456: "stands for ASNs of four bytes (RFC 6793)", 65535: "is reserved (RFC 7300)", maxUint32: "is reserved (RFC 7300)"}

func (s section) asn(name string) uint32 {
	n := s.integer(name)
	if what, ok := reservedASNs[n]; ok {
		s.fail(name, fmt.Sprintf("%d %s", n, what), "write the system's own number; 64512 to 65534 are for private use")
		return 0
	}
	return uint32(n)
}

// readRouterID reads router_id, which may be left out where a peer's address tells
// the daemon which of the box's own to take.
func (s *speaker) readRouterID() {
	text := s.text("router_id")
	if text == "" {
		of6 := func(p *peer) bool { return p.Address.Is6() || p.Range.Addr().Is6() }
		notOf6 := func(p *peer) bool { return !of6(p) } // or wrong
		if slices.ContainsFunc(s.peers, of6) && !slices.ContainsFunc(s.peers, notOf6) && !s.bad("router_id") {
			s.fail("router_id", "is missing: no peer has an IPv4 address, by which the box's own would be known",
				`write one that no other router has, such as router_id = "10.0.0.5"`)
		}
		return
	}
	a, f := parseAddr(text)
	if f == nil && !a.Is4() {
		f = faultf("any will do that no other router has", "%q is not an IPv4 address", a)
	}
	if f != nil {
		s.fail("router_id", f.text, f.fix)
		return
	}
	s.Speaker.RouterID = a
}

// nextHops reads next_hop and next_hop_v6, of the box or for one peer.
func (s section) nextHops() bgp.NextHops {
	return bgp.NextHops{IPv4: s.nextHop("next_hop", lb.IPv4), IPv6: s.nextHop("next_hop_v6", lb.IPv6)}
}

func (s section) nextHop(name string, family lb.Family) netip.Addr {
	if s.text(name) == "" {
		return netip.Addr{}
	}
	a, f := parseAddr(s.text(name))
	if f == nil && lb.FamilyOf(a) != family {
		f = faultf("write the box's "+family.String()+" address", "%q is not %s", a, family)
	}
	if f != nil {
		s.fail(name, f.text, f.fix)
		return netip.Addr{}
	}
	return a
}

// parseRouter reads the address of a router, or the box's own of a session: it may
// be link-local with an interface, or loopback for a speaker on this box.
func parseRouter(s string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return a, notAnAddr(s)
	case a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "":
		return a, faultf(fmt.Sprintf("write %q with the name of the interface", a.String()+"%eth0"), "%q is link-local, on no interface", a)
	case a.IsLinkLocalUnicast() && a.Is6(), a.IsLoopback() && !a.Is4In6():
		return a, nil
	}
	return a, unusable(a)
}

// communities are those that have names.
type communities map[string]community

// community is of either sort.
type community struct {
	small bgp.Community
	large *bgp.LargeCommunity
}

func parseCommunity(s string) (community, error) {
	if strings.Count(s, ":") == 2 {
		l, err := bgp.ParseLargeCommunity(s)
		return community{large: &l}, err
	}
	c, err := bgp.ParseCommunity(s)
	return community{small: c}, err
}

var communityForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)

func (s section) readCommunities() communities {
	out := communities{}
	v := s.get("communities")
	for _, name := range v.names() {
		key, e := "communities."+name, v.table[name]
		_, taken := bgp.ParseCommunity(name)
		switch {
		case e.bad:
			out[name] = community{} // only so that nobody calls it unknown
			continue
		case taken == nil:
			s.failAt(e, key, strconv.Quote(name)+" is the name of a community already", "choose another name")
			continue
		case !communityForm.MatchString(name):
			s.failAt(e, key, strconv.Quote(name)+" can't be the name of a community", "write 1 to 63 of a-z, A-Z, 0-9, _, . and -, with a letter first")
			continue
		}
		c, err := parseCommunity(e.scalar.(string))
		if err != nil {
			s.failAt(e, key, e.String()+" is no community", `write "64500:100", or three numbers for a large one`)
		}
		out[name] = c
	}
	return out
}

// find reads one of a rule's communities.
func (c communities) find(text string) (community, *fault) {
	if named, ok := c[text]; ok {
		return named, nil
	}
	found, err := parseCommunity(text)
	if err == nil {
		return found, nil
	}
	if strings.Contains(text, ":") {
		return found, faultf(`write two numbers up to 65535 ("64500:100"), or three up to 4294967295 ("4200000000:1:2")`, "%q is no community", text)
	}
	return found, unknownName(text, "community", slices.Sorted(maps.Keys(c)), `write it as numbers, or name it in [bgp.communities]`)
}
