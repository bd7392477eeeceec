package lb

import "net/netip"

// A backend whose address the box has because weir put it there is none: ip_vs gives
// the packet that address where the host's firewall has let it in already, as one of
// the frontend, and the box itself gets it, at whatever port the backend says. So an
// author of backends could have what listens on the box, sshd say. The same is true
// of the box's other addresses; but those a node's own pods may have (hostNetwork),
// so it is the source that says whether they may be (Service.Apart).
//
// Plan refuses such backends. What Plan does not see is the time in between: an
// address may stay while connections to it drain, or until all sources have synced,
// so a real server with it waits (barred). And when a VIP appears that has been a
// backend, that one does not drain, and goes before the address comes (stepCut): of
// its old connections each could become a new one to the box, by a SYN.

// bars says why packets for an address must not be given to it as a backend: "" if
// they may.
func (f *Facts) bars(a netip.Addr, apart bool) string {
	dev, own := f.HostAddrs[a]
	switch {
	case own && apart:
		return "the box's own address on " + dev
	case own:
		return ""
	case a == anchorFrontend(FamilyOf(a)).Addr:
		return "an address that weir has for itself"
	case f.vips[a] > 0 && holding(f.Exclude, a) < 0:
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

// holding gives the first of nets that holds an address, -1 if none does.
func holding(nets []netip.Prefix, a netip.Addr) int {
	for i, n := range nets {
		if n.Contains(a) {
			return i
		}
	}
	return -1
}

// barred gives what makes a real server's address the box's own at present: nil if
// nothing of weir's does.
func (r *Reconciler) barred(rs RealServer) Object {
	if id := (Address{rs.Addr.Addr()}); r.have[id] != nil {
		return id
	}
	for prefix := range r.laid {
		if prefix.Contains(rs.Addr.Addr()) {
			return PoolRoute{Prefix: prefix}
		}
	}
	return nil
}

// uncut gives a real server that could not be taken out of the kernel, and whose
// address o, an Address or PoolRoute, would make the box's own.
func (r *Reconciler) uncut(o Object) Object {
	var taken netip.Prefix
	switch o := o.(type) {
	case Address:
		taken = single(o.Addr)
	case PoolRoute:
		taken = o.Prefix
	default:
		return nil
	}
	for id := range r.failed {
		if rs, ok := id.(RealServer); ok && taken.Contains(rs.Addr.Addr()) && r.have[id] != nil {
			return id
		}
	}
	return nil
}

// concern plans the Services again that have one of addrs as a backend, after it has
// become a VIP or is none any more, and cuts what drains there. That is rare enough to
// look through all Services for it; an index would cost at each change of backends.
func (r *Reconciler) concern(addrs map[netip.Addr]struct{}) {
	if len(addrs) == 0 {
		return
	}
	for id, svc := range r.catalog.services {
		if _, dirty := r.dirty[id]; !dirty && svc.reaches(addrs) {
			r.dirty[id] = struct{}{}
		}
	}
	for f, servers := range r.drains.servers {
		for addr := range servers {
			if _, moved := addrs[addr.Addr()]; moved && r.facts.bars(addr.Addr(), false) != "" {
				r.drains.over[RealServer{Frontend: f, Addr: addr}] = struct{}{}
				delete(servers, addr)
			}
		}
		r.claimDrain(f)
	}
	for id := range r.orphans.held {
		if rs, ok := id.(RealServer); ok {
			if _, moved := addrs[rs.Addr.Addr()]; moved {
				r.touched[id] = struct{}{}
			}
		}
	}
}

// movedVIPs gives the VIPs that are the box's own addresses at one time only.
func (r *Reconciler) movedVIPs(before, now map[netip.Addr]string) map[netip.Addr]struct{} {
	out := map[netip.Addr]struct{}{}
	for a := range r.catalog.vips {
		_, was := before[a]
		if _, is := now[a]; is != was {
			out[a] = struct{}{}
		}
	}
	return out
}

// reaches tells whether a backend of s has one of addrs.
func (s Service) reaches(addrs map[netip.Addr]struct{}) bool {
	for _, p := range s.Ports {
		for _, be := range p.Backends {
			if _, ok := addrs[be.Addr.Addr()]; ok {
				return true
			}
		}
	}
	for _, a := range s.Fallback {
		if _, ok := addrs[a.Addr()]; ok {
			return true
		}
	}
	return false
}
