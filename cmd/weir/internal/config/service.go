package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"weir/lb"
	"weir/lb/health"
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

func validName(s string) bool { return nameForm.MatchString(s) }

// service is a Service that is being read, with the places of its parts.
type service struct {
	section
	lb       lb.Service
	ports    []servicePort
	vips     []located
	backends []backend
	fallback []located
	check    *health.Group
}

// located is an address with its place and key; the port may be 0.
type located struct {
	addr netip.AddrPort
	at   place
	name string // of the key within shown
}

func readService(s section, c *Config, files Files) *service {
	svc := &service{section: s}
	svc.lb.ID = lb.ServiceID{Source: Source, Name: s.text("name")}
	if name := svc.lb.ID.Name; !validName(name) && s.has("name") && !s.bad("name") {
		s.fail("name", strconv.Quote(name)+" can't be the name of a service",
			"write 1 to 63 of a-z, 0-9, - and ., with a letter or digit first and last")
	}
	svc.readVIPs(c.Kernel)
	svc.readPorts()
	svc.readTraffic(c.Defaults)
	svc.lb.Labels = s.labels()
	svc.readBackends()
	svc.lb.Ports = svc.lbPorts()
	svc.readFallback()
	svc.readCheck(files)
	svc.judge()
	return svc
}

func (s *service) readVIPs(k Kernel) {
	kind := lb.LoadBalancer
	if s.text("type") == lb.ClusterIP.String() {
		kind = lb.ClusterIP
	}
	for _, e := range s.elements("vips") {
		a, f := parseAddr(e.scalar.(string))
		if f == nil {
			f = s.badVIP(a, k)
		}
		if f != nil {
			s.failAt(e, "vips", f.text, f.fix)
			continue
		}
		s.vips = append(s.vips, located{netip.AddrPortFrom(a, 0), e.at, "vips"})
		s.lb.VIPs = append(s.lb.VIPs, lb.VIP{Addr: a, Kind: kind})
	}
	if s.emptyList("vips") {
		s.fail("vips", "the service would have no address", `write one such as vips = ["192.0.2.10"]`)
	}
}

func (s *service) badVIP(a netip.Addr, k Kernel) *fault {
	if i := slices.IndexFunc(s.vips, func(v located) bool { return v.addr.Addr() == a }); i >= 0 {
		return faultf("remove one", "%q is in the list twice, first at %s", a, s.vips[i].at)
	}
	if f := lb.FamilyOf(a); len(k.Families) > 0 && !slices.Contains(k.Families, f) {
		return faultf("remove it, or add the family there", "%q is %s, which is not in kernel.families", a, f)
	}
	for _, x := range k.ExcludeCIDRs {
		if x.Contains(a) {
			return faultf("choose another address, or narrow the range", "%q is in %q of kernel.exclude_cidrs", a, x)
		}
	}
	return nil
}

func (s *service) readPorts() {
	for _, e := range s.elements("ports") {
		p, f := parsePort(e)
		if i := slices.IndexFunc(s.ports, func(q servicePort) bool { return q.key == p.key }); f == nil && i >= 0 {
			f = faultf("remove one", "%s is in the list twice, first at %s", p.key, s.ports[i].at)
		}
		if f != nil {
			s.failAt(e, "ports", f.text, f.fix)
			continue
		}
		s.ports = append(s.ports, p)
	}
	if s.emptyList("ports") {
		s.fail("ports", "the service would have no port", `write one such as ports = ["80:8080"]`)
	}
}

// readTraffic reads what happens to connections.
func (s *service) readTraffic(d Defaults) {
	s.lb.Scheduler = s.scheduler(d.Scheduler)
	s.lb.Affinity = s.wholeSeconds("affinity")
	s.lb.Keep = s.text("source_address") == "keep"
	s.lb.Drain = s.drain(d, s.lb.Scheduler)
	s.lb.SourceRanges = s.prefixes("source_ranges")
	if s.lb.Restricted = s.has("source_ranges"); s.lb.Restricted {
		s.lb.Ranges = lb.RangesEverywhere
	}
	if s.emptyList("source_ranges") {
		s.fail("source_ranges", "an empty list would admit nobody", "leave the key out to admit everybody")
	}
	switch s.text("when_down") {
	case lb.Refuse.String():
		s.lb.WhenDown = lb.Refuse
	case lb.UseFallback.String():
		s.lb.WhenDown = lb.UseFallback
	}
}

// lbPorts gives each port its backends.
func (s *service) lbPorts() []lb.Port {
	var out []lb.Port
	for _, p := range s.ports {
		port := lb.Port{Proto: p.key.Proto, Port: p.key.Port}
		for _, b := range s.backends {
			b.lb.Addr = withPort(b.addr, p.backend)
			port.Backends = append(port.Backends, b.lb)
		}
		out = append(out, port)
	}
	return out
}

// withPort fills in the port of an address that has none of its own.
func withPort(a netip.AddrPort, port uint16) netip.AddrPort {
	if a.Port() != 0 {
		return a
	}
	return netip.AddrPortFrom(a.Addr(), port)
}

// backendPort gives the port that all ports lead to, 0 if they differ.
func (s *service) backendPort() uint16 {
	var port uint16
	for _, p := range s.ports {
		if port != 0 && port != p.backend {
			return 0
		}
		port = p.backend
	}
	return port
}

func (s *service) readFallback() {
	wanted := s.text("when_down") == lb.UseFallback.String()
	elements := s.elements("fallback")
	switch {
	case len(elements) > 0 && !wanted && !s.bad("when_down"):
		s.fail("fallback", `is only used with when_down = "fallback"`, "set that, or remove this")
	case wanted && len(elements) == 0 && !s.bad("fallback"):
		s.fail("fallback", `is missing: when_down is "fallback"`, `add fallback = ["10.0.0.9:8080"]`)
	}
	for _, e := range elements {
		a, f := parseBackend(e.scalar.(string))
		if f == nil {
			if f = s.badFallback(a); f == nil {
				a = withPort(a, s.backendPort())
			}
		}
		if f != nil {
			s.failAt(e, "fallback", f.text, f.fix)
			continue
		}
		s.fallback = append(s.fallback, located{a, e.at, "fallback"})
		s.lb.Fallback = append(s.lb.Fallback, a)
	}
}

func (s *service) badFallback(a netip.AddrPort) *fault {
	if a.Port() == 0 && s.backendPort() == 0 && len(s.ports) > 0 {
		return faultf(fmt.Sprintf("write %q", netip.AddrPortFrom(a.Addr(), s.ports[0].backend)),
			"%q has no port, and the ports of the service lead to several", a.Addr())
	}
	a = withPort(a, s.backendPort())
	if slices.Contains(s.lb.Fallback, a) {
		return faultf("remove one", "%q is in the list twice", a)
	}
	for _, p := range s.lb.Ports {
		for _, b := range p.Backends {
			if b.Addr == a {
				return faultf("choose another address", "%q is a backend of the service already", a)
			}
		}
	}
	return nil
}
