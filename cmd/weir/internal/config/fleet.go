package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	fleet "weir/cluster"
	"weir/cluster/owner"
)

// Fleet is the table [cluster]: the boxes that serve the same VIPs, of which this
// is one, and who of them serves what. (Cluster is one of Kubernetes.)
type Fleet struct {
	// Gossip says who this box is and whom it asks. Its Advertise is the zero AddrPort
	// if the box is to find its own address.
	Gossip fleet.Config
	// KeyFiles are the names of the files of Gossip.Keys, in the same order.
	KeyFiles []string
	// Rules are those by which VIPs are shared.
	Rules owner.Rules
	// Weight is this box's share of the VIPs that are spread over the fleet, 1 to 1000.
	Weight uint16
	// TakeBack is for how long without a break a box must have been fit until it takes
	// over what others hold; it is not used where Rules.Stay.
	TakeBack time.Duration
	// RestartGrace is for how long a box whose daemon is gone, while its kernel
	// answers, counts as it was.
	RestartGrace time.Duration
	// Interfaces are those without whose carrier the box is unfit, in the order of the
	// file; those of L2 are to be added.
	Interfaces []string
	// Sync is nil without [cluster.sync].
	Sync *FleetSync
}

// member is [cluster] that is being read.
type member struct {
	section
	*Fleet
}

// readFleet gives nil if there is no [cluster], or something else in its place.
func readFleet(top section, files Files) *member {
	if !top.has("cluster") || top.bad("cluster") {
		return nil
	}
	s := top.sub("cluster")
	m := &member{section: s, Fleet: &Fleet{
		Weight:       uint16(s.integer("weight")),
		RestartGrace: s.duration("restart_grace"),
		Interfaces:   s.interfaces("interfaces"),
	}}
	m.Gossip.Fleet = s.name("fleet")
	m.readName(files)
	m.readAddresses()
	m.readJoin()
	m.readAllowed()
	m.Gossip.Timing = map[string]fleet.Timing{"lan": fleet.LAN, "local": fleet.Local, "wan": fleet.WAN}[s.text("timing")]
	m.readKeys(files)
	if s.text("mode") == owner.ActiveStandby.String() {
		m.Rules.Mode = owner.ActiveStandby
	}
	if never(s, "take_back") {
		m.Rules.Stay = true
	} else {
		m.TakeBack = s.duration("take_back")
	}
	m.Sync = m.readSync()
	return m
}

// never tells whether a duration is written as "never".
func never(s section, name string) bool { return s.get(name).scalar == "never" }

// readOwners reads owners, whose default is what the rest needs.
func (m *member) readOwners(l *answerer, k Kernel) {
	m.Rules.Together = m.text("owners") == "one"
	if !m.has("owners") {
		m.Rules.Together = l != nil && len(l.gateways) > 0 || len(k.MasqueradeSource) > 0
	}
}

// readName reads member, or takes the host's name: as the kernel has it, in small
// letters.
func (m *member) readName(files Files) {
	name := m.text("member")
	if name == "" {
		text, err := files.ReadFile(hostname)
		name = strings.ToLower(strings.TrimSpace(string(text)))
		switch {
		case m.bad("member"):
			return
		case err != nil, name == "", name == "(none)":
			m.fail("member", "is missing: the host has no name", `write one that no other box has, such as member = "box1"`)
			return
		case name == "localhost", strings.HasPrefix(name, "localhost."):
			m.fail("member", "is missing: the host is called "+strconv.Quote(name)+", as any may be", `give the host a name, or write one that no other box has, such as member = "box1"`)
			return
		}
	}
	if !validName(name) {
		m.fail("member", strconv.Quote(name)+" can't be the name of a member", "write 1 to 63 of a-z, 0-9, - and ., with a letter or digit first and last")
		return
	}
	m.Gossip.Name = name
}

// readAddresses reads bind and advertise.
func (m *member) readAddresses() {
	bind, f := parseListener(m.text("bind"), fleet.DefaultPort)
	if f != nil {
		m.fail("bind", f.text, f.fix)
		bind = netip.AddrPortFrom(netip.IPv6Unspecified(), fleet.DefaultPort)
	}
	m.Gossip.Bind = bind
	text := m.text("advertise")
	switch {
	case m.bad("advertise"), text != "":
	case bind.Addr().IsUnspecified() && m.emptyJoin():
		m.fail("advertise", "is missing: bind is all addresses, and there is nobody in join, by whom the box's own would be known",
			`write the box's own such as advertise = "10.0.0.5", or name members in join`)
	}
	if text == "" {
		return
	}
	own, f := parseListener(text, bind.Port())
	if f == nil && own.Addr().IsUnspecified() {
		f = faultf("write the one that others reach the box by", "%q is no address to send anything to", own.Addr())
	}
	if f == nil && bind.Addr().IsUnspecified() && bind.Addr().Is4() && own.Addr().Is6() {
		f = faultf("write an IPv4 address, or bind to [::]", "%q is IPv6, and bind is all IPv4 addresses", own.Addr())
	}
	if f != nil {
		m.fail("advertise", f.text, f.fix)
		return
	}
	m.Gossip.Advertise = own
}

