package bgp

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// Policy is everything that an Advertiser is told but the routes.
type Policy struct {
	// Rules in order (see Rules); without any nothing is announced.
	Rules []Rule
	// Pools are the prefixes of the pools that Rules name.
	Pools map[string][]netip.Prefix
	// Peers are who there is: their names, families and handicaps count.
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

// The reasons. The first four are those of VIPs that are announced.
const (
	// Announced: nothing is the matter.
	Announced Reason = "announced"
	// OnStandby: worse than the rules say, for another box owns it (Standby).
	OnStandby Reason = "standby"
	// KeptByFloor: no backend is left, but too many others have lost theirs.
	KeptByFloor Reason = "kept-by-floor"
	// Draining: peers are asked to prefer others.
	Draining Reason = "draining"

	// HeldDown: it has backends again, but not for long enough yet.
	HeldDown Reason = "held-down"
	// Withdrawn: it is drained.
	Withdrawn Reason = "drained"
	// ServedElsewhere: another box announces it, and this one should not (Out).
	ServedElsewhere Reason = "out"
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
	// Reason is Announced, OnStandby, KeptByFloor or Draining while at least one peer
	// hears of it. Of several that hinder the first one in this order counts: what is
	// wrong with the VIP itself (no-backend, ...), drained, out, held-down, then the
	// peers'.
	Reason Reason
	// Role is what the box is to it, whether that is the Reason or not.
	Role Role
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
	Reason Reason // Announced, OnStandby, KeptByFloor or Draining, or why it hears nothing
	// Rule is the name of the rule that counts; empty: there is none.
	Rule string
	// Prefix is what the peer hears, the VIP itself or an aggregate. It is not valid
	// if it hears nothing, but of a VIP that does not serve, is drained or is out while
	// its aggregate stands for others it is that: packets for it still come.
	Prefix netip.Prefix
}

// Advertiser decides which prefixes are announced, how, to whom and when. It is
// pure: it has no clock and starts nothing. It is not safe for concurrent use. The
// cost of a change is its size, however many VIPs there are.
//
// # When
//
// A VIP is announced as soon as its Route says that somebody serves it, and withdrawn
// as soon as it does not. There are two exceptions, both for VIPs that lose their
// last backend (lb.NobodyAnswers), and for nothing else:
//
// Hold-down. One that was withdrawn for that returns when it has had backends for
// Policy.HoldDown without a break: routers remember routes that flap, and some damp
// them for an hour. What returns after it was deleted, drained or not programmed
// returns at once, as do those that are new.
//
// Floor. Withdrawals for that reason end where they would leave fewer than
// Policy.Floor of the VIPs, rounded up: those that have backends, or had some within
// the last minute. Further ones stay announced although nobody answers there
// (KeptByFloor), for when many fail at once it is more often the check or the cluster
// that is broken, and a box that takes itself off the net helps nobody. They are
// withdrawn as others return, those first that have been without backends the longest;
// they are never given up for the time that has passed, and as long as there are any
// the minute does not pass for those that were withdrawn. VIPs that no peer hears of,
// or that are drained or out, do not count; deletions, drains, roles and what the
// kernel does not hold are never refused. With fewer than four VIPs there is no floor: one of three
// that fails is no sign of anything but itself, and a box with a single VIP must be
// able to leave it to another box.
//
// All this is about what happens while the process runs. One that has just started
// believes what it sees.
//
// # Aggregates
//
// An aggregate is announced while one of its VIPs would be, as the best of them: as
// its Rule says while one of them is AsRuled, as a Standby's while one of them is
// that, and it asks to be avoided (Shutting) when all of them do. So a VIP of an
// aggregate can't be drained alone, nor be another box's alone: its packets still
// come. If several Rules give a peer the same prefix, the first Rule with a VIP that
// is announced the best is whose attributes it has.
type Advertiser struct {
	policy Policy
	peers  []string // sorted; the rest has indices of it
	rules  []compiled
	looks  []Path // as rules have them, without Peers, each once
	drains Drains
	roles  map[netip.Addr]Role // but those that are AsRuled
	now    time.Time

	vips  map[netip.Addr]*vip
	held  queue // those that wait for the hold-down
	floor floor

	prefixes   map[netip.Prefix]*bundle
	aggregates map[netip.Prefix]struct{}
	dirty      []netip.Prefix // whose paths may have changed, each once
}

// NewAdvertiser gives an Advertiser that announces nothing until it is configured
// and has Routes.
func NewAdvertiser() *Advertiser {
	return &Advertiser{
		held: queue{meant: func(v *vip, since time.Time) bool { return v.holds() && v.goodSince.Equal(since) }},
		floor: floor{
			late:  queue{meant: func(v *vip, since time.Time) bool { return v.kept && v.ended.Equal(since) }},
			ended: queue{meant: func(v *vip, since time.Time) bool { return !v.old && v.ended.Equal(since) }},
		},
		roles:      map[netip.Addr]Role{},
		vips:       map[netip.Addr]*vip{},
		prefixes:   map[netip.Prefix]*bundle{},
		aggregates: map[netip.Prefix]struct{}{},
	}
}

// The methods that change something give what differs by prefix, for Speaker.Set:
// all the paths of a prefix, and none to withdraw it. They give nil if nothing
// differs. An earlier time than the last one counts as the last one.

// Configure replaces the policy. It costs as much as there are VIPs.
func (a *Advertiser) Configure(p Policy, now time.Time) map[netip.Prefix][]Path {
	a.now = later(a.now, now)
	for _, v := range a.vips {
		a.contribute(v, plain, nil)
	}
	a.compile(p)
	for _, addr := range a.sorted() {
		v := a.vips[addr]
		v.sends = a.match(addr, v.claims)
		if v.kept && len(v.sends) == 0 {
			a.drop(v)
		}
		a.settle(v)
	}
	a.tick(now) // the hold-down may be shorter now
	return a.changes()
}

// Take takes what lb.Reconciler.Routes gave: addresses that are not among routes
// stay as they are. labels gives the labels of a Service, as a map that nobody
// changes afterwards; nil: there are none. Those of a VIP are asked for when its
// Route is taken, so a Route is to be given again when they change.
//
// What lb.Options.Leaving tells of is taken in the same way before it goes: as
// lb.Reconciler.Route has it then.
func (a *Advertiser) Take(routes []lb.Route, labels func(lb.ServiceID) map[string]string, now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(r, s lb.Route) int { return r.Addr.Compare(s.Addr) })
	// Those without backends come last: the floor is to know all the rest.
	for _, lacking := range []bool{false, true} {
		for i, r := range routes {
			again := i+1 < len(routes) && routes[i+1].Addr == r.Addr // the last word counts
			if !again && lacking == (len(r.Serves) == 0 && r.Withheld == lb.NobodyAnswers) {
				a.take(r, labels)
			}
		}
	}
	return a.changes()
}

