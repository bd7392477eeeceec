package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bgp"
	"weir/lb"
)

// peer is one that is being read.
type peer struct {
	section
	bgp.Peer
}

func readPeer(s section, own *speaker, k Kernel, files Files) *peer {
	p := &peer{section: s, Peer: bgp.Peer{
		Name:         s.name("peer"),
		ASN:          s.asn("asn"),
		LocalASN:     s.asn("local_asn"),
		Port:         s.integer("port"),
		Multihop:     s.integer("multihop"),
		TTLSecurity:  s.integer("ttl_security"),
		Passive:      s.flag("passive"),
		Hold:         s.wholeSeconds("hold_time"),
		ConnectRetry: s.wholeSeconds("connect_retry"),
		MaxPrefixes:  s.integer("max_prefixes"),
		NextHops:     s.nextHops(),
	}}
	p.readAddress()
	p.readSource()
	p.readFamilies(k.Families)
	p.readKeepalive()
	p.readHops(own.Speaker.ASN)
	p.readBFD(own)
	if name := s.text("password_file"); name != "" {
		word, f := secretOf(s.at("password_file"), name, files)
		if f != nil {
			s.fail("password_file", f.text, f.fix)
		} else {
			p.Password = s.password(word, files)
		}
		if own.PasswordFiles == nil {
			own.PasswordFiles = map[string]string{}
		}
		own.PasswordFiles[p.Name] = word.file
	}
	if p.LocalASN != 0 && p.LocalASN == own.Speaker.ASN {
		s.fail("local_asn", fmt.Sprintf("%d is that of [bgp] already", p.LocalASN), "remove it")
	}
	p.readListener(own)
	return p
}

// readAddress reads address or range, whichever it is.
func (p *peer) readAddress() {
	address, network := p.text("address"), p.text("range")
	switch {
	case p.bad("address"), p.bad("range"):
		return
	case address == "" && network == "":
		p.fail("address", "is missing", `add address = "10.0.0.1", or range = "10.0.0.0/24" for all that connect from there`)
		return
	case address != "" && network != "":
		p.fail("range", "the peer has an address too, at "+p.at("address").String(), "keep one of them")
		return
	}
	var f *fault
	if address != "" {
		if p.Address, f = parseRouter(address); f != nil {
			p.fail("address", f.text, f.fix)
		}
		if p.integer("asn") == 0 && p.has("asn") && !p.bad("asn") {
			p.fail("asn", "0 is any system, and only a range has that", "write the peer's own")
		}
		return
	}
	if p.Range, f = parsePrefix(network); f != nil {
		p.fail("range", f.text, f.fix)
	}
	p.Port = 0 // nobody connects to them
	for _, name := range []string{"port", "connect_retry", "passive", "source_address"} {
		if p.says(name) {
			p.fail(name, "does nothing with range: such peers connect by themselves", "remove it")
		}
	}
}

func (p *peer) readSource() {
	text := p.text("source_address")
	if text == "" || p.text("range") != "" {
		return
	}
	a, f := parseRouter(text)
	if f == nil && p.Address.IsValid() && lb.FamilyOf(a) != lb.FamilyOf(p.Address) {
		f = faultf("write one of its family", "%q can't be the source to %q", a, p.Address)
	}
	if f != nil {
		p.fail("source_address", f.text, f.fix)
		return
	}
	p.Source = a
}

// readFamilies reads the families of the routes: no more than the box serves.
func (p *peer) readFamilies(served []lb.Family) {
	p.Families = bgp.Families{IPv4: slices.Contains(served, lb.IPv4), IPv6: slices.Contains(served, lb.IPv6)}
	if !p.has("families") || p.bad("families") {
		return
	}
	if p.emptyList("families") {
		p.fail("families", "the peer would hear of nothing", `write "ipv4", "ipv6" or both`)
	}
	all := p.Families
	p.Families = bgp.Families{}
	for i, name := range p.texts("families") {
		own, offered := &p.Families.IPv4, all.IPv4
		if name == "ipv6" {
			own, offered = &p.Families.IPv6, all.IPv6
		}
		*own = true
		if !offered && len(served) > 0 {
			p.failAt(p.elements("families")[i], "families", strconv.Quote(name)+" is not in kernel.families", "remove it, or add the family there")
		}
	}
}

// readKeepalive reads keepalive, or takes a third of the hold time.
func (p *peer) readKeepalive() {
	p.Keepalive = (p.Hold / 3).Truncate(time.Second)
	if !p.has("keepalive") || p.bad("keepalive") {
		return
	}
	if k := p.wholeSeconds("keepalive"); k > p.Hold/3 {
		p.fail("keepalive", fmt.Sprintf("%s is more than a third of hold_time, which is %s: one lost message would end the session",
			short(k), short(p.Hold)), "write at most "+strconv.Quote(short(p.Keepalive)))
	} else {
		p.Keepalive = k
	}
}

// internal tells whether it is a peer of the box's own system.
func (p *peer) internal(own uint32) bool {
	return p.ASN != 0 && p.ASN == cmp.Or(p.LocalASN, own)
}

