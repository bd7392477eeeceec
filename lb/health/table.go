package health

import (
	"container/heap"
	"maps"
	"net/netip"
	"time"
	"unique"

	"weir/lb"
)

// board is all that is known: what to ask, when, and what came of it. It is
// plain data without clock, lock, I/O or chance; now is always an argument.
type table struct {
	services []*service      // sorted
	backends []*backendState // sorted by service, port and address
	probes   map[probeKey]*probe
	due      queue
	asking   int // probes that are out, forgotten ones included
	unknown  int // seats without a verdict
	behind   time.Duration
	totals   Totals
}

// service is the seats of one Service, and its lb.Health while that is fresh.
type service struct {
	id     lb.ServiceID
	ports  []*port
	health lb.Health
	fresh  bool
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

// seat is one backend of one port. Several seats share a probe when they are
// asked at the same address: many ports with one backend, or a check with a port
// of its own.
type backendState struct {
	port     *port
	addr     netip.AddrPort
	weighted bool // it has a weight, so it counts for the quorum
	// serves tells that it had clients before it was ever asked. An unknown verdict
	// is no reason to take them away.
	serves bool
	probe  *probe
	flaps  uint64 // changes between up and down
	record
}

// probeKey is the identity of a target. While it stays the same a target keeps
// what it has found, whatever else a new configuration brings.
type probeKey struct {
	service lb.ServiceID
	addr    netip.AddrPort        // where it is asked
	check   unique.Handle[string] // all its values
}

// probe is one target that is asked again and again.
type probe struct {
	key      probeKey
	target   target
	check    Check
	ask      asker
	due      time.Time
	out      bool // being asked, hence not in the queue
	backends []*backendState

	problem          string // of the last check that failed
	checked          time.Time
	took, spent      time.Duration
	checks, failures uint64
}

// job is a probe that is to be asked now. It carries the asker because set may
// give the probe another one meanwhile.
type job struct {
	probe *probe
	ask   asker
}

// take appends the probes that are due to out, as many as may be out at once,
// and tells how long it is until the next one is due; negative if that is not
// known before one of those that are out comes back.
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

// putBack queues p, which was out, to be asked at due. It tells whether p is
// still wanted.
func (t *table) requeue(p *probe, due time.Time) bool {
	t.asking--
	p.out = false
	if t.probes[p.key] != p {
		return false
	}
	p.due = due
	heap.Push(&t.due, p)
	return true
}

// answer is what became of a job.
type answer struct {
	probe *probe
	// problem is what was wrong with the backend, empty if nothing.
	problem string
	ended   time.Time
	took    time.Duration
}

// turn is a seat whose verdict is another one, and which it was.
type transition struct {
	*backendState
	was state
}

// finish takes down an answer, and gives the seats whose verdict it turned.
func (t *table) finish(a answer, due time.Time) []transition {
	p, result := a.probe, up
	t.totals.Checks++
	t.totals.Spent += a.took
	if a.problem != "" {
		result = down
		t.totals.Failures++
	}
	if !t.requeue(p, due) {
		return nil
	}
	p.checks++
	p.checked, p.took, p.spent = a.ended, a.took, p.spent+a.took
	if a.problem != "" {
		p.failures++
		p.problem = a.problem
	}
	return t.judge(p, result)
}

// void takes down an answer that says nothing of the backend.
func (t *table) discard(a answer, due time.Time) {
	t.totals.Void++
	a.probe.problem = a.problem
	t.requeue(a.probe, due)
}

func (t *table) judge(p *probe, result state) (transitions []transition) {
	for _, s := range p.backends {
		was := s.state
		s.record = s.after(result, &p.check, p.checked)
		if s.state == was {
			continue
		}
		if was == unknown {
			t.unknown--
		} else {
			s.flaps++
		}
		s.port.count(s, was, s.state)
		transitions = append(transitions, transition{s, was})
	}
	return transitions
}

// count moves the seat s of p from one verdict to another, and decides anew
// whether p is lost.
func (p *port) count(s *backendState, from, to state) {
	if s.weighted {
		p.tally[from]--
		p.tally[to]++
	}
	p.decide()
}

func (p *port) decide() {
	p.lost = p.tally.lost(p.lost, p.quorum, p.hysteresis)
	p.service.fresh = false
}

// health gives a copy of each Service's health.
func (t *table) health() map[lb.ServiceID]lb.Health {
	out := make(map[lb.ServiceID]lb.Health, len(t.services))
	for _, svc := range t.services {
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

// patience is how long it takes at most until every target without a result has
// one, if no more than limit are asked at a time and all of them are silent.
func (t *table) patience(limit int, now time.Time) time.Duration {
	n, longest, last := 0, time.Duration(0), now
	for _, p := range t.probes {
		if p.checks > 0 {
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
