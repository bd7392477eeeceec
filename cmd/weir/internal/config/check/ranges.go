package check

import (
	"net/netip"
	"slices"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/vips"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// subjects returns the addresses that a rule matches, as far as they are known.
func (d *Draft) subjects(m advertise.Match) []taken {
	var out []taken
	services := d.Services
	if !slices.Contains(possible(m), advertise.Static) {
		services = nil // there may be thousands, and as many rules of pools
	}
	for _, s := range services {
		if MatchesStatic(m, s.LB) {
			for _, vip := range s.VIPs {
				a := vip.Addr.Addr()
				out = append(out, taken{Range: ipam.Range{First: a, Last: a}, use: " of " + s.Called()})
			}
		}
	}
	if MatchesStatic(m, lb.Service{ID: config.MasqueradeID}) {
		for _, a := range d.Kernel.MasqueradeSource {
			out = append(out, taken{Range: ipam.Range{First: a, Last: a}, use: ", kernel.masquerade_source"})
		}
	}
	for _, p := range d.Pools {
		if slices.Contains(KindsOf(m), advertise.LoadBalancer) && (len(m.Pools) == 0 || slices.Contains(m.Pools, p.Name)) {
			for _, r := range p.Ranges {
				out = append(out, taken{Range: r, use: " of " + p.Called()})
			}
		}
	}
	if len(m.Pools) > 0 {
		return out
	}
	for _, cl := range d.Clusters {
		if len(m.Sources) > 0 && !slices.Contains(m.Sources, cl.Name) {
			continue
		}
		for _, of := range []struct {
			kind advertise.Kind
			list []netip.Prefix
		}{{advertise.LoadBalancer, cl.LoadBalancerRanges}, {advertise.ExternalIP, cl.ExternalIPRanges}, {advertise.ClusterIP, cl.ServiceCIDRs}} {
			for _, p := range of.list {
				if slices.Contains(KindsOf(m), of.kind) {
					out = append(out, taken{Range: parse.RangeOf(p), use: " of " + cl.Called()})
				}
			}
		}
	}
	return out
}

// ownRanges returns the ranges of the configuration, sorted; adjacent ones become one.
func (d *Draft) ownRanges() []ipam.Range {
	var all []ipam.Range
	add := func(list []netip.Prefix) {
		for _, p := range list {
			all = append(all, parse.RangeOf(p))
		}
	}
	for _, p := range d.Pools {
		all = append(all, p.Ranges...)
	}
	for _, r := range d.Kernel.Pools {
		all = append(all, parse.RangeOf(r.Prefix))
	}
	for _, cl := range d.Clusters {
		add(cl.LoadBalancerRanges)
		add(cl.ExternalIPRanges)
		add(cl.ServiceCIDRs)
	}
	slices.SortFunc(all, func(a, b ipam.Range) int { return a.First.Compare(b.First) })
	var out []ipam.Range
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].First.BitLen() == r.First.BitLen() &&
			(out[n-1].Contains(r.First) || out[n-1].Last.Next() == r.First) {
			if out[n-1].Last.Less(r.Last) {
				out[n-1].Last = r.Last
			}
			continue
		}
		out = append(out, ipam.Range{First: r.First, Last: r.Last})
	}
	return out
}

// Announced returns prefixes that contain every route, as far as they are known, and
// reports whether some routes are not host routes.
func (d *Draft) Announced() (all []netip.Prefix, aggregates bool) {
	rules := slices.Concat(d.VIPs.BGP.Rules, d.PoolRules)
	if len(d.VIPs.BGP.Rules) == 0 {
		rules = append(rules, &vips.Rule{Rule: advertise.DefaultRule()})
	}
	for _, r := range rules {
		if r.Refuse {
			continue
		}
		aggregates = aggregates || r.Aggregate4+r.Aggregate6 > 0
		for _, t := range d.subjects(r.Match) {
			bits := r.Aggregate4
			if t.First.Is6() {
				bits = r.Aggregate6
			}
			for _, p := range t.Prefixes() {
				if bits > 0 && bits < p.Bits() {
					p = netip.PrefixFrom(p.Addr(), bits).Masked()
				}
				all = append(all, p)
			}
		}
	}
	return widest(all), aggregates
}

// widest sorts prefixes and removes those within another one.
func widest(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var out []netip.Prefix
	for _, p := range all {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
