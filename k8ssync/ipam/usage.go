package ipam

import (
	"net/netip"
	"slices"
)

// Usage is the use of the pools, with the number of Services that wait.
type Usage struct {
	// Pools are in the order of use.
	Pools []PoolUsage
	// Outside is the number of claims of no pool.
	Outside int
	// OutsidePool is the number of addresses that their Services would not get today: of some pool, or
	// of none.
	OutsidePool int
	// Pending is the number of Services without all that they request, by reason.
	Pending map[Reason]int
}

// PoolUsage is the use of one pool. Size is the sum of Used, Retained, Reserved, Taken, Avoided and
// Free.
type PoolUsage struct {
	Name string
	Size Count
	// Used have a claim that is not Retained.
	Used int
	// Retained were released by all holders, and are kept for Config.Retention.
	Retained int
	// Reserved are reserved, and neither used nor retained.
	Reserved int
	// Taken are in the status of a Service without a claim: of other classes mostly.
	Taken int
	// Avoided are first and last addresses that are free for explicit requests only.
	Avoided int
	// Free is the rest.
	Free Count
	// OutsidePool is the number of Used that their Services would not get today.
	OutsidePool int
	// Pending is the number of Services that wait for an address of this pool, by the last decisions of
	// this Allocator.
	Pending map[Reason]int
}

// Usage returns the use of the pools. Its cost grows with the number of claims.
func (a *Allocator) Usage() Usage {
	u := Usage{Pending: map[Reason]int{}}
	pools := map[*Pool]*PoolUsage{}
	for _, p := range a.pools {
		pools[p.Pool] = &PoolUsage{Name: p.Name, Pending: map[Reason]int{}}
	}
	for x, c := range a.claims {
		p := pools[a.poolOf(x)]
		switch {
		case p == nil:
			u.Outside++
		case c.retained():
			p.Retained++
		default:
			p.Used++
		}
	}
	for x := range a.reserved {
		if p := pools[a.poolOf(x)]; p != nil && a.claims[x] == nil {
			p.Reserved++
		}
	}
	for x := range a.listed {
		if p := pools[a.poolOf(x)]; p != nil && a.claims[x] == nil && len(a.reserved[x]) == 0 && a.shown(x) {
			p.Taken++
		}
	}
	countDecisions(&u, pools, a)
	for _, n := range a.OutsidePool(a.Config) {
		u.OutsidePool++
		if p := pools[a.poolOf(n.Addr)]; p != nil {
			p.OutsidePool++
		}
	}
	for _, p := range a.pools {
		v := pools[p.Pool]
		for _, s := range p.spans {
			v.Size = v.Size.plus(s.size())
			v.Avoided += avoided(&a.inventory, s)
		}
		some := v.Used + v.Retained + v.Reserved + v.Taken + v.Avoided
		v.Free = v.Size.minus(Count{lo: uint64(some)}) //nolint:gosec // a sum of lengths
		u.Pools = append(u.Pools, *v)
	}
	return u
}

// avoided counts the avoided first and last address of a span that are free.
func avoided(a *inventory, s *span) int {
	n := 0
	for _, x := range []netip.Addr{s.First, s.Last} {
		if s.pool.avoids(s.Range, x) && a.claims[x] == nil && !a.shown(x) && len(a.reserved[x]) == 0 {
			n++
		}
	}
	return n
}

// countDecisions counts the last decisions, which only the writer makes.
func countDecisions(u *Usage, pools map[*Pool]*PoolUsage, a *Allocator) {
	for _, d := range a.last {
		if reason := d.Pending.Reason; reason != "" {
			u.Pending[reason]++
			if p := a.named(d.Pending.Pool); p != nil {
				pools[p.Pool].Pending[reason]++
			}
		}
	}
}

// OutsidePool returns the addresses of Services that another Config would not permit, sorted.
func (a *Allocator) OutsidePool(c Config) []Note {
	l := newLayout(c)
	var out []Note
	for _, id := range sortIDs(a.requests) {
		r := a.requests[id]
		var addrs []netip.Addr
		for x := range a.assigned[id] {
			if h, _ := a.claims[x].holder(id); h.Released.IsZero() && h.UID == r.UID && !r.Foreign {
				addrs = append(addrs, x)
			}
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		for _, x := range addrs {
			if reason := l.outsidePool(r, x, a.claims[x].others(id)); reason != "" {
				out = append(out, Note{id, x, OutsidePool, reason})
			}
		}
	}
	return out
}
