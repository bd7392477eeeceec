package k8ssync

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weir/lb"
)

// env is what translate reads beside one Service and its slices. It is not safe
// for concurrent use.
//
// It knows which addresses no Service may have for a VIP of its own choosing,
// since to serve them here would take them from their owners (CVE-2020-8554):
// nodes', pods' and other Services' ClusterIPs. What says so is written by the
// cluster's own controllers. Endpoints do not: whoever may write an EndpointSlice
// could then take away somebody else's VIP by naming it there.
type env struct {
	cfg *Config
	// own is the box's Node, if it is one and known.
	own       node
	nodes     []node // by name
	nodeAddrs map[netip.Addr]string
	podCIDRs  []netip.Prefix
	refused   Refused
	provided  Provided

	services   map[key]claims
	clusterIPs map[netip.Addr]int          // how many Services have it
	wanted     map[netip.Addr]map[key]bool // by whom, as another VIP
}

// claims are the addresses of a Service.
type claims struct {
	clusterIPs, others []netip.Addr
}

func newEnv(cfg *Config) *env {
	e := &env{cfg: cfg, refused: cfg.Refused, provided: cfg.Provided, services: map[key]claims{}, clusterIPs: map[netip.Addr]int{}, wanted: map[netip.Addr]map[key]bool{}}
	e.setNodes(nil)
	return e
}

// wantsNodes tells whether the Nodes of a cluster matter.
func (c Config) wantsNodes() bool {
	return c.Reach == NodePorts || c.NodeName != "" || c.Kinds[lb.ExternalIP] || c.Kinds[lb.LoadBalancer]
}

// setNodes takes in all Nodes. Every Service may then mean something else.
func (e *env) setNodes(nodes []node) {
	e.nodes = slices.SortedFunc(slices.Values(nodes), func(a, b node) int { return cmp.Compare(a.Name, b.Name) })
	e.own, e.nodeAddrs, e.podCIDRs = node{}, map[netip.Addr]string{}, slices.Clone(e.cfg.PodCIDRs)
	for _, n := range e.nodes {
		if n.Name == e.cfg.NodeName {
			e.own = n
		}
		for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
			e.nodeAddrs[a] = n.Name
		}
		e.podCIDRs = append(e.podCIDRs, n.PodCIDRs...)
	}
}

// putService takes in a Service as it is now, nil when it is gone, and gives the
// others that mean something else by it, sorted: those that want a VIP which has
// become somebody's ClusterIP, or is no longer.
func (e *env) putService(k key, svc *service) []key {
	was, now := e.services[k], claims{}
	if svc != nil {
		now = claims{svc.ClusterIPs, slices.Concat(svc.Ingress, svc.Proxied, svc.ExternalIPs)}
	}
	e.services[k] = now
	if svc == nil {
		delete(e.services, k)
	}
	for _, a := range was.others {
		delete(e.wanted[a], k)
		if len(e.wanted[a]) == 0 {
			delete(e.wanted, a)
		}
	}
	for _, a := range now.others {
		if e.wanted[a] == nil {
			e.wanted[a] = map[key]bool{}
		}
		e.wanted[a][k] = true
	}
	return e.moveClusterIPs(k, was.clusterIPs, now.clusterIPs)
}

// moveClusterIPs counts ClusterIPs that k had and has, and gives the other
// Services that want some of those which were nobody's or are now.
func (e *env) moveClusterIPs(k key, was, now []netip.Addr) []key {
	if slices.Equal(was, now) {
		return nil
	}
	var moved []netip.Addr
	for _, a := range now {
		if e.clusterIPs[a]++; e.clusterIPs[a] == 1 {
			moved = append(moved, a)
		}
	}
	for _, a := range was {
		if e.clusterIPs[a]--; e.clusterIPs[a] == 0 {
			delete(e.clusterIPs, a)
			moved = append(moved, a)
		}
	}
	var out []key
	for _, a := range moved {
		for other := range e.wanted[a] {
			if other != k {
				out = append(out, other)
			}
		}
	}
	slices.SortFunc(out, key.compare)
	return slices.Compact(out)
}

