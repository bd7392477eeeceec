package lb

import (
	"context"
	"maps"
	"net/netip"
	"slices"
)

// observe reads the kernel into have, finds foreign virtual servers and returns the objects
// with foreign changes.
func (r *Reconciler) observe(ctx context.Context) ([]Object, error) {
	a := r.BeginAudit()
	for a.Read(ctx, r.kernel); r.Reread(a); {
		a.Read(ctx, r.kernel)
	}
	return r.finish(ctx, a)
}

// setHost sets the foreign virtual servers and the box's own addresses, and marks the Services
// dirty that depend on them. It reports whether addresses have changed.
func (m *model) setHost(foreign map[Frontend]bool, hosts map[netip.Addr]string) (moved bool) {
	nodePorts := map[Frontend]bool{} // where the foreign virtual servers of an address differ
	for _, of := range []map[Frontend]bool{foreign, m.facts.Foreign} {
		for f := range of {
			if foreign[f] != m.facts.Foreign[f] {
				nodePorts[everyAddress(f)] = true
			}
		}
	}
	differs := func(a netip.Addr) bool { return hosts[a] != m.facts.HostAddrs[a] }
	concerned := func(f Frontend) bool {
		return foreign[f] != m.facts.Foreign[f] || nodePorts[f] || differs(f.Addr)
	}
	moved = !maps.Equal(hosts, m.facts.HostAddrs)
	if moved || !maps.Equal(foreign, m.facts.Foreign) {
		for id, svc := range m.catalog.services {
			// An address of the box in a pool affects the whole pool.
			if moved && (len(m.facts.Pools) > 0 || svc.usesHostAddrs() || svc.hasBackendIn(differs)) ||
				slices.ContainsFunc(svc.Frontends(), concerned) {
				m.dirty[id] = struct{}{}
			}
		}
	}
	before := m.facts.HostAddrs
	m.facts.Foreign, m.facts.HostAddrs = foreign, hosts
	if moved {
		m.catalog.setHosts(hosts, m.facts.Taken, m.dirty)
		m.replanBackends(m.movedVIPs(before, hosts))
	}
	return moved
}

// usesHostAddrs reports whether the plan of s depends on the box's own addresses, beside its VIPs
// and backends: for its NodePorts, and for ranges that admit the box.
func (s Service) usesHostAddrs() bool {
	return s.Restricted || s.FWMark != 0 || slices.ContainsFunc(s.VIPs, func(v VIP) bool { return v.Kind == NodePort })
}

// manages reports whether this process has written the object or wants it.
func (m *model) manages(id Object) bool {
	return m.have.Has(id) || m.want.Has(id)
}

// managesDaemon reports whether a synchronization daemon is weir's: this process has started it
// or wants it. The kernel does not record its origin.
func (m *model) managesDaemon(o SyncDaemon) bool {
	wanted, _ := m.want.Get(o)
	held, _ := m.have.Get(o)
	return held == o || wanted == o
}

// owns reports whether an observed virtual server is weir's. One that this process has made
// stays its own and is removed, even if it is excluded by now.
func (m *model) owns(v *virtual) bool {
	if held := m.have.fronts[v.at]; held != nil && held.serves {
		return true
	}
	if v.at.Mark == 0 && indexContaining(m.facts.Exclude, v.at.Addr) >= 0 {
		return false
	}
	for _, s := range records {
		if v.at.Mark == 0 && v.in(s) {
			return true
		}
	}
	return v.at.Mark != 0 && (v.in(SetMarks) || v.in(SetFWMarks)) || IsAnchor(v.at)
}
