package ipam

import (
	"maps"
	"net/netip"
	"slices"

	"weir/lb"
)

// Allocator knows pools, Requests and Claims, and decides. What it is told, in whatever
// order, changes what it knows at once; what is to be done follows from Next. It is not
// safe for concurrent use. Make one with New.
type Allocator struct {
	layout
	requests map[lb.ServiceID]*Request
	synced   map[string]bool

	claims map[netip.Addr]*Claim
	gone   map[netip.Addr]uint64 // versions at which addresses had no claim any more
	enough int                   // how many of these may be kept
	// holds are the addresses in whose claims a Service is, listed the Services in
	// whose status an address is, keyed the addresses that are shared by a key.
	holds  map[lb.ServiceID]map[netip.Addr]struct{}
	listed map[netip.Addr]map[lb.ServiceID]struct{}
	keyed  map[shareKey]map[netip.Addr]int

	flights map[netip.Addr]flight // Writes that are under way
	busy    map[lb.ServiceID]int  // how many of them are a Service's
	// checked are the claims that were asked for since a Service was at a version.
	checked map[lb.ServiceID]map[netip.Addr]string

	queue   queue
	waiting map[lb.ServiceID]struct{} // decided again when a flight ends
	wanting map[lb.ServiceID]struct{} // decided again when something gets free
	stirred bool                      // something did
	said    map[lb.ServiceID]Decision // the last of each Service
}

// flight is a Write that is under way, and for whom.
type flight struct {
	Write
	by   lb.ServiceID
	told bool // something was said of the address since
	// version is the Service's.
	version string
}

// shareKey is a key within a namespace of a cluster; without those, it is the key in
// all of them.
type shareKey struct{ source, namespace, key string }

// New makes an Allocator that knows nothing but a Config that was checked.
func New(c Config) *Allocator {
	return &Allocator{
		layout:   newLayout(c),
		requests: map[lb.ServiceID]*Request{},
		synced:   map[string]bool{},
		claims:   map[netip.Addr]*Claim{},
		gone:     map[netip.Addr]uint64{},
		enough:   enoughGone,
		holds:    map[lb.ServiceID]map[netip.Addr]struct{}{},
		listed:   map[netip.Addr]map[lb.ServiceID]struct{}{},
		keyed:    map[shareKey]map[netip.Addr]int{},
		flights:  map[netip.Addr]flight{},
		busy:     map[lb.ServiceID]int{},
		checked:  map[lb.ServiceID]map[netip.Addr]string{},
		queue:    newQueue(),
		waiting:  map[lb.ServiceID]struct{}{},
		wanting:  map[lb.ServiceID]struct{}{},
		said:     map[lb.ServiceID]Decision{},
	}
}

// SetConfig replaces the Config. No address moves: what does not fit is stranded.
func (a *Allocator) SetConfig(c Config) {
	a.layout = newLayout(c)
	for id := range a.requests {
		a.dirty(id)
	}
	for id := range a.holds {
		a.dirty(id)
	}
	a.queue.holds.items = nil
	clear(a.queue.held)
	for _, c := range a.claims {
		a.remind(c)
	}
}

// Put tells a Service as it is now.
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

// Delete tells that its API server has it no more. An unreachable API server is no
// reason to call it.
func (a *Allocator) Delete(id lb.ServiceID) {
	a.list(id, nil)
	delete(a.requests, id)
	delete(a.checked, id)
	a.dirty(id)
}

// list says which addresses are in a Service's status.
func (a *Allocator) list(id lb.ServiceID, status []netip.Addr) {
	var was []netip.Addr
	if r := a.requests[id]; r != nil {
		was = r.Status
	}
	for _, x := range was {
		if !slices.Contains(status, x) {
			remove(a.listed, x, id)
			a.dirtyListers(x)
			a.freed(x)
		}
	}
	for _, x := range status {
		if !slices.Contains(was, x) {
			insert(a.listed, x, id)
			a.dirtyListers(x)
		}
	}
}

