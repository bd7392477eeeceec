package k8ssync

import (
	"net/netip"

	"weir/lb"
)

// throughNodes returns the backends of a port that are reached via the nodes, each at the same
// port: the node port, or with tunnels that of the Service. The nodes' own proxies choose the
// endpoint.
//
// Under externalTrafficPolicy Local a node serves only its own endpoints. Only nodes with
// endpoints are used then, with their number as the weight, so that a weighted scheduler
// (wrr, wlc, mh) balances the endpoints. Otherwise any node is used. A Service without a
// usable endpoint has no backend: the box refuses its clients, not a node.
func throughNodes(port uint16, all []candidate, f lb.Family, env *env, local bool) []weighted {
	chosen, _ := scoped(all, place{}, false)
	if len(chosen) == 0 || port == 0 {
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
		if i, twice := at[a]; twice { // two nodes with one address are one backend
			out[i].share += share
			continue
		}
		at[a] = len(out)
		out = append(out, weighted{
			Backend: lb.Backend{Addr: netip.AddrPortFrom(a, port)},
			share:   max(share, 1), node: n.Name, zone: n.Zone,
		})
	}
	return out
}

// sharesOf counts the endpoints of each node: the ready ones; if no node has any, the
// leaving ones. The health check of a node with only leaving endpoints also refuses new
// connections.
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

// balanced returns the nodes that receive traffic: those that are ready. If none is, all
// are used: more likely the control plane has lost its nodes than that all have failed.
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

// addr returns the address of a node: its internal one, or else the external one.
func (n node) addr(f lb.Family) (netip.Addr, bool) {
	for _, list := range [][]netip.Addr{n.InternalIPs, n.ExternalIPs} {
		for _, a := range list {
			if lb.FamilyOf(a) == f && lb.Reserved(a, a) == "" {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
