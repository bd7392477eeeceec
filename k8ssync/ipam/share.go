package ipam

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/lb"
)

// sharing tells why a Service may not join the holders of an address; empty is that
// it may. Holders that have let go count like the others: they may come back.
func (p *Pool) sharing(r *Request, others []Holder) string {
	if p.Sharing.Off {
		return fmt.Sprintf("pool %q has sharing off", p.Name)
	}
	for _, h := range others {
		if !p.together(r.ID, h.Service) {
			return fmt.Sprintf("it is of another namespace than %v: pool %q does not have both in its sharing namespaces", h.Service, p.Name)
		}
		if why := disagree(r, h); why != "" {
			return why
		}
		if both := common(r.Ports, h.Ports); len(both) > 0 {
			return fmt.Sprintf("%v has port %s there", h.Service, portList(both))
		}
	}
	return ""
}

// together tells whether two Services may share an address as far as their namespaces
// go. A namespace is one cluster's: that of the same name in another is another.
func (p *Pool) together(a, b lb.ServiceID) bool {
	if a.Source == b.Source && a.Namespace == b.Namespace {
		return true
	}
	return p.listed(a.Namespace) && p.listed(b.Namespace)
}

// listed tells whether a namespace may share with others.
func (p *Pool) listed(namespace string) bool {
	return slices.Contains(p.Sharing.Namespaces, namespace) || slices.Contains(p.Sharing.Namespaces, "*")
}

// disagree tells why two Services can't share whatever their ports are; empty is that
// they can. With a traffic policy of Local, which nodes answer for an address is which
// nodes have backends, so both must have the same ones.
func disagree(r *Request, h Holder) string {
	switch {
	case h.Share == "":
		return fmt.Sprintf("%v has it for itself", h.Service)
	case r.Share == "":
		return fmt.Sprintf("%v shares it by key %q", h.Service, h.Share)
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

// record gives what a claim is to say of a Service that has the address, and what of
// its sharing can't be as it wants. Who shares and then changes its mind into a clash
// stays where it is, with what was agreed: nothing moves, nobody loses a port to it.
func record(r *Request, pool string, old Holder, others []Holder) (h Holder, refused string) {
	h = Holder{Service: r.ID, UID: r.UID, Pool: pool, Share: r.Share}
	if r.Share != "" {
		h.Ports, h.Local, h.Selector = slices.Clone(r.Ports), r.Local, localSelector(r)
	}
	for _, o := range others {
		if why := disagree(r, o); why != "" {
			h.Share, h.Local, h.Selector = old.Share, old.Local, old.Selector
			h.Ports = common(old.Ports, r.Ports)
			return h, why
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

// localSelector is empty where it does not matter.
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

// common gives the ports that are in both lists.
func common(a, b []lb.PortKey) []lb.PortKey {
	var out []lb.PortKey
	for _, p := range a {
		if slices.Contains(b, p) {
			out = append(out, p)
		}
	}
	return out
}

func sortPorts(ports []lb.PortKey) []lb.PortKey {
	out := slices.Clone(ports)
	slices.SortFunc(out, func(a, b lb.PortKey) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto))
	})
	return slices.Compact(out)
}

// maxListed is how many of a kind a text names.
const maxListed = 8

func portList(ports []lb.PortKey) string {
	var out []string
	for _, p := range ports {
		out = append(out, p.String())
	}
	return list(out)
}

func list(names []string) string {
	if n := len(names) - maxListed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), n)
	}
	return strings.Join(names, ", ")
}
