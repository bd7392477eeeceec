package linux

import (
	"fmt"

	"weir/lb"
)

// Where virtual servers are rules, a packet for a Service takes another way from
// nat on:
//
//	client --> nat PREROUTING --> SERVICES --> VIRTUAL-SERVERS: has a backend's address
//	       --> filter FORWARD --> FORWARD: our new connections pass
//	       --> nat POSTROUTING --> POSTROUTING: masquerades what is marked
//	backend --> filter FORWARD --> FORWARD: replies pass --> client
//
// A backend on the box itself is reached by INPUT, with its own address. What comes
// there with a frontend's address has no backend, and no daemon of the box gets it.
// The box's own traffic has a backend's address from nat OUTPUT on.

// dispatch is the chain of the virtual servers, "" where these are not rules.
func (r renderer) dispatch() string {
	if r.stage == byIPVS {
		return ""
	}
	return natNames{prefix: r.Prefix}.dispatch()
}

// admit begins IPVS-FILTER: what becomes of frontends' packets in INPUT. Those of
// connections that are known are not for us to judge: IPVS may have taken them
// before, or they are replies to the box.
func (r renderer) admit() []string {
	ports := r.match(lb.SetIPVSPorts, "dst,dst")
	ours := fmt.Sprintf("-m connmark --mark %s -m conntrack --ctstate DNAT -j ACCEPT", r.mask())
	if r.stage != byDNAT { // INSIDE-PORTS has changed the port, and nothing else
		return []string{ours, ports + " -j ACCEPT"}
	}
	reject := "icmp-port-unreachable"
	if r.family == lb.IPv6 {
		reject = "icmp6-port-unreachable"
	}
	return []string{
		ours,
		ports + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		"-p tcp " + ports + " -j REJECT --reject-with tcp-reset",
		ports + " -j REJECT --reject-with " + reject,
	}
}

// forward are the rules of chain FORWARD: replies of backends, and where virtual
// servers are rules new connections to them too, whatever the policy of FORWARD
// is. Foreign flows do not have the mark.
//
// What a backend sends that conntrack finds out of order would reach the client
// with the backend's own address, and be answered with a reset. That is
// dropped, of backends whose clients keep their address.
func (r renderer) forward() []string {
	known := fmt.Sprintf("-m connmark --mark %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", r.mask())
	if r.stage == byIPVS {
		return append(r.early(), known)
	}
	return []string{
		r.match(lb.SetLoopBack, "src,src,src") + " -m conntrack --ctstate INVALID -j DROP",
		known,
		fmt.Sprintf("-m connmark --mark %s -m conntrack --ctstate DNAT -j ACCEPT", r.mask()),
	}
}

// early drops what a backend sends in a connection of a box that is gone, before its
// client has sent anything that this box could take it up by: it would reach the
// client with the backend's own address, and be answered with a reset that ends the
// connection. The backend sends it again.
//
// Not where kernels tell each other of connections: then IPVS knows most of them, but
// only behind this chain, and no match tells here (-m ipvs knows what IPVS has seen).
func (r renderer) early() []string {
	if !r.SloppyTCP || r.Sync {
		return nil
	}
	return []string{"-p tcp " + r.match(lb.SetLoopBack, "src,src,src") + " -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctstate NEW -j DROP"}
}

// explain adds to an error of iptables what is probably the reason: what a NAT service
// needs of the kernel beside what the static rules do.
func (d *dnat) explain(err error, p *natService) error {
	if d.rules.backend() == NFT || !nameless.MatchString(err.Error()) {
		return d.rules.explain(err)
	}
	needs := []xtNeed{{"targets", "DNAT", "xt_nat"}}
	if p != nil {
		protos := map[lb.Protocol]xtNeed{lb.TCP: {"matches", "tcp", "xt_tcpudp"}, lb.UDP: {"matches", "udp", "xt_tcpudp"}, lb.SCTP: {"matches", "sctp", "xt_sctp"}}
		needs = append(needs, protos[p.server.Frontend.Proto])
		if p.server.Affinity != 0 {
			needs = append(needs, xtNeed{"matches", "recent", "xt_recent"})
		}
		if len(p.reals) > 1 {
			needs = append(needs, xtNeed{"matches", "statistic", "xt_statistic"})
		}
	}
	return d.rules.explain(err, needs...)
}
