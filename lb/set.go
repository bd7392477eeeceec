package lb

import (
	"fmt"
	"net/netip"
	"slices"
)

// Set is one of the ipsets that the static rules refer to. The names are those of kube-proxy's
// IPVS mode, after the configured prefix: KUBE-LOAD-BALANCER, KUBE-6-LOAD-BALANCER.
type Set uint8

// The sets. lb/linux (rules.go) describes the effect of each on a packet.
const (
	// SetIPVSIPs holds every VIP. What is not admitted by SetIPVSPorts is
	// refused there, so that host daemons do not answer on VIPs.
	SetIPVSIPs Set = iota
	// SetIPVSNets does the same for whole pools (vip_mode "route").
	SetIPVSNets
	// SetSourceCIDR holds the client ranges that a Restricted frontend admits.
	SetSourceCIDR
	// SetSourceIP holds the frontends with an address of the box itself in their ranges: its
	// packets to a VIP have the VIP as source.
	SetSourceIP
	// SetFirewall holds the frontends that admit only their source ranges.
	SetFirewall
	// SetNoLocal holds the frontends with traffic policy Local that have backends, but none on
	// this node: new connections are dropped, not refused, so that a client asks another node.
	SetNoLocal
	// SetLoopBack holds backends that may reach themselves through a VIP and
	// must then be masqueraded although their Service keeps source addresses.
	SetLoopBack
	// SetLoadBalancer holds every LoadBalancer frontend: masqueraded unless also
	// in SetLoadBalancerLocal. It is one of the records of the virtual servers
	// that are weir's own (records).
	SetLoadBalancer
	// SetLoadBalancerLocal holds the frontends with clients that keep their address.
	SetLoadBalancerLocal
	// SetClusterIP holds every ClusterIP frontend: masqueraded by cluster_cidrs and
	// masquerade_all. A record.
	SetClusterIP
	// SetExternalIP and SetExternalIPLocal are the same pair for external IPs; the
	// first one is a record.
	SetExternalIP
	SetExternalIPLocal
	// SetNodePorts and SetNodePortsLocal are the same pair for every address and port of a
	// NodePort; the first one is a record. kube-proxy has NodePorts by number only, in sets of
	// each protocol (KUBE-NODE-PORT-TCP): there, an address that another Service claims shares
	// the number's masquerading.
	SetNodePorts
	SetNodePortsLocal
	// SetHealthCheckNodePort admits probes of this node past the host's firewall.
	SetHealthCheckNodePort
	// SetMarks records the virtual servers with a mark, which it holds as if it were an
	// address.
	SetMarks
	// SetFWMarks does so for given marks (Frontend.Given).
	SetFWMarks
	// SetInternal maps clients inside the cluster to the virtual server of a mark. Written
	// after it.
	SetInternal
	// SetGroup maps all clients to the virtual server of a mark, which has all ports of a
	// Service. Written after it.
	SetGroup
	// SetIPVSPorts admits a frontend's packets past the host's firewall and past
	// the refusal of SetIPVSIPs. Written last, removed first.
	SetIPVSPorts

	numSets
)

// bitmapPort is the type of sets of port numbers. The Addr of their members is the unspecified
// address, for the family.
const bitmapPort = "bitmap:port"

// setTable describes each set: its name, its ipset type, and the role of its members.
var setTable = [numSets]struct {
	name, typ string
	role      role
}{
	SetIPVSIPs:             {"IPVS-IPS", "hash:ip", roleGuard},
	SetIPVSNets:            {"IPVS-NETS", "hash:net", roleNetGuard},
	SetSourceCIDR:          {"LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net", roleRange},
	SetSourceIP:            {"LOAD-BALANCER-SOURCE-IP", "hash:ip,port,ip", roleRange},
	SetFirewall:            {"LOAD-BALANCER-FW", "hash:ip,port", roleRestriction},
	SetNoLocal:             {"NO-LOCAL", "hash:ip,port", roleNoLocal},
	SetLoopBack:            {"LOOP-BACK", "hash:ip,port,ip", roleLoop},
	SetLoadBalancer:        {"LOAD-BALANCER", "hash:ip,port", roleRecord},
	SetLoadBalancerLocal:   {"LOAD-BALANCER-LOCAL", "hash:ip,port", roleKeep},
	SetClusterIP:           {"CLUSTER-IP", "hash:ip,port", roleRecord},
	SetExternalIP:          {"EXTERNAL-IP", "hash:ip,port", roleRecord},
	SetExternalIPLocal:     {"EXTERNAL-IP-LOCAL", "hash:ip,port", roleKeep},
	SetNodePorts:           {"NODE-PORTS", "hash:ip,port", roleRecord},
	SetNodePortsLocal:      {"NODE-PORTS-LOCAL", "hash:ip,port", roleKeep},
	SetHealthCheckNodePort: {"HEALTH-CHECK-NODE-PORT", bitmapPort, roleProbe},
	SetMarks:               {"IPVS-MARKS", "hash:ip", roleRecord},
	SetFWMarks:             {"IPVS-FWMARKS", "hash:ip", roleRecord},
	SetInternal:            {"INTERNAL", "hash:ip,port", roleMapping},
	SetGroup:               {"GROUP", "hash:ip,port", roleMapping},
	SetIPVSPorts:           {"IPVS-PORTS", "hash:ip,port", roleAdmission},
}

