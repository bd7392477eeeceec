package linux

import (
	"net/netip"
	"slices"

	"weir/lb"
)

// The static rules. They match sets and never depend on the number of services, except those
// of INSIDE-PORTS, which few services need. The path of a packet for a Service (names without
// the prefix; the kernel's own chains with their table):
//
//	client --> mangle PREROUTING --> PROXY-FIREWALL: source ranges, and only VIPs by a tunnel
//	                             --> TRAFFIC-POLICY: clients of a group, and clients
//	                                 inside, go to the virtual server of a mark;
//	                                 frontends of NO-LOCAL drop new connections
//	       --> nat PREROUTING --> SERVICES: marks packets to be masqueraded
//	                          --> INSIDE-PORTS: the backends' port for clients inside with
//	                              affinity, as ip_vs keeps the client's for a mark
//	       --> filter INPUT --> IPVS-FILTER: only service ports (and ping) of a VIP
//	       --> ip_vs at LOCAL_IN sets the backend's address
//	       --> nat POSTROUTING --> POSTROUTING: masquerades marked packets, except to a VIP
//	backend --> filter FORWARD --> FORWARD: replies pass --> ip_vs
//	        --> replies POSTROUTING --> REPLIES: the frontend that the client connected to (or INPUT)
//	        --> mangle POSTROUTING --> TUNNEL-SEGMENTS: the MSS for clients behind tunnels --> client
//
// The box's own traffic to a VIP passes mangle OUTPUT and nat OUTPUT, then ip_vs takes it at
// LOCAL_OUT. It never passes filter INPUT. weir does not open OUTPUT: a box with an OUTPUT
// policy of DROP must admit its backends. After ip_vs has set a backend's address, the packet
// passes mangle OUTPUT again, where no rule matches.
//
// The rules are values (rule.go). ruleiptables.go renders them for iptables, nftrules.go for nf_tables.

// ruleTable is weir's part of a table, with the names of iptables.
type ruleTable struct {
	name string
	// jumps come from the kernel's chains, in this order.
	jumps  []ruleJump
	chains []ruleChain
	// open is the chain with the rules of virtual servers; "" without one.
	open string
}

// ruleJump sends all packets of a kernel's chain through one of weir's.
type ruleJump struct{ from, comment, to string }

// ruleChain is a chain of weir with all its rules.
type ruleChain struct {
	name  string // without the prefix
	rules []rule
}

// staticRules returns the rules of a family.
func staticRules(c Config, f lb.Family, s stage, ports insidePorts) []ruleTable {
	r := ruleMaker{c, f, s, ports}
	return []ruleTable{r.mangle(), r.nat(), r.filter()}
}

type ruleMaker struct {
	Config
	family lb.Family
	stage  stage
	ports  insidePorts
}

