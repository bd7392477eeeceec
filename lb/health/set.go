package health

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// spread is the time between the first checks of targets that came together, so
// that thousands of them don't go out in one instant.
const spread = 200 * time.Microsecond

// prepared is a check of a group made ready to be asked, or why it can't be.
type prepared struct {
	key string
	ask asker
	err error
}

// set makes groups, whose checks are ready in the same order, all that is wanted.
func (b *board) set(groups []Group, ready []prepared, now time.Time) {
	s := setter{old: b.remember(), known: b.probes, probes: map[probeKey]*probe{}}
	*b = board{probes: s.probes, asking: b.asking, behind: b.behind, totals: b.totals}
	byID := map[lb.ServiceID]*service{}
	for i, g := range groups {
		svc := byID[g.Service]
		if svc == nil {
			svc = &service{id: g.Service}
			byID[g.Service] = svc
			b.services = append(b.services, svc)
		}
		s.group(svc, &g, ready[i])
	}
	slices.SortFunc(b.services, func(x, y *service) int { return x.id.Compare(y.id) })
	b.index()
	s.schedule(b, now)
}

// index fills in what follows from the services.
func (b *board) index() {
	for _, svc := range b.services {
		slices.SortStableFunc(svc.ports, func(x, y *port) int {
			return cmp.Or(cmp.Compare(x.key.Port, y.key.Port), cmp.Compare(x.key.Proto, y.key.Proto))
		})
		for _, p := range svc.ports {
			slices.SortFunc(p.seats, func(x, y *seat) int { return x.addr.Compare(y.addr) })
			b.seats = append(b.seats, p.seats...)
			for _, s := range p.seats {
				if s.takes {
					p.tally[s.verdict]++
				}
			}
			p.decide()
		}
	}
	for _, s := range b.seats {
		s.probe.seats = append(s.probe.seats, s)
		if s.verdict == unknown {
			b.unknown++
		}
	}
}

// memory is what was believed before a new set, found again by service, port and
// address; by service and address (without a port key) for a backend that got
// one more port; by probe for a backend that is asked where another one was.
type memory struct {
	beliefs map[place]belief
	lost    map[place]bool
}

type place struct {
	service lb.ServiceID
	port    lb.PortKey
	addr    netip.AddrPort
	probe   *probe
}

func (b *board) remember() memory {
	m := memory{map[place]belief{}, map[place]bool{}}
	for _, s := range b.seats {
		id := s.port.service.id
		m.beliefs[place{id, s.port.key, s.addr, nil}] = s.belief
		m.beliefs[place{service: id, addr: s.addr}] = s.belief
		m.beliefs[place{probe: s.probe}] = s.belief
	}
	for _, svc := range b.services {
		for _, p := range svc.ports {
			m.lost[place{service: svc.id, port: p.key}] = p.lost
		}
	}
	return m
}

func (m memory) belief(s *seat) belief {
	id := s.port.service.id
	for _, at := range []place{{id, s.port.key, s.addr, nil}, {service: id, addr: s.addr}, {probe: s.probe}} {
		if found, ok := m.beliefs[at]; ok {
			return found
		}
	}
	return belief{}
}

// setter builds a new board from wanted groups and an old board.
type setter struct {
	old    memory
	known  map[probeKey]*probe
	probes map[probeKey]*probe
	fresh  []*probe
}

func (s *setter) group(svc *service, g *Group, ready prepared) {
	for _, wanted := range g.Ports {
		p := &port{service: svc, key: wanted.Key(), quorum: g.Quorum, hysteresis: g.Hysteresis}
		p.lost = s.old.lost[place{service: svc.id, port: p.key}]
		seen := map[netip.AddrPort]bool{}
		for _, be := range wanted.Backends {
			if seen[be.Addr] {
				continue
			}
			seen[be.Addr] = true
			at := be.Addr
			if g.Check.Port != 0 {
				at = netip.AddrPortFrom(at.Addr(), g.Check.Port)
			}
			pr := s.probe(probeKey{svc.id, at, ready.key}, g.Check, ready)
			st := &seat{port: p, addr: be.Addr, takes: be.Weight > 0, probe: pr}
			st.belief = s.old.belief(st)
			if pr.checks == 0 {
				st.streak = 0 // of another check
			}
			p.seats = append(p.seats, st)
		}
		svc.ports = append(svc.ports, p)
	}
}

// probe gives the probe of key, an old one if there is one. An old one whose
// check can't be made ready any more (its CA file is gone) goes on as before.
func (s *setter) probe(key probeKey, c Check, ready prepared) *probe {
	if p := s.probes[key]; p != nil {
		return p
	}
	p := s.known[key]
	switch {
	case p == nil:
		p = &probe{key: key, target: target{key.addr.String(), c.Timeout}, check: c, ask: ready.ask}
		s.fresh = append(s.fresh, p)
	case ready.err == nil:
		p.ask = ready.ask
	}
	p.seats = nil
	s.probes[key] = p
	return p
}

// schedule queues the probes: old ones when they were due, new ones at once but
// not all in one instant.
func (s *setter) schedule(b *board, now time.Time) {
	for i, p := range s.fresh {
		p.due = now.Add(time.Duration(i) * spread)
	}
	for p := range maps.Values(s.probes) {
		if !p.out {
			b.due = append(b.due, p)
		}
	}
	heap.Init(&b.due)
}
