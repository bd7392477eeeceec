package linux

import (
	"fmt"
	"net/netip"
	"strings"

	"weir/lb"
)

// The static rules. They match sets and never depend on the number of services, except those
// of INSIDE-PORTS, which few services need. The path of a packet for a Service (names without
// the prefix; the kernel's own chains with their table):
//
//	client --> mangle PREROUTING --> PROXY-FIREWALL: source ranges
//	                             --> TRAFFIC-POLICY: clients inside go to the virtual
//	                                 server of a mark; frontends of NO-LOCAL drop
//	                                 new connections
//	       --> nat PREROUTING --> SERVICES: marks packets to be masqueraded
//	                          --> INSIDE-PORTS: the backends' port for clients inside with
//	                              affinity, as ip_vs keeps the client's for a mark
//	       --> filter INPUT --> IPVS-FILTER: only service ports (and ping) of a VIP
//	       --> ip_vs at LOCAL_IN sets the backend's address
//	       --> nat POSTROUTING --> POSTROUTING: masquerades marked packets
//	backend --> filter FORWARD --> FORWARD: replies pass --> ip_vs --> client
//
// The box's own traffic to a VIP passes mangle OUTPUT and nat OUTPUT, then ip_vs takes it at
// LOCAL_OUT. It never passes filter INPUT. weir does not open OUTPUT: a box with an OUTPUT
// policy of DROP must admit its backends. After ip_vs has set a backend's address, the packet
// passes mangle OUTPUT again, where no rule matches.
//
// The text has the form that iptables-save prints, so that the two can be compared.

// table is weir's part of an iptables table.
type table struct {
	name string
	// jumps are the rules in the kernel's chains that jump to weir's, in this order.
	jumps []rule
	// chains are weir's own with all their rules.
	chains []chain
	// open is the chain with the rules of virtual servers; "" without one.
	open string
}

type chain struct {
	name  string
	rules []string // without "-A NAME "
}

// rule is one rule in a chain of the kernel: "-A CHAIN SPEC".
type rule struct{ chain, spec string }

// renderRules returns the rules of a family where IPVS has the virtual servers.
func renderRules(c Config, f lb.Family) []table { return renderStage(c, f, byIPVS, nil) }

func renderStage(c Config, f lb.Family, s stage, ports insidePorts) []table {
	r := renderer{c, f, s, ports}
	return []table{r.mangle(), r.nat(), r.filter()}
}

type renderer struct {
	Config
	family lb.Family
	stage  stage
	ports  insidePorts
}

func (r renderer) mangle() table {
	// Replies of a masqueraded connection may have the port of a NodePort. And most packets are
	// replies.
	reply := "-m conntrack --ctdir REPLY -j RETURN"
	// Only new connections: established ones survive the last backend of this node.
	noLocal := r.match(lb.SetNoLocal, "dst,dst") + " -m conntrack --ctstate NEW -j DROP"
	return table{
		name: "mangle",
		jumps: []rule{
			{"PREROUTING", r.jump("source ranges", "PROXY-FIREWALL")},
			{"PREROUTING", r.jump("traffic policies", "TRAFFIC-POLICY")},
			{"OUTPUT", r.jump("source ranges", "OWN-FIREWALL")},
			{"OUTPUT", r.jump("traffic policies", "TRAFFIC-POLICY")},
		},
		chains: []chain{
			{r.chain("PROXY-FIREWALL"), []string{
				reply,
				r.match(lb.SetFirewall, "dst,dst") + " -j " + r.chain("SOURCE-RANGES-FIREWALL"),
			}},
			// The box itself is admitted by its addresses. The source of its packets is usually the
			// VIP, or the source of a pool's route, or an address that a program has bound.
			{r.chain("OWN-FIREWALL"), []string{
				r.match(lb.SetFirewall, "dst,dst") + " " + r.noMatch(lb.SetSourceIP, "dst,dst,dst") + " -j " + r.chain("SOURCE-RANGES-FIREWALL"),
			}},
			{r.chain("SOURCE-RANGES-FIREWALL"), []string{
				r.match(lb.SetSourceCIDR, "dst,dst,src") + " -j RETURN",
				"-j DROP",
			}},
			// -g: packets from inside return to the kernel's chain, where foreign rules follow.
			{r.chain("TRAFFIC-POLICY"), []string{
				reply,
				r.match(lb.SetInternal, "dst,dst") + " -g " + r.chain("INSIDE"),
				noLocal,
			}},
			{r.chain("INSIDE"), append(append(
				[]string{"-m addrtype --src-type LOCAL -g " + r.chain("INTERNAL")},
				r.inside("-g "+r.chain("INTERNAL"))...), noLocal)},
			{r.chain("INTERNAL"), []string{
				"-j SET --map-set " + lb.SetInternal.Name(r.Prefix, r.family) + " dst,dst --map-mark",
			}},
		},
	}
}

