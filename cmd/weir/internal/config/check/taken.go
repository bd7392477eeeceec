package check

import (
	"net"
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync/ipam"
)

// taken are addresses with another use, so that no pool may have them.
type taken struct {
	ipam.Range
	use string // continues the range in a message
	at  source.Place
	key string // of [bgp] or [fleet]
}

// own is the use of the box's own addresses.
const own = ", an address of the box,"

// taken returns all addresses of the configuration with a use.
func (d *Draft) taken() []taken {
	var out []taken
	addr := func(a netip.Addr, use string, at source.Place) {
		if a.IsValid() {
			a = a.WithZone("")
			out = append(out, taken{Range: ipam.Range{First: a, Last: a}, use: use, at: at})
		}
	}
	prefixes := func(s schema.Section, name string, list []netip.Prefix, use string) {
		for _, p := range list {
			out = append(out, taken{Range: parse.RangeOf(p), use: use, at: s.At(name)})
		}
	}
	for _, s := range d.Services {
		for _, vip := range s.VIPs {
			addr(vip.Addr.Addr(), ", a VIP of "+s.Called()+",", vip.At)
		}
		for _, b := range s.Backends {
			addr(b.Addr.Addr(), ", a backend of "+s.Called()+",", b.At)
		}
		for _, f := range s.Fallback {
			addr(f.Addr.Addr(), ", a fallback of "+s.Called()+",", f.At)
		}
	}
	for _, cl := range d.Clusters {
		prefixes(cl.Section, "service_cidrs", cl.ServiceCIDRs, " of service_cidrs of "+cl.Called())
		prefixes(cl.Section, "pod_cidrs", cl.PodCIDRs, " of pod_cidrs of "+cl.Called())
		prefixes(cl.Section, "external_ip_ranges", cl.ExternalIPRanges, " of external_ip_ranges of "+cl.Called()+", which any of its Services may claim,")
	}
	kernel, daemon := d.Top.Sub("kernel"), d.Top.Sub("daemon")
	prefixes(kernel, "exclude_cidrs", d.Kernel.ExcludeCIDRs, " of kernel.exclude_cidrs")
	prefixes(kernel, "cluster_cidrs", d.Kernel.ClusterCIDRs, " of kernel.cluster_cidrs")
	for _, r := range d.Kernel.Pools {
		addr(r.Src, own, kernel.At("route_source"))
	}
	for _, l := range d.Daemon.Listeners() {
		host, _, _ := net.SplitHostPort(l.Addr)
		if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() && !a.IsLoopback() {
			addr(a, own, daemon.At(l.Key))
		}
	}
	return slices.Concat(out, d.takenByBGP(), d.takenByFleet())
}

// takenByBGP returns the addresses of the box and of peers in [bgp].
func (d *Draft) takenByBGP() []taken {
	b := d.VIPs.BGP
	if b == nil {
		return nil
	}
	var out []taken
	addr := func(s schema.Section, name string, a netip.Addr, use string) {
		if a.IsValid() {
			a = a.WithZone("")
			out = append(out, taken{ipam.Range{First: a, Last: a}, use, s.At(name), source.Join(s.Shown, name)})
		}
	}
	for _, a := range b.Speaker.ListenAddrs {
		addr(b.Section, "listen_addresses", a, own)
	}
	addr(b.Section, "next_hop", b.Speaker.NextHops.IPv4, own)
	addr(b.Section, "next_hop_v6", b.Speaker.NextHops.IPv6, own)
	for _, p := range b.Peers {
		addr(p.Section, "address", p.Address, ", the address of "+p.Called()+",")
		addr(p.Section, "source_address", p.Source, own)
		addr(p.Section, "next_hop", p.NextHops.IPv4, own)
		addr(p.Section, "next_hop_v6", p.NextHops.IPv6, own)
		if p.Range.IsValid() {
			out = append(out, taken{parse.RangeOf(p.Range), " of " + p.Called(), p.At("range"), source.Join(p.Shown, "range")})
		}
	}
	return out
}

// takenByFleet returns the addresses of members and gateways.
func (d *Draft) takenByFleet() []taken {
	var out []taken
	add := func(s schema.Section, name string, a netip.Addr, use string) {
		if a.IsValid() && !a.IsUnspecified() {
			out = append(out, taken{ipam.Range{First: a, Last: a}, use, s.At(name), source.Join(s.Shown, name)})
		}
	}
	for _, a := range d.Kernel.MasqueradeSource {
		add(d.Top.Sub("kernel"), "masquerade_source", a, ", kernel.masquerade_source,")
	}
	if m := d.VIPs.Fleet; m != nil {
		add(m.Section, "advertise", m.Gossip.Advertise.Addr(), own)
		add(m.Section, "bind", m.Gossip.Bind.Addr(), own)
		for _, name := range m.Gossip.Join {
			if ap, err := netip.ParseAddrPort(name); err == nil {
				add(m.Section, "join", ap.Addr(), ", a member,")
			}
		}
	}
	if l := d.VIPs.L2; l != nil {
		for _, g := range l.Tables {
			add(g.Section, "address", g.Address, ", a gateway,")
		}
	}
	return out
}
