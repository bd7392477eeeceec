package lb

import (
	"net/netip"
	"slices"
)

// Health is the results of the checks of one Service.
type Health struct {
	// Down are the backends without new connections: their check fails, or has no result yet.
	Down map[netip.AddrPort]bool
	// Lost are the ports with fewer backends up than the quorum, counted for each family.
	Lost map[FamilyPort]bool
}

// FamilyPort is a port of a Service for clients of one address family.
type FamilyPort struct {
	Port   PortKey
	Family Family
}

// fallback returns the fallback backends of a port. A group keeps the client's port.
func (s Service) fallback(port Port) []netip.AddrPort {
	if !s.Group {
		return s.Fallback
	}
	out := make([]netip.AddrPort, len(s.Fallback))
	for i, a := range s.Fallback {
		out[i] = netip.AddrPortFrom(a.Addr(), port.Port)
	}
	return out
}

// down reports whether a check calls a backend down. One of a group is down if it is on any port:
// its clients use all of them.
func (p *planner) down(be Backend) bool {
	return p.health.Down[be.Addr] || p.svc.Group && slices.ContainsFunc(p.svc.Ports, func(other Port) bool {
		return p.health.Down[netip.AddrPortFrom(be.Addr.Addr(), other.Port)]
	})
}

// lost reports whether a port has fewer backends up than the quorum. A group loses all ports.
func (p *planner) lost(port Port, family Family) bool {
	return p.health.Lost[FamilyPort{port.Key(), family}] || p.svc.Group && slices.ContainsFunc(p.svc.Ports, func(other Port) bool {
		return p.health.Lost[FamilyPort{other.Key(), family}]
	})
}

// choose returns the backends of a port, and whether their health counts, by WhenDown if the
// quorum is lost.
func (p *planner) choose(f Frontend, port Port) (backends []Backend, ignoreHealth bool) {
	family := p.svc.backendFamily(port, FamilyOf(f.Addr))
	if !p.lost(port, family) {
		return port.Backends, false
	}
	switch p.svc.WhenDown {
	case KeepAll:
		p.note(QuorumLost, "too few %s backends of %s are up: all backends are used", family, port.Key())
		return port.Backends, true
	case UseFallback:
		p.note(QuorumLost, "too few %s backends of %s are up: the fallback answers", family, port.Key())
		return p.withFallback(port), false
	}
	p.note(QuorumLost, "too few %s backends of %s are up: clients are refused", family, port.Key())
	closed := slices.Clone(port.Backends)
	for i := range closed {
		closed[i].Weight = 0
	}
	return closed, false
}

// withFallback adds the fallback backends, and keeps the others without new connections, so
// that their old ones live on.
func (p *planner) withFallback(port Port) []Backend {
	out := make([]Backend, 0, len(port.Backends)+len(p.svc.Fallback))
	fallback := p.svc.fallback(port)
	for _, a := range fallback {
		out = append(out, Backend{Addr: a, Weight: 1, Forward: p.svc.Forward, Encap: p.svc.Encap})
	}
	for _, be := range port.Backends {
		if !slices.Contains(fallback, be.Addr) {
			be.Weight = 0
			out = append(out, be)
		}
	}
	return out
}
