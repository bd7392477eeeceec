package check

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"weir/bgp/advertise"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/config/vips"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// routeCheck checks [bgp] against the other tables.
type routeCheck struct{ *Draft }

// rules reports rules with unknown names, and warns of those without an effect.
func (d routeCheck) all() {
	rules := d.VIPs.BGP.Rules
	for i, r := range rules {
		r.Known("pools", "pool", d.PoolNames())
		r.Known("clusters", "cluster", d.ClusterNames())
		r.Known("peers", "peer", d.PeerNames())
		if failedIn(r) {
			continue
		}
		switch j := slices.IndexFunc(rules[:i], func(before *vips.Rule) bool { return covers(before, r) }); {
		case !d.canMatch(r.Match):
			r.Warn(source.Warning, "vips", "the rule can't match any VIP", "remove it, or widen it")
		case j >= 0:
			r.Warn(source.Warning, "vips", fmt.Sprintf("the rule never applies: that of %s comes first and matches all of its VIPs", rules[j].Pos()),
				"put the narrower one first, or remove one")
		}
		d.aggregates(r)
		d.standbyRoom(r)
	}
	for i, r := range d.PoolRules {
		r.Known("peers", "peer", d.PeerNames())
		set := slices.IndexFunc(vips.Announcement, r.Changed)
		covered := slices.IndexFunc(rules, func(before *vips.Rule) bool { return covers(before, r) })
		if set >= 0 && covered >= 0 {
			r.Warn(source.Warning, vips.Announcement[set], fmt.Sprintf("never applies: the [[bgp.advertise]] of %s comes first and matches all of %s",
				rules[covered].Pos(), d.Pools[i].Called()), "narrow that one, or remove this")
		}
		d.aggregates(r)
		d.standbyRoom(r)
	}
	d.unannounced()
	static := d.staticVIPs()
	for _, t := range d.takenByBGP() {
		if c, ok := static[t.First]; ok && t.First == t.Last {
			d.Top.Add(source.Error, t.at, t.key, fmt.Sprintf("%q is a VIP of %s at %s", t.First, c.by.Called(), c.at), "use an address other than a VIP")
		}
	}
}

// failedIn reports whether the rule has a reported error.
func failedIn(r *vips.Rule) bool {
	return slices.ContainsFunc(r.All, func(p source.Problem) bool {
		return p.Severity == source.Error && len(p.Key) > len(r.Shown) && p.Key[:len(r.Shown)+1] == r.Shown+"."
	})
}

// covers reports whether r matches all VIPs and peers that s matches.
func covers(r, s *vips.Rule) bool {
	a, b := r.Match, s.Match
	return coversList(KindsOf(a), possible(b)) && coversList(r.Peers, s.Peers) &&
		coversList(a.Pools, b.Pools) && coversList(a.Sources, b.Sources) &&
		coversList(a.Namespaces, b.Namespaces) && coversList(a.Services, b.Services) &&
		advertise.HasLabels(b.Labels, a.Labels)
}

// coversList reports whether a matches all that b matches. An empty list matches
// everything.
func coversList[T comparable](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == 0
	}
	return !slices.ContainsFunc(b, func(x T) bool { return !slices.Contains(a, x) })
}

// canMatch reports whether a static VIP matches, or a VIP of a cluster could.
func (d routeCheck) canMatch(m advertise.Match) bool {
	return slices.ContainsFunc(d.Services, func(s *serving.Service) bool { return MatchesStatic(m, s.LB) }) ||
		slices.ContainsFunc(d.Clusters, func(cl *serving.Cluster) bool { return d.matchesCluster(m, cl) })
}

// unannounced warns of static services that no rule matches.
func (d routeCheck) unannounced() {
	rules := d.VIPs.BGP.Rules
	if len(rules) == 0 || slices.ContainsFunc(rules, failedIn) {
		return
	}
	for _, s := range d.Services {
		if !slices.ContainsFunc(rules, func(r *vips.Rule) bool { return MatchesStatic(r.Match, s.LB) }) {
			s.Warn(source.Warning, "vips", "they are not announced: no [[bgp.advertise]] matches them",
				`add one with vips = ["static"], or one with announce = false if this is intended`)
		}
	}
}

// aggregates reports a route that would attract traffic to foreign addresses.
func (d routeCheck) aggregates(r *vips.Rule) {
	for _, a := range []struct {
		key    string
		bits   int
		family lb.Family
	}{{"aggregation_length", r.Aggregate4, lb.IPv4}, {"aggregation_length_v6", r.Aggregate6, lb.IPv6}} {
		if a.bits == 0 || r.Refuse {
			continue
		}
		if wide, of, ok := d.tooWide(r.Match, a.bits, a.family); ok {
			r.Fail(a.key, fmt.Sprintf("%d makes %q of %s, which contains addresses of no pool or range", a.bits, wide, of),
				"use a longer one, or add the range to a pool, to kernel.route_pools or to load_balancer_ranges")
		}
	}
}

// tooWide returns the first aggregate of matching VIPs that has addresses outside the box's
// own ranges, and its origin.
func (d routeCheck) tooWide(m advertise.Match, bits int, family lb.Family) (wide netip.Prefix, of string, ok bool) {
	own := d.ownRanges()
	for _, r := range d.subjects(m) {
		if lb.FamilyOf(r.First) != family {
			continue
		}
		for _, end := range []netip.Addr{r.First, r.Last} {
			p, err := end.Prefix(bits)
			if err == nil && !within(parse.RangeOf(p), own) {
				return p, fmt.Sprintf("%q", r.String()) + r.use, true
			}
		}
	}
	return wide, "", false
}

// within reports whether one of some ranges contains all of r.
func within(r ipam.Range, some []ipam.Range) bool {
	return slices.ContainsFunc(some, func(o ipam.Range) bool { return o.Contains(r.First) && o.Contains(r.Last) })
}

// standbyRoom warns of a rule with the worst value already, so that a standby's routes
// would be as good as the owner's.
func (d routeCheck) standbyRoom(r *vips.Rule) {
	if r.Refuse || d.VIPs.Fleet == nil || d.VIPs.Fleet.Rules.Mode != owner.ActiveStandby {
		return
	}
	for _, p := range d.VIPs.BGP.Peers {
		if len(r.Peers) > 0 && !slices.Contains(r.Peers, p.Name) {
			continue
		}
		var key string
		var worst int64
		switch {
		case p.Standby.MED > 0 && r.MED.Value == math.MaxUint32:
			key, worst = "med", math.MaxUint32
		case p.Standby.LocalPref > 0 && r.LocalPref == advertise.MetricOf(0):
			key = "local_pref"
		case p.Standby.Prepend > 0 && r.Prepend == vips.MaxPrepend:
			key, worst = "prepend", vips.MaxPrepend
		default:
			continue
		}
		r.Warn(source.Warning, key, fmt.Sprintf("%d is the worst value, so %s can't distinguish the owner of a VIP from a standby", worst, p.Called()),
			"use a better value, or another standby for the peer")
		return
	}
}
