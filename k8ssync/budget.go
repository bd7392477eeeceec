package k8ssync

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"weir/lb"
)

// Budget limits the kernel objects of a cluster, so that no tenant exhausts the box or takes
// the room of another. A kernel object is a virtual server, a real server or a member of a
// set. A few fields of a Service multiply: each VIP and port has all backends, and all source
// ranges.
type Budget struct {
	// Service is the most of one Service, Namespace of all Services of a namespace, Cluster
	// of the cluster. A cluster that needs more shares Cluster between its namespaces:
	// each gets what it needs up to an equal part, and what others leave.
	Service, Namespace, Cluster int
}

// DefaultBudget is that of a Config without one. 10,000 Services with a VIP, a port and ten
// backends have 150,000 objects; 1,000,000 take about 1.5 GiB of memory.
var DefaultBudget = Budget{Service: 100_000, Namespace: 500_000, Cluster: 1_000_000}

// budget returns the Budget with its defaults.
func (c *Config) budget() Budget {
	return Budget{
		cmp.Or(c.Budget.Service, DefaultBudget.Service),
		cmp.Or(c.Budget.Namespace, DefaultBudget.Namespace),
		cmp.Or(c.Budget.Cluster, DefaultBudget.Cluster),
	}
}

// perFrontend is the number of objects of a frontend beside its backends and ranges: the
// virtual server, and members of sets.
const perFrontend = 5

// kernelObjects returns about the number of kernel objects that a Service needs, before they
// are planned. A backend or range counts for the VIPs of its family.
func kernelObjects(s *lb.Service) int {
	if s == nil {
		return 0
	}
	var vips, ranges [2]int // of IPv4 and IPv6
	for _, v := range s.VIPs {
		vips[family(v.Addr)]++
	}
	for _, r := range s.SourceRanges {
		ranges[family(r.Addr())]++
	}
	n := 0
	for f, count := range vips {
		n += count * len(s.Ports) * (perFrontend + ranges[f])
	}
	for _, p := range s.Ports {
		for _, be := range p.Backends {
			n += vips[family(be.Addr.Addr())]
		}
	}
	return n
}

// family returns 0 for an IPv4 address, 1 for an IPv6 address.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// usage has the kernel objects that the Services of a cluster need.
type usage struct {
	budget Budget
	of     map[key]int
	// by has those of each namespace; large are namespaces above Budget.Namespace.
	by    map[string]int
	large map[string]struct{}
	total int
	// excess are the Services that are not served, because there are too many.
	excess map[key]bool
}

func newUsage(b Budget) usage {
	return usage{budget: b, of: map[key]int{}, by: map[string]int{}, large: map[string]struct{}{}}
}

// put records the number of a Service.
func (u *usage) put(k key, n int) {
	u.total += n - u.of[k]
	u.by[k.Namespace] += n - u.of[k]
	if u.of[k] = n; n == 0 {
		delete(u.of, k)
	}
	if u.by[k.Namespace] > u.budget.Namespace {
		u.large[k.Namespace] = struct{}{}
	} else {
		delete(u.large, k.Namespace)
	}
	if u.by[k.Namespace] == 0 {
		delete(u.by, k.Namespace)
	}
}

// tooMany returns the Services beyond the share of their namespace: the youngest ones, so
// that the choice does not depend on the order of events.
func (u *usage) tooMany(services map[key]*service) map[key]bool {
	if u.total <= u.budget.Cluster && len(u.large) == 0 {
		return nil
	}
	shares := u.shares()
	out, sums := map[key]bool{}, map[string]int{}
	for _, k := range slices.SortedFunc(maps.Keys(u.of), func(a, b key) int {
		return cmp.Or(services[a].Created.Compare(services[b].Created), a.compare(b))
	}) {
		if sum := sums[k.Namespace] + u.of[k]; sum > shares[k.Namespace] {
			out[k] = true
		} else {
			sums[k.Namespace] = sum
		}
	}
	return out
}

// shares returns how many objects each namespace may have: what it needs, up to
// Budget.Namespace and to an equal part of what smaller namespaces leave of Budget.Cluster.
func (u *usage) shares() map[string]int {
	return fair(u.by, u.budget.Namespace, u.budget.Cluster)
}

// fair divides most between namespaces: each gets what it needs, up to each, and to an equal
// part of what smaller ones leave.
func fair(needs map[string]int, each, most int) map[string]int {
	out := make(map[string]int, len(needs))
	names := slices.SortedFunc(maps.Keys(needs), func(a, b string) int {
		return cmp.Or(cmp.Compare(needs[a], needs[b]), cmp.Compare(a, b))
	})
	for i, name := range names {
		out[name] = min(needs[name], each, most/(len(names)-i))
		most -= out[name]
	}
	return out
}
