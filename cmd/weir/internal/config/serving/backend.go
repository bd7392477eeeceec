package serving

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

func (s *Service) readBackends(r readers) {
	tables := s.Subs("backend")
	compact := s.Elements("backends")
	if len(tables) > 0 && len(compact) > 0 {
		s.Fail("backends", "the service also has [[service.backend]], at "+tables[0].Pos().String(), "use only one of the two")
		return
	}
	s.Backends = make([]Backend, 0, len(compact)+len(tables))
	for _, e := range compact {
		a, f := parse.Backend(e.Scalar.(string))
		if f == nil {
			f = s.badBackend(a)
		}
		if f != nil {
			s.FailAt(e, "backends", f.Text, f.Fix)
			continue
		}
		s.Backends = append(s.Backends, Backend{Located{a, e.At, "backends"}, lb.Backend{Weight: 1, Forward: s.LB.Forward, Encap: s.LB.Encap}})
	}
	for i, t := range tables {
		s.readBackend(r, t, fmt.Sprintf("backend[%d].address", i+1))
	}
}

func (s *Service) readBackend(r readers, t schema.Section, name string) {
	b := r.backend.Read(t)
	if b.Forward = s.LB.Forward; t.Set("forward") {
		b.Forward = forwarding(t.Text("forward"))
	}
	b.Encap = s.encap(b.Forward)
	switch {
	case t.Bad("max_connections"), b.Lower == 0:
	case b.Upper == 0:
		t.Fail("min_connections", "has no effect without max_connections", "add max_connections, or remove this")
	case b.Lower >= b.Upper:
		t.Fail("min_connections", fmt.Sprintf("%d is not below max_connections (%d)", b.Lower, b.Upper),
			fmt.Sprintf("use at most %d", b.Upper-1))
	}
	if !t.Set("address") {
		return
	}
	a, f := parse.Backend(t.Text("address"))
	if f == nil {
		f = s.badBackend(a)
	}
	if f != nil {
		t.Fail("address", f.Text, f.Fix)
		return
	}
	s.Backends = append(s.Backends, Backend{Located{a, t.At("address"), name}, b})
}

func (s *Service) badBackend(a netip.AddrPort) *source.Fault {
	if a.Port() != 0 && len(s.Ports) > 1 {
		return source.Faultf(fmt.Sprintf("write %q, and PORT:BACKENDPORT in ports", a.Addr()),
			"%q has a port of its own, but the service has %d ports", a, len(s.Ports))
	}
	a = parse.WithPort(a, s.backendPort())
	same := func(b Backend) bool { return parse.WithPort(b.Addr, s.backendPort()) == a }
	if i := slices.IndexFunc(s.Backends, same); i >= 0 {
		return source.Faultf("remove one", "%q is there twice, first at %s", s.Backends[i].Addr.Addr(), s.Backends[i].At)
	}
	return nil
}

// weightless are the schedulers that ignore weights.
var weightless = []string{"rr", "lc", "dh"}

// warn reports values that are valid but probably not intended.
func (s *Service) warn() {
	if s.LB.Keep && s.masquerades() {
		s.Warn(source.Note, "source_address", "backends see the addresses of the clients",
			"route their replies through this box")
	}
	s.warnFamilies()
	s.warnHashing()
	if len(s.Backends) == 0 {
		if !s.Written("backends") && !s.Written("backend") {
			s.Warn(source.Warning, "backends", "the service has no backends and refuses clients", `add backends = ["10.0.0.1"]`)
		}
		return
	}
	weights := map[uint32]bool{}
	for _, b := range s.Backends {
		weights[b.LB.Weight] = true
	}
	if weights[0] && len(weights) == 1 {
		s.Warn(source.Warning, "backend", "all weights are 0, so no backend gets new connections", "use a weight above 0 for one")
	}
	delete(weights, 0)
	if name := s.LB.Scheduler.Name; len(weights) > 1 && slices.Contains(weightless, name) {
		s.Warn(source.Warning, "backend", "the weights differ, but scheduler "+strconv.Quote(name)+" ignores weights", `use "wrr" or "wlc"`)
	}
}

