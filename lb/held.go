package lb

import "net/netip"

// model is what the parts of a Reconciler share: what is known, what is wanted, what the
// kernel holds, and where these may differ.
type model struct {
	catalog *Catalog
	facts   Facts
	want    *State
	have    kernelState
	dirty   map[ServiceID]struct{} // Services to plan again
	touched map[Object]struct{}    // IDs where have and want may differ
	full    bool                   // any ID may differ
}

// applied reports whether there is nothing left to do for an ID.
func (m *model) applied(id Object) bool {
	held, _ := m.have.Get(id)
	wanted, _ := m.want.Get(id)
	return held == wanted || wanted == nil && held.kind() == kindSysctl
}

// held is what the kernel holds of weir's, as last read or written.
type kernelState struct {
	Table
	pools        map[netip.Prefix]struct{} // those of the PoolRoutes
	unread       map[Frontend]struct{}     // of which virtual or real servers were written since they were read
	audit        *Audit                    // the one in progress, if any
	found        []Frontend                // of which the last audit found something else than believed
	adopted      bool                      // the kernel has been read at least once
	foreignAddrs bool                      // the device holds addresses of others
}

// record takes down what the kernel holds of an ID; nil is nothing.
func (h *kernelState) record(id, o Object) {
	h.audit.recordChange(id)
	if f, ok := frontendOf(id); ok && id.kind() != kindMember {
		if h.unread == nil {
			h.unread = map[Frontend]struct{}{}
		}
		h.unread[f] = struct{}{}
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

// mapping returns the member that leads clients inside from vip to a mark.
func (h *kernelState) mapping(vip Frontend) (Member, bool) {
	v := h.fronts[vip]
	if !v.in(SetInternal) {
		return Member{}, false
	}
	return v.member(SetInternal), true
}

// quiesced reports whether the kernel has taken the real server's weight away, so
// that no connection can begin any more.
func (h *kernelState) quiesced(id RealServer) bool {
	rs, ok := h.RealServer(id.Frontend, id.Addr)
	return !ok || rs.Weight == 0
}

// localBy returns what makes an address the box's own: the Address, or the PoolRoute that
// contains it. nil if nothing of weir's does.
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
