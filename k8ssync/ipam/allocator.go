package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// Allocator knows pools, Requests and Claims, and decides. Each method records what it is
// given at once, in any order; Next returns what follows. It is not safe for concurrent
// use. Make one with New.
type Allocator struct {
	inventory
	schedule
}

// New returns an Allocator that knows only a Config, which must be checked.
func New(c Config) *Allocator {
	return &Allocator{
		inventory: inventory{
			layout:   newLayout(c),
			requests: map[lb.ServiceID]*Request{},
			synced:   map[string]bool{},
			listed:   map[netip.Addr]map[lb.ServiceID]struct{}{},
			book:     newBook(&c),
			inFlight: newInFlight(),
		},
		schedule: newSchedule(),
	}
}

// SetConfig replaces the Config. No address moves: those that do not match stay, outside their pool.
func (a *Allocator) SetConfig(c Config) {
	a.layout = newLayout(c)
	a.moved = true
	for x, known := range a.claims {
		a.weigh(x, known, known, a.Matters(x))
	}
	a.queueAll()
}

// queueAll queues all Services, and the ends of all retentions.
func (a *Allocator) queueAll() {
	for id := range a.requests {
		a.dirty(id)
	}
	for id := range a.assigned {
		a.dirty(id)
	}
	a.remindAll(a.claims)
}

// Put records a Service as it is now.
func (a *Allocator) Put(r Request) {
	r.Ports = sortPorts(r.Ports)
	r.Addrs = sortAddrs(r.Addrs)
	r.Status = sortAddrs(r.Status)
	r.Required, r.Preferred = slices.Clone(r.Required), slices.Clone(r.Preferred)
	r.Labels = maps.Clone(r.Labels)
	a.list(r.ID, r.Status)
	if old := a.requests[r.ID]; old != nil && old.Version != r.Version {
		delete(a.checked, r.ID)
	}
	a.requests[r.ID] = &r
	a.dirty(r.ID)
}

// Delete records that the API server of a Service has deleted it. An unreachable API
// server is no reason to call it.
func (a *Allocator) Delete(id lb.ServiceID) {
	a.list(id, nil)
	delete(a.requests, id)
	delete(a.checked, id)
	a.dirty(id)
}

// list records the addresses in a Service's status, which is sorted.
func (a *Allocator) list(id lb.ServiceID, status []netip.Addr) {
	var was []netip.Addr
	if r := a.requests[id]; r != nil {
		was = r.Status
	}
	for _, x := range was {
		if !has(status, x) {
			remove(a.listed, x, id)
			reweigh(a, x)
			a.dirtyListers(x)
			a.freed(x)
		}
	}
	for _, x := range status {
		if !has(was, x) {
			insert(a.listed, x, id)
			reweigh(a, x)
			a.dirtyListers(x)
		}
	}
}

func has(sorted []netip.Addr, x netip.Addr) bool {
	_, found := slices.BinarySearchFunc(sorted, x, netip.Addr.Compare)
	return found
}

// Synced records whether the Allocator knows all Services of a cluster. Otherwise the
// cluster's claims stay as they are and its Services get nothing new. A cluster is not
// synced at first.
func (a *Allocator) Synced(cluster string, yes bool) {
	if a.synced[cluster] == yes {
		return
	}
	a.synced[cluster] = yes
	for id := range a.requests {
		if id.Source == cluster {
			a.dirty(id)
		}
	}
	for id := range a.assigned {
		if id.Source == cluster {
			a.dirty(id)
		}
	}
}

// Learn records a claim in the store, from a watch or from the answer to a write. A claim
// older than the known one is ignored; false is that it was. One beyond the limits is
// ignored, too: ClaimProblem reports it.
func (a *Allocator) Learn(c Claim) bool {
	old := a.claims[c.Addr]
	if c.Version <= a.gone[c.Addr] || old != nil && c.Version < old.Version {
		return false
	}
	a.inFlight.reported(c.Addr)
	if old == nil || c.Version > old.Version {
		delete(a.gone, c.Addr)
		next, matters := &c, a.Matters(c.Addr)
		if !a.roomFor(old, next, matters) {
			a.ignore(matters)
			next = nil
		}
		c.Holders = slices.Clone(c.Holders)
		a.replace(c.Addr, old, next)
	}
	return true
}

