package daemon

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/health"
)

// Owners tells whose the virtual servers in the kernel are. It is never changed
// once made; the zero value knows none.
type Owners struct {
	frontends map[lb.Frontend]whose
	unchecked []status.Unchecked // Services without a check, by name
}

// whose is a Service, and what of it a frontend is.
type whose struct {
	lb.ServiceID
	kind  lb.VIPKind
	local bool
}

// newOwners looks through all Services. A stranger's virtual server is nobody's,
// whoever would like to have it.
func newOwners(rec *lb.Reconciler) *Owners {
	catalog, facts := rec.Catalog(), rec.Facts()
	o := &Owners{frontends: make(map[lb.Frontend]whose, catalog.Len())}
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		for _, vip := range svc.VIPs {
			one := lb.Service{ID: id, VIPs: []lb.VIP{vip}, Ports: svc.Ports}
			for _, f := range one.Frontends() {
				if !facts.Strangers[f] && slices.Index(catalog.Claimants(f), id) == 0 {
					o.frontends[f] = whose{id, vip.Kind, vip.Local}
				}
			}
		}
	}
	for key, mark := range facts.Marks {
		o.frontends[lb.MarkFrontend(key.Family, mark)] = whose{ServiceID: key.Service}
	}
	for f := range facts.Strangers { // one address of a NodePort
		o.frontends[f] = whose{}
	}
	return o
}

// of gives the owner of a virtual server. Those of a NodePort are at the node's
// own addresses.
func (o *Owners) of(f lb.Frontend) (whose, bool) {
	if o == nil {
		return whose{}, false
	}
	w, ok := o.frontends[f]
	if !ok && f.Mark == 0 {
		f.Addr = every(f.Addr)
		w, ok = o.frontends[f]
		ok = ok && w.kind == lb.NodePort
	}
	return w, ok && w.ServiceID != lb.ServiceID{}
}

// every is the unspecified address of a's family.
func every(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// ownersPatience is how long one who asks waits for a busy loop; after that he
// gets what it found the last time.
const ownersPatience = 2 * time.Second

// owners has the loop look through the Services, if they have changed since it
// did. Nobody does when nobody asks.
func (b *box) owners(ctx context.Context) *Owners {
	ctx, cancel := context.WithTimeout(ctx, ownersPatience)
	defer cancel()
	_ = b.do(ctx, func() {
		if b.moved {
			b.moved = false
			o := newOwners(b.rec)
			o.unchecked = unchecked(b.rec.Catalog(), b.cfg.Checks)
			b.owned.Store(o)
		}
	})
	return b.owned.Load()
}

// unchecked gives the Services for which there is no check.
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
		why := "the configuration has no [service.check] for it"
		if id.Source != config.Source {
			why = "its cluster says which backends are ready"
		}
		out = append(out, status.Unchecked{Service: id.String(), Backends: len(backends), Why: why})
	}
	return out
}