// inside returns rules that match packets from inside the cluster, except those of the box
// itself.
func (r renderer) inside(then string) (out []string) {
	for _, c := range r.ClusterCIDRs {
		if lb.FamilyOf(c.Addr()) == r.family {
			out = append(out, fmt.Sprintf("-s %s %s", c.Masked(), then))
		}
	}
	for _, name := range r.LocalInterfaces {
		out = append(out, fmt.Sprintf("-i %s %s", name, then))
	}
	return out
}

func (r renderer) nat() table {
	return table{
		name: "nat",
		open: r.dispatch(),
		jumps: []rule{
			{"PREROUTING", r.jump("service portals", "SERVICES")},
			{"OUTPUT", r.jump("service portals", "SERVICES")},
			{"POSTROUTING", r.jump("postrouting rules", "POSTROUTING")},
		},
		chains: []chain{
			{r.chain("SERVICES"), r.services()},
			// A packet that returns without the mark keeps the client's address. Packets with a mark of
			// INTERNAL get no other mark here: ip_vs would not find their virtual server.
			r.outside("LOAD-BALANCER", lb.SetLoadBalancerLocal),
			{r.chain("CLUSTER-IP"), append([]string{r.ours()}, r.clusterIP()...)},
			r.outside("EXTERNAL-IP", lb.SetExternalIPLocal),
			r.outside("NODE-PORT", lb.SetNodePortsLocal),
			{r.chain("INSIDE-PORTS"), r.ports.rules(marking{r.Mark})},
			{r.chain("MARK-MASQ"), []string{
				fmt.Sprintf("-m mark --mark %s -j RETURN", marking{r.Mark}.all()),
				fmt.Sprintf("-j MARK --set-xmark %s", r.mask()),
			}},
			// The box's own traffic to a Service is always masqueraded: its source may be the VIP, to
			// which no backend could reply. Its packets are matched by the connection's mark and marked
			// only here, behind ip_vs. They never get an address of Sources: the replies to that may go
			// to another box.
			{r.chain("POSTROUTING"), append(append([]string{
				r.match(lb.SetLoopBack, "dst,dst,src") + " -j MASQUERADE",
				fmt.Sprintf("-m connmark --mark %s -m addrtype --src-type LOCAL -j MARK --set-xmark %s", r.mask(), r.mask()),
				fmt.Sprintf("-m mark ! --mark %s -j RETURN", r.mask()),
				fmt.Sprintf("-j MARK --set-xmark %#x/0x0", r.Mark),
			}, r.source()...), "-j MASQUERADE --random-fully")},
		},
	}
}

// outside returns the chain of VIPs for clients outside the cluster. The packets to a
// member of keep are not masqueraded.
func (r renderer) outside(name string, keep lb.Set) chain {
	return chain{r.chain(name), []string{r.ours(), r.match(keep, "dst,dst") + " -j RETURN", r.masquerade()}}
}

func (r renderer) masquerade() string { return "-j " + r.chain("MARK-MASQ") }

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
func (r renderer) services() []string {
	out := []string{fmt.Sprintf("-s %s -j RETURN", r.loopback())}
	for _, k := range kinds {
		out = append(out, r.match(k.set, "dst,dst")+" -j "+r.chain(k.chain))
	}
	if to := r.dispatch(); to != "" {
		out = append(out, r.match(lb.SetIPVSPorts, "dst,dst")+" -j "+to)
	}
	out = append(out, fmt.Sprintf("-m mark --mark %s -j %s", marking{r.Mark}.all(), r.chain("INSIDE-PORTS")))
	for _, k := range kinds {
		out = append(out, r.match(k.set, "dst,dst")+" -j ACCEPT")
	}
	return out
}

