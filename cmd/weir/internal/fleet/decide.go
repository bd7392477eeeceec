package fleet

import (
	"net/netip"
	"time"

	"weir/bgp/advertise"
	"weir/cluster/l2"
	"weir/cluster/owner"
)

// elect elects the owners of the VIPs with changed inputs. A box that does not know the
// other members decides nothing: everything stays as it is.
func (e *Engine) elect(now time.Time, d *Decision) {
	o := &e.ownership
	o.touchOverdue(now)
	if e.settings.fleet != nil && !e.self.joined {
		return
	}
	vips := o.touched
	if g := e.gen.election(); o.seen != g {
		o.seen, vips = g, e.vips()
	}
	if len(vips) == 0 {
		return
	}
	election, rules, moved := e.election(), e.settings.rules(), moves{}
	for a := range vips {
		result := rules.Decide(e.settings.name, election.candidates, a)
		had := e.record(a, result, moved)
		next := e.members.byName[result.Owner]
		if !e.settings.needsReturnPath() {
			next = nil
		}
		if !o.handsOver(a, had, e.settings.name, next, now) {
			e.assign(a, result, d)
		}
		e.claims.set(a, e.claim(a, rules, election), d.Claims, now)
	}
	o.touched = map[netip.Addr]struct{}{}
	d.Events = append(d.Events, moved.events(e.settings.name)...)
}

// election are the candidates of an election: all, those that answer ARP, and those of
// them that surely live.
type election struct{ candidates, answering, sure []owner.Member }

func (e *Engine) election() election {
	var x election
	x.candidates = e.candidates()
	x.answering = e.members.answering(x.candidates)
	x.sure = e.members.sure(x.answering)
	if e.settings.arpOnly {
		x.candidates = x.answering
	}
	return x
}

// candidates returns all members that count, this box first.
func (e *Engine) candidates() []owner.Member {
	me := e.settings.name
	self := owner.Member{
		Name: me, State: e.self.now.Effective, Drains: e.local.drains,
		Serves: func(a netip.Addr) bool { return e.local.serves(&e.settings, a) },
		Owns:   func(a netip.Addr) bool { return e.ownership.owns(me, a) },
	}
	if e.settings.fleet != nil {
		self.Weight = int(e.settings.fleet.Weight)
	}
	return append([]owner.Member{self}, e.members.candidates()...)
}

// vips returns all addresses that a member serves, or that Services here claim.
func (e *Engine) vips() map[netip.Addr]struct{} {
	out := map[netip.Addr]struct{}{}
	for a := range e.ownership.touched {
		out[a] = struct{}{}
	}
	for a := range e.local.routes {
		out[a] = struct{}{}
	}
	for a := range e.settings.floating {
		out[a] = struct{}{}
	}
	for a := range e.ownership.verdicts {
		out[a] = struct{}{}
	}
	for _, v := range e.members.byName {
		for a := range v.message.VIPs {
			out[a] = struct{}{}
		}
	}
	return out
}

// record records a decision and returns the one before.
func (e *Engine) record(a netip.Addr, v owner.Decision, moved moves) owner.Decision {
	me := e.settings.name
	_, claimed := e.local.routes[a]
	_, known := e.ownership.verdicts[a]
	before := e.ownership.record(a, v, claimed, me)
	if before.Owner == v.Owner || before.Owner != me && v.Owner != me {
		return before
	}
	e.gen.ownership++
	if e.settings.ownersMatter() {
		if known && before.Owner != "" && v.Owner != "" {
			e.ownership.moves[v.Reason]++
		}
		moved.add(before.Owner, v, a)
	}
	return before
}

// assign decides the role of a VIP for routers.
func (e *Engine) assign(a netip.Addr, v owner.Decision, d *Decision) {
	role, to := advertise.AsRuled, d.Roles
	_, claimed := e.local.routes[a]
	_, floating := e.settings.floating[a]
	switch {
	case !claimed && !floating || e.settings.fleet == nil:
	case v.Role == owner.Standby, v.Role == owner.Owner && e.settings.needsReturnPath() && !e.ownership.returnPath:
		role = advertise.Standby
	case v.Role == owner.Out:
		role = advertise.Out
	case v.Role == owner.None && v.Owner != "":
		// Other members have a backend: min_announced is not meant for that.
		role, to = advertise.Out, d.Late
	}
	if e.ownership.assign(a, role) {
		to[a] = role
	}
}

// claim returns how to claim an address; nil if this box is not to answer ARP for it.
func (e *Engine) claim(a netip.Addr, rules owner.Rules, x election) *l2.Claim {
	me := e.settings.name
	switch {
	case e.settings.l2 == nil:
		return nil
	case rules.Owner(x.answering, a) == me:
		return e.ownClaim(a)
	case len(x.sure) < len(x.answering) && rules.Owner(x.sure, a) == me:
		if claim := e.ownClaim(a); claim != nil {
			claim.Cautious = true
			return claim
		}
	}
	return nil
}

// ownClaim returns the claim of an address that this box owns; nil if it does not answer
// ARP for it.
func (e *Engine) ownClaim(a netip.Addr) *l2.Claim {
	interfaces, floating := e.settings.floating[a]
	switch {
	case e.local.noIPVS, floating && e.isolation.is():
		return nil
	case floating, e.local.answersFor(&e.settings, a):
		return &l2.Claim{Interfaces: interfaces, Orphaned: e.members.orphaned(a)}
	}
	return nil
}
