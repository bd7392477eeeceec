package linux

import (
	"fmt"

	"weir/lb"
)

// Where virtual servers are rules, a packet for a Service takes another path from nat on:
//
//	client --> nat PREROUTING --> SERVICES --> VIRTUAL-SERVERS: set a backend's address
//	       --> filter FORWARD --> FORWARD: weir's new connections pass
//	       --> nat POSTROUTING --> POSTROUTING: masquerades marked packets
//	backend --> filter FORWARD --> FORWARD: replies pass --> client
//
// A packet to a backend on the box itself passes INPUT with the backend's address. A packet
// there with a frontend's address has no backend, and no daemon of the box gets it. The box's
// own traffic has a backend's address from nat OUTPUT on.

// dispatch returns the chain of the virtual servers, "" if they are not rules.
func (r renderer) dispatch() string {
	if r.stage == byIPVS {
		return ""
	}
	return natNames{prefix: r.Prefix}.dispatch()
}

// admit returns the first rules of IPVS-FILTER, for packets to frontends in INPUT. Packets of
// known connections pass: IPVS may have them, or they are replies to the box.
func (r renderer) admit() []string {
	ports := r.match(lb.SetIPVSPorts, "dst,dst")
	ours := fmt.Sprintf("-m connmark --mark %s -m conntrack --ctstate DNAT -j ACCEPT", r.mask())
	if r.stage != byDNAT { // INSIDE-PORTS has changed the port only
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

// forward returns the rules of chain FORWARD: replies of backends pass, and where virtual
// servers are rules also new connections to backends, with any policy of FORWARD. Foreign
// flows do not have the mark.
//
// A backend's packet that conntrack finds out of order would reach the client with the
// backend's own address, and be answered with a reset. It is dropped, for backends with
// unmasqueraded clients.
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

// early returns the rule that drops a backend's packets in a connection of a failed box. Only
// the client's next packet lets this box take the connection over. Packets before it would
// reach the client with the backend's own address, and its reset would end the connection. The
// backend sends them again.
//
// There is no such rule with connection synchronization: then IPVS knows most of these
// connections, but only behind this chain, and no match can detect that (-m ipvs matches
// packets after IPVS).
func (r renderer) early() []string {
	if !r.SloppyTCP || r.Sync {
		return nil
	}
	return []string{"-p tcp " + r.match(lb.SetLoopBack, "src,src,src") + " -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctstate NEW -j DROP"}
}

// explain adds the probable reason to an error of iptables: the modules that a NAT service
// needs beside those of the static rules.
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