// Sets returns all sets, in their own order.
func Sets() []Set {
	out := make([]Set, numSets)
	for i := range out {
		out[i] = Set(i)
	}
	return out
}

// IsRecord reports whether the set records virtual servers as weir's own.
func (s Set) IsRecord() bool { return s.role() == roleRecord }

// String returns the name without prefix and family: LOAD-BALANCER.
func (s Set) String() string { return setTable[s].name }

// Type returns the ipset type: hash:ip,port.
func (s Set) Type() string { return setTable[s].typ }

// IPSET_MAXNAMELEN is 32 with its final zero.
const maxSetName = 31

// Name returns the set's name in the kernel: KUBE-LOAD-BALANCER, and for IPv6
// KUBE-6-LOAD-BALANCER. Names that are too long are cut, as in kube-proxy
// (KUBE-6-LOAD-BALANCER-SOURCE-CID).
func (s Set) Name(prefix string, f Family) string {
	name := prefix + "-"
	if f == IPv6 {
		name += "6-"
	}
	name += s.String()
	return name[:min(len(name), maxSetName)]
}

// MarksPackets reports whether members of the set have a mark for the packets that match them
// (Member.Mark; ipset's skbinfo).
func (s Set) MarksPackets() bool { return s == SetInternal || s == SetGroup }

// mappingSets are the sets of which MarksPackets returns true.
var mappingSets = [...]Set{SetInternal, SetGroup}

// masquerading are the sets of masqueraded members, each with the set of its exceptions.
// ClusterIPs follow other rules.
var masquerading = [...]struct{ all, kept Set }{
	{SetLoadBalancer, SetLoadBalancerLocal}, {SetExternalIP, SetExternalIPLocal}, {SetNodePorts, SetNodePortsLocal},
}

// Exceptions returns the set of those members of s that are not masqueraded. It panics for a set without
// masqueraded members.
func (s Set) Exceptions() Set {
	for _, m := range masquerading {
		if m.all == s {
			return m.kept
		}
	}
	panic(fmt.Sprintf("members of %s are not masqueraded", s))
}

// records are the sets that record virtual servers as weir's own by their address.
var records = slices.DeleteFunc(Sets(), func(s Set) bool { return !s.IsRecord() || s.ofMarks() })

// ofMarks reports whether members of the set record virtual servers by their marks. No rule matches
// such a set.
func (s Set) ofMarks() bool { return s == SetMarks || s == SetFWMarks }

func (s Set) role() role { return setTable[s].role }

// record returns the set that records the virtual servers of a kind of VIP.
func (k VIPKind) record() Set {
	return [...]Set{LoadBalancer: SetLoadBalancer, ClusterIP: SetClusterIP, ExternalIP: SetExternalIP, NodePort: SetNodePorts}[k]
}

// Records returns all members that would record the virtual server of f as weir's
// own.
func Records(f Frontend) []Object { return recordsOf(f) }

// recordsOf returns all members that would record the virtual server of f.
func recordsOf(f Frontend) []Object {
	if f.Mark != 0 {
		return []Object{markMember(f)}
	}
	out := make([]Object, len(records))
	for i, s := range records {
		out[i] = tuple(s, f)
	}
	return out
}

// tuple returns the member for a frontend in a set of type hash:ip,port.
func tuple(s Set, f Frontend) Member {
	return Member{Set: s, Addr: f.Addr, Port: f.Port, Proto: f.Proto}
}

// markMember returns the member of SetMarks or SetFWMarks for a frontend with a mark.
func markMember(f Frontend) Member {
	b := [16]byte{12: byte(f.Mark >> 24), 13: byte(f.Mark >> 16), 14: byte(f.Mark >> 8), 15: byte(f.Mark)}
	a := netip.AddrFrom16(b)
	if FamilyOf(f.Addr) == IPv4 {
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if f.Given {
		return Member{Set: SetFWMarks, Addr: a}
	}
	return Member{Set: SetMarks, Addr: a}
}

// loopBack returns the member of SetLoopBack for a backend.
func loopBack(backend netip.AddrPort, proto Protocol) Member {
	return Member{Set: SetLoopBack, Addr: backend.Addr(), Port: backend.Port(), Proto: proto, Net: single(backend.Addr())}
}

// portMember returns the member for a port number in a set of type bitmap:port.
func portMember(s Set, f Family, port uint16) Member {
	return Member{Set: s, Addr: unspecified(f), Port: port}
}

// frontend returns the frontend of a member, if it is of one only.
func (o Member) frontend() (Frontend, bool) {
	switch o.Set.role() {
	case roleRange, roleRestriction, roleNoLocal, roleKeep, roleMapping, roleAdmission:
		return Frontend{Addr: o.Addr, Port: o.Port, Proto: o.Proto}, true
	case roleRecord:
		if !o.Set.ofMarks() {
			return Frontend{Addr: o.Addr, Port: o.Port, Proto: o.Proto}, true
		}
		b := o.Addr.As16()
		mark := uint32(b[12])<<24 | uint32(b[13])<<16 | uint32(b[14])<<8 | uint32(b[15])
		if o.Set == SetFWMarks {
			return GivenFrontend(o.Family(), mark), true
		}
		return MarkFrontend(o.Family(), mark), true
	}
	return Frontend{}, false
}

// Family returns the family of the member's set.
func (o Member) Family() Family {
	if o.Addr.IsValid() {
		return FamilyOf(o.Addr)
	}
	return FamilyOf(o.Net.Addr())
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
