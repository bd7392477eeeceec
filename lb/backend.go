package lb

import (
	"iter"
	"net/netip"
)

// A backend whose address the box has because weir put it there is none: ip_vs gives
// the packet that address where the host's firewall has let it in already, as one of
// the frontend, and the box itself gets it, at whatever port the backend says. So an
// author of backends could have what listens on the box, sshd say. The same is true
// of the box's other addresses; but those a node's own pods may have (hostNetwork),
// so it is the source that says whether they may be (Service.Apart).
//
// Plan refuses such backends. What Plan does not see is the time in between: an
// address may stay while connections to it drain, or until all sources have synced,
// so a real server with it waits (held.local). And when a VIP appears that has been a
// backend, that one does not drain, and goes before the address comes (stepCut): of
// its old connections each could become a new one to the box, by a SYN.

// refusal says why packets for an address must not be given to it as a backend: "" if
// they may.
func (f *Facts) refusal(a netip.Addr, apart bool) string {
	dev, own := f.HostAddrs[a]
	switch {
	case own && apart:
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

// indexContaining returns the first of nets that holds an address, -1 if none does.
func indexContaining(nets []netip.Prefix, a netip.Addr) int {
	for i, n := range nets {
		if n.Contains(a) {
			return i
		}
	}
	return -1
}

// concern plans the Services again that have one of addrs as a backend, after it has
// become a VIP or is none any more. Hardly ever is a VIP anybody's backend; if it is,
// all Services are looked through for whose.
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

// movedVIPs returns the VIPs that are the box's own addresses at one time only.
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

// anyBackend reports whether some Service may have a backend with one of addrs: it has, or an
// address of the same hash.
func (c *Catalog) anyBackend(addrs map[netip.Addr]struct{}) bool {
	for a := range addrs {
		if c.backends[hashOf(a)] > 0 {
			return true
		}
	}
	return false
}

// hasBackendIn reports whether s has a backend whose address is in a set.
func (s Service) hasBackendIn(in func(netip.Addr) bool) bool {
	for a := range s.backendAddrs() {
		if in(a) {
			return true
		}
	}
	return false
}

// backendAddrs returns the addresses of all backends and fallbacks of s.
func (s Service) backendAddrs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, p := range s.Ports {
			for _, be := range p.Backends {
				if !yield(be.Addr.Addr()) {
					return
				}
			}
		}
		for _, a := range s.Fallback {
			if !yield(a.Addr()) {
				return
			}
		}
	}
}
