package vips

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
)

// Pool is a table [[pool]] with the positions of its ranges.
type Pool struct {
	schema.Section
	ipam.Pool
	Places []source.Place // of Ranges

	allowSharing bool
}

// Reservation is a table [[reservation]].
type Reservation struct {
	schema.Section
	ipam.Reservation
}

// readAddresses reads [addresses].
func readAddresses(s schema.Section) k8ssync.ProviderConfig {
	var a k8ssync.ProviderConfig
	s.Read(addressesKeys(&a))
	if s.Text("ip_mode") == k8ssync.ModeProxy.String() {
		a.IPMode = k8ssync.ModeProxy
	}
	if a.IPAM.Retention < 10*time.Second {
		s.Warn(source.Warning, "retention", "a Service that is deleted and created again may lose its address", `the default is "10m"`)
	}
	return a
}

func readPool(s schema.Section, k config.Kernel) *Pool {
	p := &Pool{Section: s}
	s.Read(poolKeys(p))
	p.Sharing = ipam.Sharing{Off: !p.allowSharing, Namespaces: p.sharingNamespaces()}
	for _, e := range s.Elements("addresses") {
		r, f := parse.Range(e.Scalar.(string))
		if f == nil {
			f = p.badRange(r, k)
		}
		if f != nil {
			s.FailAt(e, "addresses", f.Text, f.Fix)
			continue
		}
		p.Ranges = append(p.Ranges, r)
		p.Places = append(p.Places, e.At)
	}
	if s.EmptyList("addresses") {
		s.Fail("addresses", "the pool would be empty", `write for instance addresses = ["192.0.2.0/24"]`)
	}
	if p.AvoidFirstLast && !s.Bad("addresses") && !slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.CIDR && r.First.Is4() }) {
		s.Fail("avoid_first_last", `has no effect: no range is IPv4 and written with "/"`, "remove it")
	}
	return p
}

func (p *Pool) sharingNamespaces() []string {
	const name = "sharing_namespaces"
	list := p.Texts(name)
	if len(list) > 0 && !p.allowSharing {
		p.Fail(name, "has no effect with allow_sharing = false", "remove one of them")
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		p.Fail(name, `"*" can't be combined with namespaces`, "remove it, or the namespaces")
	}
	return list
}

// badRange returns the fault of a range that the box can't assign.
func (p *Pool) badRange(r ipam.Range, k config.Kernel) *source.Fault {
	text := r.String()
	if f := parse.UnusablePool(text, r, k.Families); f != nil {
		return f
	}
	if _, err := ipam.ParseRange(text); err != nil {
		return source.Faultf("choose another range", "%v", err)
	}
	for i, o := range p.Ranges {
		if parse.Overlap(o, r) {
			return source.Faultf("remove one", "%q overlaps %q at %s", text, o, p.Places[i])
		}
	}
	return nil
}

// Called returns the name of the pool in messages about another table.
func (p *Pool) Called() string {
	if p.Name != "" {
		return "pool " + strconv.Quote(p.Name)
	}
	return "another pool"
}

// Admits reports whether the pool is for Services of a cluster.
func (p *Pool) Admits(cluster string) bool {
	return len(p.Clusters) == 0 || slices.Contains(p.Clusters, cluster)
}

// Contains reports whether an address is in the pool; an invalid pool contains any.
func (p *Pool) Contains(a netip.Addr) bool {
	return p.Bad("addresses") || slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) })
}

// Prefixes returns the prefixes of the pool.
func (p *Pool) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range p.Ranges {
		out = append(out, r.Prefixes()...)
	}
	return out
}

func readReservation(s schema.Section) *Reservation {
	r := &Reservation{Section: s}
	s.Read(reservationKeys(&r.Reservation))
	for _, e := range s.Elements("addresses") {
		a, f := parse.Addr(e.Scalar.(string))
		if f == nil && slices.Contains(r.Addrs, a) {
			f = parse.Twice(a.String())
		}
		if f != nil {
			s.FailAt(e, "addresses", f.Text, f.Fix)
			continue
		}
		r.Addrs = append(r.Addrs, a)
	}
	if s.EmptyList("addresses") {
		s.Fail("addresses", "the reservation would be empty", `write for instance addresses = ["192.0.2.80"]`)
	}
	return r
}