// Drain replaces what is drained. What was drained and is not any more returns at
// once.
func (a *Advertiser) Drain(d Drains, now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	old := a.drains
	a.drains = Drains{d.All, maps.Clone(d.VIPs)}
	touched := map[netip.Addr]*vip{}
	if old.All != d.All {
		touched = a.vips
	} else {
		for _, vips := range []map[netip.Addr]Stage{old.VIPs, d.VIPs} {
			for addr := range vips {
				if v := a.vips[addr]; v != nil && old.VIPs[addr] != d.VIPs[addr] {
					touched[addr] = v
				}
			}
		}
	}
	for addr, v := range touched {
		if stage := a.drains.of(addr); stage != v.stage {
			v.stage, v.since = stage, a.now
			a.resettle(v)
		}
	}
	return a.changes()
}

// of gives how far an address is drained.
func (d Drains) of(addr netip.Addr) Stage { return max(d.All, d.VIPs[addr]) }

// Advance does what is due by now.
func (a *Advertiser) Advance(now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	return a.changes()
}

// Next is when Advance has something to do; the zero time: not by itself.
func (a *Advertiser) Next() time.Time {
	if head := a.held.first(); head != nil {
		return head.goodSince.Add(a.policy.HoldDown)
	}
	return time.Time{}
}

// Announced is all that is announced, for a Speaker that has been told nothing.
func (a *Advertiser) Announced() map[netip.Prefix][]Path {
	out := make(map[netip.Prefix][]Path, len(a.prefixes))
	for prefix, b := range a.prefixes {
		out[prefix] = b.paths
	}
	return out
}

// Aggregates are the announced prefixes that are wider than one address, sorted.
// Each needs an unreachable route in the kernel (lb.Base.Unreachable), before the
// Speaker is told.
func (a *Advertiser) Aggregates() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(a.aggregates), netip.Prefix.Compare)
}

func later(s, t time.Time) time.Time {
	if t.After(s) {
		return t
	}
	return s
}

func (a *Advertiser) sorted() []netip.Addr {
	return slices.SortedFunc(maps.Keys(a.vips), netip.Addr.Compare)
}
