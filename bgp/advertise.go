package bgp

import (
	"net/netip"
	"time"

	"weir/lb"
)

// Policy is everything that an Advertiser is told but the routes.
type Policy struct {
	// Rules in order (see Rules); without any nothing is announced.
	Rules []Rule
	// Pools are the prefixes of the pools that Rules name.
	Pools map[string][]netip.Prefix
	// Peers are who there is: their names and families count.
	Peers []Peer
	// HoldDown is how long a VIP that was withdrawn for want of a backend must have
	// had some, without a break, before it is announced again. 0: at once.
	HoldDown time.Duration
	// Floor is the share of VIPs, 0 to 1, that stay announced however many lose
	// their backends. 0: none does.
	Floor float64
}

// Stage is how far a drain has come.
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

// Drains say what is drained. A VIP is as far as the further of All and its own.
type Drains struct {
	All  Stage
	VIPs map[netip.Addr]Stage
}

// Reason says why a VIP, or one peer's route to it, is as it is. The set is closed.
type Reason string

// The reasons. The first three are those of VIPs that are announced.
const (
	// Announced: nothing is the matter.
	Announced Reason = "announced"
	// KeptByFloor: no backend is left, but too many others have lost theirs.
	KeptByFloor Reason = "kept-by-floor"
	// Draining: peers are asked to prefer others.
	Draining Reason = "draining"

	// HeldDown: it has backends again, but not for long enough yet.
	HeldDown Reason = "held-down"
	// Withdrawn: it is drained.
	Withdrawn Reason = "drained"
	// NoBackend: lb.NobodyAnswers.
	NoBackend Reason = "no-backend"
	// NotProgrammed: lb.NotProgrammed.
	NotProgrammed Reason = "not-programmed"
	// NotServed: lb.NotServed.
	NotServed Reason = "not-served"

	// NoRule: no rule is for it, of this peer or of any.
	NoRule Reason = "no-rule"
	// Refused: a rule says not to announce it.
	Refused Reason = "refused-by-rule"
	// NoFamily: the peer's session does not carry the VIP's family.
	NoFamily Reason = "family"
	// NobodyThere: there is no peer at all.
	NobodyThere Reason = "no-peer"
)

// Announcement is how one VIP is announced, or why it is not.
type Announcement struct {
	Addr netip.Addr
	// Reason is Announced, KeptByFloor or Draining while at least one peer hears of
	// it. Of several that hinder the first one in this order counts: what is wrong
	// with the VIP itself (no-backend, ...), drained, held-down, then the peers'.
	Reason Reason
	// Until is when a VIP that is HeldDown is announced, if its backends last.
	Until time.Time
	// Since is when Reason became what it is because the VIP itself changed; the zero
	// time where only rules or peers did.
	Since time.Time
	// Serves are the Services there; of a VIP that has no backend, those it had.
	Serves []lb.Serving
	// Peers are all peers, sorted by name: what each hears, or why nothing.
	Peers []Hearing
}

// Hearing is what one peer hears of a VIP.
type Hearing struct {
	Peer   string
	Reason Reason // Announced, KeptByFloor or Draining, or why it hears nothing
	// Rule is the name of the rule that counts; empty: there is none.
	Rule string
	// Prefix is what the peer hears, the VIP itself or an aggregate. It is not valid
	// if it hears nothing, but of a VIP that does not serve or is drained while its
	// aggregate stands for others it is that: packets for it still come.
	Prefix netip.Prefix
}

// Advertiser decides which prefixes are announced, how, to whom and when. It is
// pure: it has no clock and starts nothing. It is not safe for concurrent use.
//
// The methods that change something give what differs by prefix, for Speaker.Set;
// nil if nothing does. Later times than before are expected; an earlier one counts
// as the latest.
type Advertiser struct{}

// NewAdvertiser gives an Advertiser that announces nothing until it is configured
// and has Routes.
func NewAdvertiser() *Advertiser { return &Advertiser{} }

// Configure replaces the policy. It costs as much as there are VIPs.
func (a *Advertiser) Configure(p Policy, now time.Time) map[netip.Prefix][]Path { return nil }

// Take takes what lb.Reconciler.Routes gave: addresses that are not among routes
// stay as they are. labels gives the labels of a Service; those of a VIP are asked
// for when its Route is taken, so a Route is to be given again when they change.
//
// What lb.Options.Leaving tells of is taken in the same way before it goes: as
// lb.Reconciler.Route has it then.
func (a *Advertiser) Take(routes []lb.Route, labels func(lb.ServiceID) map[string]string, now time.Time) map[netip.Prefix][]Path {
	return nil
}

// Drain replaces what is drained. What was drained and is not any more returns at
// once.
func (a *Advertiser) Drain(d Drains, now time.Time) map[netip.Prefix][]Path { return nil }

// Advance does what is due by now.
func (a *Advertiser) Advance(now time.Time) map[netip.Prefix][]Path { return nil }

// Next is when Advance has something to do; the zero time: not by itself.
func (a *Advertiser) Next() time.Time { return time.Time{} }

// Announced is all that is announced, for a Speaker that has been told nothing.
func (a *Advertiser) Announced() map[netip.Prefix][]Path { return nil }

// Aggregates are the announced prefixes that are wider than one address, sorted.
// Each needs an unreachable route in the kernel (lb.Base.Unreachable), before the
// Speaker is told.
func (a *Advertiser) Aggregates() []netip.Prefix { return nil }

// All explains every VIP that is known, sorted by address.
func (a *Advertiser) All() []Announcement { return nil }

// Explain explains one VIP; false: it is not known.
func (a *Advertiser) Explain(addr netip.Addr) (Announcement, bool) { return Announcement{}, false }
