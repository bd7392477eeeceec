package k8ssync

import (
	"net/netip"

	"weir/lb"
)

// maxWeight is the largest that an IPVS scheduler takes.
const maxWeight = 65535

// throughNodes gives the backends of a port whose endpoints are reached by the
// nodes, each node at its node port. The nodes' own proxies choose the endpoint.
//
// Under externalTrafficPolicy Local a node serves its own endpoints alone, so only
// those which have some are used, with a weight of so many as they have: a
// scheduler that weighs (wrr, wlc, mh) then gives every endpoint its share.
// Otherwise any node will do. A Service without a usable endpoint has no backend:
// clients are refused here, not by a node.
func throughNodes(port servicePort, all []candidate, f lb.Family, env *env, local bool) []weighted {
	chosen, _ := scoped(all, place{}, false)
	if len(chosen) == 0 || port.NodePort == 0 {
		return nil
	}
	shares := map[string]int{}
	if local {
		shares = sharesOf(all)
	}
	var out []weighted
	at := map[netip.Addr]int{}
	for _, n := range balanced(env.nodes) {
		a, ok := n.addr(f)
		share := shares[n.Name]
		if !ok || local && share == 0 {
			continue
		}
		if i, twice := at[a]; twice { // whatever that means, it is one backend
			out[i].share += share
			continue
		}
		at[a] = len(out)
		out = append(out, weighted{
			Backend: lb.Backend{Addr: netip.AddrPortFrom(a, port.NodePort)},
			share:   max(share, 1), node: n.Name, zone: n.Zone,
		})
	}
	return out
}

// sharesOf counts the endpoints of each node that has some: what is ready; if
// nothing is, anywhere, what is leaving. A node whose last ones are leaving is told
// to get no new connections by its health check, too.
func sharesOf(all []candidate) map[string]int {
	ready, leaving := map[string]int{}, map[string]int{}
	for _, c := range all {
		switch {
		case c.Ready:
			ready[c.Node]++
		case c.leaving():
			leaving[c.Node]++
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return leaving
}

// balanced gives the nodes that take traffic: those that are ready. When none is,
// it is more likely that the cluster has lost sight of its nodes than that all of
// them have died, and all are used.
func balanced(nodes []node) []node {
	var ready, rest []node
	for _, n := range nodes {
		switch {
		case n.Excluded:
		case n.Ready:
			ready = append(ready, n)
		default:
			rest = append(rest, n)
		}
	}
	if len(ready) == 0 {
		return rest
	}
	return ready
}

// addr is the address of a node for others: its internal one, or else the
// external one.
func (n node) addr(f lb.Family) (netip.Addr, bool) {
	for _, list := range [][]netip.Addr{n.InternalIPs, n.ExternalIPs} {
		for _, a := range list {
			if lb.FamilyOf(a) == f && special(a) == "" {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
