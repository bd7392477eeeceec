package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// Config is what the operator says of addresses. Check it before use.
type Config struct {
	Pools        []Pool
	Reservations []Reservation
	// ReleaseAfter is how long an address stays its Service's after that has gone or
	// has let go of it; 0 lets go at once. It must be longer than any writer's view of
	// the clusters may be late, and than writers' clocks differ.
	ReleaseAfter time.Duration
}

// Pool is one [[pool]]: addresses to hand out, and to whom. Ranges of all pools are
// disjoint.
type Pool struct {
	// Name is unique.
	Name   string
	Ranges []Range
	// Priority orders pools: the lowest number first, then by name.
	Priority int
	// AutoAssign gives addresses to Services that ask for none of them, nor for the
	// pool. Without it one must ask.
	AutoAssign bool
	// AvoidEnds keeps the first and last address of each IPv4 CIDR of 4 or more
	// addresses from those that do not ask for just it.
	AvoidEnds bool

	// Clusters, Namespaces and Labels say which Services the pool admits: all three
	// must. Empty is no limit; of labels, each must be the Service's.
	Clusters   []string
	Namespaces []string
	Labels     map[string]string

	Sharing Sharing
}

// Sharing is a pool's rule for Services that share an address by key. The zero value
// lets those of one namespace (of one cluster) do so.
type Sharing struct {
	// Off refuses it.
	Off bool
	// Namespaces are those that may share with each other too, of whichever cluster;
	// "*" is every one.
	Namespaces []string
}

// Reservation keeps addresses for one Service, be it there or not: nobody else gets
// them, and it gets no other unless it asks. They are of some pool, whose limits, ends
// and AutoAssign do not hold for them. Services that are to share one each have a
// Reservation with it.
type Reservation struct {
	Service lb.ServiceID
	// Addrs are one or more; the lowest of a family that can be had is taken.
	Addrs []netip.Addr
}

// never are addresses that no pool may have: they are the hosts' own, or mean others.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// Check tells everything that is wrong with a Config, each with what to do.
func (c Config) Check() error {
	var errs []error
	if c.ReleaseAfter < 0 {
		errs = append(errs, fmt.Errorf("release_after is %v: give 0 or more", c.ReleaseAfter))
	}
	names := map[string]bool{}
	var all []span
	for i := range c.Pools {
		p := &c.Pools[i]
		switch {
		case p.Name == "":
			errs = append(errs, errors.New("a pool has no name: give it one"))
		case names[p.Name]:
			errs = append(errs, fmt.Errorf("two pools are called %q: rename one", p.Name))
		}
		names[p.Name] = true
		if len(p.Ranges) == 0 {
			errs = append(errs, fmt.Errorf("pool %q has no addresses: give it ranges", p.Name))
		}
		for _, r := range p.Ranges {
			if err := r.check(); err != nil {
				errs = append(errs, fmt.Errorf("pool %q: %w", p.Name, err))
				continue
			}
			all = append(all, span{Range: r, pool: p})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.First.Compare(b.First) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.Contains(b.First) {
			errs = append(errs, fmt.Errorf("%v of pool %q and %v of pool %q have addresses in common: let one have them", a.Range, a.pool.Name, b.Range, b.pool.Name))
		}
	}
	return errors.Join(append(errs, c.checkReservations(all)...)...)
}

func (c Config) checkReservations(all []span) []error {
	var errs []error
	seen := map[lb.ServiceID]bool{}
	for _, r := range c.Reservations {
		if seen[r.Service] {
			errs = append(errs, fmt.Errorf("%v has two reservations: put their addresses into one", r.Service))
		}
		seen[r.Service] = true
		if len(r.Addrs) == 0 {
			errs = append(errs, fmt.Errorf("the reservation of %v has no addresses: give it one", r.Service))
		}
		for _, a := range r.Addrs {
			if !slices.ContainsFunc(all, func(s span) bool { return s.Contains(a) }) {
				errs = append(errs, fmt.Errorf("%v is reserved for %v, but is in no pool: add it to one", a, r.Service))
			}
		}
	}
	return errs
}

// compare orders pools as they are used.
func (p *Pool) compare(q *Pool) int {
	return cmp.Or(cmp.Compare(p.Priority, q.Priority), cmp.Compare(p.Name, q.Name))
}

// has tells whether the pool has addresses of a family.
func (p *Pool) has(f lb.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return lb.FamilyOf(r.First) == f })
}

// refuses names the first limit that a Service does not meet; empty is that the pool
// admits it.
func (p *Pool) refuses(r *Request) string {
	if len(p.Clusters) > 0 && !slices.Contains(p.Clusters, r.ID.Source) {
		return fmt.Sprintf("pool %q admits only clusters %s", p.Name, list(p.Clusters))
	}
	if len(p.Namespaces) > 0 && !slices.Contains(p.Namespaces, r.ID.Namespace) {
		return fmt.Sprintf("pool %q admits only namespaces %s", p.Name, list(p.Namespaces))
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		if v, ok := r.Labels[k]; !ok || v != p.Labels[k] {
			return fmt.Sprintf("pool %q admits only Services with label %s=%s", p.Name, k, p.Labels[k])
		}
	}
	return ""
}

// avoids tells whether a is an end of one of the pool's CIDRs, of which r is one.
func (p *Pool) avoids(r Range, a netip.Addr) bool {
	return p.AvoidEnds && r.ends() && (a == r.First || a == r.Last)
}
