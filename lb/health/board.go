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

// board is all that is known: what to ask, when, and what came of it. It is
// plain data without clock, lock, I/O or chance; now is always an argument.
type board struct {
	services []*service // sorted
	seats    []*seat    // sorted by service, port and address
	probes   map[probeKey]*probe
	due      queue
	asking   int // probes that are out, forgotten ones included
	unknown  int // seats without a verdict
	totals   totals
}

// totals only grow: they are those of forgotten probes too.
type totals struct {
	checks, failures, void uint64
	spent, behind          time.Duration
}

// service is the seats of one Service, and its lb.Health while that is fresh.
type service struct {
	id     lb.ServiceID
	ports  []*port
	health lb.Health
	fresh  bool
}

type port struct {
	service            *service
	key                lb.PortKey
	quorum, hysteresis int
	lost               bool
	seats              []*seat
}

// seat is one backend of one port. Several seats share a probe when they are
// asked at the same address: many ports with one backend, or a check with a port
// of its own.
type seat struct {
	port  *port
	addr  netip.AddrPort
	takes bool // it has a weight, so it counts for the quorum
	probe *probe
	belief
}

// probeKey is the identity of a target. While it stays the same a target keeps
// what it has found, whatever else a new configuration brings.
type probeKey struct {
	service lb.ServiceID
	addr    netip.AddrPort // where it is asked
	check   string
}

// probe is one target that is asked again and again.
type probe struct {
	key   probeKey
	check Check
	ask   asker
	due   time.Time
	out   bool // being asked, hence not in the queue
	seats []*seat

	err              string
	checked          time.Time
	took, spent      time.Duration
	checks, failures uint64
}

// prepared is a check of a group made ready to be asked, or why it can't be.
type prepared struct {
	key string
	ask asker
	err error
}

// set makes groups, whose checks are ready in the same order, all that is wanted.
func (b *board) set(groups []Group, ready []prepared, now time.Time) {
	s := setter{old: b.remember(), probes: map[probeKey]*probe{}, now: now}
	was := *b
	*b = board{probes: s.probes, asking: was.asking, totals: was.totals}

	s.known = was.probes
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
	s.schedule(b)
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
			p.recount()
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
	now    time.Time
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
			pr, fresh := s.probe(probeKey{svc.id, at, ready.key}, g.Check, ready)
			st := &seat{port: p, addr: be.Addr, takes: be.Weight > 0, probe: pr}
			st.belief = s.old.belief(st)
			if fresh {
				st.streak = 0 // of another check
			}
			p.seats = append(p.seats, st)
		}
		svc.ports = append(svc.ports, p)
	}
}

// probe gives the probe of key, an old one if there is one. An old one whose
// check can't be made ready any more (its CA file is gone) goes on as before.
func (s *setter) probe(key probeKey, c Check, ready prepared) (p *probe, fresh bool) {
	if p := s.probes[key]; p != nil {
		return p, p.checks == 0
	}
	p = s.known[key]
	switch {
	case p == nil:
		p = &probe{key: key, check: c, ask: ready.ask}
		s.fresh = append(s.fresh, p)
	case ready.err == nil:
		p.ask = ready.ask
	}
	p.seats = nil
	s.probes[key] = p
	return p, p.checks == 0
}

// schedule queues the probes: old ones when they were due, new ones at once but
// not all in one instant.
func (s *setter) schedule(b *board) {
	for i, p := range s.fresh {
		p.due = s.now.Add(time.Duration(i) * spread)
	}
	for p := range maps.Values(s.probes) {
		if !p.out {
			b.due = append(b.due, p)
		}
	}
	heap.Init(&b.due)
}

// take appends up to limit-b.asking probes that are due to out, and tells how
// long it is to the next one that could be taken; negative when none is in sight.
func (b *board) take(out []*probe, limit int, now time.Time) ([]*probe, time.Duration) {
	for b.asking < limit && len(b.due) > 0 {
		wait := b.due[0].due.Sub(now)
		if wait > 0 {
			return out, wait
		}
		p := heap.Pop(&b.due).(*probe)
		p.out = true
		b.asking++
		b.totals.behind = -wait
		out = append(out, p)
	}
	return out, -1
}

// putBack ends the asking of p without a result, to be asked again at due. It
// tells whether p is still wanted.
func (b *board) putBack(p *probe, due time.Time) bool {
	b.asking--
	p.out = false
	if b.probes[p.key] != p {
		return false
	}
	p.due = due
	heap.Push(&b.due, p)
	return true
}

// finish takes down what a check of p has found ("" is a success), and gives the
// seats whose verdict is new.
func (b *board) finish(p *probe, problem string, started time.Time, took time.Duration, due time.Time) []*seat {
	says := up
	b.totals.checks++
	b.totals.spent += took
	if problem != "" {
		says = down
		b.totals.failures++
	}
	if !b.putBack(p, due) {
		return nil
	}
	p.checks++
	p.checked, p.took, p.spent = started.Add(took), took, p.spent+took
	if problem != "" {
		p.failures++
		p.err = problem
	}
	return b.judge(p, says)
}

func (b *board) judge(p *probe, says verdict) (turned []*seat) {
	for _, s := range p.seats {
		was := s.verdict
		s.belief = s.after(says, &p.check, p.checked)
		if s.verdict == was {
			continue
		}
		if was == unknown {
			b.unknown--
		}
		s.port.recount()
		turned = append(turned, s)
	}
	return turned
}

// recount decides anew whether p is lost, after any verdict of its seats.
func (p *port) recount() {
	var t tally
	for _, s := range p.seats {
		if !s.takes {
			continue
		}
		t.all++
		switch s.verdict {
		case up:
			t.up++
		case unknown:
			t.unknown++
		}
	}
	p.lost = t.lost(p.lost, p.quorum, p.hysteresis)
	p.service.fresh = false
}

// health gives a copy of each Service's health.
func (b *board) health() map[lb.ServiceID]lb.Health {
	out := make(map[lb.ServiceID]lb.Health, len(b.services))
	for _, svc := range b.services {
		if !svc.fresh {
			svc.health, svc.fresh = svc.measure(), true
		}
		out[svc.id] = lb.Health{Down: maps.Clone(svc.health.Down), Lost: maps.Clone(svc.health.Lost)}
	}
	return out
}

// measure makes maps only for Services that have something wrong: most have not.
func (s *service) measure() (h lb.Health) {
	for _, p := range s.ports {
		if p.lost {
			if h.Lost == nil {
				h.Lost = map[lb.PortKey]bool{}
			}
			h.Lost[p.key] = true
		}
		for _, st := range p.seats {
			if st.verdict == up {
				continue
			}
			if h.Down == nil {
				h.Down = map[netip.AddrPort]bool{}
			}
			h.Down[st.addr] = true
		}
	}
	return h
}

// queue is a heap of the probes that wait, the next one first.
type queue []*probe

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*probe)) }

// Pop takes the last one; container/heap has put the first there.
func (q *queue) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return p
}
