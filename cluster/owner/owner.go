package owner

import "net/netip"

// State is the state of a member, the best last. Members publish all but Absent, which
// other members derive.
type State uint8

// The states of a member.
const (
	// Absent: it is gone, or does not know the other members yet.
	Absent State = iota
	// Draining: an operator takes it out of service.
	Draining
	// Unfit: a check has failed, so that it would serve badly or not at all.
	Unfit
	// Fresh: it is fit, but not for long enough to take VIPs from a Stable one.
	Fresh
	// Stable: it has been fit for a while.
	Stable
)

func (s State) String() string {
	return [...]string{"absent", "draining", "unfit", "fresh", "stable"}[s]
}

// MarshalText is String, for JSON and the like.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Fit reports whether a member is fit: Fresh or Stable.
func (s State) Fit() bool { return s >= Fresh }

// DefaultWeight is the weight of a member that publishes none.
const DefaultWeight = 100

// Member is a member of the fleet, as a box sees it.
type Member struct {
	Name string
	// Weight is its weight in the distribution of VIPs, 1 to 1000; 0 is DefaultWeight.
	Weight int
	State  State
	// Serves reports whether it has a usable backend for a VIP and its kernel is
	// programmed; nil: for none.
	Serves func(netip.Addr) bool
	// Owns reports whether it publishes that it owns a VIP now; used with NoPreempt only.
	// Nil: none.
	Owns func(netip.Addr) bool
	// Drains reports whether a single VIP is drained there; nil: none.
	Drains func(netip.Addr) bool
}

// Mode selects the members that announce a VIP.
type Mode uint8

// The modes.
const (
	// ActiveActive: every fit member announces the VIPs that it serves, equally.
	ActiveActive Mode = iota
	// ActiveStandby: the owner announces a VIP, and the others announce it as second
	// choice.
	ActiveStandby
)

func (m Mode) String() string { return [...]string{"active-active", "active-standby"}[m] }

// Rules are the rules of ownership. All members must have the same ones.
type Rules struct {
	Mode Mode
	// SingleOwner gives all VIPs to one owner, as far as it serves them.
	SingleOwner bool
	// NoPreempt leaves a VIP with a fit member that owns it, whichever members join.
	NoPreempt bool
}

// Role is the role of a box for a VIP.
type Role uint8

// The roles, the most preferred last.
const (
	// None: it cannot serve it.
	None Role = iota
	// Out: others serve it, and this box must not announce it.
	Out
	// Standby announces it as second choice.
	Standby
	// Owner announces it as first choice.
	Owner
)

func (r Role) String() string { return [...]string{"nothing", "out", "standby", "owner"}[r] }

// MarshalText is String, for JSON and the like.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Decision is the role of a box for a VIP, and its reason.
type Decision struct {
	Role Role
	// Owner is the name of the VIP's owner; empty if no member serves it. In ActiveActive
	// it answers ARP and NDP, where that is configured, and has no effect on the Role.
	Owner  string
	Reason Reason
}

// Owner returns the name of the owner of a VIP; empty if no member serves it. The order of
// members makes no difference; their names must differ.
func (r Rules) Owner(members []Member, vip netip.Addr) string {
	name, _ := r.elect(r.survey("", members, vip), members, vip)
	return name
}

// Decide returns the role of the member of name self for a VIP. One that is not among
// members, or is Absent, claims nothing.
func (r Rules) Decide(self string, members []Member, vip netip.Addr) Decision {
	f := r.survey(self, members, vip)
	v := Decision{}
	v.Owner, v.Reason = r.elect(f, members, vip)
	fit := f.count[Fresh]+f.count[Stable] > 0
	switch {
	case f.starting:
		v.Role, v.Reason = Out, Starting
	case f.own == Absent:
		v.Role, v.Reason = None, NoBackend
	case !f.own.Fit() && fit && f.own == Draining:
		v.Role, v.Reason = Out, IsDraining
	case !f.own.Fit() && fit:
		v.Role, v.Reason = Out, IsUnfit
	case !f.own.Fit() && (r.Mode == ActiveActive || v.Owner == self):
		v.Role, v.Reason = Owner, Last
	case r.Mode == ActiveActive:
		v.Role = Owner
		if v.Reason != Only {
			v.Reason = Shared
		}
	case v.Owner == self:
		v.Role = Owner
	case f.own == Fresh && f.count[Stable] > 0 && f.incumbents == 0:
		v.Role, v.Reason = Standby, IsFresh
	default:
		v.Role = Standby
	}
	return v
}

// candidates are the members that serve a VIP.
type candidates struct {
	count      [Stable + 1]int // by state, without Absent
	incumbents int             // fit members that own it, with NoPreempt
	own        State
	// starting: this box does not know the other members yet.
	starting bool
}

// survey counts the candidates for a VIP.
func (r Rules) survey(self string, members []Member, vip netip.Addr) candidates {
	f := candidates{starting: true}
	for i := range members {
		m := &members[i]
		s := m.stateAt(vip)
		if m.Name == self {
			f.own, f.starting = s, m.State == Absent
		}
		if s == Absent {
			continue
		}
		f.count[s]++
		if r.incumbent(m, s, vip) {
			f.incumbents++
		}
	}
	return f
}

// elect finds the owner: of the incumbents with NoPreempt, else of the best state; of
// several by the hash.
func (r Rules) elect(f candidates, members []Member, vip netip.Addr) (string, Reason) {
	best := Stable
	for best > Absent && f.count[best] == 0 {
		best--
	}
	if best == Absent {
		return "", NoBackend
	}
	competing, reason := f.count[best], BestState
	if f.incumbents > 0 {
		competing, reason = f.incumbents, Incumbent
	}
	all := f.count[Draining] + f.count[Unfit] + f.count[Fresh] + f.count[Stable]
	if all == 1 {
		reason = Only
	} else if competing > 1 {
		reason = Hashed
	}
	var first *Member
	var least score
	for i := range members {
		m := &members[i]
		s := m.stateAt(vip)
		if f.incumbents > 0 && !r.incumbent(m, s, vip) || f.incumbents == 0 && s != best {
			continue
		}
		if competing == 1 {
			return m.Name, reason
		}
		sc := r.score(m, vip)
		if first == nil || preferred(m, sc, first, least) {
			first, least = m, sc
		}
	}
	return first.Name, reason
}

// incumbent reports whether a member owns a VIP and keeps it.
func (r Rules) incumbent(m *Member, s State, vip netip.Addr) bool {
	return r.NoPreempt && s.Fit() && m.Owns != nil && m.Owns(vip)
}

// stateAt returns the state of a member with respect to a VIP: Absent if it does not serve
// it.
func (m *Member) stateAt(vip netip.Addr) State {
	if m.State == Absent || m.Serves == nil || !m.Serves(vip) {
		return Absent
	}
	if m.Drains != nil && m.Drains(vip) {
		return Draining
	}
	return m.State
}
