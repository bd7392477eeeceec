package lb

import (
	"context"
	"maps"
	"net/netip"
	"slices"
)

// observe reads the kernel into have, finds foreign virtual servers and gives the objects
// that are not as weir left them.
func (r *Reconciler) observe(ctx context.Context) ([]Object, error) {
	a := r.BeginAudit()
	for a.Read(ctx, r.kernel); r.Reread(a); {
		a.Read(ctx, r.kernel)
	}
	return r.finish(ctx, a)
}

// setHost records foreign virtual servers and the box's own addresses, and
// plans the Services again that they concern. It tells whether addresses have moved.
func (m *model) setHost(foreign map[Frontend]bool, hosts map[netip.Addr]string) (moved bool) {
	concerned := func(f Frontend) bool {
		return foreign[f] != m.facts.Foreign[f] || hosts[f.Addr] != m.facts.HostAddrs[f.Addr]
	}
	moved = !maps.Equal(hosts, m.facts.HostAddrs)
	if moved || !maps.Equal(foreign, m.facts.Foreign) {
		for id, svc := range m.catalog.services {
			// An address of the box in a pool concerns all of the pool.
			if moved && (len(m.facts.Pools) > 0 || svc.usesHostAddrs()) || slices.ContainsFunc(svc.Frontends(), concerned) {
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

// usesHostAddrs reports whether the plan of s depends on the box's own addresses, beside
// its VIPs: where its NodePorts are, whether its ranges admit the box, and whether
// a backend is the box.
func (s Service) usesHostAddrs() bool {
	return s.Restricted || s.Apart || slices.ContainsFunc(s.VIPs, func(v VIP) bool { return v.Kind == NodePort })
}

// manages reports whether this process has written the object or wants it.
func (m *model) manages(id Object) bool {
	return m.have.Has(id) || m.want.Has(id)
}

// managesDaemon reports whether a synchronization daemon is weir's: one that this process has
// started or would. Nothing in the kernel tells who has.
func (m *model) managesDaemon(o SyncDaemon) bool {
	wanted, _ := m.want.Get(o)
	held, _ := m.have.Get(o)
	return held == o || wanted == o
}

// owns reports whether an observed virtual server is weir's. What this process has
// made stays its own, to be taken away, even if it is excluded by now.
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
	return v.at.Mark != 0 && v.in(SetMarks) || IsAnchor(v.at)
}
