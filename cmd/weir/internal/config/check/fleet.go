package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	fleet "weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// fleetCheck checks [fleet] and [l2] against the other tables.
type fleetCheck struct{ *Draft }

func (d fleetCheck) all() {
	m, l := d.VIPs.Fleet, d.VIPs.L2
	static := d.staticVIPs()
	for _, t := range d.takenByFleet() {
		if c, ok := static[t.First]; ok {
			d.Top.Add(source.Error, t.at, t.key, fmt.Sprintf("%q is a VIP of %s at %s", t.First, c.by.Called(), c.at), "use an address other than a VIP")
		}
	}
	if m != nil {
		d.mode()
		d.takeover()
		d.interfaces(m.Section, "interfaces", m.Interfaces)
	}
	if l == nil {
		return
	}
	l.Known("pools", "pool", d.PoolNames())
	d.interfaces(l.Section, "interfaces", l.Interfaces)
	d.gateways()
	d.quietKernel()
	if m == nil {
		d.Top.Warn(source.Note, "l2", "without [fleet] this box answers for every VIP, and so would a second box with [l2]",
			"add [fleet] to both if there are two")
	}
}

// interfaces reports the device of the VIPs among those to other hosts.
func (d fleetCheck) interfaces(s schema.Section, name string, interfaces []string) {
	if slices.Contains(interfaces, d.Kernel.Device) {
		s.Fail(name, strconv.Quote(d.Kernel.Device)+" is kernel.device, which is not connected to any host", "name interfaces to other hosts")
	}
}

// mode reports modes without an effect.
func (d fleetCheck) mode() {
	m := d.VIPs.Fleet
	standby := m.Rules.Mode == owner.ActiveStandby
	peers := d.VIPs.BGP != nil && (len(d.VIPs.BGP.Peers) > 0 || d.VIPs.BGP.Bad("peer")) || d.Top.Bad("bgp")
	l2 := d.VIPs.L2 != nil || d.Top.Bad("l2")
	switch {
	case !peers && !l2:
		d.Top.Warn(source.Note, "fleet", "the VIPs are announced neither via BGP nor via ARP and NDP",
			"add [bgp] with a [[bgp.peer]], or [l2], unless clients find the VIPs otherwise")
	case standby && !peers:
		m.Warn(source.Warning, "mode", strconv.Quote(owner.ActiveStandby.String())+" has no effect without a [[bgp.peer]]: with [l2] a VIP has one owner in either mode",
			"remove it, or add [bgp]")
	}
	if m.Gossip.Timing == fleet.WAN && l2 {
		m.Warn(source.Warning, "timing", `with "wan" no box answers ARP and NDP for half a minute after the owner of a VIP has failed`,
			`use "lan"; members that answer ARP for each other are on one network`)
	}
	if m.EmptyJoin() {
		m.Warn(source.Note, "join", "this box contacts no member and waits until a member contacts it", "name the other members, on all of them")
	}
	if standby && peers && !m.Rules.SingleOwner {
		d.sharedAggregates()
	}
}

// sharedAggregates warns of routes for VIPs with different owners.
func (d fleetCheck) sharedAggregates() {
	for _, r := range slices.Concat(d.VIPs.BGP.Rules, d.PoolRules) {
		for _, name := range []string{"aggregation_length", "aggregation_length_v6"} {
			if r.Changed(name) && !r.Refuse {
				r.Warn(source.Warning, name, "its VIPs have different owners, so all members announce it equally and routers do not prefer the owner",
					`use fleet.placement = "single", or remove the aggregation`)
			}
		}
	}
}

// gateways reports gateways with an owner that may differ from that of the VIPs.
func (d fleetCheck) gateways() {
	m := d.VIPs.Fleet
	for _, g := range d.VIPs.L2.Tables {
		if m != nil && !m.Rules.SingleOwner && !m.Bad("placement") {
			g.Fail("address", "needs one owner of all VIPs, and fleet.placement spreads them", `use "single" there, on all members`)
		}
		if d.activeActive() {
			g.Warn(source.Note, "address", `with fleet.mode = "active-active" routers send clients to every member, and replies return to one: connections with kept client addresses fail on the others`,
				`use mode = "active-standby" in [fleet] on all members`)
		}
		d.interfaces(g.Section, "interface", []string{g.Interface})
		if m != nil && g.Address.IsValid() && (g.Address == m.Gossip.Advertise.Addr() || g.Address == m.Gossip.Bind.Addr()) {
			g.Fail("address", fmt.Sprintf("%q is the box's own address in [fleet]", g.Address), "use one that no box has")
		}
	}
}

// activeActive reports whether routers send clients to every member.
func (d fleetCheck) activeActive() bool {
	m := d.VIPs.Fleet
	return m != nil && d.VIPs.BGP != nil && len(d.VIPs.BGP.Peers) > 0 && !m.Bad("mode") && m.Rules.Mode == owner.ActiveActive
}

// syncDelay is the maximum time until a box that returns has received all connections in
// use: the kernel sends each every ten seconds (net.ipv4.vs.sync_refresh_period), and one
// message may be lost.
const syncDelay = 20 * time.Second