// Gone records that the store has no claim of an address at a version: that of the watch
// event. Without an event (the answer to a deletion, or a write of nothing), it is the
// Write's Claim.Version. It is ignored if a later version is known.
func (a *Allocator) Gone(addr netip.Addr, version uint64) {
	a.inFlight.reported(addr)
	old := a.claims[addr]
	if old != nil && old.Version > version {
		return
	}
	if version > a.gone[addr] {
		a.gone[addr] = version
	}
	if old == nil {
		a.ended = a.ended || a.lost // it may be one that was ignored
		return
	}
	a.replace(addr, old, nil)
}

// Relist records all claims of the store at the version of a list. Claims known at no
// later version and not listed are gone. Of those beyond a limit the last are
// ignored, beside those that in has refused.
func (a *Allocator) Relist(version uint64, claims []Claim, in Intake) {
	a.someFreed = a.someFreed || a.incomplete() // those that wait get the present reason
	a.begin(in)
	there := map[netip.Addr]struct{}{}
	for _, c := range claims {
		there[c.Addr] = struct{}{}
	}
	for x := range a.claims { // first, as they take room
		if _, ok := there[x]; !ok {
			a.Gone(x, version)
		}
	}
	for _, c := range claims {
		a.Learn(c)
	}
	a.ended = false
	a.forget(version, a.flights)
}

// Passed records that a watch of all claims is at a version: all later events are newer.
func (a *Allocator) Passed(version uint64) {
	if len(a.gone) > a.keepGone {
		a.forget(version, a.flights)
		a.keepGone = 2*len(a.gone) + keepGone
	}
}

// replace replaces a claim by another; nil is none.
func (a *Allocator) replace(x netip.Addr, old, c *Claim) {
	a.weigh(x, old, c, a.Matters(x))
	a.book.replace(x, old, c)
	if old != nil {
		for _, h := range old.Holders {
			a.dirty(h.Service)
		}
	}
	if c != nil {
		for _, h := range c.Holders {
			a.someFreed = a.someFreed || h.Share != "" // others may join the address
			a.dirty(h.Service)
		}
		a.remind(c)
		if len(a.queue.known) > a.queue.keep { // claims with ever new times
			a.remindAll(a.claims)
		}
	}
	a.dirtyListers(x)
	if old != nil {
		a.someFreed = true // a sharer may be gone, or a port
		a.freed(x)
	}
}

// start records that a Write is in flight.
func (a *Allocator) start(by lb.ServiceID, w Write) {
	version := ""
	if r := a.requests[by]; r != nil {
		version = r.Version
	}
	a.inFlight.add(flight{Write: w, by: by, version: version, growth: growth(a.claims[w.Claim.Addr], w)})
	a.index(w.Claim.Addr, w.Claim, +1)
}

// Done records that a Write of a Decision has ended, with success or not, after its result
// was recorded as far as it is known: if it is unknown, read the object first. Every Write
// needs it: until then the address is not decided on.
func (a *Allocator) Done(addr netip.Addr) {
	f, ok := a.inFlight.remove(addr)
	if !ok {
		return
	}
	a.index(addr, f.Claim, -1)
	for id := range a.waiting {
		a.dirty(id)
	}
	if f.reported {
		if r := a.requests[f.by]; r != nil && slices.Contains(r.Status, addr) {
			a.check(f)
		}
		a.dirty(f.by)
	}
	a.freed(addr)
}

// freed checks whether an address is free now, for the Requests that wait for one.
func (a *Allocator) freed(x netip.Addr) {
	a.someFreed = a.someFreed || a.claims[x] == nil
	s := a.spanOf(x)
	if s == nil || a.taken(s, x) || s.next.IsValid() && !x.Less(s.next) {
		return
	}
	if _, in := s.inFreed[x]; !in {
		s.inFreed[x] = struct{}{}
		s.freed.push(x)
	}
}

