package health

import (
	"container/heap"
	"maps"
	"net/netip"
	"time"
	"unique"

	"weir/lb"
)

// table has all targets, their schedule and their states. It is plain data without clock,
// lock, I/O or randomness; now is always an argument.
type table struct {
	services []*service      // sorted
	backends []*backendState // sorted by service, port and address
	probes   map[probeKey]*probe
	bfd      map[netip.AddrPort][]*probe // those of kind BFD, by the address of their session
	due      queue
	asking   int // probes under way, removed ones included
	unknown  int // backends without a result that Ready awaits
	states   tally
	voids    map[*probe]struct{} // those without a result for a while
	behind   time.Duration
	totals   Totals
	// turned are the Services of which the health may be another than the last one that turns returned, and all
	// reports that it returned none of the present ones.
	turned []*service
	all    bool
}

// service has the backends of one Service, and its lb.Health while that is fresh.
type service struct {
	of     *table
	id     lb.ServiceID
	ports  []*port
	health lb.Health
	fresh  bool
	turned bool // it is among those of the table
}

// port is a port of a Service for one family.
type port struct {
	service            *service
	key                lb.FamilyPort
	quorum, hysteresis int
	tally              tally
	lost               bool
	backends           []*backendState
}

// backendState is one backend of one port. Several share a probe if they are checked at the
// same address: many ports with one backend, or a check with its own port.
type backendState struct {
	port     *port
	addr     netip.AddrPort
	weighted bool // it has a weight, so it counts for the quorum
	// serves reports that it had clients before its first check. An unknown state is no reason to
	// remove them.
	serves bool
	probe  *probe
	record
}

// probeKey is the identity of a target.
type probeKey struct {
	service lb.ServiceID
	addr    netip.AddrPort        // of the check
	check   unique.Handle[string] // all its values
}

// probe is one target that is checked periodically.
type probe struct {
	key      probeKey
	target   target
	check    Check
	ask      asker
	due      time.Time
	place    int       // in the queue
	out      bool      // under way, hence not in the queue
	again    time.Time // of an event while it was under way: it is due at once
	backends []*backendState

	problem          string // of the last check that failed
	voids            int    // checks in a row without a result
	checked          time.Time
	took             time.Duration
	checks, failures uint64
}

// job is a check that is due now. It has the asker because set may replace that of the probe
// meanwhile.
type job struct {
	probe *probe
	ask   asker
}

// take appends the due probes to out, up to limit under way. It returns the time until the
// next one is due; negative if that depends on those under way.
func (t *table) take(out []job, limit int, now time.Time) ([]job, time.Duration) {
	for t.asking < limit && len(t.due) > 0 {
		wait := t.due[0].due.Sub(now)
		if wait > 0 {
			return out, wait
		}
		p := heap.Pop(&t.due).(*probe)
		p.out = true
		t.asking++
		t.behind = -wait
		out = append(out, job{p, p.ask})
	}
	return out, -1
}

// requeue queues p, which was under way, for a check at due. It reports whether p still
// exists.
func (t *table) requeue(p *probe, due time.Time) bool {
	t.asking--
	p.out = false
	if t.probes[p.key] != p {
		return false
	}
	p.due = due
	if !p.again.IsZero() {
		p.due, p.again = p.again, time.Time{}
	}
	heap.Push(&t.due, p)
	return true
}

// answer is the result of a job.
type answer struct {
	probe *probe
	// problem is the fault of the backend, empty without one.
	problem string
	ended   time.Time
	took    time.Duration
}

// transition is a change of a backend's state, with the previous one.
type transition struct {
	*backendState
	was state
}

// finish records an answer, and returns the transitions.
func (t *table) finish(a answer, due time.Time) []transition {
	p, result := a.probe, up
	t.totals.Checks++
	if a.problem != "" {
		result = down
		t.totals.Failures++
	}
	if !t.requeue(p, due) {
		return nil
	}
	p.checks++
	p.checked, p.took, p.voids = a.ended, a.took, 0
	delete(t.voids, p)
	if a.problem != "" {
		p.failures++
		p.problem = a.problem
	}
	return t.judge(p, result)
}