// takeover reports settings that end connections at a failover although others suggest
// that they should survive.
func (d fleetCheck) takeover() {
	m, k, kernel := d.VIPs.Fleet, d.Kernel, d.Top.Sub("kernel")
	if len(k.MasqueradeSource) > 0 && !m.Rules.SingleOwner && !m.Bad("placement") {
		kernel.Fail("masquerade_source", "needs one owner of all VIPs, and fleet.placement spreads them",
			`use placement = "single" in [fleet] on all members, or remove this`)
	}
	if len(k.MasqueradeSource) > 0 && d.activeActive() {
		kernel.Fail("masquerade_source", `makes replies return to one member, and with fleet.mode = "active-active" routers send clients to all of them`,
			`use mode = "active-standby" in [fleet] on all members, or remove this`)
	}
	if m.Sync != nil {
		d.interfaces(m.Sub("sync"), "interface", []string{m.Sync.Interface})
		if k.Mode == config.ModeNetfilter {
			m.Sub("sync").Warn(source.Warning, "interface", `has no effect: the sync needs IPVS, and kernel.mode is "netfilter"`, "use another mode there, or remove [fleet.sync]")
		}
		d.contrary(lb.TakeoverSysctls(false, true), "[fleet.sync]")
		if delay := m.PreemptDelay; delay < syncDelay && !m.Rules.NoPreempt && !m.Bad("preempt_delay") {
			m.Warn(source.Warning, "preempt_delay", fmt.Sprintf("%s is too short for [fleet.sync]: a box that returns receives the connections within %s and resets unknown ones", delay, syncDelay),
				fmt.Sprintf(`use %q or more, or "never"`, syncDelay))
		}
	}
	if k.SloppyTCP || m.Sync != nil {
		return
	}
	for _, svc := range d.Config.Services {
		if svc.Scheduler.Name == "mh" && svc.Keep && svc.Affinity == 0 {
			d.Top.Warn(source.Note, "kernel", fmt.Sprintf("%s selects the same backends on all members (mh), but its TCP connections end when their box fails",
				svc.ID.Name), "set sloppy_tcp = true in [kernel] on all members, or add [fleet.sync]")
			return
		}
	}
}

// contrary reports kernel.sysctls with another value than weir's own.
func (d *Draft) contrary(own []lb.Sysctl, use string) {
	for _, p := range own {
		if slices.ContainsFunc(d.Kernel.Sysctls, func(o lb.Sysctl) bool { return o.Name == p.Name && o.Value != p.Value }) {
			d.Top.Sub("kernel").Fail("sysctls", fmt.Sprintf("weir sets %s to %q, for %s", p.Name, p.Value, use), "remove it")
		}
	}
}

// quietKernel reports a kernel that would answer for VIPs of [l2] by itself, and sysctls
// that weir sets against this. For IPv6 the kernel answers only for addresses of the
// interface itself.
func (d fleetCheck) quietKernel() {
	if !slices.Contains(d.Kernel.Families, lb.IPv4) {
		return
	}
	for _, name := range d.VIPs.L2.Everywhere() {
		strict := d.Top.Sub("kernel").Texts("strict_arp")
		if parse.Interface(name) != nil || slices.Contains(strict, config.AllInterfaces) || slices.Contains(strict, name) {
			continue
		}
		for _, own := range config.ARPSysctls([]string{name}) {
			if !d.Kernel.ManageSysctls {
				d.operatorSysctl(name, own)
			} else if slices.ContainsFunc(d.Kernel.Sysctls, func(o lb.Sysctl) bool { return o.Name == own.Name }) {
				d.Top.Sub("kernel").Fail("sysctls", "weir sets "+own.Name+" itself, for [l2]", "remove it")
			}
		}
	}
}

// operatorSysctl checks a parameter that the operator must set.
func (d fleetCheck) operatorSysctl(name string, p lb.Sysctl) {
	set := "sysctl -w " + p.Name + "=" + p.Value
	switch value, ok := effective(p.Name, name, d.Files); {
	case !ok:
		d.VIPs.L2.Warn(source.Warning, "interfaces", "with kernel.manage_sysctls = false the operator must disable the kernel's ARP answers for VIPs on "+name, set)
	case value < p.Value:
		d.VIPs.L2.Fail("interfaces", "the kernel itself would answer for VIPs on "+name+": "+p.Name+" is "+value+", and kernel.manage_sysctls is false",
			set+", or let weir set it")
	}
}

// effective returns a parameter of an interface as the kernel applies it, a digit: the
// greater one of its own and that of all.
func effective(parameter, iface string, files source.Files) (string, bool) {
	last := parameter[strings.LastIndexByte(parameter, '.')+1:]
	greater := ""
	for _, name := range []string{iface, config.AllInterfaces} {
		text, err := files.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/" + last)
		if err != nil {
			return "", false
		}
		greater = max(greater, strings.TrimSpace(string(text)))
	}
	return greater, true
}