// Synced tells whether the Allocator now knows all Services of a cluster. Until then,
// and after it was told false, the cluster's claims stay as they are and its Services
// get nothing new. A cluster that was never told of is not synced.
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
	for id := range a.holds {
		if id.Source == cluster {
			a.dirty(id)
		}
	}
}

// Learn tells a claim as the store has it, from a watch or as the answer to a write. One
// that is older than what is known is ignored.
func (a *Allocator) Learn(c Claim) {
	a.told(c.Addr)
	old := a.claims[c.Addr]
	if c.Version <= a.gone[c.Addr] || old != nil && c.Version <= old.Version {
		return
	}
	c.Holders = slices.Clone(c.Holders)
	delete(a.gone, c.Addr)
	a.replace(c.Addr, old, &c)
}

// Gone tells that the store has no claim of an address, as of a version: that of the
// watch's event. Where there is none (the answer to a deletion, or that there was
// nothing to write), it is the Write's Claim.Version. It is ignored if a later version
// is known.
func (a *Allocator) Gone(addr netip.Addr, version uint64) {
	a.told(addr)
	old := a.claims[addr]
	if old != nil && old.Version > version {
		return
	}
	if version > a.gone[addr] {
		a.gone[addr] = version
	}
	if old != nil {
		a.replace(addr, old, nil)
	}
}

// Relist tells all claims there are, as of a list's version. Those that are known at no
// later version and are not listed are gone.
func (a *Allocator) Relist(version uint64, claims []Claim) {
	there := map[netip.Addr]struct{}{}
	for _, c := range claims {
		there[c.Addr] = struct{}{}
		a.Learn(c)
	}
	for x := range a.claims {
		if _, ok := there[x]; !ok {
			a.Gone(x, version)
		}
	}
	a.passed(version)
}

// Passed tells that a watch of all claims is at a version: whatever comes is later.
func (a *Allocator) Passed(version uint64) {
	if len(a.gone) > a.enough {
		a.passed(version)
		a.enough = 2*len(a.gone) + enoughGone
	}
}

// enoughGone is how many versions of claims that are gone are kept at least, before one
// looks which of them are of no use any more.
const enoughGone = 256

// passed forgets at which versions claims were gone that nobody will tell of again. Of
// an address that is being written the answer may still be under way.
func (a *Allocator) passed(version uint64) {
	maps.DeleteFunc(a.gone, func(x netip.Addr, v uint64) bool {
		_, flying := a.flights[x]
		return v <= version && !flying
	})
}

// replace puts a claim in the place of another; nil is none.
func (a *Allocator) replace(x netip.Addr, old, c *Claim) {
	if old != nil {
		a.key(x, *old, -1)
		for _, h := range old.Holders {
			remove(a.holds, h.Service, x)
			a.dirty(h.Service)
		}
	}
	if c != nil {
		a.claims[x] = c
		a.key(x, *c, +1)
		for _, h := range c.Holders {
			a.stirred = a.stirred || h.Share != "" // there is an address to join
			insert(a.holds, h.Service, x)
			a.dirty(h.Service)
		}
		a.remind(c)
	} else {
		delete(a.claims, x)
	}
	a.dirtyListers(x)
	if old != nil {
		a.stirred = true // a sharer may have gone, or a port
		a.freed(x)
	}
}

// remind puts the holders that have let go into the queue for later.
func (a *Allocator) remind(c *Claim) {
	for _, h := range c.Holders {
		if !h.Released.IsZero() {
			a.queue.remind(hold{h.Released, h.Service})
		}
	}
}

// key counts the keys by which an address is shared.
func (a *Allocator) key(x netip.Addr, c Claim, n int) {
	for _, h := range c.Holders {
		if h.Share == "" {
			continue
		}
		for _, k := range []shareKey{{h.Service.Source, h.Service.Namespace, h.Share}, {key: h.Share}} {
			if a.keyed[k] == nil {
				a.keyed[k] = map[netip.Addr]int{}
			}
			if a.keyed[k][x] += n; a.keyed[k][x] == 0 {
				delete(a.keyed[k], x)
			}
			if len(a.keyed[k]) == 0 {
				delete(a.keyed, k)
			}
		}
	}
}

