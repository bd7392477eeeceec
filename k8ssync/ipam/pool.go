package ipam

import (
	"net/netip"
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

// Range is the addresses from First to Last, both of one family and both within.
type Range struct {
	First, Last netip.Addr
	// CIDR tells that it was written as a prefix, so that it has ends to avoid.
	CIDR bool
}

// ParseRange reads "192.0.2.0/24", "192.0.2.10-192.0.2.20" or one address. A prefix
// with bits beyond its length is an error that names the one meant.
func ParseRange(s string) (Range, error) { panic("ipam: ParseRange") }

// Contains tells whether an address is within.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// Prefixes gives the fewest prefixes that are together the range, in order.
func (r Range) Prefixes() []netip.Prefix { panic("ipam: Prefixes") }

// String gives what ParseRange reads.
func (r Range) String() string { panic("ipam: String") }

// Reservation keeps addresses for one Service, be it there or not: nobody else gets
// them, and it gets no other unless it asks. They are of some pool, whose limits, ends
// and AutoAssign do not hold for them. Services that are to share one each have a
// Reservation with it.
type Reservation struct {
	Service lb.ServiceID
	// Addrs are one or more; the lowest of a family that can be had is taken.
	Addrs []netip.Addr
}

// Check tells everything that is wrong with a Config, each with what to do.
func (c Config) Check() error { panic("ipam: Check") }
