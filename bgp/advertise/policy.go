package advertise

import (
	"net/netip"
	"time"

	"weir/lb"
)

// Policy is the configuration of an Advertiser.
type Policy struct {
	// Rules in order (see Rules); without any, nothing is announced.
	Rules []Rule
	// Pools are the prefixes of the pools that Rules name.
	Pools map[string][]netip.Prefix
	// Peers are the routers.
	Peers []Peer
	// ReannounceDelay is how long a VIP that was withdrawn because it had no backend must
	// have had some, without interruption, before it is announced. 0: at once.
	ReannounceDelay time.Duration
	// MinAnnounced is the fraction of VIPs, 0 to 1, that stay announced however many lose
	// their backends. 0: none.
	MinAnnounced float64
}

// Stage is the progress of a drain.
type Stage uint8

// The stages of a drain.
const (
	// NotDrained: there is none.
	NotDrained Stage = iota
	// Shutting: announced, with a request to prefer others: the community
	// GRACEFUL_SHUTDOWN, and a LOCAL_PREF of 0 for iBGP peers (RFC 8326).
	Shutting
	// Drained: withdrawn.
	Drained
)

// Drains are the drains of the box and of single VIPs. The further of All and its own
// counts for a VIP.
type Drains struct {
	All  Stage
	VIPs map[netip.Addr]Stage
}

// Reason is the reason why a VIP, or one peer's route to it, is announced or not. The set
// is closed.
type Reason string

// The reasons. The first four are those of VIPs that are announced.
const (
	// Announced: nothing is the matter.
	Announced Reason = "announced"
	// OnStandby: announced as second choice, since another box owns it (Standby).
	OnStandby Reason = "standby"
	// MinAnnounced: no backend is left, but too many other VIPs have lost theirs.
	MinAnnounced Reason = "min-announced"
	// Draining: peers are asked to prefer other routes.
	Draining Reason = "draining"

	// ReannounceDelay: it has backends, but not for long enough yet.
	ReannounceDelay Reason = "reannounce-delay"
	// Withdrawn: it is drained.
	Withdrawn Reason = "drained"
	// ServedElsewhere: another box announces it, and this one must not (Out).
	ServedElsewhere Reason = "out"
	// NoBackend: lb.NoLiveBackend.
	NoBackend Reason = "no-backend"
	// NotProgrammed: lb.NotProgrammed.
	NotProgrammed Reason = "not-programmed"
	// NotServed: lb.NotServed.
	NotServed Reason = "not-served"

	// NoRule: no rule of this peer, or of any, matches it.
	NoRule Reason = "no-rule"
	// Refused: a rule excludes it.
	Refused Reason = "refused-by-rule"
	// NoFamily: the peer's session does not carry the VIP's family.
	NoFamily Reason = "family"
	// NobodyThere: there is no peer.
	NobodyThere Reason = "no-peer"
)

// Announcement is how a VIP is announced, or the reason why it is not.
type Announcement struct {
	Addr netip.Addr
	// Reason is Announced, OnStandby, MinAnnounced or Draining while at least one peer has
	// the route. Of several obstacles the first one in this order counts: those of the VIP
	// itself (no-backend, ...), drained, out, reannounce-delay, then those of the peers.
	Reason Reason
	// Role is the role of the box, even if that is not the Reason.
	Role Role
	// Until is when a VIP in ReannounceDelay is announced, if its backends stay.
	Until time.Time
	// Since is when Reason changed because of the VIP itself; the zero time if only rules
	// or peers changed it.
	Since time.Time
	// Serves are the Services there; of a VIP without a backend, those that it had.
	Serves []lb.Serving
	// Peers are all peers, sorted by name.
	Peers []PeerAnnouncement
}

// PeerAnnouncement is how a VIP is announced to a peer.
type PeerAnnouncement struct {
	Peer   string
	Reason Reason // Announced, OnStandby, MinAnnounced or Draining, or the obstacle
	// Rule is the name of the rule that applies; empty: there is none.
	Rule string
	// Prefix is the announced prefix, the VIP itself or an aggregate. It is not valid if
	// there is none. A VIP that does not serve, is drained or is out has it while its
	// aggregate is announced for other VIPs: packets for it still arrive.
	Prefix netip.Prefix
}

// Of returns the stage of an address.
func (d Drains) Of(addr netip.Addr) Stage { return max(d.All, d.VIPs[addr]) }

// Peer is a router, as far as the announcements depend on it.
type Peer struct {
	Name     string
	Families Families
	// Standby is the penalty of routes that the box is only Standby for.
	Standby Handicap
}

// Families are the address families of a session. The zero value is both.
type Families struct {
	IPv4, IPv6 bool
}

// Carry reports whether a session of these families carries routes of an address.
func (f Families) Carry(addr netip.Addr) bool {
	if f == (Families{}) {
		return true
	}
	return addr.Is4() && f.IPv4 || addr.Is6() && f.IPv6
}
