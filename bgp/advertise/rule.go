package advertise

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/lb"
)

// Kind is the kind of a VIP.
type Kind uint8

// The kinds of VIPs. Static is every VIP of a Service of the configuration
// (lb.ServiceID.Source is "static"); the others are those of Kubernetes Services.
// Node ports have no address of their own and are never announced.
const (
	LoadBalancer Kind = iota
	ExternalIP
	ClusterIP
	Static
)

var kindNames = [...]string{"LoadBalancer", "ExternalIP", "ClusterIP", "static"}

func (k Kind) String() string { return kindNames[k] }

// ParseKind parses "LoadBalancer", "ExternalIP", "ClusterIP" or "static", in any case.
func ParseKind(s string) (Kind, error) {
	for k, name := range kindNames {
		if strings.EqualFold(s, name) {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("%q is not a kind of VIP: %s", s, strings.Join(kindNames[:], ", "))
}

// staticSource is the lb.ServiceID.Source of configured Services.
const staticSource = "static"

// kindOf returns the kind of a VIP; a node port has none.
func kindOf(s lb.Serving) (Kind, bool) {
	if s.Kind == lb.NodePort {
		return 0, false
	}
	if s.Service.Source == staticSource {
		return Static, true
	}
	return map[lb.VIPKind]Kind{lb.LoadBalancer: LoadBalancer, lb.ExternalIP: ExternalIP, lb.ClusterIP: ClusterIP}[s.Kind], true
}

// Rule states how some VIPs are announced to some peers. For each peer the first Rule that
// names it and matches the VIP applies, and no other. A VIP without a Rule is not
// announced.
type Rule struct {
	// Name is the name in explanations, such as "advertise 2" or "pool public".
	Name  string
	Match Match
	// Peers are the names of the peers; empty: all.
	Peers []string
	// Refuse: do not announce. The rest is ignored then.
	Refuse bool

	Communities      []Community
	LargeCommunities []LargeCommunity
	LocalPref        Metric
	MED              Metric
	// Prepend is the number of additional copies of the box's ASN in the path, 0 to 16.
	Prepend int
	// Aggregate4 and Aggregate6 are prefix lengths, 1 to 32 and 1 to 128. The prefix of
	// that length around a VIP is announced instead of it, while any VIP in it would be.
	// 0: each VIP as a host route.
	//
	// An aggregate attracts the packets for all its addresses. Packets for unused ones
	// would follow the box's default route back to the router, until their TTL expires;
	// therefore they need the unreachable routes of Advertiser.Aggregates. An aggregate
	// that is wider than the box's own addresses also attracts packets for addresses of
	// other systems: the configuration must check that it lies within a pool or a
	// configured prefix.
	Aggregate4, Aggregate6 int
}

// Match selects VIPs. All of its fields must match; an empty one matches everything,
// unless its comment states otherwise. If several Services serve at one address, one of
// them must match in all fields.
type Match struct {
	// Kinds, if empty, are LoadBalancer and Static.
	Kinds []Kind
	// Pools are names of Policy.Pools that contain the address.
	Pools []string
	// Sources are names of clusters, or "static".
	Sources    []string
	Namespaces []string
	// Services are "name", or "namespace/name".
	Services []string
	// Labels are labels that the Service must have.
	Labels map[string]string
}

// DefaultRule announces LoadBalancer and static VIPs to all peers as host routes.
func DefaultRule() Rule { return Rule{Name: "default"} }

// Rules returns the rules of a configuration: the explicit ones, then those of the pools
// for their own addresses; without an explicit one DefaultRule is the last.
func Rules(explicit, pools []Rule) []Rule {
	all := slices.Concat(explicit, pools)
	if len(explicit) == 0 {
		all = append(all, DefaultRule())
	}
	return all
}

// served is a Service at an address, with its labels.
type served struct {
	lb.Serving
	labels map[string]string
}

// matches reports whether the Rule is for an address.
func (m Match) matches(a netip.Addr, claims []served, pools map[string][]netip.Prefix) bool {
	inPool := func(name string) bool {
		return slices.ContainsFunc(pools[name], func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if len(m.Pools) > 0 && !slices.ContainsFunc(m.Pools, inPool) {
		return false
	}
	return slices.ContainsFunc(claims, m.matchesServed)
}

func (m Match) matchesServed(c served) bool {
	id := c.Service
	kind, ok := kindOf(c.Serving)
	if !ok || !m.matchesKind(kind) || !oneOf(m.Sources, id.Source) || !oneOf(m.Namespaces, id.Namespace) {
		return false
	}
	if len(m.Services) > 0 && !slices.Contains(m.Services, id.Name) && !slices.Contains(m.Services, id.Namespace+"/"+id.Name) {
		return false
	}
	return HasLabels(c.labels, m.Labels)
}

// HasLabels reports whether labels include all of want.
func HasLabels(labels, want map[string]string) bool {
	for key, value := range want {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

func (m Match) matchesKind(k Kind) bool {
	if len(m.Kinds) == 0 {
		return k == LoadBalancer || k == Static
	}
	return slices.Contains(m.Kinds, k)
}

func oneOf(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }

// prefix returns the prefix that the Rule announces for an address.
func (r Rule) prefix(a netip.Addr) netip.Prefix {
	bits := r.Aggregate4
	if a.Is6() {
		bits = r.Aggregate6
	}
	if bits <= 0 || bits > a.BitLen() {
		bits = a.BitLen()
	}
	return netip.PrefixFrom(a, bits).Masked()
}
