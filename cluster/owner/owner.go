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
	name, _ := r.elect(r.survey("", members, vip), members, vip)
	return name
}

// Verdict tells what the member of name self does about a VIP. One that is not among
// members, or is Absent, claims nothing.
func (r Rules) Verdict(self string, members []Member, vip netip.Addr) Verdict {
	f := r.survey(self, members, vip)
	v := Verdict{}
	v.Owner, v.Why = r.elect(f, members, vip)
	fit := f.count[Fresh]+f.count[Settled] > 0
	switch {
	case f.starting:
		v.Role, v.Why = Out, Starting
	case f.self == Absent:
		v.Role, v.Why = Nothing, NoBackend
	case !f.self.Fit() && fit && f.self == Draining:
		v.Role, v.Why = Out, IsDraining
	case !f.self.Fit() && fit:
		v.Role, v.Why = Out, IsUnfit
	case !f.self.Fit() && (r.Mode == ActiveActive || v.Owner == self):
		v.Role, v.Why = Owner, Last
	case r.Mode == ActiveActive:
		v.Role = Owner
		if v.Why != Only {
			v.Why = Shared
		}
	case v.Owner == self:
		v.Role = Owner
	case f.self == Fresh && f.count[Settled] > 0 && f.holders == 0:
		v.Role, v.Why = Standby, IsFresh
	default:
		v.Role = Standby
	}
	return v
}

// field is who stands for a VIP.
type field struct {
	count   [Settled + 1]int // by standing, without Absent
	holders int              // fit members that have it, if those stay
	self    Standing
	// starting: the box whose Verdict it is does not know yet who else is there.
	starting bool
}

// survey looks at who stands for a VIP.
func (r Rules) survey(self string, members []Member, vip netip.Addr) field {
	f := field{starting: true}
	for i := range members {
		m := &members[i]
		s := m.standing(vip)
		if m.Name == self {
			f.self, f.starting = s, m.Standing == Absent
		}
		if s == Absent {
			continue
		}
		f.count[s]++
		if r.holds(m, s, vip) {
			f.holders++
		}
	}
	return f
}

// elect finds the owner: holders if they stay, else the best standing there is; of
// several the hash decides.
func (r Rules) elect(f field, members []Member, vip netip.Addr) (string, Why) {
	best := Settled
	for best > Absent && f.count[best] == 0 {
		best--
	}
	if best == Absent {
		return "", NoBackend
	}
	rivals, why := f.count[best], Alone
	if f.holders > 0 {
		rivals, why = f.holders, Stays
	}
	all := f.count[Draining] + f.count[Unfit] + f.count[Fresh] + f.count[Settled]
	if all == 1 {
		why = Only
	} else if rivals > 1 {
		why = Hashed
	}
	var first *Member
	var least score
	for i := range members {
		m := &members[i]
		s := m.standing(vip)
		if f.holders > 0 && !r.holds(m, s, vip) || f.holders == 0 && s != best {
			continue
		}
		if rivals == 1 {
			return m.Name, why
		}
		sc := r.score(m, vip)
		if first == nil || sc.less(least) || !least.less(sc) && m.Name < first.Name {
			first, least = m, sc
		}
	}
	return first.Name, why
}

// holds tells whether a member of a standing has a VIP that it is to keep.
func (r Rules) holds(m *Member, s Standing, vip netip.Addr) bool {
	return r.Stay && s.Fit() && m.Holds != nil && m.Holds(vip)
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
