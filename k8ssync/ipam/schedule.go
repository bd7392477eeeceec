package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// schedule is which Services are decided, and when.
type schedule struct {
	queue     queue
	waiting   map[lb.ServiceID]struct{} // queued when a write ends
	wanting   map[lb.ServiceID]struct{} // queued when something becomes free
	short     map[lb.ServiceID]struct{} // queued when there is room for claims
	someFreed bool                      // something did
	last      map[lb.ServiceID]Decision // the last of each Service
	resting   bool                      // nothing is queued
}

// queue has the Services to decide, in order, now and later.
type queue struct {
	now      heap[turn]
	at       map[lb.ServiceID]turn // the valid one, of each that is in now
	retained heap[retained]
	known    map[retained]struct{} // those that are in retained
	keep     int                   // how many of these are kept, before those that no claim has are removed
}

// turn is a Service's place in the queue: Services with addresses come first, then the
// oldest.
type turn struct {
	rank    int
	created int64
	id      lb.ServiceID
}

// retained is the start of the retention of an address for a Service.
type retained struct {
	released time.Time
	id       lb.ServiceID
}

func newSchedule() schedule {
	return schedule{
		queue: queue{
			now: heap[turn]{less: func(a, b turn) bool {
				return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.created, b.created), a.id.Compare(b.id)) < 0
			}},
			at:       map[lb.ServiceID]turn{},
			retained: heap[retained]{less: func(a, b retained) bool { return a.released.Before(b.released) }},
			known:    map[retained]struct{}{},
			keep:     keepRetained,
		},
		waiting: map[lb.ServiceID]struct{}{}, wanting: map[lb.ServiceID]struct{}{}, short: map[lb.ServiceID]struct{}{}, last: map[lb.ServiceID]Decision{},
	}
}

// keepRetained is the least value of queue.keep.
const keepRetained = 1024

// Rest records that another writer decides: nothing is queued, and Wake is zero, until Next
// is called, which queues all Services.
func (s *schedule) Rest() {
	if !s.resting {
		*s = newSchedule()
		s.resting = true
	}
}

// put queues a turn.
func (s *schedule) put(t turn) {
	if s.resting {
		return
	}
	delete(s.waiting, t.id)
	s.queue.put(t)
}

// remind queues the released holders of a claim for the end of their retention.
func (s *schedule) remind(c *Claim) {
	for _, h := range c.Holders {
		if !h.Released.IsZero() && !s.resting {
			s.queue.remind(retained{h.Released, h.Service})
		}
	}
}

// remindAll queues the ends of the retentions of all claims, and no others.
func (s *schedule) remindAll(claims map[netip.Addr]*Claim) {
	s.queue.retained.items = nil
	clear(s.queue.known)
	for _, c := range claims {
		s.remind(c)
	}
	s.queue.keep = 2*len(s.queue.known) + keepRetained
}

// remember records the last decision, and whether its Service waits for more.
func (s *schedule) remember(d Decision, exists bool) {
	delete(s.last, d.Service)
	delete(s.wanting, d.Service)
	delete(s.short, d.Service)
	if !exists {
		return
	}
	if d.short {
		s.short[d.Service] = struct{}{}
	}
	s.last[d.Service] = d
	left := func(n Note) bool { return n.Reason == FamilyLeft }
	if d.Pending.Reason != "" || slices.ContainsFunc(d.Notes, left) {
		s.wanting[d.Service] = struct{}{}
	}
}

// remind queues the end of a retention, once for each.
func (q *queue) remind(r retained) {
	r.released = r.released.UTC().Round(0) // equal times are the same
	if _, in := q.known[r]; !in {
		q.known[r] = struct{}{}
		q.retained.push(r)
	}
}

// due removes the retention that has ended first; false is none.
func (q *queue) due(now time.Time, after time.Duration) (retained, bool) {
	if len(q.retained.items) == 0 || now.Before(q.retained.top().released.Add(after)) {
		return retained{}, false
	}
	r := q.retained.pop()
	delete(q.known, r)
	return r, true
}

func (q *queue) put(t turn) {
	if q.at[t.id] != t {
		q.at[t.id] = t
		q.now.push(t)
	}
}

func (q *queue) pop() (lb.ServiceID, bool) {
	for len(q.now.items) > 0 {
		if t := q.now.pop(); q.at[t.id] == t {
			delete(q.at, t.id)
			return t.id, true
		}
	}
	return lb.ServiceID{}, false
}
