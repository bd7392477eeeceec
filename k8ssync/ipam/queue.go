package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// queue is who is to be decided, in order, now and later.
type queue struct {
	now   heap[turn]
	at    map[lb.ServiceID]turn // the one that counts, of each that is in now
	holds heap[hold]
	held  map[hold]struct{} // those that are in holds
}

// turn is a Service's place in the queue: who has addresses comes before who wants
// some, then the oldest.
type turn struct {
	rank    int
	created int64
	id      lb.ServiceID
}

// hold is a time from which on a Service's hold on an address counts.
type hold struct {
	released time.Time
	id       lb.ServiceID
}

func newQueue() queue {
	return queue{
		now: heap[turn]{less: func(a, b turn) bool {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.created, b.created), a.id.Compare(b.id)) < 0
		}},
		at:    map[lb.ServiceID]turn{},
		holds: heap[hold]{less: func(a, b hold) bool { return a.released.Before(b.released) }},
		held:  map[hold]struct{}{},
	}
}

// remind puts a hold into the queue, once however often its claim is told.
func (q *queue) remind(h hold) {
	h.released = h.released.UTC().Round(0) // equal times are the same
	if _, in := q.held[h]; !in {
		q.held[h] = struct{}{}
		q.holds.push(h)
	}
}

// due takes the hold that has ended first; false is that none has.
func (q *queue) due(now time.Time, after time.Duration) (hold, bool) {
	if len(q.holds.items) == 0 || now.Before(q.holds.top().released.Add(after)) {
		return hold{}, false
	}
	h := q.holds.pop()
	delete(q.held, h)
	return h, true
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

// dirty puts a Service into the queue.
func (a *Allocator) dirty(id lb.ServiceID) {
	t := turn{id: id}
	if r := a.requests[id]; r != nil {
		t.created = r.Created.Unix()
		if len(r.Status) == 0 && len(a.holds[id]) == 0 {
			t.rank = 1
		}
	}
	delete(a.waiting, id)
	a.queue.put(t)
}

// dirtyListers puts those into the queue in whose status an address is.
func (a *Allocator) dirtyListers(addr netip.Addr) {
	for id := range a.listed[addr] {
		a.dirty(id)
	}
}

// Knows tells whether there may be something to decide for a Service: it was told of, or
// is in a claim, or something is being written for it.
func (a *Allocator) Knows(id lb.ServiceID) bool {
	return a.requests[id] != nil || len(a.holds[id]) > 0 || a.busy[id] > 0
}

// Again asks for a Decision once more, such as after an error.
func (a *Allocator) Again(id lb.ServiceID) {
	delete(a.said, id)
	a.dirty(id)
}

// Next decides the next Service for which something may have changed: those with
// addresses first, then the oldest. False is that there is none. What a Decision says
// to do is not repeated, unless something changes or Again is called.
func (a *Allocator) Next(now time.Time) (Decision, bool) {
	for {
		a.wake(now)
		id, ok := a.queue.pop()
		if !ok {
			return Decision{}, false
		}
		was, before := a.said[id]
		d := a.Decide(id, now)
		if len(d.Writes) > 0 {
			return d, true
		}
		if news := before && !d.same(was) || !before && d.Apply; news && !d.Waiting && a.requests[id] != nil {
			return d, true
		}
	}
}

// wake puts those into the queue who have something to do at this time, or because
// something got free.
func (a *Allocator) wake(now time.Time) {
	for h, some := a.queue.due(now, a.ReleaseAfter); some; h, some = a.queue.due(now, a.ReleaseAfter) {
		a.dirty(h.id)
	}
	if a.stirred {
		a.stirred = false
		for id := range a.wanting {
			a.dirty(id)
		}
	}
}

// Wake gives the time at which Next will have something to do, if nothing else comes
// before: when an address has been held long enough. Zero is never.
func (a *Allocator) Wake() time.Time {
	if len(a.queue.holds.items) == 0 {
		return time.Time{}
	}
	return a.queue.holds.top().released.Add(a.ReleaseAfter)
}

// same tells that two Decisions without Writes say the same.
func (d Decision) same(o Decision) bool {
	return d.UID == o.UID && d.Version == o.Version && d.Apply == o.Apply && d.Pending == o.Pending &&
		slices.Equal(d.Addrs, o.Addrs) && slices.Equal(d.Notes, o.Notes)
}