// Claims returns all known claims, sorted by address.
func (a *Allocator) Claims() []Claim {
	out := make([]Claim, 0, len(a.claims))
	for _, c := range a.claims {
		out = append(out, Claim{c.Addr, c.Version, slices.Clone(c.Holders)})
	}
	slices.SortFunc(out, func(x, y Claim) int { return x.Addr.Compare(y.Addr) })
	return out
}

// Knows reports whether there may be a decision for a Service: it has a Request, is in a
// claim, or has a write in flight.
func (a *Allocator) Knows(id lb.ServiceID) bool {
	return a.requests[id] != nil || len(a.assigned[id]) > 0 || a.busy[id] > 0
}

// dirty queues a Service.
func (a *Allocator) dirty(id lb.ServiceID) {
	t := turn{id: id}
	if r := a.requests[id]; r != nil {
		t.created = r.Created.Unix()
		if len(r.Status) == 0 && len(a.assigned[id]) == 0 {
			t.rank = 1
		}
	}
	a.put(t)
}

// dirtyListers queues the Services with an address in their status.
func (a *Allocator) dirtyListers(addr netip.Addr) {
	for id := range a.listed[addr] {
		a.dirty(id)
	}
}

// Again requests a Decision once more, such as after an error.
func (a *Allocator) Again(id lb.ServiceID) {
	delete(a.last, id)
	a.dirty(id)
}

// Next returns the Decision for the next Service for which something may have changed:
// Services with addresses first, then the oldest. False is none. A Decision is not
// repeated, unless something changes or Again is called.
func (a *Allocator) Next(now time.Time) (Decision, bool) {
	if a.resting {
		a.resting = false
		a.queueAll()
	}
	for {
		a.wake(now)
		id, ok := a.queue.pop()
		if !ok {
			return Decision{}, false
		}
		last, known := a.last[id]
		d := a.Decide(id, now)
		if len(d.Writes) > 0 {
			return d, true
		}
		if differs := known && !d.same(last) || !known && d.Apply; differs && !d.Waiting && a.requests[id] != nil {
			return d, true
		}
	}
}

// wake queues the Services at the end of a retention, and those that wait for something
// that has become free.
func (a *Allocator) wake(now time.Time) {
	for r, some := a.queue.due(now, a.Retention); some; r, some = a.queue.due(now, a.Retention) {
		a.dirty(r.id)
	}
	if a.someFreed {
		a.someFreed = false
		for id := range a.wanting {
			a.dirty(id)
		}
	}
	if len(a.short) > 0 && a.roomAgain(&a.inFlight) {
		for id := range a.short {
			a.dirty(id)
		}
		clear(a.short)
	}
}

// Wake returns the time at which Next will have a Decision without any other change: at
// the end of a retention. Zero is never.
func (a *Allocator) Wake() time.Time {
	if len(a.queue.retained.items) == 0 {
		return time.Time{}
	}
	return a.queue.retained.top().released.Add(a.Retention)
}

// Decide returns the Decision for one Service now, whether it is queued or not.
func (a *Allocator) Decide(id lb.ServiceID, now time.Time) Decision {
	r := a.requests[id]
	c := choice{inventory: &a.inventory, r: r, d: Decision{Service: id}}
	if r != nil {
		c.d.UID, c.d.Version = r.UID, r.Version
	}
	wait := a.busy[id] > 0 || !a.synced[id.Source]
	var keep []netip.Addr
	if !wait && r != nil && !r.Foreign {
		keep, wait = c.assign()
	}
	if wait {
		if a.synced[id.Source] {
			a.waiting[id] = struct{}{}
		} else {
			delete(a.wanting, id) // Synced queues it
			delete(a.short, id)
		}
		return Decision{Service: id, UID: c.d.UID, Version: c.d.Version, Waiting: true}
	}
	if c.release(keep, now) {
		a.waiting[id] = struct{}{}
	}
	for _, w := range c.d.Writes {
		a.start(id, w)
	}
	if len(c.d.Writes) == 0 {
		a.remember(c.d, r != nil)
	}
	return c.d
}
