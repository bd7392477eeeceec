package bgp

import (
	"net/netip"
	"slices"
)

// All explains every VIP that is known, sorted by address.
func (a *Advertiser) All() []Announcement {
	out := make([]Announcement, 0, len(a.vips))
	for _, addr := range a.sorted() {
		out = append(out, a.explain(a.vips[addr]))
	}
	return out
}

// Explain explains one VIP; false: it is not known.
func (a *Advertiser) Explain(addr netip.Addr) (Announcement, bool) {
	v := a.vips[addr]
	if v == nil {
		return Announcement{}, false
	}
	return a.explain(v), true
}

func (a *Advertiser) explain(v *vip) Announcement {
	out := Announcement{Addr: v.addr, Role: v.role, Since: v.since}
	for _, c := range v.claims {
		out.Serves = append(out.Serves, c.Serving)
	}
	if v.holds() {
		out.Until = v.goodSince.Add(a.policy.HoldDown)
	}
	own := a.reason(v)
	worst := NobodyThere
	for _, verdict := range a.verdicts(v.addr, v.claims) {
		h := a.hearing(v, verdict, own)
		out.Peers = append(out.Peers, h)
		if weight(h.Reason) > weight(worst) {
			worst = h.Reason
		}
	}
	out.Reason = own
	if heard(own) {
		out.Reason = worst
	}
	return out
}

// reason is how a VIP is, rules and peers apart.
func (a *Advertiser) reason(v *vip) Reason {
	switch {
	case v.withheld != "" && !v.kept:
		return Reason(v.withheld)
	case v.stage == Drained:
		return Withdrawn
	case v.stage == NotDrained && v.role == Out:
		return ServedElsewhere
	case !v.up:
		return HeldDown
	case v.kept:
		return KeptByFloor
	case v.stage == Shutting:
		return Draining
	case v.role == Standby:
		return OnStandby
	}
	return Announced
}

// heard tells whether a peer hears of a VIP.
func heard(r Reason) bool {
	return r == Announced || r == OnStandby || r == KeptByFloor || r == Draining
}

// weight tells which of the peers' reasons is that of the VIP: the highest.
func weight(r Reason) int {
	return slices.Index([]Reason{NobodyThere, NoFamily, NoRule, Refused, Draining, KeptByFloor, OnStandby, Announced}, r)
}

// hearing is what a peer hears of a VIP that is as own says.
func (a *Advertiser) hearing(v *vip, verdict verdict, own Reason) Hearing {
	h := Hearing{Peer: a.peers[verdict.peer], Reason: verdict.reason}
	if verdict.rule >= 0 {
		h.Rule = a.rules[verdict.rule].Name
	}
	if !heard(own) || verdict.reason == Announced {
		h.Reason = own
	}
	if verdict.reason != Announced {
		return h
	}
	prefix := a.rules[verdict.rule].prefix(v.addr)
	if b := a.prefixes[prefix]; b != nil && slices.ContainsFunc(b.wanted, func(t tally) bool { return t.peer == verdict.peer }) {
		h.Prefix = prefix
	}
	return h
}
