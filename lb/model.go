package lb

import "net/netip"

// model is shared by the parts of a Reconciler: the facts, the wanted state, the state of the
// kernel, and where the two may differ.
type model struct {
	catalog *Catalog
	facts   Facts
	want    *State
	have    kernelState
	dirty   map[ServiceID]struct{} // Services to plan again
	touched map[Object]struct{}    // IDs where have and want may differ
	full    bool                   // any ID may differ
	later   postponed
}

// applied reports whether the kernel has an ID as it is wanted.
func (m *model) applied(id Object) bool {
	held, _ := m.have.Get(id)
	wanted, _ := m.want.Get(id)
	return held == wanted || wanted == nil && held.kind() == kindSysctl
}

// awaited reports whether a real server is wanted with a weight, and the kernel has none of it.
func (m *model) awaited(id RealServer) bool {
	wanted, _ := m.want.Get(id)
	rs, ok := wanted.(RealServer)
	held, _ := m.have.RealServer(id.Frontend, id.Addr)
	return ok && rs.Weight > 0 && held.Weight == 0
}

// kernelState is weir's objects in the kernel, as last read or written.
type kernelState struct {
	Table
	pools        map[netip.Prefix]struct{} // those of the PoolRoutes
	unread       map[Frontend]struct{}     // with virtual or real servers that were written since they were read
	audit        *Audit                    // in progress, if any
	found        []Frontend                // frontends that differed in the last audit, or that an orphan's Service has claimed
	adopted      bool                      // the kernel has been read at least once
	known        bool                      // the result of its last reading was adopted
	written      map[Frontend]struct{}     // that may be of checks, and changed since the last CheckMarks
	foreignAddrs bool                      // the device has foreign addresses
}

// servers returns the number of real servers of a frontend.
func (k *kernelState) servers(f Frontend) int {
	k.resolve()
	if fr := k.fronts[f]; fr != nil {
		return len(fr.reals)
	}
	return 0
}

// record records the object of an ID in the kernel; nil is none.
func (h *kernelState) record(id, o Object) {
	h.audit.recordChange(id)
	if f, ok := frontendOf(id); ok && id.kind() != kindMember {
		if h.unread == nil {
			h.unread = map[Frontend]struct{}{}
		}
		h.unread[f] = struct{}{}
		h.noteCheck(f)
	}
	pool, isPool := id.(PoolRoute)
	if o == nil {
		h.Delete(id)
		if isPool {
			delete(h.pools, pool.Prefix)
		}
		return
	}
	h.Put(o)
	if isPool {
		h.pools[pool.Prefix] = struct{}{}
	}
}

// goneWith returns the IDs that the kernel deletes together with an object.
func (h *kernelState) goneWith(o Object) (out []Object) {
	switch o := o.(type) {
	case VirtualServer:
		if v := h.fronts[o.Frontend]; v != nil {
			for _, r := range v.reals {
				out = append(out, r.server(o.Frontend).ID())
			}
		}
	case IPSet:
		out = membersOf(&h.Table, map[IPSet]bool{o: true})
	case Device:
		for a, has := range h.addrs {
			if has&hasAddress != 0 {
				out = append(out, Address{a})
			}
		}
	}
	return out
}

// noteCheck records a change of a frontend for CheckMarks, if it may be one of checks.
func (h *kernelState) noteCheck(f Frontend) {
	if f.mapped() && f.Proto == UDP {
		h.written[f] = struct{}{}
	}
}

// outdate records that the rules are of an earlier configuration.
func (h *kernelState) outdate(touched map[Object]struct{}) {
	for _, f := range []Family{IPv4, IPv6} {
		if id := (Rules{Family: f}); h.Has(id) {
			h.record(id, Rules{f, true})
			touch(touched, id)
		}
	}
}

// mapping returns the member of SetInternal or SetGroup that maps clients from vip to a mark.
func (h *kernelState) mapping(s Set, vip Frontend) (Member, bool) {
	v := h.fronts[vip]
	if !v.in(s) {
		return Member{}, false
	}
	return v.member(s), true
}

// quiesced reports whether the real server has weight 0 in the kernel, so that no connection
// can begin any more.
func (h *kernelState) quiesced(id RealServer) bool {
	rs, ok := h.RealServer(id.Frontend, id.Addr)
	return !ok || rs.Weight == 0
}

// localBy returns the object that makes an address the box's own: the Address, or the PoolRoute
// that contains it. It returns nil if there is none.
func (h *kernelState) localBy(a netip.Addr) Object {
	if id := (Address{a}); h.Has(id) {
		return id
	}
	for prefix := range h.pools {
		if prefix.Contains(a) {
			return PoolRoute{Prefix: prefix}
		}
	}
	return nil
}
