package advertise

import (
	"net/netip"
	"slices"
)

// All explains every known VIP, sorted by address.
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
	for _, c := range v.serving {
		out.Serves = append(out.Serves, c.Serving)
	}
	if v.delayed() {
		out.Until = v.goodSince.Add(a.policy.ReannounceDelay)
	}
	own := v.reason()
	worst := NobodyThere
	for _, r := range a.table.rulings(v.addr, v.serving) {
		h := a.peerAnnouncement(v, r, own)
		out.Peers = append(out.Peers, h)
		if weight(h.Reason) > weight(worst) {
			worst = h.Reason
		}
	}
	out.Reason = own
	if announces(own) {
		out.Reason = worst
	}
	return out
}

// announces reports whether the Reason is one of an announced VIP.
func announces(r Reason) bool {
	return r == Announced || r == OnStandby || r == MinAnnounced || r == Draining
}

// weight orders the reasons of peers: that of the VIP is the highest.
func weight(r Reason) int {
	return slices.Index([]Reason{NobodyThere, NoFamily, NoRule, Refused, Draining, MinAnnounced, OnStandby, Announced}, r)
}

// peerAnnouncement returns how a VIP with its own Reason is announced to a peer.
func (a *Advertiser) peerAnnouncement(v *vip, r ruling, own Reason) PeerAnnouncement {
	h := PeerAnnouncement{Peer: a.table.peers[r.peer].Name, Reason: r.reason}
	if r.rule >= 0 {
		h.Rule = a.table.rules[r.rule].Name
	}
	if !announces(own) || r.reason == Announced {
		h.Reason = own
	}
	if r.reason != Announced {
		return h
	}
	prefix := a.table.rules[r.rule].prefix(v.addr)
	if a.table.announced(prefix, r.peer) {
		h.Prefix = prefix
	}
	return h
}
