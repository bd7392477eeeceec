package advertise

import (
	"cmp"
	"net/netip"
	"time"

	"weir/lb"
)

// vip is the state of one address.
type vip struct {
	addr netip.Addr
	// serving are the Services there; of a VIP without a backend, those that it had.
	// targets are their targets by the rules.
	serving []served
	targets []target
	// withheld is that of the Route; "": it serves, without interruption since goodSince.
	withheld  lb.Withheld
	goodSince time.Time
	// up: it is announced, apart from drains and rules. kept: although it has no backend.
	up, kept bool
	// lost: it was withdrawn because it had no backend, and has not returned since. ended
	// is when it last had one; old: too long ago to count for the minimum.
	lost  bool
	ended time.Time
	old   bool
	stage Stage
	role  Role
	since time.Time // when the above changed

	// What the prefix table and the minimum count.
	demand struct {
		targets []target
		form    form
	}
	counted countedAs
}

// delayed reports whether a VIP only waits for the reannounce delay.
func (v *vip) delayed() bool { return !v.up && v.withheld == "" && v.lost }

// countedAs is how a VIP counts for the minimum.
type countedAs uint8

const (
	notCounted    countedAs = iota
	announced               // announced, with backends
	announcedKept           // announced, without
	recent                  // not announced, but with backends now or recently
)

// form returns the form of a VIP; false: it must not be announced.
func (v *vip) form() (form, bool) {
	switch {
	case v.stage == Drained, v.stage == NotDrained && v.role == Out:
		return 0, false
	case v.stage == Shutting && v.role != AsRuled:
		return shuttingWorse, true
	case v.stage == Shutting:
		return shutting, true
	case v.role == Standby:
		return standby, true
	}
	return plain, true
}

// eligible reports whether a VIP counts for the minimum, apart from rules.
func (v *vip) eligible() bool { return v.stage == NotDrained && v.role != Out }

// reason returns the Reason of a VIP without rules and peers.
func (v *vip) reason() Reason {
	switch {
	case v.withheld != "" && !v.kept:
		return Reason(v.withheld)
	case v.stage == Drained:
		return Withdrawn
	case v.stage == NotDrained && v.role == Out:
		return ServedElsewhere
	case !v.up:
		return ReannounceDelay
	case v.kept:
		return MinAnnounced
	case v.stage == Shutting:
		return Draining
	case v.role == Standby:
		return OnStandby
	}
	return Announced
}

// target is a peer to which a rule announces a VIP.
type target struct {
	peer, rule int
}

func (s target) compare(other target) int {
	return cmp.Or(cmp.Compare(s.peer, other.peer), cmp.Compare(s.rule, other.rule))
}
