// Package parse turns the text of single values into addresses, ranges and ports, with a
// fault and its fix for text that is invalid. It never sees a table or a file.
package parse

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// Addr parses an address that traffic can be sent to: a VIP or a backend.
func Addr(s string) (netip.Addr, *source.Fault) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, NotAddr(s)
	}
	if f := Unusable(a); f != nil {
		return a, f
	}
	return a, nil
}

// NotAddr returns the fault of an invalid address.
func NotAddr(s string) *source.Fault {
	if p, err := netip.ParsePrefix(s); err == nil {
		return source.Faultf(fmt.Sprintf("write %q", p.Addr()), "%q is a range, not one address", s)
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return source.Faultf(fmt.Sprintf("write %q", p.Addr()), "%q has a port, which is not permitted here", s)
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[] ")); err == nil {
		return source.Faultf(fmt.Sprintf("write %q", a), "%q has brackets or spaces", s)
	}
	if strings.ContainsAny(s, "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ") {
		return source.Faultf("write the address: weir does not resolve names", "%q is not an IP address", s)
	}
	return source.Faultf("write for instance 192.0.2.10 or 2001:db8::10", "%q is not an IP address", s)
}

// Unusable returns the fault of an address that no traffic can be sent to.
func Unusable(a netip.Addr) *source.Fault {
	switch {
	case a.Is4In6():
		return source.Faultf(fmt.Sprintf("write %q", a.Unmap()), "%q is an IPv4-mapped IPv6 address", a)
	case a.Zone() != "":
		return source.Faultf("leave out %"+a.Zone(), "%q has a zone", a)
	}
	if what := lb.Reserved(a, a); what != "" {
		return source.Faultf("choose another address", "%q is %s", a, what)
	}
	return nil
}

// Prefix parses a range of addresses.
func Prefix(s string) (netip.Prefix, *source.Fault) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return p, source.Faultf(fmt.Sprintf("write \"%s/%d\"", a, a.BitLen()), "%q is an address, not a range", s)
		}
		return p, source.Faultf("write for instance 192.0.2.0/24 or 2001:db8::/64", "%q is not a range of addresses", s)
	}
	if p.Addr().Is4In6() {
		return p, source.Faultf("write it as IPv4", "%q is an IPv4-mapped IPv6 range", s)
	}
	if p != p.Masked() {
		return p, source.Faultf(fmt.Sprintf("write %q", p.Masked()), "%q has bits set after its first %d", s, p.Bits())
	}
	return p, nil
}

// Backend parses ADDRESS or ADDRESS:PORT. Without a port the result has port 0.
func Backend(s string) (netip.AddrPort, *source.Fault) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		if ap.Port() == 0 {
			return ap, source.Faultf("use a port from 1 to 65535", "%q has port 0", s)
		}
		return ap, Unusable(ap.Addr())
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 0), Unusable(a)
	}
	if host, port, ok := CutPort(s); ok {
		if _, err := netip.ParseAddr(host); err == nil {
			return netip.AddrPort{}, source.Faultf("use a port from 1 to 65535", "%q has the invalid port %q", s, port)
		}
	}
	return netip.AddrPort{}, NotAddr(s)
}

// CutPort splits HOST:PORT; false means no port.
func CutPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return strings.Trim(s[:i], "[]"), s[i+1:], true
}

// ServicePort is a port of a Service with its backend port.
type ServicePort struct {
	lb.PortKey
	Backend uint16
	At      source.Place
}

// Port parses PORT[:BACKENDPORT][/PROTO].
func Port(v *source.Value) (ServicePort, *source.Fault) {
	p := ServicePort{PortKey: lb.PortKey{Proto: lb.TCP}, At: v.At}
	s, isText := v.Scalar.(string)
	if !isText {
		s = v.String()
	}
	numbers, proto, ok := strings.Cut(s, "/")
	if ok {
		var err error
		if p.Proto, err = lb.ParseProtocol(proto); err != nil {
			return p, source.Faultf("write /tcp, /udp or /sctp", "%s has an unknown protocol", v)
		}
	}
	front, back, mapped := strings.Cut(numbers, ":")
	if !mapped {
		back = front
	}
	var f *source.Fault
	if p.Port, f = portNumber(front, v); f != nil {
		return p, f
	}
	p.Backend, f = portNumber(back, v)
	return p, f
}

func portNumber(s string, v *source.Value) (uint16, *source.Fault) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, source.Faultf("write PORT, PORT:BACKENDPORT or either with /tcp, /udp or /sctp", "%s is not a port", v)
	}
	if n < 1 || n > 65535 {
		return 0, source.Faultf("use a port from 1 to 65535", "%s has port %d", v, n)
	}
	return uint16(n), nil
}

// Router parses the address of a router, or the box's own address of a session. It may
// be link-local with an interface, or loopback for a speaker on this box.
func Router(s string) (netip.Addr, *source.Fault) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return a, NotAddr(s)
	case a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "":
		return a, source.Faultf(fmt.Sprintf("add the interface, as in %q", a.String()+"%eth0"), "%q is link-local and has no interface", a)
	case a.IsLinkLocalUnicast() && a.Is6(), a.IsLoopback() && !a.Is4In6():
		return a, nil
	}
	return a, Unusable(a)
}

// Listener parses ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
func Listener(text string, port uint16) (netip.AddrPort, *source.Fault) {
	ap, err := netip.ParseAddrPort(text)
	if err != nil {
		a, errAddr := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
		if errAddr != nil {
			return ap, source.Faultf(`write for instance "10.0.0.5:7946" or "[fd00::5]:7946"`, "%q is not an address with or without a port", text)
		}
		ap = netip.AddrPortFrom(a, port)
	}
	a := ap.Addr()
	switch {
	case ap.Port() == 0:
		return ap, source.Faultf("use a port from 1 to 65535", "%q has port 0", text)
	case a.Is4In6():
		return ap, source.Faultf(fmt.Sprintf("write %q", a.Unmap()), "%q is an IPv4-mapped IPv6 address", a)
	case a.IsUnspecified(), a.IsLoopback(): // loopback is for several members on one host
		return ap, nil
	}
	return ap, Unusable(a)
}

// WithPort returns a with a port, unless it has one.
func WithPort(a netip.AddrPort, port uint16) netip.AddrPort {
	if a.Port() != 0 {
		return a
	}
	return netip.AddrPortFrom(a.Addr(), port)
}
