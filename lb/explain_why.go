package lb

import (
	"fmt"
	"slices"
	"strings"
)

// why says why the frontend is not served.
func (x *explainer) why() string {
	vs := VirtualServer{Frontend: x.f}.ID()
	if x.e.Fate == Dropped || x.e.Fate == Foreign {
		return x.e.Steps[len(x.e.Steps)-1].Result
	}
	if _, wanted := x.want.Get(vs); x.won && wanted && !x.held(vs) {
		return fmt.Sprintf("%s has it, but %s", x.svc.ID, x.unapplied())
	}
	if x.won && x.held(vs) {
		if x.e.Fate == Refused && x.held(tuple(SetIPVSPorts, x.f)) {
			return x.noBackend()
		}
		return fmt.Sprintf("%s has it, but %s", x.svc.ID, x.unapplied())
	}
	if len(x.e.Claims) > 0 {
		return x.refusal()
	}
	if x.held(vs) {
		return "no Service has it any more: connections to it drain"
	}
	return x.unclaimed()
}

// unapplied says why the kernel does not have what the winner needs.
func (x *explainer) unapplied() string {
	for _, id := range [...]ServiceID{x.svc.ID, {}} {
		for _, n := range x.notes[id] {
			if n.Reason == Failed {
				return n.Text
			}
		}
	}
	return "it is not applied yet"
}

func (x *explainer) noBackend() string {
	if len(x.e.Candidates) == 0 {
		return fmt.Sprintf("%s has no backends", x.svc.ID)
	}
	return fmt.Sprintf("none of the %s of %s takes new connections", count(len(x.e.Candidates), "backend"), x.svc.ID)
}

// refusal says why those who want the frontend do not get it, in the words of
// their notes.
func (x *explainer) refusal() string {
	for _, id := range x.ids {
		svc, _ := x.catalog.Get(id)
		p := planner{svc: svc, facts: &x.facts}
		for _, vip := range svc.VIPs {
			for _, port := range svc.Ports {
				if f, ok := vip.frontend(port); ok && (f == x.f || f == everyAddress(x.f)) {
					p.mine(vip, port)
				}
			}
		}
		for _, n := range sortNotes(p.notes) {
			if strings.Contains(n.Text, x.f.String()) || n.Reason == NotAllowed {
				return fmt.Sprintf("%s wants it, but %s", id, n.Text)
			}
		}
	}
	return fmt.Sprintf("%s wants it and does not get it", x.ids[0])
}

// unclaimed says what is nearest about a frontend that no Service wants.
func (x *explainer) unclaimed() string {
	if id := everyAddress(x.f); len(x.catalog.claims[id]) > 0 {
		return fmt.Sprintf("it is a NodePort of %s, which is not served on this address: %s", x.catalog.claims[id][0], x.notANode())
	}
	port := func(f Frontend) bool { return f.Addr == x.f.Addr && f.Port == x.f.Port }
	if other := x.ports(port); len(other) > 0 {
		return fmt.Sprintf("no Service has it for %s, but %s", x.f.Proto, other[0])
	}
	if ports := x.ports(func(f Frontend) bool { return f.Addr == x.f.Addr }); len(ports) > 0 {
		return fmt.Sprintf("no Service has port %d of this VIP", x.f.Port)
	}
	if x.e.Fate == Unrouted {
		return "no Service has this address as a VIP"
	}
	return "it is no port of a Service"
}

// notANode says why an address takes no NodePorts.
func (x *explainer) notANode() string {
	_, own := x.facts.HostAddrs[x.f.Addr]
	switch {
	case x.f.Addr.IsLoopback():
		return "never on loopback"
	case x.f.Addr.IsLinkLocalUnicast():
		return "never on link-local addresses"
	case !own:
		return "it is not the node's own"
	}
	return "it is in none of the ranges that NodePorts are limited to"
}

// nearest collects what is served instead: first on the same address, then at the
// same port of the addresses that are most like it.
func (x *explainer) nearest() {
	const most = 5
	if x.won {
		return
	}
	here := func(f Frontend) bool { return f.Addr == x.f.Addr && f != x.f }
	if slices.Contains(x.facts.nodeAddrs(FamilyOf(x.f.Addr)), x.f.Addr) {
		here = func(f Frontend) bool {
			return (f.Addr == x.f.Addr || f.Addr.IsUnspecified()) && FamilyOf(f.Addr) == FamilyOf(x.f.Addr) && f != x.f
		}
	}
	there := func(f Frontend) bool {
		return f.Addr != x.f.Addr && !f.Addr.IsUnspecified() && f.Port == x.f.Port && f.Proto == x.f.Proto && FamilyOf(f.Addr) == FamilyOf(x.f.Addr)
	}
	for _, found := range [...][]string{x.ports(here), x.ports(there)} {
		for _, s := range found {
			if len(x.e.Nearest) < most {
				x.e.Nearest = append(x.e.Nearest, s)
			}
		}
	}
}
