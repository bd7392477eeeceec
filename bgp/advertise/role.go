package advertise

import (
	"math"
)

// Role is the role of a box for a VIP in a fleet.
type Role uint8

// The roles.
const (
	// AsRuled announces it as the Rules demand: the box owns it, all boxes announce
	// equally, or there is no fleet.
	AsRuled Role = iota
	// Standby announces it as second choice, by each Peer's Handicap: routers use it when
	// the owner's route is gone.
	Standby
	// Out does not announce it: another box does.
	Out
)

// String returns "as-ruled", "standby" or "out".
func (r Role) String() string { return [...]string{"as-ruled", "standby", "out"}[r] }

// Handicap makes the routes of a Standby worse than the Rule demands. The zero value adds
// StandbyMED, since a standby must be worse.
type Handicap struct {
	// MED is added to the Rule's, or to 0, up to the largest MED. Routers compare it only
	// between routes of one neighbouring AS: all boxes of a fleet need the same ASN.
	MED uint32
	// LocalPref is subtracted from the Rule's, or from 100, down to 0. eBGP peers do not
	// get it.
	LocalPref uint32
	// Prepend is added to the Rule's, up to 16. iBGP peers do not get it.
	Prepend int
}

// The Handicaps of configurations, of which one is used.
const (
	StandbyMED       = 100
	StandbyLocalPref = 50
	StandbyPrepend   = 3
)

// on returns p with the handicap.
func (h Handicap) on(p Path) Path {
	if h == (Handicap{}) {
		h.MED = StandbyMED
	}
	if h.MED > 0 {
		p.MED = MetricOf(p.MED.Value + min(h.MED, math.MaxUint32-p.MED.Value))
	}
	if h.LocalPref > 0 {
		p.LocalPref = MetricOf(p.EffectiveLocalPref() - min(h.LocalPref, p.EffectiveLocalPref()))
	}
	p.Prepend = min(p.Prepend+h.Prepend, MaxPrepend)
	return p
}

// form is the form in which a VIP is announced, the best one first. A prefix has the best
// form of its VIPs.
type form uint8

const (
	plain form = iota
	standby
	shutting      // with GRACEFUL_SHUTDOWN
	shuttingWorse // the same, by a box that is not the owner
	forms         // the number of forms
)