// emptyJoin tells whether nobody is named in join.
func (m *member) emptyJoin() bool { return len(m.elements("join")) == 0 && !m.bad("join") }

// parseListener reads ADDRESS, ADDRESS:PORT, or [ADDRESS]:PORT.
func parseListener(text string, port uint16) (netip.AddrPort, *fault) {
	ap, err := netip.ParseAddrPort(text)
	if err != nil {
		a, errAddr := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
		if errAddr != nil {
			return ap, faultf(`write one such as "10.0.0.5:7946", or "[fd00::5]:7946"`, "%q is not an address with or without a port", text)
		}
		ap = netip.AddrPortFrom(a, port)
	}
	a := ap.Addr()
	switch {
	case ap.Port() == 0:
		return ap, faultf("ports go from 1 to 65535", "%q has port 0", text)
	case a.Is4In6():
		return ap, faultf(fmt.Sprintf("write %q", a.Unmap()), "%q is an IPv4 address in IPv6 clothes", a)
	case a.IsUnspecified(), a.IsLoopback(): // loopback is for several on one host
		return ap, nil
	}
	return ap, unusable(a)
}

// readJoin reads join. An address gets its port, and brackets if it needs some.
func (m *member) readJoin() {
	for _, text := range m.texts("join") {
		i := slices.IndexFunc(m.elements("join"), func(e *value) bool { return e.scalar == text })
		name, f := m.parseJoin(text)
		if f != nil {
			m.failAt(m.elements("join")[i], "join", f.text, f.fix)
			continue
		}
		m.Gossip.Join = append(m.Gossip.Join, name)
	}
}

func (m *member) parseJoin(text string) (string, *fault) {
	if _, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil || strings.HasPrefix(text, "[") {
		ap, f := parseListener(text, m.Gossip.Bind.Port())
		return ap.String(), joinable(ap, f)
	}
	noName := faultf(`write one such as "box2.example.com", "10.0.0.6" or "[fd00::6]:7946"`, "%q is neither a name nor an address", text)
	if strings.Contains(text, "/") {
		return "", noName
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, strconv.Itoa(int(m.Gossip.Bind.Port()))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", faultf("ports go from 1 to 65535", "%q has %q for a port", text, port)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		ap, f := parseListener(text, m.Gossip.Bind.Port())
		return ap.String(), joinable(ap, f)
	}
	if host == "" || !hostForm.MatchString(host) {
		return "", noName
	}
	return net.JoinHostPort(host, port), nil
}

func joinable(ap netip.AddrPort, f *fault) *fault {
	if f == nil && ap.Addr().IsUnspecified() {
		return faultf("write the member's own", "%q is no address to send anything to", ap.Addr())
	}
	return f
}

// readAllowed reads allowed, in which all addresses must be that are known.
func (m *member) readAllowed() {
	m.Gossip.Allowed = m.prefixes("allowed")
	if len(m.Gossip.Allowed) == 0 || m.bad("allowed") {
		return
	}
	allows := func(a netip.Addr) bool {
		return slices.ContainsFunc(m.Gossip.Allowed, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	const fix = "add a range that has it, on all members"
	switch own := m.Gossip.Advertise.Addr(); {
	case own.IsValid() && !allows(own):
		m.fail("allowed", fmt.Sprintf("%q of advertise is in none of them: this box would not be heard", own), fix)
	case !own.IsValid() && !m.Gossip.Bind.Addr().IsUnspecified() && !allows(m.Gossip.Bind.Addr()):
		m.fail("allowed", fmt.Sprintf("%q of bind is in none of them: this box would not be heard", m.Gossip.Bind.Addr()), fix)
	}
	for _, name := range m.Gossip.Join {
		if ap, err := netip.ParseAddrPort(name); err == nil && !allows(ap.Addr()) {
			m.fail("allowed", fmt.Sprintf("%q of join is in none of them: it would not be heard", ap.Addr()), fix)
		}
	}
}

// interfaces reads a list of interfaces, which need not be there yet.
func (s section) interfaces(name string) []string {
	var out []string
	for _, e := range s.elements(name) {
		text := e.scalar.(string)
		switch f := badInterface(text); {
		case f != nil:
			s.failAt(e, name, f.text, f.fix)
		case slices.Contains(out, text):
			s.failAt(e, name, strconv.Quote(text)+" is in the list twice", "remove one")
		default:
			out = append(out, text)
		}
	}
	return out
}

func badInterface(name string) *fault {
	if !deviceForm.MatchString(name) || slices.Contains([]string{"lo", "all", "default"}, name) {
		return faultf("write its name as ip link does", "%q can't be an interface to other hosts", name)
	}
	return nil
}
