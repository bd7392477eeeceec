package owner

import "net/netip"

// Standing is how much a member is to be counted with, the best last. All but Absent
// is what a member says of itself; Absent is what others see.
type Standing uint8

// The standings.
const (
	// Absent is a member that is not there, or that does not know yet who else is.
	Absent Standing = iota
	// Draining is being taken out, by somebody's wish.
	Draining
	// Unfit could serve badly or not at all, and says why.
	Unfit
	// Fresh is fit, but not for long enough to take anything from a Settled one.
	Fresh
	// Settled is fit, and has been for a while.
	Settled
)

func (s Standing) String() string {
	return [...]string{"absent", "draining", "unfit", "fresh", "settled"}[s]
}

// MarshalText is String, for JSON and the like.
func (s Standing) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Fit tells whether a member is fit: Fresh or Settled.
func (s Standing) Fit() bool { return s >= Fresh }

// DefaultWeight is the weight of a member that says none.
const DefaultWeight = 100

// Member is one member of the fleet, as one box sees it.
type Member struct {
	Name string
	// Weight is its share, 1 to 1000; 0 is DefaultWeight.
	Weight   int
	Standing Standing
	// Serves tells whether it has a usable backend for a VIP, and its kernel has it;
	// nil: for none.
	Serves func(netip.Addr) bool
	// Holds tells whether it says that it owns a VIP now; only Stay asks. Nil: none.
	Holds func(netip.Addr) bool
	// Drains tells whether a VIP alone is drained there; nil: none.
	Drains func(netip.Addr) bool
}

// Mode is who announces a VIP.
type Mode uint8

// The modes.
const (
	// ActiveActive has every fit member announce what it serves, all alike.
	ActiveActive Mode = iota
	// ActiveStandby has the owner announce it, and the others as second choice.
	ActiveStandby
)

func (m Mode) String() string { return [...]string{"active-active", "active-standby"}[m] }

// Rules are those by which a fleet shares its VIPs. All members must have the same
// ones.
type Rules struct {
	Mode Mode
	// Together gives all VIPs to one owner, as far as it serves them.
	Together bool
	// Stay leaves a VIP with a fit member that holds it, whoever comes.
	Stay bool
}

// Role is what a box does about a VIP.
type Role uint8

// The roles, the loudest last.
const (
	// Nothing: it cannot serve it.
	Nothing Role = iota
	// Out: others serve it, and this box should not be asked.
	Out
	// Standby announces it as second choice.
	Standby
	// Owner announces it as first choice.
	Owner
)

func (r Role) String() string { return [...]string{"nothing", "out", "standby", "owner"}[r] }

// MarshalText is String, for JSON and the like.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Verdict is what a box does about a VIP, and why.
type Verdict struct {
	Role Role
	// Owner is the name of the VIP's owner; "" if nobody serves it. In ActiveActive it
	// is the one that answers ARP and NDP, where that is wanted, and has no part in the
	// Role.
	Owner string
	Why   Why
}

// Owner gives the name of the owner of a VIP, "" if nobody serves it. The order of
// members makes no difference; their names must differ.
func (r Rules) Owner(members []Member, vip netip.Addr) string {
	name, _ := r.choose(members, vip)
	return name
}

// Verdict tells what the member of name self does about a VIP. One that is not among
// members, or Absent, claims nothing.
func (r Rules) Verdict(self string, members []Member, vip netip.Addr) Verdict {
	name, why := r.choose(members, vip)
	v := Verdict{Owner: name, Why: why}
	own, fit, others := Absent, false, false
	for i := range members {
		m := &members[i]
		if m.Name == self && m.Standing == Absent {
			v.Role, v.Why = Out, Starting
			return v
		}
		s := m.standing(vip)
		if m.Name == self {
			own = s
		} else if s != Absent {
			others, fit = true, fit || s.Fit()
		}
	}
	switch {
	case own == Absent:
		v.Role, v.Why = Nothing, NoBackend
	case !own.Fit() && fit:
		v.Role, v.Why = Out, IsUnfit
		if own == Draining {
			v.Why = IsDraining
		}
	case !own.Fit() && name == self:
		v.Role, v.Why = Owner, Last
	case r.Mode == ActiveActive && !own.Fit():
		v.Role, v.Why = Owner, Last
	case r.Mode == ActiveActive:
		v.Role = Owner
		if others {
			v.Why = Shared
		}
	case name == self:
		v.Role = Owner
	default:
		v.Role = Standby
		if own == Fresh && why == Alone {
			v.Why = IsFresh
		}
	}
	return v
}

// standing is that of a member where one VIP is concerned: Absent if it does not
// serve it.
func (m *Member) standing(vip netip.Addr) Standing {
	if m.Standing == Absent || m.Serves == nil || !m.Serves(vip) {
		return Absent
	}
	if m.Drains != nil && m.Drains(vip) {
		return Draining
	}
	return m.Standing
}

// choose finds the owner of a VIP: the best standing first, then (with Stay) whoever
// holds it, then the hash.
func (r Rules) choose(members []Member, vip netip.Addr) (string, Why) {
	best, holders, n := Absent, false, 0
	for i := range members {
		m := &members[i]
		s := m.standing(vip)
		if s == Absent {
			continue
		}
		n++
		best = max(best, s)
		holders = holders || r.Stay && s.Fit() && m.holds(vip)
	}
	if best == Absent {
		return "", NoBackend
	}
	var first *Member
	var least score
	rivals := 0
	for i := range members {
		m := &members[i]
		s := m.standing(vip)
		if holders && !(s.Fit() && m.holds(vip)) || !holders && s != best {
			continue
		}
		rivals++
		sc := r.score(m, vip)
		if first == nil || sc.less(least) || !least.less(sc) && m.Name < first.Name {
			first, least = m, sc
		}
	}
	switch {
	case n == 1:
		return first.Name, Only
	case holders && rivals == 1:
		return first.Name, Stays
	case rivals == 1:
		return first.Name, Alone
	}
	return first.Name, Hashed
}

func (m *Member) holds(vip netip.Addr) bool { return m.Holds != nil && m.Holds(vip) }
