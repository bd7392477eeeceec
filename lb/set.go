package lb

import "net/netip"

// Set is one of the ipsets that the static rules refer to. The names are those
// that kube-proxy's IPVS mode made known, after the configured prefix:
// KUBE-LOAD-BALANCER, KUBE-6-LOAD-BALANCER.
type Set uint8

// The sets. What each does in a packet's way is told in lb/linux (rules.go).
const (
	// SetIPVSIPs holds every VIP. What is not admitted by SetIPVSPorts is
	// refused there, so that host daemons do not answer on VIPs.
	SetIPVSIPs Set = iota
	// SetIPVSNets does the same for whole pools (vip_mode "route").
	SetIPVSNets
	// SetSourceCIDR holds the client ranges that a Restricted frontend admits.
	SetSourceCIDR
	// SetFirewall holds the frontends that admit only their source ranges.
	SetFirewall
	// SetLoopBack holds backends that may reach themselves through a VIP and
	// must then be masqueraded although their Service keeps source addresses.
	SetLoopBack
	// SetLoadBalancer holds every LoadBalancer frontend: masqueraded unless also
	// in SetLoadBalancerLocal. With SetClusterIP it is weir's record of the
	// virtual servers that are its own.
	SetLoadBalancer
	// SetLoadBalancerLocal holds the frontends whose clients keep their address.
	SetLoadBalancerLocal
	// SetClusterIP holds every ClusterIP frontend: masqueraded as cluster_cidrs
	// and masquerade_all say.
	SetClusterIP
	// SetIPVSPorts admits a frontend's packets past the host's firewall and past
	// the refusal of SetIPVSIPs. Written last, removed first.
	SetIPVSPorts

	numSets
)

var setNames = [numSets]struct{ name, typ string }{
	SetIPVSIPs:           {"IPVS-IPS", "hash:ip"},
	SetIPVSNets:          {"IPVS-NETS", "hash:net"},
	SetSourceCIDR:        {"LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net"},
	SetFirewall:          {"LOAD-BALANCER-FW", "hash:ip,port"},
	SetLoopBack:          {"LOOP-BACK", "hash:ip,port,ip"},
	SetLoadBalancer:      {"LOAD-BALANCER", "hash:ip,port"},
	SetLoadBalancerLocal: {"LOAD-BALANCER-LOCAL", "hash:ip,port"},
	SetClusterIP:         {"CLUSTER-IP", "hash:ip,port"},
	SetIPVSPorts:         {"IPVS-PORTS", "hash:ip,port"},
}

// Sets are all sets, in their own order.
func Sets() []Set {
	out := make([]Set, numSets)
	for i := range out {
		out[i] = Set(i)
	}
	return out
}

// String is the name without prefix and family: LOAD-BALANCER.
func (s Set) String() string { return setNames[s].name }

// Type is the ipset type: hash:ip,port.
func (s Set) Type() string { return setNames[s].typ }

// IPSET_MAXNAMELEN is 32 with its final zero.
const maxSetName = 31

// Name is the set's name in the kernel: KUBE-LOAD-BALANCER, and for IPv6
// KUBE-6-LOAD-BALANCER. Names that are too long lose their tail, as
// kube-proxy's do (KUBE-6-LOAD-BALANCER-SOURCE-CID).
func (s Set) Name(prefix string, f Family) string {
	name := prefix + "-"
	if f == IPv6 {
		name += "6-"
	}
	name += s.String()
	return name[:min(len(name), maxSetName)]
}

// frontendSet is the set that records the virtual servers of a kind of VIP.
func (k VIPKind) frontendSet() Set {
	if k == ClusterIP {
		return SetClusterIP
	}
	return SetLoadBalancer
}

// tuple is the member for a frontend in a set of type hash:ip,port.
func tuple(s Set, f Frontend) Member {
	return Member{Set: s, Addr: f.Addr, Port: f.Port, Proto: f.Proto}
}

// frontend is the other way round: the frontend that a member speaks of.
func (o Member) frontend() (Frontend, bool) {
	switch o.Set {
	case SetSourceCIDR, SetFirewall, SetLoadBalancer, SetLoadBalancerLocal, SetClusterIP, SetIPVSPorts:
		return Frontend{o.Addr, o.Port, o.Proto}, true
	}
	return Frontend{}, false
}

// Family tells which family's set the member belongs to.
func (o Member) Family() Family {
	if o.Addr.IsValid() {
		return FamilyOf(o.Addr)
	}
	return FamilyOf(o.Net.Addr())
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
