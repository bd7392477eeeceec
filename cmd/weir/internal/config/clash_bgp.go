package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"weir/bgp"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// checkRules complains about rules that name what is not there, and warns of those
// that do nothing.
func (v *provider) checkRules() {
	for i, r := range v.bgp.rules {
		r.known("pools", "pool", v.poolNames())
		r.known("clusters", "cluster", v.clusterNames())
		r.known("peers", "peer", v.peerNames())
		if v.failedIn(r) {
			continue
		}
		switch j := slices.IndexFunc(v.bgp.rules[:i], func(before *rule) bool { return before.covers(r) }); {
		case !v.canMatch(r.Match):
			r.warn(Warning, "vips", "the rule fits no VIP that there can be", "remove it, or widen what it fits")
		case j >= 0:
			r.warn(Warning, "vips", fmt.Sprintf("the rule never counts: that of %s comes first and fits all the same VIPs", v.bgp.rules[j].v.at),
				"put the narrower one first, or remove one")
		}
		v.checkAggregate(r)
		v.checkStandby(r)
	}
	for i, r := range v.ofPools {
		r.known("peers", "peer", v.peerNames())
		says := slices.IndexFunc(announcementKeys, r.says)
		covered := slices.IndexFunc(v.bgp.rules, func(before *rule) bool { return before.covers(r) })
		if says >= 0 && covered >= 0 {
			r.warn(Warning, announcementKeys[says], fmt.Sprintf("never counts: the [[bgp.advertise]] of %s comes first and fits all of %s",
				v.bgp.rules[covered].v.at, v.pools[i].called()), "narrow that one, or remove this")
		}
		v.checkAggregate(r)
		v.checkStandby(r)
	}
	v.checkUnannounced()
	v.bgpClashes()
}

// failedIn tells whether something is wrong with the rule, so that nothing more is
// to be said about it.
func (v *provider) failedIn(r *rule) bool {
	return slices.ContainsFunc(v.problems, func(p Problem) bool {
		return p.Severity == Error && len(p.Key) > len(r.shown) && p.Key[:len(r.shown)+1] == r.shown+"."
	})
}

