package k8ssync

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weir/lb"
)

// env has the inputs of translate beside one Service and its slices. It is not safe for
// concurrent use.
//
// It knows the addresses that no Service may choose for a VIP, since to serve them would
// take them from their owners (CVE-2020-8554): those of nodes and pods, and other
// Services' ClusterIPs. The cluster's own controllers write these objects, but each kubelet
// the addresses of its own Node: see setNodes. Endpoints do not count: an account
// that may write EndpointSlices could disable any VIP by an endpoint with its address.
// permit.go has the addresses that may be endpoints.
type env struct {
	cfg *Config
	// own is the box's Node, if it is one and known.
	own       node
	nodes     []node // by name
	nodeAddrs map[netip.Addr]string
	podCIDRs  []netip.Prefix
	pods      prefixSet // podCIDRs
	refused   Refused
	provided  Provided
	holders   *holders

	services   map[key]claims
	clusterIPs map[netip.Addr]int          // by the number of Services
	wanted     map[netip.Addr]map[key]bool // by Services, as another VIP
	unlisted   map[key]bool                // Services with an address that permitsIngress does not permit
}

// claims are the addresses of a Service.
type claims struct {
	clusterIPs, others []netip.Addr
}

func newEnv(cfg *Config) *env {
	e := &env{cfg: cfg, holders: newHolders(), refused: cfg.Refused, provided: cfg.Provided, services: map[key]claims{}, clusterIPs: map[netip.Addr]int{}, wanted: map[netip.Addr]map[key]bool{}, unlisted: map[key]bool{}}
	e.setNodes(nil)
	return e
}

// wantsNodes reports whether the Nodes of a cluster are watched.
func (c Config) wantsNodes() bool {
	return c.Reach == NodePorts || c.NodeName != "" || len(c.EndpointRanges) == 0 || c.Kinds[lb.ExternalIP] || c.Kinds[lb.LoadBalancer]
}

// setNodes replaces all Nodes. The meaning of every Service may change.
//
// An address in the pod range of another Node or in service_cidrs is no Node's: a kubelet
// could otherwise disable the endpoints and ClusterIPs of others by listing them as its own.
// It can still disable an external address, or one of a load balancer: an address that two
// use is the Node's until an operator has decided, since to serve it would take it from a host.
func (e *env) setNodes(nodes []node) {
	e.nodes = slices.SortedFunc(slices.Values(nodes), func(a, b node) int { return cmp.Compare(a.Name, b.Name) })
	e.own, e.nodeAddrs, e.podCIDRs = node{}, map[netip.Addr]string{}, slices.Clone(e.cfg.PodCIDRs)
	for _, n := range e.nodes {
		if n.Name == e.cfg.NodeName {
			e.own = n
		}
		e.podCIDRs = append(e.podCIDRs, n.PodCIDRs...)
	}
	e.pods = newPrefixSet(e.podCIDRs)
	pods := newPrefixSet(e.podCIDRs[len(e.cfg.PodCIDRs):])
	for _, n := range e.nodes {
		for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
			if e.nodeAddrs[a] != "" && n.Name != e.cfg.NodeName {
				continue // the box's own Node has its addresses, also if others list them
			}
			others := pods.contains(a) && !slices.ContainsFunc(n.PodCIDRs, containing(a))
			if !others && !slices.ContainsFunc(e.cfg.ServiceCIDRs, containing(a)) {
				e.nodeAddrs[a] = n.Name
			}
		}
	}
}

