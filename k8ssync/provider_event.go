package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// What Events say of addresses. Only the writer writes them, when it has done what
// they tell of.
const (
	addressAssigned lb.Reason = "address-assigned"
	addressReleased lb.Reason = "address-released"
	addressStranded lb.Reason = "address-stranded"
	addressPending            = lb.AddressPending
)

// providers tells whether the Events for Notes with a reason are the writer's. All
// boxes have these Notes.
func providers(r lb.Reason) bool {
	return r == lb.AddressPending || r == lb.PoolStranded || r == lb.FamilyLeft
}

// tell writes Events for a status that was written over s.
func (p *Provider) tell(m *member, s *service, body *applied) {
	had, has := s.given(), body.addrs()
	say := func(r lb.Reason, normal bool, text string) {
		m.say(subject{key: s.key, uid: s.UID, reason: r, text: text, normal: normal})
	}
	gained, lost := without(has, had), without(had, has)
	if s.Condition == (condition{}) && body.Status.LoadBalancer == nil {
		lost = nil // others'
	}
	p.locked(func() {
		p.counters.Assigned += uint64(len(gained))
	})
	p.log.Info("status written", "cluster", m.name, "service", s.String(), "addresses", addrText(has))
	if len(gained) > 0 {
		say(addressAssigned, true, "assigned "+addrText(gained))
	}
	if len(lost) > 0 {
		say(addressReleased, true, addrText(lost)+" is no longer this Service's")
	}
	if len(body.Status.Conditions) == 0 {
		return
	}
	c := body.Status.Conditions[0]
	switch {
	case c.Reason == s.Condition.Reason && c.Message == s.Condition.Message:
	case c.Status == "False":
		say(addressPending, false, c.Reason+": "+c.Message)
	case c.Reason == ipam.PoolStranded.CamelCase():
		say(addressStranded, false, c.Message)
	}
}

// tellClaim writes an Event for an address that a Service which is gone let go of.
func (p *Provider) tellClaim(w claimWrite) {
	id := w.decision.Service
	k := key{id.Namespace, id.Name}
	p.mu.Lock()
	m := p.members[id.Source]
	gone := m != nil && m.service(k) == nil
	after := p.cfg.IPAM.ReleaseAfter
	p.mu.Unlock()
	i := slices.IndexFunc(w.Claim.Holders, func(h ipam.Holder) bool { return h.Service == id && !h.Released.IsZero() })
	if !gone || i < 0 {
		return
	}
	m.say(subject{
		key: k, uid: w.Claim.Holders[i].UID, reason: addressReleased, normal: true,
		text: fmt.Sprintf("the Service is gone: %s is kept for one of this name for %s", w.Claim.Addr, after),
	})
}

// counted counts what a claim that was written means. p.mu is held.
func (p *Provider) counted(w claimWrite) {
	if slices.ContainsFunc(w.Claim.Holders, func(h ipam.Holder) bool { return h.Service == w.decision.Service && !h.Released.IsZero() }) {
		p.counters.Released++
	}
}

// say writes an Event, if the operator wants any.
func (m *member) say(s subject) {
	if m.cluster.cfg.Events {
		m.cluster.told.say(s)
	}
}

// addrs are those of an applied status.
func (a *applied) addrs() []netip.Addr {
	if a.Status.LoadBalancer == nil {
		return nil
	}
	var out []netip.Addr
	for _, i := range a.Status.LoadBalancer.Ingress {
		out = append(out, netip.MustParseAddr(i.IP))
	}
	return out
}

// without gives those of a that are not in b.
func without(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return slices.Contains(b, x) })
}
