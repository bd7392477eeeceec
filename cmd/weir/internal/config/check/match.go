package check

import (
	"slices"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/vips"
	"weir/lb"
)

// KindsOf returns the kinds of VIPs that a rule matches.
func KindsOf(m advertise.Match) []advertise.Kind {
	if len(m.Kinds) == 0 {
		return []advertise.Kind{advertise.LoadBalancer, advertise.Static}
	}
	return m.Kinds
}

// possible returns the kinds that are compatible with the rest of the match: pools have
// only LoadBalancer VIPs, and static services have no cluster and no namespace.
func possible(m advertise.Match) []advertise.Kind {
	return slices.DeleteFunc(slices.Clone(KindsOf(m)), func(k advertise.Kind) bool {
		return len(m.Pools) > 0 && k != advertise.LoadBalancer || len(m.Sources)+len(m.Namespaces) > 0 && k == advertise.Static
	})
}

// MatchesStatic reports whether a rule matches the VIPs of a static service.
func MatchesStatic(m advertise.Match, s lb.Service) bool {
	if !slices.Contains(possible(m), advertise.Static) || len(m.Services) > 0 && !slices.Contains(m.Services, s.ID.Name) {
		return false
	}
	return advertise.HasLabels(s.Labels, m.Labels)
}

func (d routeCheck) matchesCluster(m advertise.Match, cl *serving.Cluster) bool {
	if len(m.Sources) > 0 && !slices.Contains(m.Sources, cl.Name) {
		return false
	}
	if len(m.Namespaces) > 0 && len(cl.Namespaces) > 0 &&
		!slices.ContainsFunc(m.Namespaces, func(n string) bool { return slices.Contains(cl.Namespaces, n) }) {
		return false
	}
	kinds := map[advertise.Kind]lb.VIPKind{advertise.LoadBalancer: lb.LoadBalancer, advertise.ExternalIP: lb.ExternalIP, advertise.ClusterIP: lb.ClusterIP}
	for _, k := range possible(m) {
		if k == advertise.Static || !cl.Kinds[kinds[k]] {
			continue
		}
		if len(m.Pools) == 0 || slices.ContainsFunc(d.Pools, func(p *vips.Pool) bool {
			return slices.Contains(m.Pools, p.Name) && p.Admits(cl.Name)
		}) {
			return true
		}
	}
	return false
}