// discard records an answer that is no result.
func (t *table) discard(a answer, due time.Time) {
	t.totals.Void++
	a.probe.problem = a.problem
	a.probe.voids++
	if t.requeue(a.probe, due) && a.probe.void() {
		t.voids[a.probe] = struct{}{}
	}
}

// lastingVoids is the number of checks in a row without a result that are a problem: a single one may
// have begun before the kernel had its virtual server, or when a session was replaced.
const lastingVoids = 3

// void reports whether the checks of p have had no result for a while.
func (p *probe) void() bool { return p.voids >= lastingVoids }

func (t *table) judge(p *probe, result state) (transitions []transition) {
	for _, s := range p.backends {
		was, awaited := s.state, s.awaited()
		s.record = s.after(result, &p.check, p.checked)
		if s.state == was {
			continue
		}
		if awaited {
			t.unknown--
		}
		t.states[was]--
		t.states[s.state]++
		s.port.count(s, was, s.state)
		transitions = append(transitions, transition{s, was})
	}
	return transitions
}

// count counts the backends. The cost is that of the probes without a result.
func (t *table) count() Counts {
	c := Counts{Up: t.states[up], Down: t.states[down], Unknown: t.states[unknown]}
	for p := range t.voids {
		c.Void += len(p.backends)
		c.VoidError = max(c.VoidError, p.problem) // the same at each call: a map has no order
	}
	return c
}

// awaited reports whether Ready waits for the first result of a backend.
func (s *backendState) awaited() bool { return s.state == unknown && len(s.probe.check.VIPs) == 0 }

// count moves a backend of p from one state to another, and decides whether p is lost.
func (p *port) count(s *backendState, from, to state) {
	if s.weighted {
		p.tally[from]--
		p.tally[to]++
	}
	p.decide()
}

func (p *port) decide() {
	p.lost = p.tally.lost(p.lost, p.quorum, p.hysteresis)
	s := p.service
	if s.fresh = false; !s.turned {
		s.turned = true
		s.of.turned = append(s.of.turned, s)
	}
}

// health returns a copy of each Service's health.
func (t *table) health() map[lb.ServiceID]lb.Health {
	out := make(map[lb.ServiceID]lb.Health, len(t.services))
	for _, svc := range t.services {
		out[svc.id] = svc.current()
	}
	return out
}

// turns returns a copy of the health of the Services that may have turned since the last call, or that of all after
// another set of groups.
func (t *table) turns() (health map[lb.ServiceID]lb.Health, all bool) {
	if t.all {
		health = t.health()
	} else {
		health = make(map[lb.ServiceID]lb.Health, len(t.turned))
		for _, svc := range t.turned {
			health[svc.id] = svc.current()
		}
	}
	for _, svc := range t.turned {
		svc.turned = false
	}
	all, t.all, t.turned = t.all, false, nil
	return health, all
}

// current returns a copy of the health.
func (s *service) current() lb.Health {
	if !s.fresh {
		s.health, s.fresh = s.measure(), true
	}
	return lb.Health{Down: maps.Clone(s.health.Down), Lost: maps.Clone(s.health.Lost)}
}

// measure creates maps only for Services with a fault: most have none.
func (s *service) measure() (h lb.Health) {
	for _, p := range s.ports {
		if p.lost {
			if h.Lost == nil {
				h.Lost = map[lb.FamilyPort]bool{}
			}
			h.Lost[p.key] = true
		}
		for _, st := range p.backends {
			if st.state == up || st.state == unknown && st.serves {
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

// patience returns the longest time until every target has a result, if limit are checked at a
// time and none answers.
func (t *table) patience(limit int, now time.Time) time.Duration {
	n, longest, last := 0, time.Duration(0), now
	for _, p := range t.probes {
		if p.checks > 0 || len(p.check.VIPs) > 0 {
			continue
		}
		n++
		longest = max(longest, p.check.Timeout)
		if p.due.After(last) {
			last = p.due
		}
	}
	rounds := (n + limit - 1) / limit
	return last.Sub(now) + time.Duration(rounds)*longest
}

// queue is a heap of the waiting probes, the next one first.
type queue []*probe

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(x any) {
	p := x.(*probe)
	p.place = len(*q)
	*q = append(*q, p)
}

// Pop removes the last one; container/heap has moved the first there.
func (q *queue) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return p
}
