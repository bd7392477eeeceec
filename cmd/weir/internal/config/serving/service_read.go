package serving

import (
	"fmt"
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
	"weir/lb/health"
)

// readers read the tables of services, of which a file has many.
type readers struct {
	service *schema.Reader[Service]
	backend *schema.Reader[lb.Backend]
	check   *schema.Reader[health.Check]
}

func newReaders() readers {
	return readers{schema.NewReader(serviceKeys), schema.NewReader(backendKeys), schema.NewReader(allCheckKeys)}
}

func (r readers) readService(t schema.Section, c *config.Config, files source.Files) *Service {
	s := new(r.service.Read(t))
	s.Section = t
	s.LB.ID.Source = config.Source
	s.readVIPs(c.Kernel)
	s.readPorts()
	s.readTraffic(c.Defaults)
	s.readBackends(r)
	s.LB.Ports = s.lbPorts()
	s.readFallback()
	forwardCheck{s}.checkForward(c.Kernel)
	groupCheck{s}.checkGroup(c.Kernel)
	fwmarkCheck{s}.checkFWMark(c.Kernel)
	s.readCheck(r, files)
	s.warn()
	return s
}

func (s *Service) readVIPs(k config.Kernel) {
	kind := lb.LoadBalancer
	if s.Text("type") == lb.ClusterIP.String() {
		kind = lb.ClusterIP
	}
	for _, e := range s.Elements("vips") {
		a, f := parse.Addr(e.Scalar.(string))
		if f == nil {
			f = s.badVIP(a, k)
		}
		if f != nil {
			s.FailAt(e, "vips", f.Text, f.Fix)
			continue
		}
		s.VIPs = append(s.VIPs, Located{netip.AddrPortFrom(a, 0), e.At, "vips"})
		s.LB.VIPs = append(s.LB.VIPs, lb.VIP{Addr: a, Kind: kind})
	}
	if s.LB.FWMark == 0 && !s.Bad("fwmark") {
		s.require("vips", `add vips = ["192.0.2.10"]`)
	}
	if s.EmptyList("vips") {
		s.Fail("vips", "the service would have no address", `write for instance vips = ["192.0.2.10"]`)
	}
}

func (s *Service) badVIP(a netip.Addr, k config.Kernel) *source.Fault {
	if i := slices.IndexFunc(s.VIPs, func(v Located) bool { return v.Addr.Addr() == a }); i >= 0 {
		return source.Faultf("remove one", "%q is in the list twice, first at %s", a, s.VIPs[i].At)
	}
	if f := lb.FamilyOf(a); len(k.Families) > 0 && !slices.Contains(k.Families, f) {
		return source.Faultf("remove it, or add the family there", "%q is %s, which is not in kernel.families", a, f)
	}
	for _, x := range k.ExcludeCIDRs {
		if x.Contains(a) {
			return source.Faultf("choose another address, or narrow the range", "%q is in %q of kernel.exclude_cidrs", a, x)
		}
	}
	return nil
}

func (s *Service) readPorts() {
	for _, e := range s.Elements("ports") {
		p, f := parse.Port(e)
		if i := slices.IndexFunc(s.Ports, func(q parse.ServicePort) bool { return q.PortKey == p.PortKey }); f == nil && i >= 0 {
			f = source.Faultf("remove one", "%s is in the list twice, first at %s", p.PortKey, s.Ports[i].At)
		}
		if f != nil {
			s.FailAt(e, "ports", f.Text, f.Fix)
			continue
		}
		s.Ports = append(s.Ports, p)
	}
	if s.LB.FWMark == 0 && !s.Bad("fwmark") {
		s.require("ports", `add ports = ["80:8080"]`)
	}
	if s.EmptyList("ports") {
		s.Fail("ports", "the service would have no port", `write for instance ports = ["80:8080"]`)
	}
}

// require reports a missing key.
func (s *Service) require(name, fix string) {
	if !s.Has(name) {
		s.Fail(name, "is missing", fix)
	}
}

// readTraffic reads the treatment of connections.
func (s *Service) readTraffic(d config.Defaults) {
	s.LB.Scheduler = scheduler(s.Section, d.Scheduler)
	s.LB.Keep = s.Text("source_address") == "keep"
	s.LB.Forward = forwarding(s.Text("forward"))
	s.LB.Encap = s.encap(s.LB.Forward)
	s.LB.Drain = drain(s.Section, d, s.LB.Scheduler)
	if s.LB.Restricted = s.Has("source_ranges"); s.LB.Restricted {
		s.LB.Ranges = lb.RangesEverywhere
	}
	if s.EmptyList("source_ranges") {
		s.Fail("source_ranges", "an empty list would admit no client", "remove the key to admit all clients")
	}
	switch s.Text("when_down") {
	case lb.Refuse.String():
		s.LB.WhenDown = lb.Refuse
	case lb.UseFallback.String():
		s.LB.WhenDown = lb.UseFallback
	}
}

// lbPorts returns the ports with their backends.
func (s *Service) lbPorts() []lb.Port {
	ports := s.Ports
	if s.LB.FWMark != 0 {
		ports = []parse.ServicePort{{PortKey: lb.PortKey{Proto: lb.TCP}}}
	}
	out := make([]lb.Port, 0, len(ports))
	for _, p := range ports {
		port := lb.Port{Proto: p.Proto, Port: p.Port, Backends: make([]lb.Backend, 0, len(s.Backends))}
		for _, b := range s.Backends {
			b.LB.Addr = parse.WithPort(b.Addr, p.Backend)
			port.Backends = append(port.Backends, b.LB)
		}
		out = append(out, port)
	}
	return out
}

func (s *Service) readFallback() {
	wanted := s.Text("when_down") == lb.UseFallback.String()
	elements := s.Elements("fallback")
	switch {
	case len(elements) > 0 && !wanted && !s.Bad("when_down"):
		s.Fail("fallback", `has no effect without when_down = "fallback"`, "set that, or remove this")
	case wanted && len(elements) == 0 && !s.Bad("fallback"):
		s.Fail("fallback", `is missing, and when_down is "fallback"`, `add fallback = ["10.0.0.9:8080"]`)
	}
	for _, e := range elements {
		a, f := parse.Backend(e.Scalar.(string))
		if f == nil {
			if f = s.badFallback(a); f == nil && !s.LB.Group {
				a = parse.WithPort(a, s.backendPort())
			}
		}
		if f != nil {
			s.FailAt(e, "fallback", f.Text, f.Fix)
			continue
		}
		s.Fallback = append(s.Fallback, Located{a, e.At, "fallback"})
		s.LB.Fallback = append(s.LB.Fallback, a)
	}
}

func (s *Service) badFallback(a netip.AddrPort) *source.Fault {
	if a.Port() == 0 && s.backendPort() == 0 && len(s.Ports) > 0 && !s.LB.Group {
		return source.Faultf(fmt.Sprintf("write %q", netip.AddrPortFrom(a.Addr(), s.Ports[0].Backend)),
			"%q has no port, and the ports of the service have different backend ports", a.Addr())
	}
	if s.LB.Group {
		return groupCheck{s}.badFallback(a)
	}
	a = parse.WithPort(a, s.backendPort())
	if slices.Contains(s.LB.Fallback, a) {
		return source.Faultf("remove one", "%q is in the list twice", a)
	}
	for _, p := range s.LB.Ports {
		for _, b := range p.Backends {
			if b.Addr == a {
				return source.Faultf("choose another address", "%q is also a backend of the service", a)
			}
		}
	}
	return nil
}
