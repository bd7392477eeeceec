package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// darkLink: an interface that matters is down, or not there.
func darkLink(f Facts) []Finding {
	var out []Finding
	for _, name := range f.interfaces() {
		switch l := f.link(name); {
		case l.Name == "":
			out = append(out, Finding{Severity: Error, What: "there is no interface " + name,
				Fix: "see ip link, and write the right name into [l2] or [cluster]"})
		case !l.Up:
			out = append(out, Finding{Severity: Error, What: "interface " + name + " is down, or has no carrier",
				Fix: "see to the cable and the switch", Command: "ip link set dev " + name + " up"})
		}
	}
	return out
}

// interfaces are those that the configuration names.
func (f Facts) interfaces() []string {
	var out []string
	if f.Config.Fleet != nil {
		out = append(out, f.Config.Fleet.Interfaces...)
	}
	if f.Config.L2 != nil {
		out = append(out, f.Config.L2.Everywhere()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// noWay: there is no route to a backend.
func noWay(f Facts) []Finding {
	var out []Finding
	by := map[string][]string{}
	var order []string
	for _, w := range f.Ways {
		if w.Error == "" {
			continue
		}
		if by[w.Error] == nil {
			order = append(order, w.Error)
		}
		by[w.Error] = append(by[w.Error], w.Backend.String())
	}
	for _, why := range order {
		out = append(out, Finding{
			Severity: Error, What: "there is no way to " + some(by[why]) + ": " + why,
			Fix: "see ip route get " + by[why][0] + "; add a route: ip route add " + by[why][0] + " via GATEWAY",
		})
	}
	return out
}

// some names a few of many.
func some(names []string) string {
	const few = 4
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// narrow: packets of clients do not fit on the way to backends.
func narrow(f Facts) []Finding {
	wide := Link{}
	for _, l := range f.Network.Links {
		if slices.Contains(f.Network.Doors, l.Name) && l.MTU > wide.MTU {
			wide = l
		}
	}
	if wide.MTU == 0 { // nobody knows where clients come from: by any interface with an address
		for _, l := range f.Network.Links {
			if l.Name != "lo" && len(l.Addrs) > 0 && l.Up && !f.holdsVIPs(l.Name) && l.MTU > wide.MTU {
				wide = l
			}
		}
	}
	var out []Finding
	done := map[string]bool{}
	for _, w := range f.Ways {
		mtu := f.link(w.Interface).MTU // a route with another one is somebody's intention
		if w.Error != "" || w.Local || done[w.Interface] || mtu == 0 || mtu >= wide.MTU {
			continue
		}
		done[w.Interface] = true
		x := Finding{
			Severity: Warning,
			What:     fmt.Sprintf("backends behind %s have an MTU of %d, and clients come by %s with %d", w.Interface, mtu, wide.Name, wide.MTU),
			Fix:      "make it as wide, on the switch and the backends too",
			Command:  fmt.Sprintf("ip link set dev %s mtu %d", w.Interface, wide.MTU),
		}
		if slices.Contains(tunnels, f.link(w.Interface).Kind) {
			x.Fix, x.Command = "it is a tunnel: have clients send less, so that it fits",
				fmt.Sprintf("iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss %d", mtu-40)
			x.Severity = Info
		}
		out = append(out, x)
	}
	return out
}

func (f Facts) holdsVIPs(link string) bool {
	return f.Config != nil && f.Config.Kernel.Device == link || f.Config == nil && link == "kube-ipvs0"
}

// link gives an interface by its name; the zero Link if there is none.
func (f Facts) link(name string) Link {
	if i := slices.IndexFunc(f.Network.Links, func(l Link) bool { return l.Name == name }); i >= 0 {
		return f.Network.Links[i]
	}
	return Link{}
}

// tunnels are the kinds of links whose packets are put into others.
var tunnels = []string{"vxlan", "geneve", "ipip", "gre", "sit", "ip6tnl", "wireguard", "tuntap"}

// blackhole: large packets vanish on the way to a backend, and nobody says so.
func blackhole(f Facts) []Finding {
	var out []Finding
	for _, w := range f.Ways {
		if w.Probed && w.Small && !w.Large {
			out = append(out, Finding{
				Severity: Error,
				What:     fmt.Sprintf("backend %s answers a small ping, and none of %d bytes: large packets vanish on the way", w.Backend, w.MTU),
				Fix:      "find the narrow link and let ICMP \"fragmentation needed\" pass there; until then tell the kernel of it, by a route with its mtu",
				Command:  fmt.Sprintf("ip route add %s%s dev %s mtu 1400", w.Backend, via(w.Gateway), w.Interface),
			})
		}
	}
	return out
}

func via(gateway netip.Addr) string {
	if !gateway.IsValid() {
		return ""
	}
	return " via " + gateway.String()
}

// wayBack: who sees clients' addresses must answer through this box. Of a backend that is
// beyond another router this box can't see whether it does.
func wayBack(f Facts) []Finding {
	var far []string
	for _, w := range f.Ways {
		if w.Keep && w.Gateway.IsValid() {
			far = append(far, w.Backend.String())
		}
	}
	if len(far) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Info,
		What:     "source_address is keep, and " + some(far) + " are behind a router: its way back to clients must lead here, which can't be seen from here",
		Fix:      "look for the connections that stay in SYN_RECV: weir conns",
	}}
}

// silent: a backend, a gateway or a peer on the box's own network does not answer ARP or
// NDP.
func silent(f Facts) []Finding {
	role := map[netip.Addr]string{}
	for _, w := range f.Ways {
		role[w.Backend] = "backend"
		if w.Gateway.IsValid() {
			role[w.Gateway] = "the gateway to backends,"
		}
	}
	for _, p := range f.Speakers {
		role[p.Addr.Addr()] = "BGP peer"
	}
	var out []Finding
	for _, n := range f.Network.Neighbors {
		if what := role[n.Addr]; what != "" {
			out = append(out, Finding{
				Severity: Warning, What: fmt.Sprintf("%s %s does not answer ARP or NDP on %s", what, n.Addr, n.Interface),
				Fix: "see whether it is up, in that network, and with that address: ping -c1 " + n.Addr.String(),
			})
		}
	}
	return out
}

// twice: a VIP is also an address of another interface, so that all its ports are open
// and the kernel answers for it there.
func twice(f Facts) []Finding {
	served := f.served()
	var out []Finding
	for _, l := range f.Network.Links {
		if f.holdsVIPs(l.Name) {
			continue
		}
		for _, p := range l.Addrs {
			if slices.Contains(served.vips, p.Addr()) {
				out = append(out, Finding{
					Severity: Warning, What: fmt.Sprintf("VIP %s is also an address of %s: what listens on this box answers there, and the kernel answers ARP for it", p.Addr(), l.Name),
					// No command: it may be the address by which somebody is logged in.
					Fix: fmt.Sprintf("if nothing else needs it there, take it away: ip addr del %s dev %s; else serve another VIP", p, l.Name),
				})
			}
		}
	}
	return out
}

// glued: packets that a card has glued together can't be forwarded.
func glued(f Facts) []Finding {
	var out []Finding
	for _, l := range f.Network.Links {
		if l.LRO {
			out = append(out, Finding{
				Severity: Warning, What: "large receive offload is on at " + l.Name,
				Fix: "switch it off", Command: "ethtool -K " + l.Name + " lro off",
			})
		}
	}
	return out
}

// losing: cards or processors drop packets now.
func losing(f Facts) []Finding {
	var out []Finding
	for _, l := range f.Network.Links {
		if l.Dropped > 0 {
			out = append(out, Finding{
				Severity: Warning, What: fmt.Sprintf("%s has lost %d packets within a second", l.Name, l.Dropped),
				Fix: "see ethtool -S " + l.Name + "; a larger ring often helps: ethtool -g " + l.Name + " shows how large it can be",
			})
		}
	}
	if n := f.Network.SoftDrops; n > 0 {
		out = append(out, Finding{
			Severity: Warning, What: fmt.Sprintf("processors had no time for %d packets within a second", n),
			Fix: "give them a longer queue, and spread the interrupts of the cards", Command: set("net.core.netdev_max_backlog", "10000"),
		})
	}
	return out
}

// foreignRoutes: systemd-networkd deletes what it has not made, when it starts again.
func foreignRoutes(f Facts) []Finding {
	if !f.System.Networkd || f.System.NetworkdKeeps {
		return nil
	}
	const file = "/etc/systemd/networkd.conf.d/weir.conf"
	return []Finding{{
		Severity: Warning, What: "systemd-networkd may delete weir's routes when it starts again",
		Fix: "tell it to leave others' routes alone",
		Command: "mkdir -p /etc/systemd/networkd.conf.d && printf '[Network]\\nManageForeignRoutes=no\\nManageForeignRoutingPolicyRules=no\\n' >" + file +
			" && systemctl restart systemd-networkd",
	}}
}
