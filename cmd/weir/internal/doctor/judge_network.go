package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
)

// darkLink reports configured interfaces that are down or missing.
func darkLink(f box) []Finding {
	var out []Finding
	for _, name := range f.interfaces() {
		switch l := f.link(name); {
		case l.Name == "":
			out = append(out, Finding{Severity: Error, Text: "there is no interface " + name,
				Fix: "see ip link, and correct the name in [l2] or [fleet]"})
		case !l.Up:
			out = append(out, Finding{Severity: Error, Text: "interface " + name + " is down, or has no carrier",
				Fix: "check the cable and the switch", Command: "ip link set dev " + name + " up"})
		}
	}
	return out
}

// interfaces returns the interfaces of the configuration.
func (f box) interfaces() []string {
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

// noWay reports backends without a route.
func noWay(f box) []Finding {
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
	for _, reason := range order {
		out = append(out, Finding{
			Severity: Error, Text: "no route to " + some(by[reason]) + ": " + reason,
			Fix: "see ip route get " + by[reason][0] + "; add a route: ip route add " + by[reason][0] + " via GATEWAY",
		})
	}
	return out
}

// some joins the first names of a list.
func some(names []string) string {
	const few = 4
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// narrow reports backends with a smaller MTU than the uplinks.
func narrow(f box) []Finding {
	wide := facts.Link{}
	for _, l := range f.Network.Links {
		if slices.Contains(f.Network.Uplinks, l.Name) && l.MTU > wide.MTU {
			wide = l
		}
	}
	if wide.MTU == 0 { // the uplinks are not known: any interface with an address
		for _, l := range f.Network.Links {
			if l.Name != "lo" && len(l.Addrs) > 0 && l.Up && !f.holdsVIPs(l.Name) && l.MTU > wide.MTU {
				wide = l
			}
		}
	}
	var out []Finding
	done := map[string]bool{}
	for _, w := range f.Ways {
		mtu := f.link(w.Interface).MTU // the MTU of a route is intended
		if w.Error != "" || w.Local || done[w.Interface] || mtu == 0 || mtu >= wide.MTU {
			continue
		}
		done[w.Interface] = true
		x := Finding{
			Severity: Warning,
			Text:     fmt.Sprintf("backends behind %s have an MTU of %d, and clients on %s have %d", w.Interface, mtu, wide.Name, wide.MTU),
			Fix:      "raise it, on the switch and the backends too",
			Command:  fmt.Sprintf("ip link set dev %s mtu %d", w.Interface, wide.MTU),
		}
		if slices.Contains(tunnels, f.link(w.Interface).Kind) {
			x.Fix, x.Command = "it is a tunnel: clamp the segment size of clients",
				fmt.Sprintf("iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss %d", mtu-40)
			x.Severity = Info
		}
		out = append(out, x)
	}
	return out
}

func (f box) holdsVIPs(link string) bool {
	return f.Config != nil && f.Config.Kernel.Device == link || f.Config == nil && link == "kube-ipvs0"
}

// link returns an interface by its name; the zero Link if there is none.
func (f box) link(name string) facts.Link {
	if i := slices.IndexFunc(f.Network.Links, func(l facts.Link) bool { return l.Name == name }); i >= 0 {
		return f.Network.Links[i]
	}
	return facts.Link{}
}

// tunnels are the kinds of links that encapsulate packets.
var tunnels = []string{"vxlan", "geneve", "ipip", "gre", "sit", "ip6tnl", "wireguard", "tuntap"}

// blackhole reports backends that receive no large packets.
func blackhole(f box) []Finding {
	var out []Finding
	for _, w := range f.Ways {
		if w.Probed && w.Small && !w.Large {
			out = append(out, Finding{
				Severity: Error,
				Text:     fmt.Sprintf("backend %s answers a small ping, but none of %d bytes: large packets are lost", w.Backend, w.MTU),
				Fix:      "find the narrow link and accept ICMP \"fragmentation needed\" there; until then set a route with its mtu",
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

// returnPath reports backends with source_address keep behind another router: this box
// can't see the path of their replies.
func returnPath(f box) []Finding {
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
		Text:     "source_address is keep, and " + some(far) + " are behind a router: replies must return through this box, which can't be checked from here",
		Fix:      "check for connections that stay in SYN_RECV: weir conns",
	}}
}

// directPath reports backends with forward direct that have no link address on a network of this box.
func directPath(f box) []Finding {
	var far []string
	for _, w := range f.Ways {
		if w.Direct && w.Gateway.IsValid() {
			far = append(far, w.Backend.String())
		}
	}
	if len(far) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Error,
		Text:     some(far) + ` are behind a router, and forward is "direct": the router gets packets to the VIP and returns them to this box`,
		Fix:      `use forward = "tunnel" for them, or connect this box to their network`,
	}}
}

// silent reports backends, gateways and peers that do not answer ARP or NDP.
func silent(f box) []Finding {
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
				Severity: Warning, Text: fmt.Sprintf("%s %s does not answer ARP or NDP on %s", what, n.Addr, n.Interface),
				Fix: "check that it is up, with that network and address: ping -c1 " + n.Addr.String(),
			})
		}
	}
	return out
}

