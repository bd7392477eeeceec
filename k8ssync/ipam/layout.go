package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"weir/lb"
)

// layout is a Config with indexes.
type layout struct {
	Config
	pools []*pool // in the order of use
	spans []*span // of all pools, by address
	// reserved are the Services for which an address is reserved, booked the reserved
	// addresses of a Service.
	reserved map[netip.Addr][]lb.ServiceID
	booked   map[lb.ServiceID][]netip.Addr
}

// pool is a Pool with its spans, by address.
type pool struct {
	*Pool
	spans []*span
}

// span is one Range with its addresses that may be free: those from next on, and those in
// freed.
type span struct {
	Range
	pool    *Pool
	next    netip.Addr // past Last, or invalid: none from there on
	freed   heap[netip.Addr]
	inFreed map[netip.Addr]struct{}
}

func newLayout(c Config) layout {
	l := layout{Config: c, reserved: map[netip.Addr][]lb.ServiceID{}, booked: map[lb.ServiceID][]netip.Addr{}}
	for i := range c.Pools {
		p := &pool{Pool: &c.Pools[i]}
		for _, r := range p.Ranges {
			p.spans = append(p.spans, &span{
				Range: r, pool: p.Pool, next: r.First,
				freed: heap[netip.Addr]{less: netip.Addr.Less}, inFreed: map[netip.Addr]struct{}{},
			})
		}
		slices.SortFunc(p.spans, func(a, b *span) int { return a.First.Compare(b.First) })
		l.pools = append(l.pools, p)
		l.spans = append(l.spans, p.spans...)
	}
	slices.SortFunc(l.pools, func(a, b *pool) int { return a.compare(b.Pool) })
	slices.SortFunc(l.spans, func(a, b *span) int { return a.First.Compare(b.First) })
	for _, r := range c.Reservations {
		addrs := slices.Clone(r.Addrs)
		slices.SortFunc(addrs, netip.Addr.Compare)
		for _, x := range slices.Compact(addrs) {
			l.reserved[x] = append(l.reserved[x], r.Service)
			l.booked[r.Service] = append(l.booked[r.Service], x)
		}
	}
	return l
}

// spanOf finds the span of an address; nil if it is of no pool.
func (l *layout) spanOf(x netip.Addr) *span {
	i := sort.Search(len(l.spans), func(i int) bool { return x.Less(l.spans[i].First) }) - 1
	if i < 0 || !l.spans[i].Contains(x) {
		return nil
	}
	return l.spans[i]
}

// poolOf finds the pool of an address; nil if there is none.
func (l *layout) poolOf(x netip.Addr) *Pool {
	if s := l.spanOf(x); s != nil {
		return s.pool
	}
	return nil
}

// inPool reports whether an address is of a pool.
func (l *layout) inPool(x netip.Addr, name string) bool { return l.poolName(x) == name }

// poolName returns the name of the pool of an address; "" is none.
func (l *layout) poolName(x netip.Addr) string {
	if p := l.poolOf(x); p != nil {
		return p.Name
	}
	return ""
}

// named finds a pool.
func (l *layout) named(name string) *pool {
	i := slices.IndexFunc(l.pools, func(p *pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return l.pools[i]
}

// mayHave reports whether an address is not reserved for another Service.
func (l *layout) mayHave(id lb.ServiceID, x netip.Addr) bool {
	return len(l.reserved[x]) == 0 || slices.Contains(l.reserved[x], id)
}

// candidates returns the pools of a family that may assign a Service an address: the one
// that it names, or those with auto_assign.
func (l *layout) candidates(r *Request, f lb.Family) []*pool {
	var out []*pool
	for _, p := range l.pools {
		if l.admits(p, r) && p.has(f) {
			out = append(out, p)
		}
	}
	return out
}

func (l *layout) admits(p *pool, r *Request) bool {
	return (r.Pool == "" && p.AutoAssign || r.Pool == p.Name) && p.refuses(r) == ""
}

// counts reports whether an address in the status of a Request is taken from the Services of a
// cluster. Those of Nodes are in the pools that admit the cluster of the Nodes; outside all
// pools, only from its own Services.
func (l *layout) counts(r *Request, x netip.Addr, cluster string) bool {
	if r == nil || !r.Hosts || r.ID.Source == cluster {
		return true
	}
	p := l.poolOf(x)
	return p != nil && p.admitsCluster(r.ID.Source)
}

// outsidePool returns why a Service would not get its address today; empty is that it would.
// AutoAssign and AvoidFirstLast are no reasons: they are about new addresses.
func (l *layout) outsidePool(r *Request, x netip.Addr, sharers []Holder) string {
	booked := slices.DeleteFunc(slices.Clone(l.booked[r.ID]), func(y netip.Addr) bool { return y.Is4() != x.Is4() })
	p := l.poolOf(x)
	_, asked := r.asked(lb.FamilyOf(x))
	switch {
	case slices.Contains(booked, x):
		return ""
	case p == nil:
		return fmt.Sprintf("%v is in no pool now", x)
	case !l.mayHave(r.ID, x):
		return fmt.Sprintf("%v is reserved for %v now", x, l.reserved[x][0])
	case p.refuses(r) != "":
		return fmt.Sprintf("%v: %s", x, p.refuses(r))
	case r.Pool != "" && r.Pool != p.Name:
		return fmt.Sprintf("%v is not in pool %q, which it requests, but in %q now", x, r.Pool, p.Name)
	case len(booked) > 0 && !asked:
		return fmt.Sprintf("it has %v, but %v is reserved for it", x, booked[0])
	case len(sharers) > 0 && p.Sharing.Off:
		return fmt.Sprintf("it shares %v with %v, but pool %q has sharing off now", x, sharers[0].Service, p.Name)
	}
	for _, h := range sharers {
		if !p.together(r.ID, h.Service) {
			return fmt.Sprintf("it shares %v with %v, but pool %q does not have both in its sharing namespaces now", x, h.Service, p.Name)
		}
	}
	return ""
}
