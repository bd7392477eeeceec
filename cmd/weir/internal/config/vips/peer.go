package vips

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/lb"
)

func readPeer(s schema.Section, own *Speaker, k config.Kernel, files source.Files) *Peer {
	p := &Peer{Section: s}
	s.Read(peerKeys(p))
	p.NextHops = nextHops(s)
	p.readAddress()
	p.readSource()
	p.readFamilies(k.Families)
	p.readKeepalive()
	p.readHops(own.Speaker.ASN)
	p.readBFD(own)
	p.readPassword(own, files)
	if p.LocalASN != 0 && p.LocalASN == own.Speaker.ASN {
		s.Fail("local_asn", fmt.Sprintf("%d is already that of [bgp]", p.LocalASN), "remove it")
	}
	p.checkListener(own)
	return p
}

// readAddress reads address or range.
func (p *Peer) readAddress() {
	address, network := p.Text("address"), p.Text("range")
	switch {
	case p.Bad("address"), p.Bad("range"):
		return
	case address == "" && network == "":
		p.Fail("address", "is missing", `add address = "10.0.0.1", or range = "10.0.0.0/24" for all routers of this range`)
		return
	case address != "" && network != "":
		p.Fail("range", "the peer also has an address, at "+p.At("address").String(), "keep one of them")
		return
	}
	var f *source.Fault
	if address != "" {
		if p.Address, f = parse.Router(address); f != nil {
			p.Fail("address", f.Text, f.Fix)
		}
		if p.ASN == 0 && p.Set("asn") {
			p.Fail("asn", "0 accepts any AS, which needs a range", "use the peer's own AS number")
		}
		return
	}
	if p.Range, f = parse.Prefix(network); f != nil {
		p.Fail("range", f.Text, f.Fix)
	}
	p.Port = 0 // weir does not connect to them
	for _, name := range []string{"port", "connect_retry", "passive", "source_address"} {
		if p.Changed(name) {
			p.Fail(name, "has no effect with range: such peers connect to weir", "remove it")
		}
	}
}

func (p *Peer) readSource() {
	text := p.Text("source_address")
	if text == "" || p.Text("range") != "" {
		return
	}
	a, f := parse.Router(text)
	if f == nil && p.Address.IsValid() && lb.FamilyOf(a) != lb.FamilyOf(p.Address) {
		f = source.Faultf("use one of its family", "%q can't be the source of a session with %q", a, p.Address)
	}
	if f == nil && a == p.Address {
		f = source.Faultf("use an address of the box", "%q is the address of the peer itself", a)
	}
	if f != nil {
		p.Fail("source_address", f.Text, f.Fix)
		return
	}
	p.Source = a
}

// readFamilies reads the families of the routes: at most those that the box serves.
func (p *Peer) readFamilies(served []lb.Family) {
	p.Families = advertise.Families{IPv4: slices.Contains(served, lb.IPv4), IPv6: slices.Contains(served, lb.IPv6)}
	if !p.Set("families") {
		return
	}
	if p.EmptyList("families") {
		p.Fail("families", "the peer would receive no routes", `use "ipv4", "ipv6" or both`)
	}
	all := p.Families
	p.Families = advertise.Families{}
	for i, name := range p.Texts("families") {
		own, offered := &p.Families.IPv4, all.IPv4
		if name == "ipv6" {
			own, offered = &p.Families.IPv6, all.IPv6
		}
		*own = true
		if !offered && len(served) > 0 {
			p.FailAt(p.Elements("families")[i], "families", strconv.Quote(name)+" is not in kernel.families", "remove it, or add the family there")
		}
	}
}

// readKeepalive reads keepalive; the default is a third of the hold time.
func (p *Peer) readKeepalive() {
	p.Keepalive = (p.Hold / 3).Truncate(time.Second)
	if !p.Set("keepalive") {
		return
	}
	if k := p.Duration("keepalive"); k > p.Hold/3 {
		p.Fail("keepalive", fmt.Sprintf("%s is more than a third of hold_time (%s), so one lost message would end the session",
			draft.Duration(k), draft.Duration(p.Hold)), "use at most "+strconv.Quote(draft.Duration(p.Keepalive)))
	} else {
		p.Keepalive = k
	}
}

// internal reports whether the peer is in the box's own AS.
func (p *Peer) internal(own uint32) bool {
	return p.ASN != 0 && p.ASN == cmp.Or(p.LocalASN, own)
}

// anyAS reports whether the peers of a range can be internal or external.
func (p *Peer) anyAS() bool { return p.Text("range") != "" && p.ASN == 0 && p.Set("asn") }

func (p *Peer) readHops(own uint32) {
	switch {
	case p.Multihop == 0:
	case p.internal(own):
		p.Fail("multihop", "has no effect: an internal peer may be at any distance", "remove it")
	case p.Multihop == 1:
		p.Fail("multihop", "1 means the same link", "remove it, or use the number of hops")
	case p.anyAS():
		p.Fail("multihop", "needs external peers, and with asn = 0 a peer may be internal", "set the AS number of the peers, or remove this")
	case p.TTLSecurity > 0:
		p.Fail("ttl_security", "can't be combined with multihop: it limits the distance itself", "keep one of them")
	}
}