// clusterIP returns the rules for traffic to ClusterIPs, beside the box's own: all of it is
// masqueraded; or all that comes from outside the cluster, because replies to clients inside
// are routed back here; or none, if the inside is not configured.
func (r renderer) clusterIP() []string {
	switch {
	case r.MasqueradeAll:
		return []string{r.masquerade()}
	case len(r.ClusterCIDRs)+len(r.LocalInterfaces) > 0:
		return append(r.inside("-j RETURN"), r.masquerade())
	}
	return nil
}

// source returns the rules that masquerade with Sources. Without --random-fully a client keeps
// its port, unless another one has it to the same backend: then backends see the same client
// from each box.
func (r renderer) source() (out []string) {
	for _, a := range r.Sources {
		if lb.FamilyOf(a) == r.family {
			out = append(out, fmt.Sprintf("-m addrtype ! --src-type LOCAL -j SNAT --to-source %s", a))
		}
	}
	return out
}

func (r renderer) filter() table {
	return table{
		name: "filter",
		jumps: []rule{
			{"INPUT", r.jump("access to service addresses", "IPVS-FILTER")},
			{"FORWARD", r.jump("replies of backends", "FORWARD")},
		},
		chains: []chain{
			// ACCEPT, not RETURN: a host firewall that refuses unknown packets would cut all Services.
			// Health check ports are for the node's own addresses: the chain VIP has refused the
			// others.
			{r.chain("IPVS-FILTER"), append(r.admit(), []string{
				r.match(lb.SetIPVSIPs, "dst") + " -j " + r.chain("VIP"),
				r.match(lb.SetIPVSNets, "dst") + " -j " + r.chain("VIP"),
				"-p tcp " + r.match(lb.SetHealthCheckNodePort, "dst") + " -j ACCEPT",
			}...)},
			{r.chain("VIP"), r.vip()},
			{r.chain("FORWARD"), r.forward()},
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
func (r renderer) vip() []string {
	proto, echo, reject := "icmp", "-p icmp -m icmp --icmp-type 8", "icmp-port-unreachable"
	var out []string
	if r.family == lb.IPv6 {
		proto, echo, reject = "ipv6-icmp", "-p ipv6-icmp -m icmp6 --icmpv6-type 128", "icmp6-port-unreachable"
		out = append(out, "-p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT",
			"-p ipv6-icmp -m icmp6 --icmpv6-type 136 -j ACCEPT")
	}
	target := "DROP"
	if r.Ping {
		target = "ACCEPT"
	}
	return append(out,
		echo+" -j "+target,
		fmt.Sprintf("-p %s -m conntrack --ctstate RELATED -j ACCEPT", proto),
		"-p tcp -m conntrack --ctstate NEW -j REJECT --reject-with tcp-reset",
		"-m conntrack --ctstate NEW -j REJECT --reject-with "+reject,
	)
}

// ours returns the rule that marks the connection in conntrack as one of a Service. FORWARD
// matches replies by this mark. (ip_vs alters the reply tuple of conntrack, but no rule can
// match that.)
func (r renderer) ours() string {
	return fmt.Sprintf("-j CONNMARK --set-xmark %s", r.mask())
}

func (r renderer) chain(name string) string { return r.Prefix + "-" + name }

func (r renderer) jump(what, to string) string {
	return fmt.Sprintf(`-m comment --comment "weir: %s" -j %s`, what, r.chain(to))
}

func (r renderer) match(s lb.Set, dimensions string) string {
	return fmt.Sprintf("-m set --match-set %s %s", s.Name(r.Prefix, r.family), dimensions)
}

func (r renderer) noMatch(s lb.Set, dimensions string) string {
	return strings.Replace(r.match(s, dimensions), "--match-set", "! --match-set", 1)
}

func (r renderer) mask() string { return fmt.Sprintf("%#x/%#x", r.Mark, r.Mark) }

func (r renderer) loopback() netip.Prefix {
	if r.family == lb.IPv6 {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
}
