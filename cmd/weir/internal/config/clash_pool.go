package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"weir/k8ssync/ipam"
)

// taken are addresses that are spoken for, and so of no pool.
type taken struct {
	ipam.Range
	what string // goes on after the range in a message
	at   place
	key  string // where it is said by [bgp]
}

// own is what addresses of the box are.
const own = ", which is the box's own,"

// checkPools complains about what each pool may say, but not two together, nor
// with the rest of the configuration.
func (v *provider) checkPools() {
	if len(v.pools) == 0 {
		return
	}
	names := map[string]place{}
	others := v.taken()
	for _, p := range v.pools {
		if at, ok := names[p.Name]; ok && p.Name != "" {
			p.fail("name", fmt.Sprintf("%q is the name of the pool at %s too", p.Name, at), "rename one of them")
		} else {
			names[p.Name] = p.at("name")
		}
		p.known("clusters", "cluster", v.clusterNames())
		v.checkNamespaces(p)
		var ranges []taken
		for i, r := range p.Ranges {
			v.overlapping(p, r, p.places[i], append(v.strangers(p), others...))
			ranges = append(ranges, taken{Range: r, what: " of " + p.called(), at: p.places[i]})
		}
		others = append(ranges, others...)
	}
}

// overlapping complains about the first of others that a range overlaps.
func (v *provider) overlapping(p *pool, r ipam.Range, at place, others []taken) {
	i := slices.IndexFunc(others, func(o taken) bool { return overlaps(o.Range, r) })
	if i < 0 {
		return
	}
	o := others[i]
	v.add(Error, at, join(p.shown, "addresses"), fmt.Sprintf("%q overlaps %q%s at %s", r.String(), o.String(), o.what, o.at),
		"no Service can have what is taken: narrow one of them")
}

// strangers are what clusters that the pool is not for have served of what others
// than weir give their Services.
func (v *provider) strangers(p *pool) []taken {
	var out []taken
	for _, cl := range v.clusters {
		for _, lbs := range cl.LoadBalancerRanges {
			if !admits(p.Pool, cl.Name) {
				out = append(out, taken{Range: rangeOf(lbs), what: " of load_balancer_ranges of " + cl.called() + ", which the pool is not for,",
					at: cl.at("load_balancer_ranges")})
			}
		}
	}
	return out
}

func (p *pool) called() string {
	if p.Name != "" {
		return "pool " + strconv.Quote(p.Name)
	}
	return "another pool"
}

// checkNamespaces warns of namespaces that no cluster of the pool follows.
func (v *provider) checkNamespaces(p *pool) {
	for _, name := range p.Namespaces {
		if !namespaceForm.MatchString(name) {
			continue
		}
		follows := func(cl *cluster) bool {
			return admits(p.Pool, cl.Name) && (len(cl.Namespaces) == 0 || cl.bad("namespaces") || slices.Contains(cl.Namespaces, name))
		}
		if len(v.clusters) > 0 && !slices.ContainsFunc(v.clusters, follows) {
			p.warn(Warning, "namespaces", strconv.Quote(name)+" is followed in no cluster of the pool", "add it to namespaces of the [[kubernetes]], or remove it")
		}
	}
}

// taken gives all addresses that the configuration knows as somebody's.
func (v *provider) taken() []taken {
	var out []taken
	addr := func(a netip.Addr, what string, at place) {
		if a.IsValid() {
			a = a.WithZone("")
			out = append(out, taken{Range: ipam.Range{First: a, Last: a}, what: what, at: at})
		}
	}
	prefixes := func(s section, name string, list []netip.Prefix, what string) {
		for _, p := range list {
			out = append(out, taken{Range: rangeOf(p), what: what, at: s.at(name)})
		}
	}
	for _, s := range v.services {
		for _, vip := range s.vips {
			addr(vip.addr.Addr(), ", a VIP of "+called(s)+",", vip.at)
		}
		for _, b := range s.backends {
			addr(b.addr.Addr(), ", a backend of "+called(s)+",", b.at)
		}
		for _, f := range s.fallback {
			addr(f.addr.Addr(), ", a fallback of "+called(s)+",", f.at)
		}
	}
	for _, cl := range v.clusters {
		prefixes(cl.section, "service_cidrs", cl.ServiceCIDRs, " of service_cidrs of "+cl.called())
		prefixes(cl.section, "pod_cidrs", cl.PodCIDRs, " of pod_cidrs of "+cl.called())
		prefixes(cl.section, "external_ip_ranges", cl.ExternalIPRanges, " of external_ip_ranges of "+cl.called()+", which any of its Services may claim,")
	}
	kernel, daemon := v.top.sub("kernel"), v.top.sub("daemon")
	prefixes(kernel, "exclude_cidrs", v.config.Kernel.ExcludeCIDRs, " of kernel.exclude_cidrs")
	prefixes(kernel, "cluster_cidrs", v.config.Kernel.ClusterCIDRs, " of kernel.cluster_cidrs")
	for _, r := range v.config.Kernel.Pools {
		addr(r.Src, own, kernel.at("route_source"))
	}
	if host, _, err := net.SplitHostPort(v.config.Daemon.Listen); err == nil {
		if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() {
			addr(a, own, daemon.at("listen"))
		}
	}
	return slices.Concat(out, v.takenByBGP(), v.takenByFleet())
}

func (v *provider) takenByBGP() []taken {
	if v.bgp == nil {
		return nil
	}
	var out []taken
	addr := func(s section, name string, a netip.Addr, what string) {
		if a.IsValid() {
			a = a.WithZone("")
			out = append(out, taken{ipam.Range{First: a, Last: a}, what, s.at(name), join(s.shown, name)})
		}
	}
	for _, a := range v.bgp.Speaker.ListenAddrs {
		addr(v.bgp.section, "listen_addresses", a, own)
	}
	addr(v.bgp.section, "next_hop", v.bgp.Speaker.NextHops.IPv4, own)
	addr(v.bgp.section, "next_hop_v6", v.bgp.Speaker.NextHops.IPv6, own)
	for _, p := range v.bgp.peers {
		addr(p.section, "address", p.Address, ", which is "+p.called()+",")
		addr(p.section, "source_address", p.Source, own)
		addr(p.section, "next_hop", p.NextHops.IPv4, own)
		addr(p.section, "next_hop_v6", p.NextHops.IPv6, own)
		if p.Range.IsValid() {
			out = append(out, taken{rangeOf(p.Range), " of " + p.called(), p.at("range"), join(p.shown, "range")})
		}
	}
	return out
}

// bgpClashes complains about routers, and addresses of the box, that are VIPs.
func (v *provider) bgpClashes() {
	vips := vipsOf(v.services)
	for _, t := range v.takenByBGP() {
		if c, ok := vips[t.First]; ok && t.First == t.Last {
			v.add(Error, t.at, t.key, fmt.Sprintf("%q is a VIP of %s at %s", t.First, called(c.by), c.at), "name an address that is no VIP")
		}
	}
}