// fly says that a Write is under way.
func (a *Allocator) fly(by lb.ServiceID, w Write) {
	f := flight{Write: w, by: by}
	if r := a.requests[by]; r != nil {
		f.version = r.Version
	}
	a.flights[w.Claim.Addr] = f
	a.busy[by]++
	a.key(w.Claim.Addr, w.Claim, +1)
}

// told marks that something is known of an address that is being written.
func (a *Allocator) told(x netip.Addr) {
	if f, ok := a.flights[x]; ok {
		f.told = true
		a.flights[x] = f
	}
}

// Done tells that a Write of a Decision has come to an end, well or not, and that its
// outcome was learned as far as it is known: who does not know reads the object first.
// Every Write needs it: until then the address is not decided on.
func (a *Allocator) Done(addr netip.Addr) {
	f, ok := a.flights[addr]
	if !ok {
		return
	}
	delete(a.flights, addr)
	a.key(addr, f.Claim, -1)
	if a.busy[f.by]--; a.busy[f.by] == 0 {
		delete(a.busy, f.by)
	}
	for id := range a.waiting {
		a.dirty(id)
	}
	if f.told {
		if a.requests[f.by] != nil && slices.Contains(a.requests[f.by].Status, addr) {
			a.check(f)
		}
		a.dirty(f.by)
	}
	a.freed(addr)
}

// check marks that what is known of a claim is later than a version of a Service.
func (a *Allocator) check(f flight) {
	if a.checked[f.by] == nil {
		a.checked[f.by] = map[netip.Addr]string{}
	}
	a.checked[f.by][f.Claim.Addr] = f.version
}

// freed looks whether an address is free now, and tells those who want one.
func (a *Allocator) freed(x netip.Addr) {
	a.stirred = a.stirred || a.claims[x] == nil
	s := a.spanOf(x)
	if s == nil || a.taken(s, x) || s.next.IsValid() && !x.Less(s.next) {
		return
	}
	if _, in := s.inFreed[x]; !in {
		s.inFreed[x] = struct{}{}
		s.freed.push(x)
	}
}

// taken tells whether nobody gets an address who does not ask for just it.
func (a *Allocator) taken(s *span, x netip.Addr) bool {
	if _, flying := a.flights[x]; flying {
		return true
	}
	return a.claims[x] != nil || len(a.listed[x]) > 0 || len(a.reserved[x]) > 0 || s.pool.avoids(s.Range, x)
}

// lowest gives the lowest free address of a span; invalid is that there is none. Each
// address is passed once, and then only looked at again when it was freed.
func (a *Allocator) lowest(s *span) netip.Addr {
	for len(s.freed.items) > 0 {
		x := s.freed.top()
		if !a.taken(s, x) {
			return x
		}
		delete(s.inFreed, s.freed.pop())
	}
	for s.next.IsValid() && !s.Last.Less(s.next) {
		if !a.taken(s, s.next) {
			return s.next
		}
		s.next = s.next.Next()
	}
	return netip.Addr{}
}

// Claims gives all claims that are known, sorted by address.
func (a *Allocator) Claims() []Claim {
	out := make([]Claim, 0, len(a.claims))
	for _, c := range a.claims {
		out = append(out, Claim{c.Addr, c.Version, slices.Clone(c.Holders)})
	}
	slices.SortFunc(out, func(x, y Claim) int { return x.Addr.Compare(y.Addr) })
	return out
}

// insert and remove keep a set of values for each key.
func insert[K, V comparable](m map[K]map[V]struct{}, k K, v V) {
	if m[k] == nil {
		m[k] = map[V]struct{}{}
	}
	m[k][v] = struct{}{}
}

func remove[K, V comparable](m map[K]map[V]struct{}, k K, v V) {
	delete(m[k], v)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

func sortAddrs(addrs []netip.Addr) []netip.Addr {
	out := slices.Clone(addrs)
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