// warnHashing warns of schedulers that refuse the clients of a backend with weight 0
// and do not select another one.
func (s *Service) warnHashing() {
	switch sched := s.LB.Scheduler; {
	case sched.Name == "dh":
		s.Warn(source.Warning, "scheduler", `"dh" sends a VIP's traffic to one backend, and refuses it while this backend has weight 0 or drains`, `use "sh" or "mh"`)
	case (sched.Name == "sh" || sched.Name == "mh") && sched.Flags&lb.Fallback == 0:
		s.Warn(source.Warning, "scheduler_flags", strconv.Quote(sched.Name)+` without "fallback" refuses the clients of a backend that is down or drains`,
			`add "fallback"`)
	}
}

// tunnels reports whether a backend gets its packets by a tunnel.
func (s *Service) tunnels() bool {
	return slices.ContainsFunc(s.Backends, func(b Backend) bool { return b.LB.Forward == lb.Tunnel })
}

func (s *Service) warnFamilies() {
	within := "in a group"
	if s.LB.FWMark != 0 {
		within = "with fwmark"
	}
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		of := func(l Located) bool { return lb.FamilyOf(l.Addr.Addr()) == f }
		vip := slices.ContainsFunc(s.VIPs, of)
		with := slices.IndexFunc(s.Backends, func(b Backend) bool { return of(b.Located) })
		_, mixed := s.LB.Mixed()
		switch {
		case vip && with < 0 && len(s.Backends) > 0 && (s.LB.Group || s.LB.FWMark != 0):
			s.Fail("vips", fmt.Sprintf("there are %s VIPs but no %s backends, and %s each family has its own", f, f, within), "add backends of that family")
		case vip && with < 0 && len(s.Backends) > 0 && !s.tunnels():
			s.Fail("vips", fmt.Sprintf(`there are %s VIPs but no %s backends, and only forward = "tunnel" reaches backends of the other family`, f, f),
				`add backends of that family, remove these VIPs, or use forward = "tunnel"`)
		case vip && with < 0 && mixed:
			s.failMixed(f)
		case !vip && with >= 0 && mixed:
		case !vip && with >= 0 && len(s.VIPs) > 0 && s.LB.FWMark == 0:
			b := s.Backends[with]
			s.Add(source.Warning, b.At, source.Join(s.Shown, b.Name), fmt.Sprintf("%q is never used: there is no %s VIP", b.Addr.Addr(), f),
				"add one, or remove it")
		}
		if vip && s.Set("source_ranges") && len(s.LB.SourceRanges) > 0 && !slices.ContainsFunc(s.LB.SourceRanges, func(p netip.Prefix) bool { return lb.FamilyOf(p.Addr()) == f }) {
			s.Warn(source.Warning, "source_ranges", fmt.Sprintf("there are %s VIPs but no %s range, so they refuse all clients", f, f), "add one of that family, or remove these VIPs")
		}
		if vip && !mixed && len(s.Fallback) > 0 && !slices.ContainsFunc(s.Fallback, of) {
			s.Warn(source.Warning, "fallback", fmt.Sprintf("there are %s VIPs but no %s fallback", f, f), "add one of that family")
		}
	}
}

// failMixed reports the backends and fallbacks that a VIP of a family does not reach. The VIP has
// tunnels to backends of the other family, and none of its own.
func (s *Service) failMixed(vip lb.Family) {
	for _, b := range s.Backends {
		if b.LB.Forward != lb.Tunnel {
			s.Add(source.Error, b.At, source.Join(s.Shown, b.Name),
				fmt.Sprintf("%s VIPs do not reach %q by forward = %q: there are no %s backends, and only tunnels reach those of the other family", vip, b.Addr.Addr(), forwardName(b.LB.Forward), vip),
				fmt.Sprintf(`use forward = "tunnel" for it, or add %s backends`, vip))
		}
	}
	for _, l := range s.Fallback {
		if lb.FamilyOf(l.Addr.Addr()) == vip || s.LB.Forward != lb.Tunnel {
			s.Add(source.Error, l.At, source.Join(s.Shown, l.Name),
				fmt.Sprintf("%s VIPs do not reach fallback %q: they have backends of the other family, and reach only tunnels of that family", vip, l.Addr.Addr()),
				`use a fallback of the backends' family, and forward = "tunnel" in the service`)
		}
	}
}
