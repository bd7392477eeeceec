package ipam

import (
	"cmp"
	"fmt"
	"slices"

	"weir/lb"
)

// sharing returns why a Service may not join the holders of an address; empty is that it
// may. Holders that have released it count as well: they may return.
func (p *Pool) sharing(r *Request, others []Holder) string {
	if p.Sharing.Off {
		return fmt.Sprintf("pool %q has sharing off", p.Name)
	}
	for _, h := range others {
		if !p.together(r.ID, h.Service) {
			return fmt.Sprintf("it is of another namespace than %v: pool %q does not have both in its sharing namespaces", h.Service, p.Name)
		}
		if reason := disagree(r, h); reason != "" {
			return reason
		}
		if both := common(r.Ports, h.Ports); len(both) > 0 {
			return fmt.Sprintf("%v has port %s there", h.Service, portList(both))
		}
	}
	return ""
}

// together reports whether the namespaces of two Services may share an address. Namespaces
// of the same name in two clusters are different ones.
func (p *Pool) together(a, b lb.ServiceID) bool {
	if a.Source == b.Source && a.Namespace == b.Namespace {
		return true
	}
	return p.listed(a.Namespace) && p.listed(b.Namespace)
}

// listed reports whether a namespace may share with others.
func (p *Pool) listed(namespace string) bool {
	return slices.Contains(p.Sharing.Namespaces, namespace) || slices.Contains(p.Sharing.Namespaces, "*")
}

// disagree returns why two Services can't share, with whatever ports; empty is that they
// can. With a traffic policy of Local only the nodes with backends answer for an address, so
// both must have the same backends.
func disagree(r *Request, h Holder) string {
	switch {
	case h.Share == "":
		return fmt.Sprintf("%v does not share it", h.Service)
	case r.Share == "":
		return fmt.Sprintf("%v shares it by key %q", h.Service, h.Share)
	case r.Share != h.Share && space{r.ID.Source, r.ID.Namespace} != (space{h.Service.Source, h.Service.Namespace}):
		return fmt.Sprintf("%v shares it by another key", h.Service) // which would let this Service join
	case r.Share != h.Share:
		return fmt.Sprintf("%v shares it by key %q, not %q", h.Service, h.Share, r.Share)
	case r.Local != h.Local:
		return fmt.Sprintf("externalTrafficPolicy of %v is %s, not %s", h.Service, policy(h.Local), policy(r.Local))
	case !r.Local:
		return ""
	case r.Selector == "" || r.Selector != h.Selector || r.ID.Source != h.Service.Source || r.ID.Namespace != h.Service.Namespace:
		return fmt.Sprintf("externalTrafficPolicy is Local, and %v selects other pods", h.Service)
	}
	return ""
}

// record returns the holder of a claim for a Service that has the address, and the part of
// its sharing that is refused. A sharer with a change that causes a conflict keeps its address
// with the former terms: nothing moves, and no other Service loses a port.
func record(r *Request, pool string, old Holder, others []Holder) (h Holder, refused string) {
	h = Holder{Service: r.ID, UID: r.UID, Pool: pool, Share: r.Share}
	if r.Share != "" {
		h.Ports, h.Local, h.Selector = slices.Clone(r.Ports), r.Local, localSelector(r)
	}
	for _, o := range others {
		if reason := disagree(r, o); reason != "" {
			h.Share, h.Local, h.Selector = old.Share, old.Local, old.Selector
			h.Ports = common(old.Ports, r.Ports)
			return h, reason
		}
	}
	for _, o := range others {
		if both := common(h.Ports, o.Ports); len(both) > 0 {
			refused = cmp.Or(refused, fmt.Sprintf("%v has port %s there", o.Service, portList(both)))
			h.Ports = slices.DeleteFunc(h.Ports, func(p lb.PortKey) bool { return slices.Contains(both, p) })
		}
	}
	return h, refused
}

// localSelector returns the selector, empty where it does not matter.
func localSelector(r *Request) string {
	if r.Local {
		return r.Selector
	}
	return ""
}

func policy(local bool) string {
	if local {
		return "Local"
	}
	return "Cluster"
}
