package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/lb"
)

// Kind is a sort of VIP that rules tell apart.
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

// ParseKind reads "LoadBalancer", "ExternalIP", "ClusterIP" or "static", in any
// case.
func ParseKind(s string) (Kind, error) {
	for k, name := range kindNames {
		if strings.EqualFold(s, name) {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("%q is no kind of VIP: %s", s, strings.Join(kindNames[:], ", "))
}

// staticSource is the lb.ServiceID.Source of the configuration's own Services.
const staticSource = "static"

// kindOf gives the kind of a VIP as it serves; a node port has none.
func kindOf(s lb.Serving) (Kind, bool) {
	if s.Kind == lb.NodePort {
		return 0, false
	}
	if s.Service.Source == staticSource {
		return Static, true
	}
	return map[lb.VIPKind]Kind{lb.LoadBalancer: LoadBalancer, lb.ExternalIP: ExternalIP, lb.ClusterIP: ClusterIP}[s.Kind], true
}

// Rule says how some VIPs are announced to some peers. For each peer the first
// Rule that is for it and matches the VIP counts, and no other. A VIP without a
// Rule is not announced.
type Rule struct {
	// Name is what explanations call it, such as "advertise 2" or "pool public".
	Name  string
	Match Match
	// Peers are the names of the peers that it is for; empty: all.
	Peers []string
	// Refuse does not announce to them. The rest is then of no account.
	Refuse bool

	Communities      []Community
	LargeCommunities []LargeCommunity
	LocalPref        Metric
	MED              Metric
	// Prepend is how many more times the box's ASN stands in the path, 0 to 16.
	Prepend int
	// Aggregate4 and Aggregate6 are prefix lengths, 1 to 32 and 1 to 128. The prefix
	// of that length around a VIP is announced in its stead, while any VIP in it
	// would be. 0: each VIP as a host route.
	//
	// An aggregate draws the packets of all its addresses to the box. Those that
	// nobody has here would follow the box's default route back to the router that
	// sent them, and so around until their TTL is over; therefore they need the
	// unreachable routes of Advertiser.Aggregates. And an aggregate wider than what is
	// the box's to serve draws in what others serve by a wider route of their own: it
	// must lie within a pool or the configuration's own prefixes, which is for the
	// configuration to check.
	Aggregate4, Aggregate6 int
}

// Match says which VIPs a Rule is for. All of its fields must match; an empty one
// matches everything, unless its comment says otherwise. Several Services may
// serve at one address: then one of them must match in all fields.
type Match struct {
	// Kinds, if empty, are LoadBalancer and Static.
	Kinds []Kind
	// Pools are names of Policy.Pools: the address is in one of them.
	Pools []string
	// Sources are clusters' names, or "static".
	Sources    []string
	Namespaces []string
	// Services are "name", or "namespace/name".
	Services []string
	// Labels are those that the Service must have, all of them.
	Labels map[string]string
}

// DefaultRule announces LoadBalancer and static VIPs to all peers as host routes.
func DefaultRule() Rule { return Rule{Name: "default"} }

// Rules puts together what the operator says: the explicit rules, then those of the
// pools for their own addresses; without an explicit one DefaultRule is the last.
func Rules(explicit, pools []Rule) []Rule {
	all := slices.Concat(explicit, pools)
	if len(explicit) == 0 {
		all = append(all, DefaultRule())
	}
	return all
}

// Claim is a Service at an address, as Rules see it.
type claim struct {
	lb.Serving
	labels map[string]string
}

// matches tells whether the Rule is for an address at which claims serve.
func (m Match) matches(a netip.Addr, claims []claim, pools map[string][]netip.Prefix) bool {
	inPool := func(name string) bool {
		return slices.ContainsFunc(pools[name], func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if len(m.Pools) > 0 && !slices.ContainsFunc(m.Pools, inPool) {
		return false
	}
	return slices.ContainsFunc(claims, m.matchesClaim)
}

func (m Match) matchesClaim(c claim) bool {
	id := c.Service
	kind, ok := kindOf(c.Serving)
	if !ok || !m.matchesKind(kind) || !oneOf(m.Sources, id.Source) || !oneOf(m.Namespaces, id.Namespace) {
		return false
	}
	if len(m.Services) > 0 && !slices.Contains(m.Services, id.Name) && !slices.Contains(m.Services, id.Namespace+"/"+id.Name) {
		return false
	}
	for key, value := range m.Labels {
		if has, ok := c.labels[key]; !ok || has != value {
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

// prefix gives what the Rule announces for an address.
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