func (p *Peer) readBFD(own *Speaker) {
	if !p.BFD.Enabled {
		for _, name := range []string{"bfd_interval", "bfd_multiplier"} {
			if p.Changed(name) && !p.Bad("bfd") {
				p.Fail(name, "has no effect without bfd = true", "set that, or remove this")
			}
		}
		return
	}
	p.BFD.Interval, p.BFD.Multiplier = p.Duration("bfd_interval"), p.Integer("bfd_multiplier")
	if own.Speaker.GracefulRestart > 0 {
		p.Warn(source.Note, "bfd", "a restart of weir ends the BFD session, and a peer may then drop routes that graceful_restart would keep",
			"check that the peer distinguishes the two (RFC 5882, 4.3), or use only one of them")
	}
	if detect := p.BFD.Interval * time.Duration(p.BFD.Multiplier); detect > p.Hold {
		p.Warn(source.Warning, "bfd_interval", fmt.Sprintf("BFD detects a failure after %s, later than hold_time (%s)", draft.Duration(detect), draft.Duration(p.Hold)),
			"shorten it, or remove bfd")
	}
	switch {
	case p.Multihop > 1, p.TTLSecurity > 1:
		p.Fail("bfd", "works only on the same link, and the peer may be further away", "remove it, or multihop and ttl_security")
	case p.internal(own.Speaker.ASN):
		p.Warn(source.Note, "bfd", "works only on the same link, and an internal peer may be further away", "make sure that it is on the link")
	}
}

// checkListener reports peers that could never have a session.
func (p *Peer) checkListener(own *Speaker) {
	if own.Speaker.ListenPort != 0 || own.Bad("listen_port") {
		return
	}
	for _, name := range []string{"passive", "range"} {
		if name == "passive" && p.Passive || name == "range" && p.Range.IsValid() {
			p.Fail(name, "the peer can't connect: bgp.listen_port is 0", "set a port there, or let weir connect to the peer")
		}
	}
}

// maxPassword is TCP_MD5SIG_MAXKEYLEN of include/uapi/linux/tcp.h.
const maxPassword = 80

// readPassword reads the password file. Messages never contain its content.
func (p *Peer) readPassword(own *Speaker, files source.Files) {
	const key = "password_file"
	name := p.Text(key)
	if name == "" {
		return
	}
	secret, f := source.SecretOf(p.At(key), name, files)
	if f != nil {
		p.Fail(key, f.Text, f.Fix)
	} else if !secret.OnlyDaemon() {
		p.Password = p.password(secret, files)
	}
	if own.PasswordFiles == nil {
		own.PasswordFiles = map[string]string{}
	}
	own.PasswordFiles[p.Name] = secret.File
}

func (p *Peer) password(secret source.Secret, files source.Files) bgp.Secret {
	const key = "password_file"
	file := secret.File
	data, err := files.ReadFile(file)
	if err != nil {
		f := secret.Unreadable(err)
		p.Add(f.Severity, p.At(key), source.Join(p.Shown, key), f.Text, f.Fix)
		return ""
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		p.Fail(key, file+" is empty", "write the password into it, or remove this")
	case len(text) > maxPassword:
		p.Fail(key, fmt.Sprintf("the password in %s has %d bytes, and the kernel accepts at most %d", file, len(text), maxPassword),
			"agree on a shorter one with the peer")
	case strings.ContainsAny(text, "\r\n\x00"):
		p.Fail(key, file+" has more than one line", "it must contain only the password")
	}
	if access, err := files.Access(file); err == nil && access.Mode.Perm()&0o007 != 0 {
		p.Warn(source.Warning, key, file+" is readable by all users ("+access.Mode.Perm().String()+")", "chmod 600 "+file)
	}
	return bgp.Secret(text)
}

// handicaps are their values.
var handicaps = map[string]advertise.Handicap{
	byMED:       {MED: advertise.StandbyMED},
	byLocalPref: {LocalPref: advertise.StandbyLocalPref},
	byPrepend:   {Prepend: advertise.StandbyPrepend},
}

// readStandby reads standby, and reports an attribute that the peer does not receive: the
// owner's route would not be better than a standby's.
func (p *Peer) readStandby(own *Speaker) {
	by, origin := p.Text("standby"), ""
	if by == "" {
		by, origin = own.Text("standby"), ` of [bgp], at `+own.At("standby").String()+","
	}
	p.Standby = handicaps[by]
	if p.Bad("standby") || p.Bad("asn") || own.Bad("standby") || own.Bad("asn") {
		return
	}
	quoted := strconv.Quote(by) + origin
	switch {
	case by == byMED:
	case p.anyAS():
		p.Fail("standby", quoted+` works only for one of internal and external peers, and with asn = 0 a peer may be either`,
			`use standby = "med", which works for both, or set the AS number of the peers`)
	case p.ASN == 0: // reported elsewhere
	case by == byLocalPref && !p.internal(own.Speaker.ASN):
		p.Fail("standby", quoted+" does not work for an external peer", `use standby = "med" or "prepend"`)
	case by == byPrepend && p.internal(own.Speaker.ASN):
		p.Fail("standby", quoted+" does not work for an internal peer: it would reject the route as a loop", `use standby = "med" or "local_pref"`)
	}
}

// nextHops returns next_hop and next_hop_v6, of the box or for one peer.
func nextHops(s schema.Section) bgp.NextHops {
	return bgp.NextHops{IPv4: nextHop(s, "next_hop", lb.IPv4), IPv6: nextHop(s, "next_hop_v6", lb.IPv6)}
}

func nextHop(s schema.Section, name string, family lb.Family) netip.Addr {
	if s.Text(name) == "" {
		return netip.Addr{}
	}
	a, f := parse.Addr(s.Text(name))
	if f == nil && lb.FamilyOf(a) != family {
		f = source.Faultf("use the box's "+family.String()+" address", "%q is not %s", a, family)
	}
	if f != nil {
		s.Fail(name, f.Text, f.Fix)
		return netip.Addr{}
	}
	return a
}
