package bgp

import (
	"maps"
	"math"
	"net/netip"
	"time"
)

// Role is what a box is to a VIP in a fleet of several that serve it.
type Role uint8

// The roles.
const (
	// AsRuled announces it as the Rules say: the box owns it, or all announce alike,
	// or there is no fleet.
	AsRuled Role = iota
	// Standby announces it worse than the Rules say, by each Peer's Handicap: routers
	// turn to it when the owner's route is gone, and no sooner.
	Standby
	// Out does not announce it: another box does, and this one should not.
	Out
)

// String gives "as-ruled", "standby" or "out".
func (r Role) String() string { return [...]string{"as-ruled", "standby", "out"}[r] }

// Handicap is how much worse than a Rule says a peer is told of VIPs that the box is
// Standby for. The zero value is StandbyMED more, since a standby that is no worse
// would be no standby.
type Handicap struct {
	// MED is added to the Rule's, or to 0; the sum ends at the largest MED. Routers
	// compare it only between routes of one neighbouring AS: all boxes of a fleet need
	// the same ASN.
	MED uint32
	// LocalPref is taken off the Rule's, or off 100; the rest is 0 at least. eBGP
	// peers do not hear of it.
	LocalPref uint32
	// Prepend is added to the Rule's; the sum is 16 at most. iBGP peers do not hear
	// of it.
	Prepend int
}

// The Handicaps that configurations have, one at a time.
const (
	StandbyMED       = 100
	StandbyLocalPref = 50
	StandbyPrepend   = 3
)

// on gives p made worse by h.
func (h Handicap) on(p Path) Path {
	if h == (Handicap{}) {
		h.MED = StandbyMED
	}
	if h.MED > 0 {
		p.MED = MetricOf(p.MED.Value + min(h.MED, math.MaxUint32-p.MED.Value))
	}
	if h.LocalPref > 0 {
		p.LocalPref = MetricOf(p.localPref() - min(h.LocalPref, p.localPref()))
	}
	p.Prepend = min(p.Prepend+h.Prepend, maxPrepend)
	return p
}

// form is how a VIP is announced, the best one first. Where several VIPs share a
// prefix the best of their forms is that of the prefix.
type form uint8

const (
	plain form = iota
	standby
	shutting      // with a request to prefer others
	shuttingWorse // that, by a box that is not the one to prefer anyway
	forms         // how many there are
)

// form tells how a VIP is announced; false: it is not, or would not be.
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

// Assign says what the box is to some VIPs, known ones and ones yet to come; what the
// others are is left as it is. AsRuled is what all are at first: who assigns that to
// a VIP that is gone has nothing of it kept.
//
// A role counts at once: neither the hold-down nor the floor has a say in it, and a
// VIP that is Out does not count for the floor, as one that is drained does not. So
// who assigns roles must know that another box announces what is Out here: also of a
// VIP that has no backend here but has one there, for which the floor is not meant.
//
// A drain comes first: what is Shutting stays announced until it is Drained, also if
// it is Out, as badly as a Standby, so that routers have another route before they
// lose this one. What is Drained and not AsRuled is withdrawn as any other is.
func (a *Advertiser) Assign(roles map[netip.Addr]Role, now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	for addr, role := range roles {
		if role == AsRuled {
			delete(a.roles, addr)
		} else {
			a.roles[addr] = role
		}
		if v := a.vips[addr]; v != nil && v.role != role {
			before := a.reason(v)
			v.role = role
			a.resettle(v)
			if a.reason(v) != before {
				v.since = a.now
			}
		}
	}
	return a.changes()
}

// Roles are what is assigned, but AsRuled, for another Advertiser.
func (a *Advertiser) Roles() map[netip.Addr]Role { return maps.Clone(a.roles) }

// resettle settles a VIP whose drain or role is another one. One that does not count
// for the floor any more is not kept by it either.
func (a *Advertiser) resettle(v *vip) {
	if v.kept && !v.counts() {
		a.drop(v)
	}
	a.settle(v)
}

// counts tells whether a VIP counts for the floor, rules apart.
func (v *vip) counts() bool { return v.stage == NotDrained && v.role != Out }
