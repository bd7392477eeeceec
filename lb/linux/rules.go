package linux

import (
	"fmt"
	"net/netip"

	"weir/lb"
)

// The static rules. They refer to sets and never depend on the number of
// services. A packet for a Service takes this way (names without the prefix, and
// the chains that the kernel itself has in capitals with their table):
//
//	client --> nat PREROUTING --> SERVICES: marks what is to be masqueraded
//	       --> filter INPUT --> PROXY-FIREWALL: source ranges
//	                        --> IPVS-FILTER: only service ports (and ping) of a VIP
//	       --> ip_vs at LOCAL_IN puts in the backend's address
//	       --> nat POSTROUTING --> POSTROUTING: masquerades what is marked
//	backend --> filter FORWARD --> FORWARD: replies pass --> ip_vs --> client
//
// The box's own traffic to a VIP goes through nat OUTPUT, where ip_vs takes it at
// LOCAL_OUT. It never sees filter INPUT: source ranges don't restrict the box
// itself. Nor is OUTPUT opened: a box with an OUTPUT policy of DROP has to admit
// its backends.
//
// The text is in the form in which iptables-save gives it back, so that what the
// kernel holds can be compared with it.

// table is weir's part of an iptables table.
type table struct {
	name string
	// jumps lead from the chains of the kernel into weir's, in this order.
	jumps []rule
	// chains are weir's own, with all their rules.
	chains []chain
}

type chain struct {
	name  string
	rules []string // without "-A NAME "
}

// rule is one rule in a chain of the kernel: "-A CHAIN SPEC".
type rule struct{ chain, spec string }

// renderRules gives the rules of a family.
func renderRules(c Config, f lb.Family) []table {
	r := renderer{c, f}
	return []table{r.nat(), r.filter()}
}

type renderer struct {
	Config
	family lb.Family
}

func (r renderer) nat() table {
	var cidrs []string
	for _, c := range r.ClusterCIDRs {
		if lb.FamilyOf(c.Addr()) == r.family {
			cidrs = append(cidrs, fmt.Sprintf("-s %s -j RETURN", c.Masked()))
		}
	}
	return table{
		name: "nat",
		jumps: []rule{
			{"PREROUTING", r.jump("service portals", "SERVICES")},
			{"OUTPUT", r.jump("service portals", "SERVICES")},
			{"POSTROUTING", r.jump("postrouting rules", "POSTROUTING")},
		},
		chains: []chain{
			{r.chain("SERVICES"), []string{
				fmt.Sprintf("-s %s -j RETURN", r.loopback()),
				r.match(lb.SetLoadBalancer, "dst,dst") + " -j " + r.chain("LOAD-BALANCER"),
				r.match(lb.SetClusterIP, "dst,dst") + " -j " + r.chain("CLUSTER-IP"),
				// The end of nat for what is a Service's: a later DNAT rule of a
				// container's host port does not get it.
				r.match(lb.SetClusterIP, "dst,dst") + " -j ACCEPT",
				r.match(lb.SetLoadBalancer, "dst,dst") + " -j ACCEPT",
			}},
			// A client's address is kept by leaving here unmarked. The box's own
			// traffic is always masqueraded: its source would be the VIP, which
			// the backend could not answer.
			{r.chain("LOAD-BALANCER"), []string{
				r.ours(),
				r.match(lb.SetLoadBalancerLocal, "dst,dst") + " -m addrtype ! --src-type LOCAL -j RETURN",
				"-j " + r.chain("MARK-MASQ"),
			}},
			{r.chain("CLUSTER-IP"), append([]string{r.ours()}, r.clusterIP(cidrs)...)},
			{r.chain("MARK-MASQ"), []string{
				fmt.Sprintf("-j MARK --set-xmark %s", r.mask()),
			}},
			{r.chain("POSTROUTING"), []string{
				r.match(lb.SetLoopBack, "dst,dst,src") + " -j MASQUERADE",
				fmt.Sprintf("-m mark ! --mark %s -j RETURN", r.mask()),
				fmt.Sprintf("-j MARK --set-xmark %#x/0x0", r.Mark),
				"-j MASQUERADE --random-fully",
			}},
		},
	}
}

// clusterIP says what of the traffic to ClusterIPs is masqueraded: everything; or
// all but what comes from the cluster's own networks, which route the replies
// back here; or, when nobody told which these are, only the box's own.
func (r renderer) clusterIP(cidrs []string) []string {
	markMasq := "-j " + r.chain("MARK-MASQ")
	switch {
	case r.MasqueradeAll:
		return []string{markMasq}
	case len(r.ClusterCIDRs) > 0:
		return append(cidrs, markMasq)
	}
	return []string{"-m addrtype --src-type LOCAL " + markMasq}
}

func (r renderer) filter() table {
	return table{
		name: "filter",
		jumps: []rule{
			{"INPUT", r.jump("source ranges", "PROXY-FIREWALL")},
			{"INPUT", r.jump("access to service addresses", "IPVS-FILTER")},
			{"FORWARD", r.jump("replies of backends", "FORWARD")},
		},
		chains: []chain{
			{r.chain("PROXY-FIREWALL"), []string{
				r.match(lb.SetFirewall, "dst,dst") + " -j " + r.chain("SOURCE-RANGES-FIREWALL"),
			}},
			{r.chain("SOURCE-RANGES-FIREWALL"), []string{
				r.match(lb.SetSourceCIDR, "dst,dst,src") + " -j RETURN",
				"-j DROP",
			}},
			// ACCEPT, not RETURN: a host firewall that refuses what it does not
			// know would cut all Services.
			{r.chain("IPVS-FILTER"), []string{
				r.match(lb.SetIPVSPorts, "dst,dst") + " -j ACCEPT",
				r.match(lb.SetIPVSIPs, "dst") + " -j " + r.chain("VIP"),
				r.match(lb.SetIPVSNets, "dst") + " -j " + r.chain("VIP"),
			}},
			{r.chain("VIP"), r.vip()},
			// Replies of backends, whatever the policy of FORWARD is. Requests
			// never come here. Strangers' flows do not bear the mark.
			{r.chain("FORWARD"), []string{
				fmt.Sprintf("-m connmark --mark %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", r.mask()),
			}},
		},
	}
}

// vip is what a VIP answers besides its service ports: nothing that listens on
// the box, but errors about its connections, and ping if that is wanted. Without
// the refusal, whatever listens on 0.0.0.0 would be reachable by every VIP. Only
// what is NEW is refused; neighbour discovery is not (conntrack leaves it
// untracked), and is let in past the host's firewall.
//
// The box's own addresses are not spared here. They need not be: a pool that
// contains one is never laid (lb.Plan, PoolHoldsHost), as its route would make the
// whole subnet local, the gateway with it.
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

// ours marks the connection itself, in conntrack, as one of a Service; by that
// its replies are known in FORWARD. (ip_vs changes what conntrack calls the
// reply, but not in a way that a rule could see.)
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

func (r renderer) mask() string { return fmt.Sprintf("%#x/%#x", r.Mark, r.Mark) }

func (r renderer) loopback() netip.Prefix {
	if r.family == lb.IPv6 {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
}
