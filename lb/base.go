package lb

import (
	"net/netip"
	"slices"
)

// Base is the objects that weir needs before any Service: they belong to the zero Owner.
type Base struct {
	Device   string
	Families []Family
	Sysctls  []Sysctl
	// Unreachable are the prefixes that are announced as aggregates.
	Unreachable []netip.Prefix
	// Sources are the source addresses of masqueraded connections, at most one of each family;
	// without one, it is an address of this box. Packets for one that belong to no connection
	// of this box are refused, and not sent back to their router.
	Sources []netip.Addr
	// Sync are the connection synchronization daemons, at most one of each role.
	Sync []SyncDaemon
	// Tunnels decapsulate packets of other boxes.
	Tunnels []TunnelDevice
}

// Objects returns the objects of b, sorted.
func (b Base) Objects() []Object {
	out := []Object{Device{b.Device}}
	for _, s := range b.Sysctls {
		out = append(out, s)
	}
	for _, p := range b.Unreachable {
		out = append(out, Unreachable{p})
	}
	for _, a := range b.Sources {
		if p := single(a); !slices.Contains(b.Unreachable, p) {
			out = append(out, Unreachable{p})
		}
	}
	for _, d := range b.Sync {
		out = append(out, d)
	}
	for _, d := range b.Tunnels {
		out = append(out, d)
	}
	for _, f := range b.Families {
		out = append(out, Rules{Family: f})
		for _, s := range Sets() {
			out = append(out, IPSet{s, f})
		}
		out = append(out, anchor(f)...)
	}
	slices.SortFunc(out, Compare)
	return out
}

// anchor returns a virtual server that no packet ever reaches. The kernel registers conntrack
// for the whole family while a NAT virtual server on port 21 has a destination
// (ip_vs_register_conntrack in net/netfilter/ipvs/ip_vs_ctl.c: FTP needs it). That reference is
// independent of any firewall rule. When another program flushes iptables, and with it the last
// rule that needs conntrack, established masqueraded connections keep their mapping and live
// on.
//
// No host has these addresses: 192.0.0.8 is the IPv4 dummy address (RFC 7600), 100::/64 is for
// discarding (RFC 6666).
func anchor(f Family) []Object {
	front := anchorFrontend(f)
	return []Object{
		VirtualServer{Frontend: front, Scheduler: Scheduler{Name: "rr"}},
		RealServer{Frontend: front, Addr: netip.AddrPortFrom(front.Addr, front.Port)},
	}
}

// IsAnchor reports whether f is the frontend that keeps conntrack alive and serves no client.
func IsAnchor(f Frontend) bool { return f == anchorFrontend(FamilyOf(f.Addr)) }

func anchorFrontend(f Family) Frontend {
	if f == IPv6 {
		return Frontend{Addr: netip.AddrFrom16([16]byte{0: 1, 15: 8}), Port: 21, Proto: TCP} // 100::8
	}
	return Frontend{Addr: netip.AddrFrom4([4]byte{192, 0, 0, 8}), Port: 21, Proto: TCP}
}

// Sysctls returns the kernel parameters that weir needs. The comments are the reasons.
func Sysctls(families []Family) []Sysctl {
	out := []Sysctl{
		ConntrackSysctl(true),
		// A packet of a connection to a removed backend ends it immediately. Otherwise it is
		// dropped until the connection times out.
		{"net.ipv4.vs.expire_nodest_conn", "1"},
		// A client with affinity leaves a backend with weight 0.
		{"net.ipv4.vs.expire_quiescent_template", "1"},
	}
	for _, f := range families {
		// Replies of backends are forwarded to the clients.
		if f == IPv4 {
			out = append(out, Sysctl{"net.ipv4.ip_forward", "1"})
		} else {
			out = append(out, Sysctl{"net.ipv6.conf.all.forwarding", "1"})
		}
	}
	return out
}

// ConntrackSysctl has conntrack know the connections of IPVS, or not. Masquerading finds flows of IPVS only
// there. Without masquerading it is harmful: conntrack sees one direction of a connection, its
// entry outlives that, and IPVS drops the SYN of a client that uses the port again (ip_vs_in in
// net/netfilter/ipvs/ip_vs_core.c, ip_vs_conn_uses_old_conntrack), which costs the client a second.
func ConntrackSysctl(on bool) Sysctl {
	if on {
		return Sysctl{"net.ipv4.vs.conntrack", "1"}
	}
	return Sysctl{"net.ipv4.vs.conntrack", "0"}
}

// TakeoverSysctls returns the kernel parameters by which a box continues connections of another
// one: without their beginning (sloppy), or by a sync of the kernels (sync).
func TakeoverSysctls(sloppy, sync bool) []Sysctl {
	var out []Sysctl
	if sloppy {
		out = append(out,
			Sysctl{"net.ipv4.vs.sloppy_tcp", "1"},
			// conntrack must do the same. Otherwise the packet is INVALID and not masqueraded.
			Sysctl{"net.netfilter.nf_conntrack_tcp_loose", "1"})
	}
	if sloppy || sync {
		// A connection that went to another box and comes back is out of the window that
		// conntrack remembers. As INVALID it would be tracked a second time behind IPVS, with
		// another source port, and its backend would refuse it.
		out = append(out, Sysctl{"net.netfilter.nf_conntrack_tcp_be_liberal", "1"})
	}
	if sync {
		out = append(out,
			// By default a connection is synced with its third packet and then with every
			// fiftieth, which is too late for one with few packets. With these values it is
			// synced when it is established, and every ten seconds in which it is used,
			Sysctl{"net.ipv4.vs.sync_threshold", "0 0"},
			Sysctl{"net.ipv4.vs.sync_refresh_period", "10"},
			// twice more, because multicasts are not acknowledged.
			Sysctl{"net.ipv4.vs.sync_retries", "2"})
	}
	return out
}
