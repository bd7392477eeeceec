package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	fleet "weir/cluster"
	"weir/cluster/owner"
	"weir/k8ssync/ipam"
)

// checkFleet complains about what [cluster] and [l2] may say, but not with each other
// and the rest of the configuration.
func (v *provider) checkFleet() {
	v.fleetClashes()
	if v.fleet != nil {
		v.config.Fleet = v.fleet.Fleet
		v.checkMode()
		v.checkTakeover()
		v.ownInterfaces(v.fleet.section, "interfaces", v.fleet.Interfaces)
	}
	if v.l2 == nil {
		return
	}
	v.config.L2 = v.l2.L2
	v.l2.known("pools", "pool", v.poolNames())
	for _, p := range v.pools {
		if slices.Contains(v.l2.texts("pools"), p.Name) {
			v.l2.Pools = append(v.l2.Pools, p.prefixes()...)
		}
	}
	v.ownInterfaces(v.l2.section, "interfaces", v.l2.Interfaces)
	v.checkGateways()
	v.l2.keepKernelQuiet(&v.config.Kernel, v.top.sub("kernel"), v.files)
	if v.fleet == nil {
		v.top.warn(Note, "l2", "without [cluster] the box answers for every VIP: another one that does so too takes them from it",
			"add [cluster] to both where there are two")
	}
}

// ownInterfaces complains of the device of the VIPs among those to others.
func (v *provider) ownInterfaces(s section, name string, interfaces []string) {
	if slices.Contains(interfaces, v.config.Kernel.Device) {
		s.fail(name, strconv.Quote(v.config.Kernel.Device)+" is kernel.device, which leads nowhere", "name those that lead to other hosts")
	}
}

// checkMode tells of ways to share VIPs that come to nothing.
func (v *provider) checkMode() {
	standby := v.fleet.Rules.Mode == owner.ActiveStandby
	peers := v.bgp != nil && (len(v.bgp.peers) > 0 || v.bgp.bad("peer")) || v.top.bad("bgp")
	l2 := v.l2 != nil || v.top.bad("l2")
	switch {
	case !peers && !l2:
		v.top.warn(Note, "cluster", "the members know each other, and nobody hears from them who serves what",
			"add [bgp] with a [[bgp.peer]], or [l2], unless clients find the VIPs otherwise")
	case standby && !peers:
		v.fleet.warn(Warning, "mode", strconv.Quote(owner.ActiveStandby.String())+" is for routers, and there is no [[bgp.peer]]: by [l2] a VIP has one owner in any case",
			"remove it, or add [bgp]")
	}
	if v.fleet.Gossip.Timing == fleet.WAN && l2 {
		v.fleet.warn(Warning, "timing", `with "wan" nobody answers ARP and NDP for half a minute when the owner of a VIP has died`,
			`write "lan"; members that answer ARP for each other are on one`)
	}
	if v.fleet.emptyJoin() {
		v.fleet.warn(Note, "join", "this box asks nobody: it is alone until a member asks for it", "name the other members, on all of them")
	}
	if standby && peers && !v.fleet.Rules.Together {
		v.sharedAggregates()
	}
}

// sharedAggregates warns of routes whose VIPs have different owners.
func (v *provider) sharedAggregates() {
	for _, r := range slices.Concat(v.bgp.rules, v.ofPools) {
		for _, name := range []string{"aggregate", "aggregate_v6"} {
			if r.says(name) && !r.Refuse {
				r.warn(Warning, name, "every member owns some of its VIPs, so all announce it alike: routers don't know which one owns which",
					`write cluster.owners = "one", or leave the aggregate out`)
			}
		}
	}
}

// checkGateways complains of gateways whose owner would not be that of the VIPs.
func (v *provider) checkGateways() {
	for _, g := range v.l2.gateways {
		if v.fleet != nil && !v.fleet.Rules.Together && !v.fleet.bad("owners") {
			g.fail("address", "can't be owned by whoever owns the VIPs: cluster.owners spreads them", `write "one" there, on all members`)
		}
		if v.manyWays() {
			g.warn(Note, "address", `routers lead clients to every member (cluster.mode = "active-active"), and replies that come here to one: those of clients that keep their address fail at the others`,
				`write mode = "active-standby" in [cluster] on all members`)
		}
		v.ownInterfaces(g.section, "interface", []string{g.Interface})
		if v.fleet != nil && g.Address.IsValid() && (g.Address == v.fleet.Gossip.Advertise.Addr() || g.Address == v.fleet.Gossip.Bind.Addr()) {
			g.fail("address", fmt.Sprintf("%q is the box's own, by [cluster]", g.Address), "choose one that is no box's")
		}
	}
}

// manyWays tells whether routers lead clients to every member alike.
func (v *provider) manyWays() bool {
	return v.fleet != nil && v.bgp != nil && len(v.bgp.peers) > 0 && !v.fleet.bad("mode") && v.fleet.Rules.Mode == owner.ActiveActive
}

// takenByFleet are addresses of members, and of gateways.
func (v *provider) takenByFleet() []taken {
	var out []taken
	add := func(s section, name string, a netip.Addr, what string) {
		if a.IsValid() && !a.IsUnspecified() {
			out = append(out, taken{ipam.Range{First: a, Last: a}, what, s.at(name), join(s.shown, name)})
		}
	}
	for _, a := range v.config.Kernel.MasqueradeSource {
		add(v.top.sub("kernel"), "masquerade_source", a, ", kernel.masquerade_source,")
	}
	if v.fleet != nil {
		add(v.fleet.section, "advertise", v.fleet.Gossip.Advertise.Addr(), own)
		add(v.fleet.section, "bind", v.fleet.Gossip.Bind.Addr(), own)
		for _, name := range v.fleet.Gossip.Join {
			if ap, err := netip.ParseAddrPort(name); err == nil {
				add(v.fleet.section, "join", ap.Addr(), ", a member,")
			}
		}
	}
	if v.l2 != nil {
		for _, g := range v.l2.gateways {
			add(g.section, "address", g.Address, ", a gateway,")
		}
	}
	return out
}

// fleetClashes complains of members and gateways that are VIPs: these move.
func (v *provider) fleetClashes() {
	vips := vipsOf(v.services)
	for _, t := range v.takenByFleet() {
		if c, ok := vips[t.First]; ok {
			v.add(Error, t.at, t.key, fmt.Sprintf("%q is a VIP of %s at %s", t.First, called(c.by), c.at), "name an address that is no VIP")
		}
	}
}
