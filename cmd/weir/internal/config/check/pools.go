package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/config/vips"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// poolCheck checks [addresses], [[pool]] and [[reservation]] against the other tables.
type poolCheck struct{ *Draft }

func (d poolCheck) all() {
	if len(d.Pools) > 0 {
		d.pools()
	}
	d.leaseCluster()
	d.reservations()
	d.served()
}

func (d poolCheck) pools() {
	names := map[string]source.Place{}
	var before []taken // in earlier pools
	others := d.taken()
	for _, p := range d.Pools {
		if at, ok := names[p.Name]; ok && p.Name != "" {
			p.Fail("name", fmt.Sprintf("%q is also the name of the pool at %s", p.Name, at), "rename one of them")
		} else {
			names[p.Name] = p.At("name")
		}
		p.Known("clusters", "cluster", d.ClusterNames())
		d.namespaces(p)
		foreign := d.foreignRanges(p)
		for i, r := range p.Ranges {
			d.overlapping(p, r, p.Places[i], foreign, before, others)
		}
		for i, r := range p.Ranges {
			before = append(before, taken{Range: r, use: " of " + p.Called(), at: p.Places[i]})
		}
	}
}

// overlapping reports the first of some lists that a range overlaps.
func (d poolCheck) overlapping(p *vips.Pool, r ipam.Range, at source.Place, lists ...[]taken) {
	for _, list := range lists {
		i := slices.IndexFunc(list, func(o taken) bool { return parse.Overlap(o.Range, r) })
		if i < 0 {
			continue
		}
		o := list[i]
		d.Top.Add(source.Error, at, source.Join(p.Shown, "addresses"), fmt.Sprintf("%q overlaps %q%s at %s", r.String(), o.String(), o.use, o.at),
			"narrow one of them")
		return
	}
}

// foreignRanges returns the load_balancer_ranges of clusters that may not use the pool.
func (d poolCheck) foreignRanges(p *vips.Pool) []taken {
	var out []taken
	for _, cl := range d.Clusters {
		for _, lbs := range cl.LoadBalancerRanges {
			if !p.Admits(cl.Name) {
				out = append(out, taken{Range: parse.RangeOf(lbs), use: " of load_balancer_ranges of " + cl.Called() + ", which may not use the pool,",
					at: cl.At("load_balancer_ranges")})
			}
		}
	}
	return out
}

// namespaces warns of namespaces that no cluster of the pool serves.
func (d poolCheck) namespaces(p *vips.Pool) {
	for _, name := range p.Namespaces {
		serves := func(cl *serving.Cluster) bool {
			return p.Admits(cl.Name) && (len(cl.Namespaces) == 0 || cl.Bad("namespaces") || slices.Contains(cl.Namespaces, name))
		}
		if len(d.Clusters) > 0 && !slices.ContainsFunc(d.Clusters, serves) {
			p.Warn(source.Warning, "namespaces", "no cluster of the pool serves "+strconv.Quote(name), "add it to namespaces of the [[kubernetes]], or remove it")
		}
	}
}

// leaseCluster checks [addresses] lease_cluster.
func (d poolCheck) leaseCluster() {
	s := d.Top.Sub("addresses")
	switch name := s.Text("lease_cluster"); {
	case len(d.Pools) == 0:
		if d.Top.Has("addresses") && !d.Top.Has("pool") {
			d.Top.Warn(source.Warning, "addresses", "has no effect without a [[pool]]", "add one, or remove this")
		}
	case len(d.Clusters) == 0:
		if !d.Top.Bad("kubernetes") {
			d.Pools[0].Warn(source.Warning, "addresses", "no Service can use the pool: there is no [[kubernetes]]", "add one")
		}
	case name == "" && len(d.Clusters) > 1 && !s.Bad("lease_cluster"):
		s.Fail("lease_cluster", "is missing: there are several clusters, and one of them must record the owner of each address",
			"add lease_cluster = "+strconv.Quote(d.Clusters[0].Name)+", the same on all boxes with these pools")
	case name != "" && !slices.Contains(d.ClusterNames(), name):
		f := schema.UnknownName(name, "cluster", d.ClusterNames(), "name a [[kubernetes]]")
		s.Fail("lease_cluster", f.Text, f.Fix)
	}
}

func (d poolCheck) reservations() {
	services, addresses := map[lb.ServiceID]source.Place{}, map[netip.Addr]source.Place{}
	names := d.ClusterNames()
	for _, r := range d.Reservations {
		switch name := r.Text("cluster"); {
		case name == "" && !r.Bad("cluster") && len(d.Clusters) > 1 && len(names) != 1:
			r.Fail("cluster", "is missing: there are several clusters", "add cluster = "+strconv.Quote(d.Clusters[0].Name))
		case name != "" && !slices.Contains(names, name):
			f := schema.UnknownName(name, "cluster", names, "name a [[kubernetes]]")
			r.Fail("cluster", f.Text, f.Fix)
		}
		if at, ok := services[r.Service]; ok && r.Service.Name != "" {
			r.Fail("service", fmt.Sprintf("%s also has a reservation at %s", r.Service, at), "put all of its addresses into one")
		}
		services[r.Service] = r.At("service")
		for _, a := range r.Addrs {
			if !slices.ContainsFunc(d.Pools, func(p *vips.Pool) bool { return p.Contains(a) }) {
				r.Fail("addresses", fmt.Sprintf("%q is in no pool", a), "add it to the addresses of a pool")
			}
			if at, ok := addresses[a]; ok {
				r.Warn(source.Note, "addresses", fmt.Sprintf("%q is also reserved at %s", a, at), "the Services need the same annotation weir/sharing-key")
			}
			addresses[a] = r.At("addresses")
		}
	}
}

// served reports clusters that would not serve the addresses of their pools.
func (d poolCheck) served() {
	for _, cl := range d.Clusters {
		i := slices.IndexFunc(d.Pools, func(p *vips.Pool) bool { return p.Admits(cl.Name) })
		if i >= 0 && !cl.Kinds[lb.LoadBalancer] && !cl.Bad("serve") {
			cl.Fail("serve", fmt.Sprintf(`has no "LoadBalancer", but %s is for the cluster's Services`, d.Pools[i].Called()),
				"add it, or name other clusters in the pool's clusters")
		}
	}
}