func (r ruleMaker) mangle() ruleTable {
	// Replies of a masqueraded connection may have the port of a NodePort. And most packets are
	// replies.
	reply := when(isReply{}).then(pass)
	// Only new connections: established ones survive the last backend of this node.
	noLocal := when(to(lb.SetNoLocal), state("NEW")).then(drop)
	return ruleTable{
		name: "mangle",
		jumps: append([]ruleJump{
			{"PREROUTING", "source ranges", "PROXY-FIREWALL"},
			{"PREROUTING", "traffic policies", "TRAFFIC-POLICY"},
			{"OUTPUT", "source ranges", "OWN-FIREWALL"},
			{"OUTPUT", "traffic policies", "TRAFFIC-POLICY"},
		}, r.lowerSegments()...),
		chains: []ruleChain{
			{"PROXY-FIREWALL", slices.Concat(r.tunnels(), []rule{reply}, r.guardOwnSource(), []rule{
				when(to(lb.SetFirewall)).then(jump("SOURCE-RANGES-FIREWALL")),
			})},
			// The other box sends packets of clients to VIPs, and ICMP errors of their connections. A
			// packet that claims to come from a pod is forged: pods reach the VIPs on their own node.
			{"TUNNEL", append(r.insideSources(drop), []rule{
				when(to(lb.SetLoadBalancer)).then(pass),
				when(protocol("icmp"), state("RELATED")).then(pass),
				when().then(drop),
			}...)},
			// The other box puts the packets of clients into a tunnel, and does not see the answers. A
			// client of a VIP must not send segments that do not fit. ip_vs has set the source before
			// this chain. The kernel never raises the value.
			{"TUNNEL-SEGMENTS", r.segments()},
			// The box accepts the replies to its checks of VIPs (Config.CheckVIPs), and no other tracked
			// packet that claims to be its own, except ICMP errors. A server without the VIP may send the
			// check itself back. Neighbour discovery is untracked.
			{ownSourceChain, []rule{
				when(inputInterface("lo")).then(pass),
				when(state("INVALID,NEW,ESTABLISHED")).then(drop),
			}},
			// The box itself is admitted by its addresses. The source of its packets is usually the
			// VIP, or the source of a pool's route, or an address that a program has bound.
			{"OWN-FIREWALL", append(r.passMarked(), []rule{
				when(to(lb.SetFirewall), inSet{set: lb.SetSourceIP, dims: "dst,dst,dst", not: true}).then(jump("SOURCE-RANGES-FIREWALL")),
			}...)},
			{"SOURCE-RANGES-FIREWALL", []rule{
				when(inSet{set: lb.SetSourceCIDR, dims: "dst,dst,src"}).then(pass),
				when().then(drop),
			}},
			// A goto: packets from inside return to the kernel's chain, where foreign rules follow.
			{"TRAFFIC-POLICY", append(append([]rule{reply}, r.passMarked()...), []rule{
				when(to(lb.SetGroup)).then(goTo("GROUP")),
				when(to(lb.SetInternal)).then(goTo("INSIDE")),
				noLocal,
			}...)},
			{"GROUP", []rule{when().then(markFrom(lb.SetGroup))}},
			{"INSIDE", append(append(
				[]rule{when(ownSource{}).then(goTo("INTERNAL"))},
				r.inside(goTo("INTERNAL"))...), noLocal)},
			{"INTERNAL", []rule{when().then(markFrom(lb.SetInternal))}},
		},
	}
}

// passMarked returns the rule by which the checks of VIPs keep their mark, past all source ranges.
func (r ruleMaker) passMarked() []rule {
	if !r.CheckVIPs {
		return nil
	}
	return []rule{when(mark{bits: marking{r.Mark}.all()}).then(pass)}
}

// guardOwnSource returns the rule for packets with a source address of the box.
func (r ruleMaker) guardOwnSource() []rule {
	if !r.CheckVIPs {
		return nil
	}
	return []rule{when(ownSource{}).then(jump(ownSourceChain))}
}

// tunnels returns the rule for packets from tunnel devices. It comes before the one for replies: a
// box gets no reply through a tunnel.
func (r ruleMaker) tunnels() []rule {
	if !r.Decapsulates || r.family != lb.IPv4 {
		return nil
	}
	return []rule{when(inputInterface(lb.TunnelPrefix + "+")).then(jump("TUNNEL"))}
}

// lowerSegments returns the jump to the rule for the segments of clients. Boxes without tunnels have none,
// as all packets would pass it.
func (r ruleMaker) lowerSegments() []ruleJump {
	if len(r.tunnels()) == 0 {
		return nil
	}
	return []ruleJump{{"POSTROUTING", "segments for tunnels", "TUNNEL-SEGMENTS"}}
}

// segments returns the rule for the segments of clients: the headers of IP and TCP, and that of the
// tunnel, have 20 bytes each.
func (r ruleMaker) segments() []rule {
	if len(r.tunnels()) == 0 {
		return nil
	}
	answer := inSet{set: lb.SetLoadBalancer, dims: "src,src"}
	return []rule{when(protocol("tcp"), accepting{}, answer).then(setSegment(r.TunnelMTU - 3*20))}
}

