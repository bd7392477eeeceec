package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"weir/lb"
)

// fault is what is wrong with a text, and how to put it right.
type fault struct {
	text, fix string
	severe    Severity
}

func faultf(fix, format string, args ...any) *fault {
	return &fault{fmt.Sprintf(format, args...), fix, Error}
}

// parseAddr reads an address that traffic can go to: a VIP or a backend.
func parseAddr(s string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, notAnAddr(s)
	}
	if f := unusable(a); f != nil {
		return a, f
	}
	return a, nil
}

func notAnAddr(s string) *fault {
	if p, err := netip.ParsePrefix(s); err == nil {
		return faultf(fmt.Sprintf("write %q", p.Addr()), "%q is a range, not one address", s)
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return faultf(fmt.Sprintf("write %q", p.Addr()), "%q has a port, which does not belong here", s)
	}
	if strings.ContainsAny(s, "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ") {
		return faultf("weir resolves no names: write the address", "%q is not an IP address", s)
	}
	return faultf("write one such as 192.0.2.10 or 2001:db8::10", "%q is not an IP address", s)
}

var reserved = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/32"), "the unspecified address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "of 0.0.0.0/8, which is no network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("192.0.0.8/32"), "the dummy address of RFC 7600"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("100::/64"), "the discard range of RFC 6666"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// unusable says why no traffic can go to a.
func unusable(a netip.Addr) *fault {
	switch {
	case a.Is4In6():
		return faultf(fmt.Sprintf("write %q", a.Unmap()), "%q is an IPv4 address in IPv6 clothes", a)
	case a.Zone() != "":
		return faultf("leave out %"+a.Zone(), "%q has a zone", a)
	}
	for _, r := range reserved {
		if r.prefix.Contains(a) {
			return faultf("choose another address", "%q is %s", a, r.what)
		}
	}
	return nil
}

// parsePrefix reads a range of addresses.
func parsePrefix(s string) (netip.Prefix, *fault) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return p, faultf(fmt.Sprintf("write \"%s/%d\"", a, a.BitLen()), "%q is an address, not a range", s)
		}
		return p, faultf("write one such as 192.0.2.0/24 or 2001:db8::/64", "%q is not a range of addresses", s)
	}
	if p.Addr().Is4In6() {
		return p, faultf("write it as IPv4", "%q is an IPv4 range in IPv6 clothes", s)
	}
	if p != p.Masked() {
		return p, faultf(fmt.Sprintf("write %q", p.Masked()), "%q has bits set after its first %d", s, p.Bits())
	}
	return p, nil
}

// prefixes reads a list of ranges, each once.
func (s section) prefixes(name string) []netip.Prefix {
	var out []netip.Prefix
	seen := map[netip.Prefix]place{}
	for _, e := range s.elements(name) {
		p, f := parsePrefix(e.scalar.(string))
		if f != nil {
			s.failAt(e, name, f.text, f.fix)
			continue
		}
		if first, ok := seen[p]; ok {
			s.failAt(e, name, fmt.Sprintf("%q is in the list twice, first at %s", p, first), "remove one")
			continue
		}
		seen[p] = e.at
		out = append(out, p)
	}
	return out
}

// parseBackend reads ADDRESS or ADDRESS:PORT; the port is 0 if there is none.
func parseBackend(s string) (netip.AddrPort, *fault) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		if ap.Port() == 0 {
			return ap, faultf("ports go from 1 to 65535", "%q has port 0", s)
		}
		return ap, unusable(ap.Addr())
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 0), unusable(a)
	}
	if host, port, ok := cutPort(s); ok {
		if _, err := netip.ParseAddr(host); err == nil {
			return netip.AddrPort{}, faultf("ports go from 1 to 65535", "%q has %q for a port", s, port)
		}
	}
	return netip.AddrPort{}, notAnAddr(s)
}

func cutPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return strings.Trim(s[:i], "[]"), s[i+1:], true
}

// servicePort is an element of ports.
type servicePort struct {
	key     lb.PortKey
	backend uint16
	at      place
}

// parsePort reads PORT[:BACKENDPORT][/PROTO].
func parsePort(v *value) (servicePort, *fault) {
	p := servicePort{key: lb.PortKey{Proto: lb.TCP}, at: v.at}
	s, isText := v.scalar.(string)
	if !isText {
		s = v.String()
	}
	numbers, proto, ok := strings.Cut(s, "/")
	if ok {
		var err error
		if p.key.Proto, err = lb.ParseProtocol(proto); err != nil {
			return p, faultf("write /tcp, /udp or /sctp", "%s has an unknown protocol", v)
		}
	}
	front, back, mapped := strings.Cut(numbers, ":")
	if !mapped {
		back = front
	}
	var f *fault
	if p.key.Port, f = portNumber(front, v); f != nil {
		return p, f
	}
	p.backend, f = portNumber(back, v)
	return p, f
}

func portNumber(s string, v *value) (uint16, *fault) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, faultf("write PORT, PORT:BACKENDPORT or either with /tcp, /udp or /sctp", "%s is not a port", v)
	}
	if n < 1 || n > 65535 {
		return 0, faultf("ports go from 1 to 65535", "%s has port %d", v, n)
	}
	return uint16(n), nil
}
