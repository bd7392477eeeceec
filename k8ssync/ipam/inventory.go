package ipam

import (
	"fmt"
	"maps"
	"net/netip"

	"weir/lb"
)

// inventory is all that an Allocator knows, and that its decisions read.
type inventory struct {
	layout
	requests map[lb.ServiceID]*Request
	synced   map[string]bool
	listed   map[netip.Addr]map[lb.ServiceID]struct{} // the Services with an address in their status
	book
	inFlight
}

// book has the claims.
type book struct {
	claims   map[netip.Addr]*Claim
	gone     map[netip.Addr]uint64 // versions at which addresses ceased to have a claim
	keepGone int                   // how many of these are kept
	// spent are the addresses of the Services of a namespace, by the number of holders.
	// Those in kept are retained.
	spent, kept map[space]map[netip.Addr]int
	// assigned are the addresses with a Service in their claims, keyed the addresses that are
	// shared by a key.
	assigned map[lb.ServiceID]map[netip.Addr]struct{}
	keyed    map[shareKey]map[netip.Addr]int
	// changed are the addresses with changed claims since the last TakeChanged.
	changed map[netip.Addr]struct{}
	bounds
}

// shareKey is a key within a namespace of a cluster; without those, it is the key in
// all of them.
type shareKey struct{ source, namespace, key string }

// space is a namespace of a cluster.
type space struct{ source, namespace string }

// keepGone is how many versions of deleted claims are kept at least, before those that are
// no longer of use are removed.
const keepGone = 256

func newBook(cfg *Config) book {
	return book{
		claims: map[netip.Addr]*Claim{}, gone: map[netip.Addr]uint64{}, keepGone: keepGone,
		assigned: map[lb.ServiceID]map[netip.Addr]struct{}{}, keyed: map[shareKey]map[netip.Addr]int{}, spent: map[space]map[netip.Addr]int{}, kept: map[space]map[netip.Addr]int{},
		changed: map[netip.Addr]struct{}{}, bounds: newBounds(cfg),
	}
}

// replace replaces a claim by another; nil is none.
func (b *book) replace(x netip.Addr, old, c *Claim) {
	b.changed[x] = struct{}{}
	if old != nil {
		b.index(x, *old, -1)
		for _, h := range old.Holders {
			remove(b.assigned, h.Service, x)
		}
	}
	if c == nil {
		delete(b.claims, x)
		return
	}
	b.claims[x] = c
	b.index(x, *c, +1)
	for _, h := range c.Holders {
		insert(b.assigned, h.Service, x)
	}
}

// TakeChanged returns the addresses with changed claims since its last call, and their
// Claim.Assigned. While claims are ignored (Obstacle), one without a claim may have such a claim.
func (b *book) TakeChanged() map[netip.Addr][]lb.ServiceID {
	out := map[netip.Addr][]lb.ServiceID{}
	for x := range b.changed {
		if c := b.claims[x]; c != nil {
			out[x] = c.Assigned()
		} else if !b.incomplete() {
			out[x] = nil
		}
	}
	clear(b.changed)
	return out
}

// index counts the namespaces that have an address, and the keys by which it is shared.
func (b *book) index(x netip.Addr, c Claim, n int) {
	for _, h := range c.Holders {
		count(b.spent, space{h.Service.Source, h.Service.Namespace}, x, n)
		if c.retained() {
			count(b.kept, space{h.Service.Source, h.Service.Namespace}, x, n)
		}
		if h.Share == "" {
			continue
		}
		count(b.keyed, shareKey{h.Service.Source, h.Service.Namespace, h.Share}, x, n)
		count(b.keyed, shareKey{key: h.Share}, x, n)
	}
}

