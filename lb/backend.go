package lb

import "net/netip"

// A backend can't have an address that weir gives to the box. ip_vs would set that address on a
// packet that the host's firewall has already admitted as one of the frontend, and the box
// itself would get it, at the port of the backend. So the author of a backend could reach any
// daemon of the box, such as sshd. The same is true of the box's other addresses, but pods of a
// node may have those (hostNetwork). The source decides about them (Service.Apart).
//
// Plan refuses such backends. An address may stay longer than its Service, while connections to
// it drain, or until all sources have synced, so a real server with it waits
// (kernelState.localBy). If the address of a backend becomes a VIP, the backend does not drain,
// and is removed before the address is added (stepDropLocal): each of its old connections could
// become a new one to the box, by a SYN.

// refusal returns why a backend must not be used, "" if it may. A direct one is another host: the
// box would get the packets to the VIP itself.
func (f *Facts) refusal(be Backend, apart bool) string {
	a := be.Addr.Addr()
	dev, own := f.HostAddrs[a]
	switch {
	case own && (apart || be.Forward.Direct()):
		return "the box's own address on " + dev
	case own:
		return ""
	case a == anchorFrontend(FamilyOf(a)).Addr:
		return "an address that weir has for itself"
	case f.vips[a] > 0 && indexContaining(f.Exclude, a) < 0:
		return "a VIP of this box"
	}
	for _, pool := range f.Pools {
		if !pool.Prefix.Contains(a) {
			continue
		}
		if _, holds := f.hostIn(pool.Prefix); !holds {
			return "in pool " + pool.Prefix.String() + " of this box"
		}
	}
	return ""
}

// indexContaining returns the index of the first net with an address, -1 if there is none.
func indexContaining(nets []netip.Prefix, a netip.Addr) int {
	for i, n := range nets {
		if n.Contains(a) {
			return i
		}
	}
	return -1
}

// replanBackends marks the Services dirty that have one of addrs as a backend, after it has
// become a VIP or is none any more. A VIP is rarely a backend; only then all Services are
// searched.
func (m *model) replanBackends(addrs map[netip.Addr]struct{}) {
	if !m.catalog.anyBackend(addrs) {
		return
	}
	in := func(a netip.Addr) bool { _, ok := addrs[a]; return ok }
	for id, svc := range m.catalog.services {
		if _, dirty := m.dirty[id]; !dirty && svc.hasBackendIn(in) {
			m.dirty[id] = struct{}{}
		}
	}
}

// movedVIPs returns the VIPs that were added to the box's own addresses, or removed from them.
func (m *model) movedVIPs(before, now map[netip.Addr]string) map[netip.Addr]struct{} {
	out := map[netip.Addr]struct{}{}
	for a := range m.catalog.vips {
		_, was := before[a]
		if _, is := now[a]; is != was {
			out[a] = struct{}{}
		}
	}
	return out
}

// anyBackend reports whether a Service may have a backend with one of addrs, or with an address
// of the same hash.
func (c *Catalog) anyBackend(addrs map[netip.Addr]struct{}) bool {
	for a := range addrs {
		if c.backends[hashOf(a)] > 0 {
			return true
		}
	}
	return false
}

// hasBackendIn reports whether s has a backend with an address in a set.
func (s Service) hasBackendIn(in func(netip.Addr) bool) bool {
	for a := range s.backendAddrs() {
		if in(a) {
			return true
		}
	}
	return false
}