func (p *peer) readHops(own uint32) {
	switch {
	case p.Multihop == 0:
	case p.internal(own):
		p.fail("multihop", "does nothing: an internal peer may be anywhere", "remove it")
	case p.Multihop == 1:
		p.fail("multihop", "1 is the same link", "remove it, or write the number of hops")
	case p.text("range") != "" && p.ASN == 0 && p.has("asn") && !p.bad("asn"):
		p.fail("multihop", "can't be where asn = 0: of an unknown system it can't be told whether it is an external peer", "write the peers' system, or remove this")
	case p.TTLSecurity > 0:
		p.fail("ttl_security", "can't be together with multihop: it says itself how far away the peer may be", "keep one of them")
	}
}

func (p *peer) readBFD(own *speaker) {
	p.BFD.Enabled = p.flag("bfd")
	if !p.BFD.Enabled {
		for _, name := range []string{"bfd_interval", "bfd_multiplier"} {
			if p.says(name) && !p.bad("bfd") {
				p.fail(name, "does nothing without bfd = true", "set that, or remove this")
			}
		}
		return
	}
	p.BFD.Interval, p.BFD.Multiplier = p.duration("bfd_interval"), p.integer("bfd_multiplier")
	if own.Speaker.GracefulRestart > 0 {
		p.warn(Note, "bfd", "a restart of weir ends the BFD session, and a peer may drop the routes although they would be kept by graceful_restart",
			"see whether the peer tells the two apart (RFC 5882, 4.3), or choose one of them")
	}
	if detect := p.BFD.Interval * time.Duration(p.BFD.Multiplier); detect > p.Hold {
		p.warn(Warning, "bfd_interval", fmt.Sprintf("finds the peer gone after %s, later than hold_time, which is %s", short(detect), short(p.Hold)),
			"shorten it, or remove bfd")
	}
	switch {
	case p.Multihop > 1, p.TTLSecurity > 1:
		p.fail("bfd", "works on the same link only, and the peer is further away", "remove it, or multihop and ttl_security")
	case p.internal(own.Speaker.ASN):
		p.warn(Note, "bfd", "works on the same link only, and an internal peer need not be there", "make sure that it is")
	}
}

// readListener complains about peers that nobody could ever have a session with.
func (p *peer) readListener(own *speaker) {
	if own.Speaker.ListenPort != 0 || own.bad("listen_port") {
		return
	}
	for _, name := range []string{"passive", "range"} {
		if name == "passive" && p.Passive || name == "range" && p.Range.IsValid() {
			p.fail(name, "nobody can connect: bgp.listen_port is 0", "set a port there, or have weir connect to the peer")
		}
	}
}

// longestPassword is TCP_MD5SIG_MAXKEYLEN of include/uapi/linux/tcp.h.
const longestPassword = 80

// password reads the password of a peer. What is said about the file never tells
// anything that is in it.
func (s section) password(word secret, files Files) bgp.Secret {
	file := word.file
	if word.sight == handed {
		return ""
	}
	data, err := files.ReadFile(file)
	if err != nil {
		f := word.unreadable(err)
		s.add(f.severe, s.at("password_file"), join(s.shown, "password_file"), f.text, f.fix)
		return ""
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		s.fail("password_file", file+" is empty", "write the password into it, or remove this")
	case len(text) > longestPassword:
		s.fail("password_file", fmt.Sprintf("the password in %s has %d bytes, and the kernel takes %d at most", file, len(text), longestPassword),
			"agree on a shorter one with the peer")
	case strings.ContainsAny(text, "\r\n\x00"):
		s.fail("password_file", file+" has more than one line", "it must hold the password and nothing else")
	}
	if access, err := files.Access(file); err == nil && access.Mode.Perm()&0o007 != 0 {
		s.warn(Warning, "password_file", file+" can be read by everybody ("+access.Mode.Perm().String()+")", "chmod 600 "+file)
	}
	return bgp.Secret(text)
}

// samePeers complains about what two peers have in common, but may not.
func (s *speaker) samePeers() {
	names, addresses := map[string]place{}, map[netip.Addr]*peer{}
	for i, p := range s.peers {
		if at, ok := names[p.Name]; ok && p.Name != "" {
			p.fail("name", fmt.Sprintf("%q is the name of the peer at %s too", p.Name, at), "rename one of them")
		} else {
			names[p.Name] = p.at("name")
		}
		if p.Address.IsValid() {
			if q, ok := addresses[p.Address.WithZone("")]; ok {
				p.fail("address", fmt.Sprintf("%q is that of %s at %s too", p.Address, q.called(), q.at("address")), "remove one of them")
			}
			addresses[p.Address.WithZone("")] = p // an UPDATE's peer is known by its address alone
		}
		for _, q := range s.peers[:i] {
			if p.Range.IsValid() && q.Range.IsValid() && p.Range.Overlaps(q.Range) {
				p.fail("range", fmt.Sprintf("%q overlaps %q of %s at %s", p.Range, q.Range, q.called(), q.at("range")), "narrow one of them")
			}
		}
	}
}

func (p *peer) called() string {
	if p.Name != "" {
		return "peer " + strconv.Quote(p.Name)
	}
	return "another peer"
}