// inside returns rules that match packets from inside the cluster, except those of the box
// itself.
func (r ruleMaker) inside(then action) []rule {
	out := r.insideSources(then)
	for _, name := range r.LocalInterfaces {
		out = append(out, when(inputInterface(name)).then(then))
	}
	return out
}

// insideSources returns the rules of inside that match addresses.
func (r ruleMaker) insideSources(then action) (out []rule) {
	for _, c := range r.ClusterCIDRs {
		if lb.FamilyOf(c.Addr()) == r.family {
			out = append(out, when(source(c.Masked())).then(then))
		}
	}
	return out
}

func (r ruleMaker) nat() ruleTable {
	ours := bits{r.Mark, r.Mark}
	return ruleTable{
		name: "nat",
		open: r.dispatch(),
		jumps: []ruleJump{
			{"PREROUTING", "service portals", "SERVICES"},
			{"OUTPUT", "service portals", "SERVICES"},
			{"POSTROUTING", "postrouting rules", "POSTROUTING"},
		},
		chains: []ruleChain{
			{"SERVICES", r.services()},
			// A packet that returns without the mark keeps the client's address. Packets with a mark of
			// INTERNAL or GROUP get no other mark here: ip_vs would not find their virtual server.
			r.outside("LOAD-BALANCER", lb.SetLoadBalancer),
			{"CLUSTER-IP", append([]rule{r.ours()}, r.clusterIP()...)},
			r.outside("EXTERNAL-IP", lb.SetExternalIP),
			r.outside("NODE-PORT", lb.SetNodePorts),
			{insidePortsChain, r.ports.rules(marking{r.Mark})},
			{fwmarkChain, r.fwmarks()},
			{"MARK-MASQ", []rule{
				when(mark{bits: marking{r.Mark}.all()}).then(pass),
				when().then(setMark(ours)),
			}},
			// The box's own traffic to a Service is always masqueraded: its source may be the VIP, to
			// which no backend could reply. Its packets are matched by the connection's mark and marked
			// only here, behind ip_vs. They never get an address of Sources: the replies to that may go
			// to another box.
			//
			// The packets of some groups are masqueraded by a bit of their mark (lb.MasqueradedMark).
			//
			// Packets that still have a VIP as destination go to a direct backend (lb.Forwarding), which
			// replies to the client itself.
			{"POSTROUTING", append(append([]rule{
				when(to(lb.SetIPVSPorts)).then(pass),
				when(inSet{set: lb.SetLoopBack, dims: "dst,dst,src"}).then(masquerade{}),
				when(connMark(ours), ownSource{}).then(setMark(ours)),
				when(mark{bits: marking{r.Mark}.masqueraded()}).then(setMark(ours)),
				when(mark{bits: ours, not: true}).then(pass),
				when().then(setMark{r.Mark, 0}),
			}, r.source()...), when().then(masquerade{random: true}))},
		},
	}
}

// outside returns the chain of VIPs for clients outside the cluster.
func (r ruleMaker) outside(name string, vips lb.Set) ruleChain {
	return ruleChain{name, []rule{r.ours(), when(to(vips.Exceptions())).then(pass), r.masquerade()}}
}

func (r ruleMaker) masquerade() rule { return when().then(jump("MARK-MASQ")) }

// kinds are the sets of VIPs and the chains for their connections.
var kinds = [...]struct {
	set   lb.Set
	chain string
}{
	{lb.SetLoadBalancer, "LOAD-BALANCER"}, {lb.SetClusterIP, "CLUSTER-IP"},
	{lb.SetExternalIP, "EXTERNAL-IP"}, {lb.SetNodePorts, "NODE-PORT"},
}

