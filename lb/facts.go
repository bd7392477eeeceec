package lb

import (
	"net/netip"
	"slices"
)

// Facts are a box's knowledge beside its Services. Plan reads them and never writes them; a
// missing map is an empty one.
type Facts struct {
	// Health of the Services that have checks.
	Health map[ServiceID]Health
	// Taken gives the winner of every Frontend that several Services claim.
	Taken map[Frontend]ServiceID
	// Foreign are the virtual servers of other programs.
	Foreign map[Frontend]bool
	// WithoutIPVS reports that virtual servers are rules, so that some features have a Note instead.
	WithoutIPVS bool
	// HostAddrs are the box's own addresses and their interfaces. NodePorts are served on those
	// that are in NodePortNets. Without a net of a family, they are served on all addresses of
	// that family (kube-proxy's nodePortAddresses).
	HostAddrs    map[netip.Addr]string
	NodePortNets []netip.Prefix
	// HealthPorts are the health check ports on which the box answers. No other port is
	// admitted past its firewall, because a daemon of its own may listen there. nil is not
	// known yet, and admits all.
	HealthPorts map[uint16]bool
	// Marks are the assigned marks.
	Marks map[MarkKey]uint32
	// claims are those of the Catalog: a NodePort yields to them.
	claims map[Frontend][]ServiceID
	// vips counts each address of a VIP in the Catalog: none of them is a backend.
	vips map[netip.Addr]int
	// Exclude are ranges that weir does not touch.
	Exclude []netip.Prefix
	// Pools are prefixes that are made local by one route each, instead of VIP
	// by VIP.
	Pools []PoolRoute
}

// hostIn returns the first of the box's own addresses in a prefix.
func (f *Facts) hostIn(n netip.Prefix) (first netip.Addr, found bool) {
	for a := range f.HostAddrs {
		if n.Contains(a) && (!found || a.Less(first)) {
			first, found = a, true
		}
	}
	return first, found
}

// admits reports whether a health check port is open to clients outside.
func (f *Facts) admits(port uint16) bool { return f.HealthPorts == nil || f.HealthPorts[port] }

// nodeAddrs returns the addresses of a family on which NodePorts are served, sorted.
func (f *Facts) nodeAddrs(family Family) []netip.Addr {
	var nets []netip.Prefix
	for _, n := range f.NodePortNets {
		if FamilyOf(n.Addr()) == family {
			nets = append(nets, n)
		}
	}
	var out []netip.Addr
	for a := range f.HostAddrs {
		if FamilyOf(a) != family || a.IsLoopback() || a.IsLinkLocalUnicast() {
			continue
		}
		if len(nets) == 0 || slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(a) }) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
