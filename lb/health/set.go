package health

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"
	"time"
	"unique"

	"weir/lb"
)

// The time between the first checks of new targets, so that thousands of them don't start at
// one instant. Cryptography and gRPC cost this box about half a millisecond: more at once
// would use up each other's timeout.
const (
	spread      = 200 * time.Microsecond
	spreadHeavy = 500 * time.Microsecond
)

// prepared is a check of a group, or the reason for its failure.
type prepared struct {
	key unique.Handle[string]
	ask asker
	err error
}

// set replaces all groups. ready has their checks in the same order.
func (t *table) set(groups []Group, ready []prepared, now time.Time) {
	s := setter{old: map[lb.ServiceID]*service{}, known: t.probes, probes: map[probeKey]*probe{}}
	for _, svc := range t.services {
		s.old[svc.id] = svc
	}
	*t = table{
		probes: s.probes, bfd: map[netip.AddrPort][]*probe{}, voids: map[*probe]struct{}{},
		asking: t.asking, behind: t.behind, totals: t.totals, all: true,
	}
	byID := map[lb.ServiceID]*service{}
	for i, g := range groups {
		svc := byID[g.Service]
		if svc == nil {
			svc = &service{of: t, id: g.Service}
			byID[g.Service] = svc
			t.services = append(t.services, svc)
		}
		s.group(svc, &g, ready[i])
	}
	slices.SortFunc(t.services, func(x, y *service) int { return x.id.Compare(y.id) })
	t.index()
	s.schedule(t, now)
}

// index fills in the fields that depend on the services.
func (t *table) index() {
	for _, svc := range t.services {
		slices.SortStableFunc(svc.ports, func(x, y *port) int {
			return cmp.Or(cmp.Compare(x.key.Port.Port, y.key.Port.Port), cmp.Compare(x.key.Port.Proto, y.key.Port.Proto))
		})
		for _, p := range svc.ports {
			slices.SortFunc(p.backends, func(x, y *backendState) int { return x.addr.Compare(y.addr) })
			t.backends = append(t.backends, p.backends...)
			for _, s := range p.backends {
				if s.weighted {
					p.tally[s.state]++
				}
			}
			p.decide()
		}
	}
	for _, p := range t.probes {
		p.backends = nil // of the old table
		if p.check.Kind == BFD {
			t.bfd[p.key.addr] = append(t.bfd[p.key.addr], p)
		}
		if p.void() {
			t.voids[p] = struct{}{}
		}
	}
	for _, s := range t.backends {
		s.probe.backends = append(s.probe.backends, s)
		t.states[s.state]++
		if s.awaited() {
			t.unknown++
		}
	}
}

// setter builds a new table from groups and the old table.
type setter struct {
	old    map[lb.ServiceID]*service
	known  map[probeKey]*probe
	probes map[probeKey]*probe
	fresh  []*probe
}

func (s *setter) group(svc *service, g *Group, ready prepared) {
	for _, wanted := range g.Ports {
		for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			if p := s.port(svc, g, wanted, f, ready); len(p.backends) > 0 || len(wanted.Backends) == 0 {
				svc.ports = append(svc.ports, p)
			}
		}
	}
}

// port builds a port for the backends of one family.
func (s *setter) port(svc *service, g *Group, wanted lb.Port, f lb.Family, ready prepared) *port {
	p := &port{service: svc, key: lb.FamilyPort{Port: wanted.Key(), Family: f}, quorum: g.Quorum, hysteresis: g.Hysteresis}
	if was := s.old[svc.id].port(p.key); was != nil {
		p.lost = was.lost
	}
	seen := map[netip.AddrPort]bool{}
	for _, be := range wanted.Backends {
		if lb.FamilyOf(be.Addr.Addr()) == f && !seen[be.Addr] {
			seen[be.Addr] = true
			p.backends = append(p.backends, s.backend(p, be, g, ready))
		}
	}
	return p
}

func (s *setter) backend(p *port, be lb.Backend, g *Group, ready prepared) *backendState {
	at, c := be.Addr, g.Check
	if port := c.port(); port != 0 {
		at = netip.AddrPortFrom(at.Addr(), port)
	}
	st := &backendState{port: p, addr: be.Addr, weighted: be.Weight > 0}
	st.probe = s.probe(probeKey{p.service.id, at, ready.key}, c, ready)
	st.record = s.record(st)
	if st.probe.checks == 0 {
		st.streak = 0 // of another check
	}
	st.serves = st.state == unknown && g.Serves != nil && g.Serves(p.key.Port, be.Addr)
	return st
}

// record returns the old record of a backend: at its port, at another port of its Service, or
// of another backend that is checked at the same address.
func (s *setter) record(st *backendState) record {
	svc := s.old[st.port.service.id]
	if was := svc.port(st.port.key).backend(st.addr); was != nil {
		return was.record
	}
	if svc != nil {
		for _, p := range svc.ports {
			if was := p.backend(st.addr); was != nil {
				return was.record
			}
		}
	}
	if len(st.probe.backends) > 0 {
		return st.probe.backends[0].record
	}
	return record{}
}

// port returns the port of s with that key, nil without one.
func (s *service) port(key lb.FamilyPort) *port {
	if s == nil {
		return nil
	}
	for _, p := range s.ports {
		if p.key == key {
			return p
		}
	}
	return nil
}

// backend returns the backend of p at addr, nil without one.
func (p *port) backend(addr netip.AddrPort) *backendState {
	if p == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(p.backends, addr, func(s *backendState, a netip.AddrPort) int { return s.addr.Compare(a) })
	if !ok {
		return nil
	}
	return p.backends[i]
}

// probe returns the probe of key, an old one if possible.
func (s *setter) probe(key probeKey, c Check, ready prepared) *probe {
	if p := s.probes[key]; p != nil {
		return p
	}
	p := s.known[key]
	if p == nil {
		p = &probe{key: key, target: target{key.addr.String(), c.Timeout, key.service}, check: c, ask: ready.ask}
		s.fresh = append(s.fresh, p)
	}
	s.probes[key] = p
	return p
}

// schedule queues the probes: old ones at their time, new ones at once but not all at one
// instant.
func (s *setter) schedule(t *table, now time.Time) {
	due := now
	for _, p := range s.fresh {
		p.due = due
		switch p.check.Kind {
		case TLS, HTTPS, GRPC, Exec:
			due = due.Add(spreadHeavy)
		default:
			due = due.Add(spread)
		}
	}
	for p := range maps.Values(s.probes) {
		if !p.out {
			t.due.Push(p)
		}
	}
	heap.Init(&t.due)
}