// services returns the rules that send each connection to the chain of its kind of VIP. There
// table nat ends for it, before the DNAT rules of container host ports.
func (r ruleMaker) services() []rule {
	out := []rule{when(source(r.loopback())).then(pass), when().then(jump(fwmarkChain))}
	for _, k := range kinds {
		out = append(out, when(to(k.set)).then(jump(k.chain)))
	}
	if to := r.dispatch(); to != "" {
		out = append(out, when(inSet{set: lb.SetIPVSPorts, dims: "dst,dst"}).then(jump(to)))
	}
	out = append(out, when(mark{bits: marking{r.Mark}.all()}).then(jump(insidePortsChain)))
	for _, k := range kinds {
		out = append(out, when(to(k.set)).then(keepDestination{}))
	}
	return out
}

// clusterIP returns the rules for traffic to ClusterIPs, beside the box's own: all of it is
// masqueraded; or all that comes from outside the cluster, because replies to clients inside
// are routed back here; or none, if the inside is not configured.
func (r ruleMaker) clusterIP() []rule {
	switch {
	case r.MasqueradeAll:
		return []rule{r.masquerade()}
	case len(r.ClusterCIDRs)+len(r.LocalInterfaces) > 0:
		return append(r.inside(pass), r.masquerade())
	}
	return nil
}

// source returns the rules that masquerade with Sources. Without --random-fully a client keeps
// its port, unless another one has it to the same backend: then backends see the same client
// from each box.
func (r ruleMaker) source() (out []rule) {
	for _, a := range r.Sources {
		if lb.FamilyOf(a) == r.family {
			out = append(out, when(ownSource{not: true}).then(sourceNAT(a)))
		}
	}
	return out
}

func (r ruleMaker) filter() ruleTable {
	return ruleTable{
		name: "filter",
		jumps: []ruleJump{
			{"INPUT", "access to service addresses", "IPVS-FILTER"},
			{"FORWARD", "replies of backends", "FORWARD"},
		},
		chains: []ruleChain{
			// ACCEPT, not RETURN: a host firewall that refuses unknown packets would cut all Services.
			// Health check ports are for the node's own addresses: the chain VIP has refused the
			// others.
			{"IPVS-FILTER", append(append(r.admitMarks(), r.admit()...), []rule{
				when(inSet{set: lb.SetIPVSIPs, dims: "dst"}).then(jump("VIP")),
				when(inSet{set: lb.SetIPVSNets, dims: "dst"}).then(jump("VIP")),
				when(protocol("tcp"), inSet{set: lb.SetHealthCheckNodePort, dims: "dst"}).then(accept),
			}...)},
			{"VIP", r.vip()},
			{"FORWARD", r.forward()},
		},
	}
}

// vip returns the rules for packets to a VIP without a service port: errors about its
// connections pass, and ping if it is enabled. Without the refusal, any program that listens
// on 0.0.0.0 would be reachable at each VIP. Only packets of state NEW are refused. Neighbour
// discovery is untracked, and passes the host's firewall.
//
// The box's own addresses have no exception here. They need none: a pool that contains one
// gets no route (lb.Plan, PoolCoversHost), because that would make the whole subnet local,
// with the gateway.
func (r ruleMaker) vip() []rule {
	proto, echo := protocol("icmp"), icmpType(8)
	var out []rule
	if r.family == lb.IPv6 {
		proto, echo = "ipv6-icmp", 128
		out = append(out, when(proto, icmpType(135)).then(accept), when(proto, icmpType(136)).then(accept))
	}
	ping := drop
	if r.Ping {
		ping = accept
	}
	return append(out,
		when(proto, echo).then(ping),
		when(proto, state("RELATED")).then(accept),
		when(protocol("tcp"), state("NEW")).then(refuse{reset: true}),
		when(state("NEW")).then(refuse{}),
	)
}

// ours returns the rule that marks the connection in conntrack as one of a Service. FORWARD
// matches replies by this mark. (ip_vs alters the reply tuple of conntrack, but no rule can
// match that.)
func (r ruleMaker) ours() rule { return when().then(setConnMark{r.Mark, r.Mark}) }

func (r ruleMaker) mask() bits { return bits{r.Mark, r.Mark} }

func (r ruleMaker) loopback() netip.Prefix {
	if r.family == lb.IPv6 {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
}
