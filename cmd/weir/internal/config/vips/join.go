package vips

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	fleet "weir/cluster"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/source"
)

// readAddresses reads bind and advertise.
func (m *Member) readAddresses() {
	bind, f := parse.Listener(m.Text("bind"), fleet.DefaultPort)
	if f != nil {
		m.Fail("bind", f.Text, f.Fix)
		bind = netip.AddrPortFrom(netip.IPv6Unspecified(), fleet.DefaultPort)
	}
	m.Gossip.Bind = bind
	text := m.Text("advertise")
	switch {
	case m.Bad("advertise"), text != "":
	case bind.Addr().IsUnspecified() && m.EmptyJoin():
		m.Fail("advertise", "is missing: bind is all addresses, and join is empty, so the box's own address is unknown",
			`set it, such as advertise = "10.0.0.5", or name members in join`)
	}
	if text == "" {
		return
	}
	own, f := parse.Listener(text, bind.Port())
	if f == nil && own.Addr().IsUnspecified() {
		f = source.Faultf("use the address that other members can reach", "%q is not the address of a host", own.Addr())
	}
	if f == nil && bind.Addr().IsUnspecified() && bind.Addr().Is4() && own.Addr().Is6() {
		f = source.Faultf("use an IPv4 address, or bind to [::]", "%q is IPv6, and bind is all IPv4 addresses", own.Addr())
	}
	if f != nil {
		m.Fail("advertise", f.Text, f.Fix)
		return
	}
	m.Gossip.Advertise = own
}

// EmptyJoin reports whether join names no member.
func (m *Member) EmptyJoin() bool { return len(m.Elements("join")) == 0 && !m.Bad("join") }

// readJoin reads join and completes addresses with the port.
func (m *Member) readJoin() {
	for _, text := range m.Texts("join") {
		i := slices.IndexFunc(m.Elements("join"), func(e *source.Value) bool { return e.Scalar == text })
		name, f := m.parseJoin(text)
		if f != nil {
			m.FailAt(m.Elements("join")[i], "join", f.Text, f.Fix)
			continue
		}
		m.Gossip.Join = append(m.Gossip.Join, name)
	}
}

func (m *Member) parseJoin(text string) (string, *source.Fault) {
	if _, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil || strings.HasPrefix(text, "[") {
		ap, f := parse.Listener(text, m.Gossip.Bind.Port())
		return ap.String(), reachable(ap, f)
	}
	noName := source.Faultf(`write for instance "box2.example.com", "10.0.0.6" or "[fd00::6]:7946"`, "%q is neither a name nor an address", text)
	if strings.Contains(text, "/") {
		return "", noName
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, strconv.Itoa(int(m.Gossip.Bind.Port()))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", source.Faultf("use a port from 1 to 65535", "%q has the invalid port %q", text, port)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		ap, f := parse.Listener(text, m.Gossip.Bind.Port())
		return ap.String(), reachable(ap, f)
	}
	mistyped := strings.Contains(host, ".") && strings.Trim(host, "0123456789.") == "" // an address, as 10.0.0.300
	if host == "" || mistyped || !parse.HostForm.Matches(host) {
		return "", noName
	}
	return net.JoinHostPort(host, port), nil
}

func reachable(ap netip.AddrPort, f *source.Fault) *source.Fault {
	if f == nil && ap.Addr().IsUnspecified() {
		return source.Faultf("use the member's own address", "%q is not the address of a host", ap.Addr())
	}
	return f
}

// checkAllowed reports known addresses of members outside allowed_cidrs.
func (m *Member) checkAllowed() {
	const key = "allowed_cidrs"
	if len(m.Gossip.AllowedCIDRs) == 0 || m.Bad(key) {
		return
	}
	allows := func(a netip.Addr) bool {
		return slices.ContainsFunc(m.Gossip.AllowedCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	const fix = "add a range that contains it, on all members"
	switch own := m.Gossip.Advertise.Addr(); {
	case own.IsValid() && !allows(own):
		m.Fail(key, fmt.Sprintf("%q of advertise is in none of them, so members would ignore this box", own), fix)
	case !own.IsValid() && !m.Gossip.Bind.Addr().IsUnspecified() && !allows(m.Gossip.Bind.Addr()):
		m.Fail(key, fmt.Sprintf("%q of bind is in none of them, so members would ignore this box", m.Gossip.Bind.Addr()), fix)
	}
	for _, name := range m.Gossip.Join {
		if ap, err := netip.ParseAddrPort(name); err == nil && !allows(ap.Addr()) {
			m.Fail(key, fmt.Sprintf("%q of join is in none of them, so this box would ignore it", ap.Addr()), fix)
		}
	}
}
