package ipam

import (
	"net/netip"
	"slices"
)

// Usage is how full the pools are, and who waits.
type Usage struct {
	// Pools are in the order in which they are used.
	Pools []PoolUsage
	// Outside is how many claims are of no pool.
	Outside int
	// Pending is how many Services do not have what they ask for, as last decided.
	Pending map[Reason]int
}

// PoolUsage is one pool's. Size is the sum of Used, Held, Reserved, Taken, Avoided and
// Free.
type PoolUsage struct {
	Name string
	Size Count
	// Used have a claim that is not Held.
	Used int
	// Held were released by all who had them, and are kept for ReleaseAfter.
	Held int
	// Reserved are reserved, and neither used nor held.
	Reserved int
	// Taken are in somebody's status without a claim: of other classes mostly.
	Taken int
	// Avoided are ends that only those get who ask for them, and nobody has.
	Avoided int
	// Free is the rest.
	Free Count
	// Stranded is how many of Used their Services would not get today.
	Stranded int
	// Pending is how many Services wait for something of this pool.
	Pending map[Reason]int
}

// Usage tells how full pools are. Its cost grows with the number of claims.
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
		case c.held():
			p.Held++
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
		if p := pools[a.poolOf(x)]; p != nil && a.claims[x] == nil && len(a.reserved[x]) == 0 {
			p.Taken++
		}
	}
	a.countDecisions(&u, pools)
	for _, p := range a.pools {
		v := pools[p.Pool]
		for _, s := range p.spans {
			v.Size = v.Size.plus(s.size())
			v.Avoided += a.avoided(s)
		}
		some := v.Used + v.Held + v.Reserved + v.Taken + v.Avoided
		v.Free = v.Size.minus(Count{lo: uint64(some)}) //nolint:gosec // a sum of lengths
		u.Pools = append(u.Pools, *v)
	}
	return u
}

// avoided counts the ends of a span that nobody has.
func (a *Allocator) avoided(s *span) int {
	n := 0
	for _, x := range []netip.Addr{s.First, s.Last} {
		if s.pool.avoids(s.Range, x) && a.claims[x] == nil && len(a.listed[x]) == 0 && len(a.reserved[x]) == 0 {
			n++
		}
	}
	return n
}

// countDecisions counts what was decided last.
func (a *Allocator) countDecisions(u *Usage, pools map[*Pool]*PoolUsage) {
	for _, d := range a.said {
		if why := d.Pending.Reason; why != "" {
			u.Pending[why]++
			if p := a.named(d.Pending.Pool); p != nil {
				pools[p.Pool].Pending[why]++
			}
		}
		for _, n := range d.Notes {
			if p := pools[a.poolOf(n.Addr)]; p != nil && n.Reason == PoolStranded {
				p.Stranded++
			}
		}
	}
}

// Stranded tells which addresses that Services have would be stranded by another
// Config, sorted.
func (a *Allocator) Stranded(c Config) []Note {
	l := newLayout(c)
	var out []Note
	for _, id := range sortIDs(a.requests) {
		r := a.requests[id]
		var addrs []netip.Addr
		for x := range a.holds[id] {
			if h, _ := a.claims[x].holder(id); h.Released.IsZero() && h.UID == r.UID && !r.Foreign {
				addrs = append(addrs, x)
			}
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		for _, x := range addrs {
			if why := l.stranded(r, x, a.claims[x].others(id)); why != "" {
				out = append(out, Note{id, x, PoolStranded, why})
			}
		}
	}
	return out
}