// count adds n to the number of a value of a key.
func count[K, V comparable](m map[K]map[V]int, k K, v V, n int) {
	if m[k] == nil {
		m[k] = map[V]int{}
	}
	if m[k][v] += n; m[k][v] == 0 {
		delete(m[k], v)
	}
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// leastKept is the least number of retained addresses that limits a namespace without MaxPerNamespace.
const leastKept = 4

// limited returns why the namespace of a Service gets no more addresses of a family from a
// pool; empty is that it does. It may have MaxPerNamespace. Without that, the addresses that are
// retained for its deleted Services may not be more than the free ones: a tenant could
// otherwise empty the pool by Services that it creates and deletes.
func (a *inventory) limited(p *Pool, r *Request, f lb.Family) string {
	if p.MaxPerNamespace > 0 && a.countOf(a.spent, p, r, f) >= p.MaxPerNamespace {
		return fmt.Sprintf("namespace %s has %d %v addresses of pool %q, with those kept for deleted Services, and may have no more (max_per_namespace)",
			r.ID.Namespace, p.MaxPerNamespace, f, p.Name)
	}
	if kept := a.countOf(a.kept, p, r, f); p.MaxPerNamespace == 0 && kept >= leastKept && a.fewer(p, f, kept) {
		return fmt.Sprintf("pool %q keeps %d %v addresses for deleted Services of namespace %s, and has fewer free ones: "+
			"wait for addresses.retention, or let the operator set max_per_namespace", p.Name, kept, f, r.ID.Namespace)
	}
	return ""
}

// countOf counts the addresses of a pool and family that the namespace of a Service has in a map.
func (l *layout) countOf(of map[space]map[netip.Addr]int, p *Pool, r *Request, f lb.Family) (n int) {
	for x := range of[space{r.ID.Source, r.ID.Namespace}] {
		if lb.FamilyOf(x) == f && l.poolOf(x) == p {
			n++
		}
	}
	return n
}

// Matters reports whether a claim of an address matters: if it is ignored, its
// address could get a second owner.
func (a *inventory) Matters(x netip.Addr) bool {
	return a.poolOf(x) != nil || len(a.listed[x]) > 0
}

// fewer reports whether a pool has fewer free addresses of a family than n, but some.
func (a *inventory) fewer(p *Pool, f lb.Family, n int) bool {
	free := Count{}
	for _, r := range p.Ranges {
		if lb.FamilyOf(r.First) == f {
			free = free.plus(r.size())
		}
	}
	if lo, ok := free.Uint64(); !ok || lo >= uint64(n+len(a.claims)+len(a.reserved)+len(a.listed)+len(a.flights)) { //nolint:gosec // sums of lengths
		return false
	}
	taken := map[netip.Addr]struct{}{}
	add := func(x netip.Addr) {
		if lb.FamilyOf(x) == f && a.poolOf(x) == p {
			taken[x] = struct{}{}
		}
	}
	for x := range a.claims {
		add(x)
	}
	for x := range a.reserved {
		add(x)
	}
	for x := range a.listed {
		if a.shown(x) {
			add(x)
		}
	}
	for x := range a.flights {
		add(x)
	}
	left, _ := free.minus(Count{lo: uint64(len(taken))}).Uint64()
	return left > 0 && left < uint64(n) //nolint:gosec // a length
}

// has reports whether a Service of the namespace of r has an address, or had it.
func (a *inventory) has(r *Request, x netip.Addr) bool {
	return a.spent[space{r.ID.Source, r.ID.Namespace}][x] > 0
}

// forget removes the versions of deleted claims that no event can precede. The answer to a
// write may still be in flight.
func (b *book) forget(version uint64, flights map[netip.Addr]flight) {
	maps.DeleteFunc(b.gone, func(x netip.Addr, v uint64) bool {
		_, flying := flights[x]
		return v <= version && !flying
	})
}

// flight is a Write that is in flight.
type flight struct {
	Write
	by       lb.ServiceID
	version  string // of the Service
	reported bool   // the claim of the address was reported since
	growth   room   // of the claims, by this Write
}

// inFlight has the Writes that are in flight.
type inFlight struct {
	flights map[netip.Addr]flight
	busy    map[lb.ServiceID]int // how many of them are a Service's
	growth  room                 // of all of them
	// checked are the claims that were read since a Service had a version.
	checked map[lb.ServiceID]map[netip.Addr]string
}

func newInFlight() inFlight {
	return inFlight{
		flights: map[netip.Addr]flight{}, busy: map[lb.ServiceID]int{}, checked: map[lb.ServiceID]map[netip.Addr]string{},
	}
}

func (w *inFlight) add(f flight) {
	w.flights[f.Claim.Addr] = f
	w.busy[f.by]++
	w.growth = w.growth.plus(f.growth)
}

func (w *inFlight) remove(x netip.Addr) (flight, bool) {
	f, ok := w.flights[x]
	if !ok {
		return flight{}, false
	}
	delete(w.flights, x)
	w.growth = w.growth.minus(f.growth)
	if w.busy[f.by]--; w.busy[f.by] == 0 {
		delete(w.busy, f.by)
	}
	return f, true
}

// reported records that the claim of an address was reported during a write of it.
func (w *inFlight) reported(x netip.Addr) {
	if f, ok := w.flights[x]; ok {
		f.reported = true
		w.flights[x] = f
	}
}

// check records that the known claim is later than a version of a Service.
func (w *inFlight) check(f flight) {
	if w.checked[f.by] == nil {
		w.checked[f.by] = map[netip.Addr]string{}
	}
	w.checked[f.by][f.Claim.Addr] = f.version
}

// taken reports whether only a Service that requests just this address may get it.
func (a *inventory) taken(s *span, x netip.Addr) bool {
	if _, flying := a.flights[x]; flying {
		return true
	}
	return a.claims[x] != nil || a.shown(x) || len(a.reserved[x]) > 0 || s.pool.avoids(s.Range, x)
}

// shown reports whether an address of a pool is in the status of a Service, or of a Node that counts.
func (a *inventory) shown(x netip.Addr) bool {
	for id := range a.listed[x] {
		if a.counts(a.requests[id], x, "") {
			return true
		}
	}
	return false
}

// lowest returns the lowest free address of a span; invalid is none. Each address is
// checked once, and again only after it was freed.
func (a *inventory) lowest(s *span) netip.Addr {
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
