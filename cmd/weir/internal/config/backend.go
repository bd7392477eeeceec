package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"weir/lb"
)

// backend is one that is being read; lb.Addr is not filled in.
type backend struct {
	located
	lb lb.Backend
}

func (s *service) readBackends() {
	tables := s.subs("backend")
	compact := s.elements("backends")
	if len(tables) > 0 && len(compact) > 0 {
		s.fail("backends", "the service has [[service.backend]] too, at "+tables[0].v.at.String(), "keep one of the two ways")
		return
	}
	for _, e := range compact {
		a, f := parseBackend(e.scalar.(string))
		if f == nil {
			f = s.badBackend(a)
		}
		if f != nil {
			s.failAt(e, "backends", f.text, f.fix)
			continue
		}
		s.backends = append(s.backends, backend{located{a, e.at, "backends"}, lb.Backend{Weight: 1}})
	}
	for i, t := range tables {
		s.readBackend(t, fmt.Sprintf("backend[%d].address", i+1))
	}
}

func (s *service) readBackend(t section, name string) {
	b := lb.Backend{
		Weight: uint32(t.integer("weight")),
		Upper:  uint32(t.integer("max_connections")),
		Lower:  uint32(t.integer("min_connections")),
	}
	switch {
	case t.bad("max_connections"), b.Lower == 0:
	case b.Upper == 0:
		t.fail("min_connections", "does nothing without max_connections", "add max_connections, or remove this")
	case b.Lower >= b.Upper:
		t.fail("min_connections", fmt.Sprintf("%d is not below max_connections, which is %d", b.Lower, b.Upper),
			fmt.Sprintf("write at most %d", b.Upper-1))
	}
	if !t.has("address") || t.bad("address") {
		return
	}
	a, f := parseBackend(t.text("address"))
	if f == nil {
		f = s.badBackend(a)
	}
	if f != nil {
		t.fail("address", f.text, f.fix)
		return
	}
	s.backends = append(s.backends, backend{located{a, t.at("address"), name}, b})
}

func (s *service) badBackend(a netip.AddrPort) *fault {
	if a.Port() != 0 && len(s.ports) > 1 {
		return faultf(fmt.Sprintf("write %q, and PORT:BACKENDPORT in ports", a.Addr()),
			"%q has a port of its own, but the service has %d ports", a, len(s.ports))
	}
	a = withPort(a, s.backendPort())
	same := func(b backend) bool { return withPort(b.addr, s.backendPort()) == a }
	if i := slices.IndexFunc(s.backends, same); i >= 0 {
		return faultf("remove one", "%q is there twice, first at %s", s.backends[i].addr.Addr(), s.backends[i].at)
	}
	return nil
}

// The schedulers that give every backend the same, whatever its weight.
var weightless = []string{"rr", "lc", "dh"}

// judge warns of what can be run and is hardly meant.
func (s *service) judge() {
	if s.lb.Keep {
		s.warn(Note, "source_address", "backends see the clients' own addresses",
			"their replies must be routed back through this box")
	}
	s.judgeFamilies()
	s.judgeHashing()
	if len(s.backends) == 0 {
		if !s.written("backends") && !s.written("backend") {
			s.warn(Warning, "backends", "the service has no backends, so clients are refused", `add backends = ["10.0.0.1"]`)
		}
		return
	}
	weights := map[uint32]bool{}
	for _, b := range s.backends {
		weights[b.lb.Weight] = true
	}
	if weights[0] && len(weights) == 1 {
		s.warn(Warning, "backend", "all weights are 0, so no backend takes new connections", "give one a weight above 0")
	}
	delete(weights, 0)
	if name := s.lb.Scheduler.Name; len(weights) > 1 && slices.Contains(weightless, name) {
		s.warn(Warning, "backend", "the weights differ, but scheduler "+strconv.Quote(name)+" gives all the same", `use "wrr" or "wlc"`)
	}
}

// judgeHashing warns of schedulers that refuse the clients of a backend that has
// weight 0, instead of taking another one.
func (s *service) judgeHashing() {
	switch sched := s.lb.Scheduler; {
	case sched.Name == "dh":
		s.warn(Warning, "scheduler", `"dh" gives a VIP's traffic to one backend, and refuses it while that one has weight 0 or drains`, `use "sh" or "mh"`)
	case (sched.Name == "sh" || sched.Name == "mh") && sched.Flags&lb.Fallback == 0:
		s.warn(Warning, "scheduler_flags", strconv.Quote(sched.Name)+` without "fallback" refuses the clients of a backend that is down or drains`,
			`add "fallback"`)
	}
}

func (s *service) judgeFamilies() {
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		of := func(l located) bool { return lb.FamilyOf(l.addr.Addr()) == f }
		vip := slices.ContainsFunc(s.vips, of)
		with := slices.IndexFunc(s.backends, func(b backend) bool { return of(b.located) })
		switch {
		case vip && with < 0 && len(s.backends) > 0:
			s.warn(Warning, "vips", fmt.Sprintf("there are %s VIPs but no %s backends, so their clients are refused", f, f),
				"add backends of that family")
		case !vip && with >= 0 && len(s.vips) > 0:
			b := s.backends[with]
			s.add(Warning, b.at, join(s.shown, b.name), fmt.Sprintf("%q is never used: there is no %s VIP", b.addr.Addr(), f),
				"add one, or remove it")
		}
		if vip && len(s.fallback) > 0 && !slices.ContainsFunc(s.fallback, of) {
			s.warn(Warning, "fallback", fmt.Sprintf("there are %s VIPs but no %s fallback", f, f), "add one of that family")
		}
	}
}