// covers tells whether r fits all VIPs and peers that s fits.
func (r *rule) covers(s *rule) bool {
	a, b := r.Match, s.Match
	if !coversList(kindsOf(a), possible(b)) || !coversList(r.Peers, s.Peers) ||
		!coversList(a.Pools, b.Pools) || !coversList(a.Sources, b.Sources) ||
		!coversList(a.Namespaces, b.Namespaces) || !coversList(a.Services, b.Services) {
		return false
	}
	for key, value := range a.Labels {
		if has, ok := b.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// coversList tells whether all that b fits is fitted by a; an empty list fits
// everything.
func coversList[T comparable](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == 0
	}
	return !slices.ContainsFunc(b, func(x T) bool { return !slices.Contains(a, x) })
}

// kindsOf gives the kinds of VIPs that are fitted.
func kindsOf(m bgp.Match) []bgp.Kind {
	if len(m.Kinds) == 0 {
		return []bgp.Kind{bgp.LoadBalancer, bgp.Static}
	}
	return m.Kinds
}

// possible gives those of the kinds that go with the rest of the match: pools have
// LoadBalancer VIPs alone, and static services are of no cluster and no namespace.
func possible(m bgp.Match) []bgp.Kind {
	return slices.DeleteFunc(slices.Clone(kindsOf(m)), func(k bgp.Kind) bool {
		return len(m.Pools) > 0 && k != bgp.LoadBalancer || len(m.Sources)+len(m.Namespaces) > 0 && k == bgp.Static
	})
}

// canMatch tells whether there is a static VIP that fits, or can be one of a
// cluster.
func (v *provider) canMatch(m bgp.Match) bool {
	if slices.ContainsFunc(v.services, func(s *service) bool { return matchesStatic(m, s.lb) }) {
		return true
	}
	return slices.ContainsFunc(v.clusters, func(cl *cluster) bool { return v.matchesCluster(m, cl) })
}

func matchesStatic(m bgp.Match, s lb.Service) bool {
	if !slices.Contains(possible(m), bgp.Static) {
		return false
	}
	if len(m.Services) > 0 && !slices.Contains(m.Services, s.ID.Name) {
		return false
	}
	for key, value := range m.Labels {
		if has, ok := s.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

func (v *provider) matchesCluster(m bgp.Match, cl *cluster) bool {
	if len(m.Sources) > 0 && !slices.Contains(m.Sources, cl.Name) {
		return false
	}
	if len(m.Namespaces) > 0 && len(cl.Namespaces) > 0 &&
		!slices.ContainsFunc(m.Namespaces, func(n string) bool { return slices.Contains(cl.Namespaces, n) }) {
		return false
	}
	kinds := map[bgp.Kind]lb.VIPKind{bgp.LoadBalancer: lb.LoadBalancer, bgp.ExternalIP: lb.ExternalIP, bgp.ClusterIP: lb.ClusterIP}
	for _, k := range possible(m) {
		if k == bgp.Static || !cl.Kinds[kinds[k]] {
			continue
		}
		if len(m.Pools) == 0 || slices.ContainsFunc(v.pools, func(p *pool) bool {
			return slices.Contains(m.Pools, p.Name) && admits(p.Pool, cl.Name)
		}) {
			return true
		}
	}
	return false
}

// checkUnannounced warns of static services that a [[bgp.advertise]] for others
// has left without anybody who hears of them.
func (v *provider) checkUnannounced() {
	if len(v.bgp.rules) == 0 || slices.ContainsFunc(v.bgp.rules, v.failedIn) {
		return
	}
	for _, s := range v.services {
		fits := func(r *rule) bool { return matchesStatic(r.Match, s.lb) }
		if !slices.ContainsFunc(v.bgp.rules, fits) {
			s.warn(Warning, "vips", "nobody is told of them: no [[bgp.advertise]] fits",
				`add one with vips = ["static"], or one with announce = false if it is meant so`)
		}
	}
}

// checkAggregate complains about a route that would draw addresses to the box that
// are not its to serve.
func (v *provider) checkAggregate(r *rule) {
	for _, a := range []struct {
		key    string
		bits   int
		family lb.Family
	}{{"aggregate", r.Aggregate4, lb.IPv4}, {"aggregate_v6", r.Aggregate6, lb.IPv6}} {
		if a.bits == 0 || r.Refuse {
			continue
		}
		if wide, of, ok := v.tooWide(r.Match, a.bits, a.family); ok {
			r.fail(a.key, fmt.Sprintf("%d makes %q of %s, which is more than the configuration has there", a.bits, wide, of),
				"write a longer one, or make the range part of a pool, of kernel.route_pools or of load_balancer_ranges")
		}
	}
}

// tooWide gives the first aggregate of VIPs that fit which has more addresses than
// the box's own ranges, and what it was made of.
func (v *provider) tooWide(m bgp.Match, bits int, family lb.Family) (wide netip.Prefix, of string, ok bool) {
	own := v.own()
	for _, r := range v.subjects(m) {
		if lb.FamilyOf(r.First) != family {
			continue
		}
		for _, end := range []netip.Addr{r.First, r.Last} {
			p, err := end.Prefix(bits)
			if err == nil && !within(rangeOf(p), own) {
				return p, strconv.Quote(r.String()) + r.what, true
			}
		}
	}
	return wide, "", false
}

// subjects are the addresses of what a rule fits, as far as they are known.
func (v *provider) subjects(m bgp.Match) []taken {
	var out []taken
	for _, s := range v.services {
		if matchesStatic(m, s.lb) {
			for _, vip := range s.vips {
				a := vip.addr.Addr()
				out = append(out, taken{Range: ipam.Range{First: a, Last: a}, what: " of " + called(s)})
			}
		}
	}
	if matchesStatic(m, lb.Service{ID: MasqueradeID}) {
		for _, a := range v.config.Kernel.MasqueradeSource {
			out = append(out, taken{Range: ipam.Range{First: a, Last: a}, what: ", kernel.masquerade_source"})
		}
	}
	for _, p := range v.pools {
		if slices.Contains(kindsOf(m), bgp.LoadBalancer) && (len(m.Pools) == 0 || slices.Contains(m.Pools, p.Name)) {
			for _, r := range p.Ranges {
				out = append(out, taken{Range: r, what: " of " + p.called()})
			}
		}
	}
	if len(m.Pools) > 0 {
		return out
	}
	for _, cl := range v.clusters {
		if len(m.Sources) > 0 && !slices.Contains(m.Sources, cl.Name) {
			continue
		}
		for _, of := range []struct {
			kind bgp.Kind
			list []netip.Prefix
		}{{bgp.LoadBalancer, cl.LoadBalancerRanges}, {bgp.ExternalIP, cl.ExternalIPRanges}, {bgp.ClusterIP, cl.ServiceCIDRs}} {
			for _, p := range of.list {
				if slices.Contains(kindsOf(m), of.kind) {
					out = append(out, taken{Range: rangeOf(p), what: " of " + cl.called()})
				}
			}
		}
	}
	return out
}

// own are the ranges that are the configuration's, sorted, those that touch made
// one.
func (v *provider) own() []ipam.Range {
	var all []ipam.Range
	add := func(list []netip.Prefix) {
		for _, p := range list {
			all = append(all, rangeOf(p))
		}
	}
	for _, p := range v.pools {
		all = append(all, p.Ranges...)
	}
	for _, r := range v.config.Kernel.Pools {
		all = append(all, rangeOf(r.Prefix))
	}
	for _, cl := range v.clusters {
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

// within tells whether one of some ranges has all of r.
func within(r ipam.Range, some []ipam.Range) bool {
	return slices.ContainsFunc(some, func(o ipam.Range) bool { return o.Contains(r.First) && o.Contains(r.Last) })
}

// announced gives the prefixes of all that may be announced, as far as they are
// known, and whether any of it is not by host routes.
func (v *provider) announced() (all []netip.Prefix, aggregates bool) {
	rules := slices.Concat(v.bgp.rules, v.ofPools)
	if len(v.bgp.rules) == 0 {
		rules = append(rules, &rule{Rule: bgp.DefaultRule()})
	}
	for _, r := range rules {
		if r.Refuse {
			continue
		}
		aggregates = aggregates || r.Aggregate4+r.Aggregate6 > 0
		for _, t := range v.subjects(r.Match) {
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

// widest sorts prefixes, and leaves out those that are in another one.
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
