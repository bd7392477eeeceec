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

// Config has the pools and reservations. Check it before use.
type Config struct {
	Pools        []Pool
	Reservations []Reservation
	// Retention is how long an address is kept for its Service after the Service is
	// deleted or has released it; 0 is not at all. It must exceed the delay of any
	// writer's view of the clusters, and the difference of writers' clocks.
	Retention time.Duration
	// MaxClaims limits the known claims that matter, and MaxOtherClaims the others. 0 is
	// 100,000 and 10,000. A later Config does not change them.
	MaxClaims, MaxOtherClaims int
}

// Pool is one [[pool]]: addresses, and the Services that may get them. Ranges of all pools
// are disjoint.
type Pool struct {
	// Name is unique.
	Name   string
	Ranges []Range
	// Priority orders pools: the lowest number first, then by name.
	Priority int
	// AutoAssign assigns addresses to Services that request neither the pool nor an
	// address of it. Without it a request is necessary.
	AutoAssign bool
	// AvoidFirstLast reserves the first and last address of each IPv4 CIDR of 4 or more
	// addresses for Services that request just that address.
	AvoidFirstLast bool

	// Clusters, Namespaces and Labels limit the Services that the pool admits: all three
	// must match. Empty is no limit; the Service must have all the labels.
	Clusters   []string
	Namespaces []string
	Labels     map[string]string
	// MaxPerNamespace limits the addresses of each family that the Services of a namespace
	// of a cluster have, with those that are retained for deleted ones; 0 limits only the latter, to as
	// many as are free.
	MaxPerNamespace int

	Sharing Sharing
}

// Sharing is a pool's rule for Services that share an address by key. The zero value
// permits it within a namespace of a cluster.
type Sharing struct {
	// Off forbids it.
	Off bool
	// Namespaces are those that may share with each other too, in any cluster; "*" is
	// every one.
	Namespaces []string
}

// Reservation reserves addresses for one Service, whether it exists or not: no other
// Service gets them, and it gets no other address without a request. They are of some pool,
// and exempt from its limits, AvoidFirstLast and AutoAssign. Services that share an address
// each need a Reservation of it.
type Reservation struct {
	Service lb.ServiceID
	// Addrs are one or more; the lowest available one of a family is assigned.
	Addrs []netip.Addr
}

// pooledRange is a Range of a Pool.
type pooledRange struct {
	Range
	pool *Pool
}

// Check returns all errors of a Config, each with its solution.
func (c Config) Check() error {
	var errs []error
	if c.Retention < 0 {
		errs = append(errs, fmt.Errorf("retention is %v: give 0 or more", c.Retention))
	}
	names := map[string]bool{}
	var all []pooledRange
	for i := range c.Pools {
		p := &c.Pools[i]
		switch {
		case p.Name == "":
			errs = append(errs, errors.New("a pool has no name: give it one"))
		case names[p.Name]:
			errs = append(errs, fmt.Errorf("two pools have the name %q: rename one", p.Name))
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
			all = append(all, pooledRange{r, p})
		}
	}
	slices.SortFunc(all, func(a, b pooledRange) int { return a.First.Compare(b.First) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.Contains(b.First) {
			errs = append(errs, fmt.Errorf("%v of pool %q and %v of pool %q overlap: remove the overlap from one", a.Range, a.pool.Name, b.Range, b.pool.Name))
		}
	}
	return errors.Join(append(errs, c.checkReservations(all)...)...)
}

func (c Config) checkReservations(all []pooledRange) []error {
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
			if !slices.ContainsFunc(all, func(s pooledRange) bool { return s.Contains(a) }) {
				errs = append(errs, fmt.Errorf("%v is reserved for %v, but is in no pool: add it to one", a, r.Service))
			}
		}
	}
	return errs
}

// compare orders pools by their use.
func (p *Pool) compare(q *Pool) int {
	return cmp.Or(cmp.Compare(p.Priority, q.Priority), cmp.Compare(p.Name, q.Name))
}

// has reports whether the pool has addresses of a family.
func (p *Pool) has(f lb.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return lb.FamilyOf(r.First) == f })
}

func (p *Pool) admitsCluster(cluster string) bool {
	return len(p.Clusters) == 0 || slices.Contains(p.Clusters, cluster)
}

// Uncounted returns those addresses of the Nodes of a cluster that are in pools for other clusters:
// they are not taken there.
func (c Config) Uncounted(cluster string, nodes []netip.Addr) (out []netip.Addr) {
	for _, p := range c.Pools {
		if p.admitsCluster(cluster) {
			continue
		}
		for _, x := range nodes {
			if slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.Contains(x) }) {
				out = append(out, x)
			}
		}
	}
	return out
}

// refuses returns the first limit that excludes a Service; empty is that the pool admits
// it. The text is for the author of the Service, so it names no other namespace.
func (p *Pool) refuses(r *Request) string {
	if !p.admitsCluster(r.ID.Source) {
		return fmt.Sprintf("pool %q does not admit cluster %s", p.Name, r.ID.Source)
	}
	if len(p.Namespaces) > 0 && !slices.Contains(p.Namespaces, r.ID.Namespace) {
		return fmt.Sprintf("pool %q does not admit namespace %s", p.Name, r.ID.Namespace)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		if v, ok := r.Labels[k]; !ok || v != p.Labels[k] {
			return fmt.Sprintf("pool %q admits only Services with label %s=%s", p.Name, k, p.Labels[k])
		}
	}
	return ""
}

// avoids reports whether a is the first or last address of r, a CIDR of the pool, and must
// be avoided.
func (p *Pool) avoids(r Range, a netip.Addr) bool {
	return p.AvoidFirstLast && r.hasEnds() && (a == r.First || a == r.Last)
}