// onNode tells whether the box is a node of the cluster: endpoints may be its own.
func (e *env) onNode() bool { return e.cfg.NodeName != "" && e.cfg.Reach == Pods }

// zone is the box's own.
func (e *env) zone() string { return cmp.Or(e.cfg.Zone, e.own.Zone) }

// refuses tells why an address can't be a VIP of a kind of a Service: what it is,
// and the fix.
func (e *env) refuses(a netip.Addr, kind lb.VIPKind, of key) string {
	if what := special(a); what != "" {
		return "it is " + what
	}
	if name, ok := e.nodeAddrs[a]; ok {
		return fmt.Sprintf("it is the address of node %.64q: choose one that is nobody's", name)
	}
	if what := e.peer(a, of); what != "" {
		return fmt.Sprintf("it is the address of %s, which this box needs: choose one that is nobody's", what)
	}
	if kind == lb.ClusterIP {
		return ""
	}
	if e.clusterIPs[a] > 0 {
		return "it is the ClusterIP of a Service: choose an address that is nobody's"
	}
	if i := slices.IndexFunc(e.podCIDRs, holds(a)); i >= 0 {
		return fmt.Sprintf("pods have the addresses of %s: choose one that is nobody's", e.podCIDRs[i])
	}
	if i := slices.IndexFunc(e.cfg.ServiceCIDRs, holds(a)); i >= 0 {
		return fmt.Sprintf("ClusterIPs are of %s (service_cidrs): choose one that is nobody's", e.cfg.ServiceCIDRs[i])
	}
	if i := slices.IndexFunc(e.refused.Ranges, func(r Range) bool { return r.Prefix.Contains(a) }); i >= 0 {
		return fmt.Sprintf("%s are of %s: choose one that is nobody's", e.refused.Ranges[i].What, e.refused.Ranges[i].Prefix)
	}
	switch {
	case kind == lb.ExternalIP && !slices.ContainsFunc(e.cfg.ExternalIPRanges, holds(a)):
		return fmt.Sprintf("external_ip_ranges of cluster %s do not contain it: only the operator can add it there", e.cfg.Name)
	case kind == lb.LoadBalancer && len(e.cfg.LoadBalancerRanges) > 0 && !e.meant(a):
		return fmt.Sprintf("load_balancer_ranges of cluster %s do not contain it: only the operator can add it there", e.cfg.Name)
	}
	return ""
}

// meant tells whether the operator says that an address is load balancers'.
func (e *env) meant(a netip.Addr) bool {
	return slices.ContainsFunc(e.cfg.LoadBalancerRanges, holds(a)) || e.provided.contains(a)
}

// foreign tells whether a VIP must not be an address that the box has itself. On
// a node it may be, as kube-vip and its like put the VIPs of LoadBalancer
// Services on an interface; elsewhere only where the operator says so.
func (e *env) foreign(a netip.Addr, kind lb.VIPKind) bool {
	switch kind {
	case lb.ExternalIP:
		return true
	case lb.LoadBalancer:
		return !e.onNode() && !e.meant(a)
	}
	return !e.onNode()
}

// holds gives a test for prefixes that contain a.
func holds(a netip.Addr) func(netip.Prefix) bool {
	return func(p netip.Prefix) bool { return p.Contains(a) }
}

// nobodys are addresses that can be neither a VIP nor an endpoint, beside those
// that netip knows.
var nobodys = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "of this host (RFC 1122, section 3.2.1.3)"},
	{netip.MustParsePrefix("192.0.0.8/32"), "the IPv4 dummy address (RFC 7600)"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("100::/64"), "for discarding (RFC 6666)"},
}

// special tells what an address is that is no host's for others: "" for all that
// can be VIPs and endpoints. 240.0.0.0/4 can be: some clouds give it to clusters.
func special(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsMulticast():
		return "a multicast address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	}
	for _, n := range nobodys {
		if n.prefix.Contains(a) {
			return n.what
		}
	}
	return ""
}