// duplicateVIP reports VIPs that are addresses of other interfaces.
func duplicateVIP(f box) []Finding {
	served := facts.ServedBy(&f.Facts)
	var out []Finding
	for _, l := range f.Network.Links {
		if f.holdsVIPs(l.Name) {
			continue
		}
		for _, p := range l.Addrs {
			if slices.Contains(served.VIPs, p.Addr()) {
				out = append(out, Finding{
					Severity: Warning, Text: fmt.Sprintf("VIP %s is also an address of %s: programs of this box answer there, and the kernel answers ARP for it", p.Addr(), l.Name),
					// No command: it may be the address of a login session.
					Fix: fmt.Sprintf("if nothing else needs it there, remove it: ip addr del %s dev %s; else change the VIP", p, l.Name),
				})
			}
		}
	}
	return out
}

// glued reports interfaces with large receive offload.
func glued(f box) []Finding {
	var out []Finding
	for _, l := range f.Network.Links {
		if l.LRO {
			out = append(out, Finding{
				Severity: Warning, Text: "large receive offload is enabled on " + l.Name,
				Fix: "disable it", Command: "ethtool -K " + l.Name + " lro off",
			})
		}
	}
	return out
}

// losing reports dropped packets of interfaces and processors.
func losing(f box) []Finding {
	var out []Finding
	for _, l := range f.Network.Links {
		if l.Dropped > 0 {
			out = append(out, Finding{
				Severity: Warning, Text: fmt.Sprintf("%s has lost %d packets in one second", l.Name, l.Dropped),
				Fix: "see ethtool -S " + l.Name + "; a larger ring often helps: ethtool -g " + l.Name + " shows the maximum",
			})
		}
	}
	if n := f.Network.SoftDrops; n > 0 {
		out = append(out, Finding{
			Severity: Warning, Text: fmt.Sprintf("processors have dropped %d packets in one second", n),
			Fix: "make the queue longer, and spread the interrupts of the interfaces", Command: set("net.core.netdev_max_backlog", "10000"),
		})
	}
	return out
}

// foreignRoutes reports that a restart of systemd-networkd deletes foreign routes.
func foreignRoutes(f box) []Finding {
	if !f.System.Networkd || f.System.NetworkdKeeps {
		return nil
	}
	const file = "/etc/systemd/networkd.conf.d/weir.conf"
	return []Finding{{
		Severity: Warning, Text: "systemd-networkd may delete the routes of weir at its restart",
		Fix: "configure it to keep foreign routes",
		Command: "mkdir -p /etc/systemd/networkd.conf.d && printf '[Network]\\nManageForeignRoutes=no\\nManageForeignRoutingPolicyRules=no\\n' >" + file +
			" && systemctl restart systemd-networkd",
	}}
}
