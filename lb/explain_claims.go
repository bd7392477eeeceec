package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// claimants are the Services that want the frontend of a question.
type claimants struct {
	*question
	notes map[ServiceID][]Note // of all Services

	list  []Claim
	noted []string // their Notes
	ids   []ServiceID
	// The winner, its VIP and port.
	won  bool
	svc  Service
	vip  VIP
	port Port
}

// find collects the claims on the frontend. A NodePort yields to a claim on just one of its
// addresses.
func (c *claimants) find() {
	ids := slices.Clone(c.catalog.claims[c.f])
	if slices.Contains(c.facts.nodeAddrs(FamilyOf(c.f.Addr)), c.f.Addr) {
		ids = append(ids, c.catalog.claims[everyAddress(c.f)]...)
	}
	if _, own := c.facts.HostAddrs[c.f.Addr]; own { // a refused VIP claims nothing
		for _, id := range c.catalog.IDs() {
			svc, _ := c.catalog.Get(id)
			if slices.Contains(svc.Frontends(), c.f) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	c.ids = slices.Compact(ids)
	for _, id := range c.ids {
		svc, _ := c.catalog.Get(id)
		if svc.FWMark != 0 {
			c.claimMark(svc)
		}
		p := planner{svc: svc, facts: &c.facts}
		for _, vip := range svc.VIPs {
			for _, port := range svc.Ports {
				if svc.FWMark != 0 {
					continue
				}
				wins := slices.Contains(p.permitted(vip, port), c.f)
				if f, ok := vip.frontend(port); !wins && (!ok || f != c.f && f != everyAddress(c.f)) {
					continue
				}
				if wins && !c.won {
					c.won, c.svc, c.vip, c.port = true, svc, vip, port
				}
				c.list = append(c.list, Claim{id.String(), vip.String(), wins})
			}
		}
		for _, n := range c.notes[id] {
			c.noted = append(c.noted, n.String())
		}
	}
	slices.SortStableFunc(c.list, func(a, b Claim) int {
		switch {
		case a.Wins == b.Wins:
			return 0
		case a.Wins:
			return -1
		}
		return 1
	})
}

// claimMark records the claim of a Service on a frontend with a given mark.
func (c *claimants) claimMark(svc Service) {
	p := planner{svc: svc, facts: &c.facts}
	wins := p.mayServe(c.f)
	if wins && !c.won {
		c.won, c.svc, c.port = true, svc, svc.Ports[0]
	}
	c.list = append(c.list, Claim{svc.ID.String(), c.f.String(), wins})
}

// byMark returns why a VIP has no ports: a Service has it with a given mark; "" if none has.
func (c *claimants) byMark() string {
	for _, id := range c.catalog.IDs() {
		svc, _ := c.catalog.Get(id)
		if svc.FWMark != 0 && slices.ContainsFunc(svc.VIPs, func(v VIP) bool { return v.Addr == c.f.Addr }) {
			return fmt.Sprintf("%s has this VIP for packets with firewall mark %d only", id, svc.FWMark)
		}
	}
	return ""
}

// ports returns the served frontends that match, those with the most similar addresses first.
func (c *claimants) ports(match func(Frontend) bool) []string {
	var found []Frontend
	for f := range c.catalog.claims {
		if match(f) && (f.Addr.IsUnspecified() || c.has(VirtualServer{Frontend: f})) {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Frontend) int {
		if d := c.distance(a.Addr) - c.distance(b.Addr); d != 0 {
			return d
		}
		return a.Compare(b)
	})
	var out []string
	for _, f := range found {
		owner := c.catalog.claims[f][0]
		out = append(out, fmt.Sprintf("%s of %s", f, owner))
	}
	return out
}

// distance returns the number of bits in which an address differs from the requested one,
// counted from the first of them to the end.
func (c *claimants) distance(a netip.Addr) int {
	if a.IsUnspecified() {
		return 0
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := c.f.Addr.Prefix(bits); err == nil && p.Contains(a) {
			return a.BitLen() - bits
		}
	}
	return a.BitLen()
}

// unapplied returns why the kernel does not have the objects of the winner.
func (c *claimants) unapplied() string {
	for _, id := range [...]ServiceID{c.svc.ID, {}} {
		for _, n := range c.notes[id] {
			if n.Reason == Failed {
				return n.Text
			}
		}
	}
	return "it is not applied yet"
}

// refusal returns why the claimants do not get the frontend, in the words of their notes.
func (c *claimants) refusal() string {
	for _, id := range c.ids {
		svc, _ := c.catalog.Get(id)
		p := planner{svc: svc, facts: &c.facts}
		if c.f.Given {
			p.mayServe(c.f)
		}
		for _, vip := range svc.VIPs {
			for _, port := range svc.Ports {
				if f, ok := vip.frontend(port); ok && (f == c.f || f == everyAddress(c.f)) {
					p.permitted(vip, port)
				}
			}
		}
		for _, n := range sortNotes(p.notes) {
			if c.f.Given || names(n.Text, c.f) || n.Reason == NotAllowed {
				return fmt.Sprintf("%s wants it, but %s", id, n.Text)
			}
		}
	}
	return fmt.Sprintf("%s wants it and does not get it", c.ids[0])
}

// unclaimed describes the nearest matches of a frontend that no Service claims.
func (c *claimants) unclaimed(unrouted bool) string {
	if c.f.Given {
		return fmt.Sprintf("no Service has firewall mark %d for %s", c.f.Mark, FamilyOf(c.f.Addr))
	}
	if id := everyAddress(c.f); len(c.catalog.claims[id]) > 0 {
		return fmt.Sprintf("it is a NodePort of %s, which is not served on this address: %s", c.catalog.claims[id][0], c.notANode())
	}
	port := func(f Frontend) bool { return f.Addr == c.f.Addr && f.Port == c.f.Port }
	if other := c.ports(port); len(other) > 0 {
		return fmt.Sprintf("no Service has it for %s, but %s", c.f.Proto, other[0])
	}
	if reason := c.byMark(); reason != "" {
		return reason
	}
	if ports := c.ports(func(f Frontend) bool { return f.Addr == c.f.Addr }); len(ports) > 0 {
		return fmt.Sprintf("no Service has port %d of this VIP", c.f.Port)
	}
	if unrouted {
		return "no Service has this address as a VIP"
	}
	return "no Service has this port"
}

// notANode returns why an address has no NodePorts.
func (c *claimants) notANode() string {
	_, own := c.facts.HostAddrs[c.f.Addr]
	switch {
	case c.f.Addr.IsLoopback():
		return "never on loopback"
	case c.f.Addr.IsLinkLocalUnicast():
		return "never on link-local addresses"
	case !own:
		return "it is not the node's own"
	}
	return "it is in none of the ranges that NodePorts are limited to"
}

// nearest collects served frontends: first on the same address, then at the same port of the
// most similar addresses. Those of a given mark are the other given marks.
func (c *claimants) nearest() (out []string) {
	const most = 5
	if c.won {
		return nil
	}
	here := func(f Frontend) bool { return f.Addr == c.f.Addr && f != c.f && f.Given == c.f.Given }
	if slices.Contains(c.facts.nodeAddrs(FamilyOf(c.f.Addr)), c.f.Addr) {
		here = func(f Frontend) bool {
			return (f.Addr == c.f.Addr || f.Addr.IsUnspecified()) && !f.Given && FamilyOf(f.Addr) == FamilyOf(c.f.Addr) && f != c.f
		}
	}
	there := func(f Frontend) bool {
		return f.Addr != c.f.Addr && !f.Addr.IsUnspecified() && f.Port == c.f.Port && f.Proto == c.f.Proto && FamilyOf(f.Addr) == FamilyOf(c.f.Addr)
	}
	for _, found := range [...][]string{c.ports(here), c.ports(there)} {
		for _, s := range found {
			if len(out) < most {
				out = append(out, s)
			}
		}
	}
	return out
}

// names reports whether a text has a frontend as words of its own: 2.0.2.1:80 is not
// in "192.0.2.1:80/tcp".
func names(text string, f Frontend) bool {
	for word := range strings.FieldsSeq(text) {
		if strings.Trim(word, ",;:()\"") == f.String() {
			return true
		}
	}
	return false
}

// String reads "LoadBalancer 192.0.2.1 (traffic policy Local)".
func (v VIP) String() string {
	s := v.Kind.String() + " " + v.Addr.String()
	if v.Kind == NodePort {
		s = fmt.Sprintf("%s on every %s address of the node", v.Kind, FamilyOf(v.Addr))
	}
	if v.Local {
		s += " (traffic policy Local)"
	}
	return s
}
