package query

import (
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/health"
)

// Owners maps the virtual servers in the kernel to Services. It is never changed once made; the zero value knows none.
type Owners struct {
	frontends map[lb.Frontend]Owner
	unchecked []status.Unchecked // by name
}

// Owner is the Service of a frontend, and the kind of its VIP.
type Owner struct {
	lb.ServiceID
	kind  lb.VIPKind
	local bool
	group bool // of all ports of the Service
	check bool // of the checks of a backend
	mixed bool // backends are of the other family

	healthCheckNodePort uint16
}

// NewOwners maps the frontends of all Services. A foreign virtual server has no owner, even if a Service claims it.
func NewOwners(rec *lb.Reconciler, checks []health.Group) *Owners {
	catalog, facts := rec.Catalog(), rec.Facts()
	o := &Owners{frontends: make(map[lb.Frontend]Owner, catalog.Len()), unchecked: unchecked(catalog, checks)}
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		if svc.FWMark != 0 {
			for _, f := range svc.Frontends() {
				if !facts.Foreign[f] && slices.Index(catalog.Claimants(f), id) == 0 {
					o.frontends[f] = Owner{ServiceID: id}
				}
			}
			continue
		}
		for _, vip := range svc.VIPs {
			for i, port := range svc.Ports {
				one := lb.Service{ID: id, VIPs: []lb.VIP{vip}, Ports: svc.Ports[i : i+1]}
				for _, f := range one.Frontends() {
					if !facts.Foreign[f] && slices.Index(catalog.Claimants(f), id) == 0 {
						o.frontends[f] = Owner{ServiceID: id, kind: vip.Kind, local: vip.Local, group: svc.Group, mixed: svc.MixedAt(vip.Addr, port), healthCheckNodePort: svc.HealthCheck.Port}
					}
				}
			}
		}
	}
	for key, mark := range facts.Marks {
		o.frontends[lb.MarkFrontend(key.Family, mark)] = Owner{ServiceID: key.Service, group: key.Group(), check: key.Checks()}
	}
	for f := range facts.Foreign { // one address of a NodePort
		o.frontends[f] = Owner{}
	}
	return o
}

// Of returns the owner of a virtual server. Those of a NodePort have an address of the node.
func (o *Owners) Of(f lb.Frontend) (Owner, bool) {
	if o == nil {
		return Owner{}, false
	}
	w, ok := o.frontends[f]
	if !ok && f.Mark == 0 {
		f.Addr = kernelmode.AnyAddr(f.Addr)
		w, ok = o.frontends[f]
		ok = ok && w.kind == lb.NodePort
	}
	return w, ok && w.ServiceID != lb.ServiceID{}
}

// Unchecked returns the Services without a check.
func (o *Owners) Unchecked() []status.Unchecked { return o.unchecked }

func unchecked(catalog *lb.Catalog, checks []health.Group) []status.Unchecked {
	checked := make(map[lb.ServiceID]bool, len(checks))
	for _, g := range checks {
		checked[g.Service] = true
	}
	var out []status.Unchecked
	for _, id := range catalog.IDs() {
		if checked[id] {
			continue
		}
		svc, _ := catalog.Get(id)
		backends := map[netip.AddrPort]struct{}{}
		for _, p := range svc.Ports {
			for _, be := range p.Backends {
				backends[be.Addr] = struct{}{}
			}
		}
		reason := "the configuration has no [service.check] for it"
		if id.Source != config.Source {
			reason = "its cluster reports which backends are ready"
		}
		out = append(out, status.Unchecked{Service: id.String(), Backends: len(backends), Reason: reason})
	}
	return out
}