// putService records a Service, nil when it is gone, and returns the others that it
// affects, sorted: those with a VIP that has become a ClusterIP, or is none any more.
func (e *env) putService(k key, svc *service) []key {
	was, now := e.services[k], claims{}
	if svc != nil {
		now = claims{svc.ClusterIPs, slices.Concat(svc.Ingress, svc.Proxied, svc.ExternalIPs)}
	}
	e.services[k] = now
	if svc == nil {
		delete(e.services, k)
	}
	delete(e.unlisted, k)
	if svc != nil && slices.ContainsFunc(svc.Ingress, func(a netip.Addr) bool { return !e.permitsIngress(a, svc) }) {
		e.unlisted[k] = true
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

// putServices records the Services of dirty as o has them. Unless they are all Services, it
// adds to dirty those that they affect.
func (e *env) putServices(o *objects, dirty map[key]struct{}, whole bool) {
	var more []key
	for k := range dirty {
		others := e.putService(k, o.services[k])
		if !whole {
			more = append(more, others...)
		}
	}
	for _, k := range more {
		dirty[k] = struct{}{}
	}
}

// moveClusterIPs counts the ClusterIPs that k had and has, and returns the other Services
// with a VIP of which the first or last owner has changed.
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

// onNode reports whether the box is a node of the cluster: it may have endpoints itself.
func (e *env) onNode() bool { return e.cfg.NodeName != "" && e.cfg.Reach == Pods }

// self returns the addresses by which source ranges know a node: as with kube-proxy the first
// InternalIP of each family, and not those of the pods' bridges.
func (e *env) self() (out []netip.Addr) {
	if !e.onNode() {
		return nil
	}
	for _, six := range []bool{false, true} {
		if i := slices.IndexFunc(e.own.InternalIPs, func(a netip.Addr) bool { return a.Is6() == six }); i >= 0 {
			out = append(out, e.own.InternalIPs[i])
		}
	}
	return out
}

// zone returns that of the box.
func (e *env) zone() string { return cmp.Or(e.cfg.Zone, e.own.Zone) }

// refuses returns why an address can't be a VIP of a kind of a Service, with the solution.
func (e *env) refuses(a netip.Addr, kind lb.VIPKind, of key) string {
	if what := lb.Reserved(a, a); what != "" {
		return "it is " + what
	}
	// The API server assigns ClusterIPs, which no other Node may disable.
	if name, ok := e.nodeAddrs[a]; ok && (kind != lb.ClusterIP || e.cfg.NodeName != "" && name == e.cfg.NodeName) {
		return fmt.Sprintf("it is the address of node %.64q: choose a free one", name)
	}
	if what := e.peer(a, of); what != "" {
		return fmt.Sprintf("it is the address of %s, which this box needs: choose a free one", what)
	}
	if kind == lb.ClusterIP {
		return ""
	}
	if e.clusterIPs[a] > 0 {
		return "it is the ClusterIP of a Service: choose a free address"
	}
	if e.pods.contains(a) {
		i := slices.IndexFunc(e.podCIDRs, containing(a))
		return fmt.Sprintf("it is in %s, a range of pods: choose a free one", e.podCIDRs[i])
	}
	if i := slices.IndexFunc(e.cfg.ServiceCIDRs, containing(a)); i >= 0 {
		return fmt.Sprintf("it is in %s, a range of ClusterIPs (service_cidrs): choose a free one", e.cfg.ServiceCIDRs[i])
	}
	if i := slices.IndexFunc(e.refused.Ranges, func(r Range) bool { return r.Prefix.Contains(a) }); i >= 0 {
		return fmt.Sprintf("it is in %s, a range of the %s: choose a free one", e.refused.Ranges[i].Prefix, e.refused.Ranges[i].What)
	}
	if kind == lb.ExternalIP && !slices.ContainsFunc(e.cfg.ExternalIPRanges, containing(a)) {
		return fmt.Sprintf("external_ip_ranges of cluster %s do not contain it: only the operator can add it there", e.cfg.Name)
	}
	return ""
}

// refusesIngress returns why permitsIngress does not permit an address, with the solution; ""
// if it does.
func (e *env) refusesIngress(a netip.Addr, svc *service) string {
	switch {
	case e.permitsIngress(a, svc):
		return ""
	case len(e.cfg.LoadBalancerRanges) > 0:
		return fmt.Sprintf("load_balancer_ranges of cluster %s do not contain it: only the operator can add it there", e.cfg.Name)
	}
	return fmt.Sprintf("another controller has assigned it, and neither a pool nor load_balancer_ranges of cluster %s contain it: "+
		"only the operator can add it there, or exclude the Service with load_balancer_classes", e.cfg.Name)
}

// permitsIngress reports whether an address in the status of a Service is served as its load
// balancer's. A node serves what any controller writes, as kube-proxy does. A box outside the
// cluster serves only what its operator permits: by a pool, or a list. An address that weir
// has assigned stays when its pool changes.
func (e *env) permitsIngress(a netip.Addr, svc *service) bool {
	if len(e.cfg.LoadBalancerRanges) > 0 {
		return e.configured(a)
	}
	return e.onNode() || e.configured(a) || svc.Condition != (condition{}) && e.provided.serves(svc.LoadBalancerClass)
}

// configured reports whether the configuration has an address as one of load balancers.
func (e *env) configured(a netip.Addr) bool {
	return slices.ContainsFunc(e.cfg.LoadBalancerRanges, containing(a)) || e.provided.contains(a)
}

// foreign reports whether a VIP must not be an address that the box has itself. On a node it
// may be, as kube-vip and others put the VIPs of LoadBalancer Services on an interface;
// elsewhere only if it is configured.
func (e *env) foreign(a netip.Addr, kind lb.VIPKind) bool {
	switch kind {
	case lb.ExternalIP:
		return true
	case lb.LoadBalancer:
		return !e.onNode() && !e.configured(a)
	}
	return !e.onNode()
}

// assigned reports whether weir has assigned a VIP to a Service. A box without pools reads no claims,
// so that those of its snapshot may have ended.
func (e *env) assigned(a netip.Addr, kind lb.VIPKind, of key) bool {
	return kind == lb.LoadBalancer && len(e.provided.Ranges) > 0 && e.holders.have(a, of)
}

// containing returns a test for prefixes that contain a.
func containing(a netip.Addr) func(netip.Prefix) bool {
	return func(p netip.Prefix) bool { return p.Contains(a) }
}

// kubernetesService is the Service by which pods reach the API server: its ClusterIP may
// be the address in a kubeconfig.
var kubernetesService = key{"default", "kubernetes"}

// peer returns the use of an address for the box; "" is none.
func (e *env) peer(a netip.Addr, of key) string {
	if of == kubernetesService {
		return ""
	}
	return cmp.Or(e.refused.Peers[a], e.refused.Backends[a])
}
