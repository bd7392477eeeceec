package linux

import "weir/lb"

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
func (r ruleMaker) dispatch() string {
	if r.stage == byIPVS {
		return ""
	}
	return virtualServers
}

// admit returns the first rules of IPVS-FILTER, for packets to frontends in INPUT. Packets of
// known connections pass: IPVS may have them, or they are replies to the box.
func (r ruleMaker) admit() []rule {
	ours := when(connMark(r.mask()), state("DNAT")).then(accept)
	if !r.stage.refuses() { // INSIDE-PORTS has changed the port only
		return []rule{ours, when(to(lb.SetIPVSPorts)).then(accept)}
	}
	return []rule{
		ours,
		when(to(lb.SetIPVSPorts), state("RELATED,ESTABLISHED")).then(accept),
		when(protocol("tcp"), to(lb.SetIPVSPorts)).then(refuse{reset: true}),
		when(to(lb.SetIPVSPorts)).then(refuse{}),
	}
}

// forward returns the rules of chain FORWARD: replies of backends pass, and where virtual
// servers are rules also new connections to backends, with any policy of FORWARD. Foreign
// flows do not have the mark.
//
// A backend's packet that conntrack finds out of order would reach the client with the
// backend's own address, and be answered with a reset. It is dropped, for backends with
// unmasqueraded clients.
func (r ruleMaker) forward() []rule {
	known := when(connMark(r.mask()), state("RELATED,ESTABLISHED")).then(accept)
	if r.stage == byIPVS {
		return append(r.early(), known)
	}
	return []rule{
		when(fromBackend, state("INVALID")).then(drop),
		known,
		when(connMark(r.mask()), state("DNAT")).then(accept),
	}
}

// fromBackend matches packets of backends with unmasqueraded clients.
var fromBackend = inSet{set: lb.SetLoopBack, dims: "src,src,src"}

// early returns the rule that drops a backend's packets in a connection of a failed box. Only
// the client's next packet lets this box take the connection over. Packets before it would
// reach the client with the backend's own address, and its reset would end the connection. The
// backend sends them again.
//
// There is no such rule with connection synchronization: then IPVS knows most of these
// connections, but only behind this chain, and no match can detect that (-m ipvs matches
// packets after IPVS).
func (r ruleMaker) early() []rule {
	if !r.SloppyTCP || r.Sync {
		return nil
	}
	return []rule{when(protocol("tcp"), fromBackend, notFirst{}, state("NEW")).then(drop)}
}

// explain adds the probable reason to an error of iptables: the modules that a NAT service
// needs beside those of the static rules.
func (d *dnat) explain(err error, p *natService) error {
	if d.nft != nil {
		return err
	}
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
