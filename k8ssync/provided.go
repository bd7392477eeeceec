package k8ssync

import (
	"net/netip"
	"slices"

	"weir/k8ssync/ipam"
)

// Provided are the addresses that weir gives to a cluster's Services, whichever box
// writes them. They are served whatever load_balancer_ranges and lb_classes say, and
// in either ipMode. The zero value is none.
type Provided struct {
	// Class is the loadBalancerClass of the Services that get them; DefaultClass is
	// for those without any, too.
	Class        string
	DefaultClass bool
	// Ranges are those of the pools that serve the cluster.
	Ranges []ipam.Range
}

func (p Provided) equal(q Provided) bool {
	return p.Class == q.Class && p.DefaultClass == q.DefaultClass && slices.Equal(p.Ranges, q.Ranges)
}

// contains tells whether an address is of a pool that serves the cluster.
func (p Provided) contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) })
}

// serves tells whether addresses of a class are weir's to give.
func (p Provided) serves(class string) bool {
	if class == "" {
		return p.DefaultClass && len(p.Ranges) > 0
	}
	return class == p.Class
}

// Provide replaces Config.Provided. It returns at once.
func (c *Cluster) Provide(p Provided) {
	c.in.Lock()
	defer c.in.Unlock()
	if !c.provided.equal(p) {
		c.provided, c.afresh = p, true
		signal(c.wake)
	}
}
