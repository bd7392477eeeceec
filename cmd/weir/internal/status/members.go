package status

import (
	"time"
)

// Members are the boxes of the fleet as one of them sees it.
type Members struct {
	// Fleet is its name, Self that of the box that says all this.
	Fleet string `json:"fleet"`
	Self  string `json:"self"`
	// Mode is active-active or active-standby, Owners spread or one.
	Mode   string `json:"mode"`
	Owners string `json:"owners"`
	// Members by name, Self among them.
	Members []Member `json:"members"`
	// Differing are the sources of which members have heard different things for a
	// while, by name.
	Differing []Differing `json:"differing"`
	// VIPs counts the VIPs that any member serves, by what this box does about them.
	VIPs map[VIPRole]int `json:"vips"`
	// Unjoined are the names to join that can't be reached, and why.
	Unjoined map[string]string `json:"unjoined,omitempty"`
	// Error is why this box takes no part in the fleet.
	Error string `json:"error,omitempty"`
	// Insecure tells that there is no key: whoever can send a datagram is a member.
	Insecure bool `json:"insecure,omitempty"`
	// Strain is how late this box is with its own part of finding dead members, 0 to 7.
	Strain   int            `json:"strain"`
	Counters MemberCounters `json:"counters"`
}

// Member is one box of the fleet.
type Member struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Self    bool   `json:"self,omitempty"`
	// State is all the rest in one word: Judge fills it in.
	State MemberState `json:"state"`
	// Since is when Life became so, or Standing if that was later.
	Since time.Time `json:"since,omitzero"`
	// Why is what keeps State from being serving or standby.
	Why string `json:"why,omitempty"`
	// Life is alive, dead or left. A Suspect has not answered this box for longer than
	// it should take; of one that is Away only the daemon is gone: its kernel answers.
	Life    string `json:"life"`
	Suspect bool   `json:"suspect,omitempty"`
	Away    bool   `json:"away,omitempty"`
	// Standing is how much the member counts: absent, draining, unfit, fresh or settled.
	Standing string `json:"standing"`
	// FitSince is when it last became fit; zero while it is not.
	FitSince time.Time `json:"fit_since,omitzero"`
	// Drain is serving, draining or drained.
	Drain   string `json:"drain"`
	Weight  int    `json:"weight"`
	Version string `json:"version"`
	// Digest is of what it wants the kernel to be.
	Digest string `json:"digest"`
	// Serves is how many VIPs it can serve, Holds how many it says that it owns.
	Serves int `json:"serves"`
	Holds  int `json:"holds"`
}

// MemberState is how a member is, in one word.
type MemberState string

// The states of a member, the first that is so.
const (
	MemberLeft     MemberState = "left"     // it has said good-bye
	MemberAway     MemberState = "away"     // its daemon is gone, its kernel answers
	MemberDead     MemberState = "dead"     // it answers nobody
	MemberSuspect  MemberState = "suspect"  // it has not answered this box for too long
	MemberDrained  MemberState = "drained"  // an operator took it out, and nothing is left
	MemberDraining MemberState = "draining" // an operator takes it out
	MemberUnfit    MemberState = "unfit"    // it says itself that it should serve nobody
	MemberFresh    MemberState = "fresh"    // it is fit, but not for long enough
	MemberStandby  MemberState = "standby"  // it is fit, and others own all VIPs
	MemberServing  MemberState = "serving"
)

// Differing is a source of which members have heard different things.
type Differing struct {
	// Source is config, or the name of a cluster.
	Source string    `json:"source"`
	Since  time.Time `json:"since"`
	// Digests by member; empty for one that does not have the source at all.
	Digests map[string]string `json:"digests"`
}

// MemberCounters count since the start of the daemon.
type MemberCounters struct {
	Joins  uint64 `json:"joins_total"`
	Deaths uint64 `json:"deaths_total"`
	// Conflicts are messages of a second box with a member's name, Refused those that
	// no key decrypts or that are another fleet's, Dropped those that came too fast.
	Conflicts uint64 `json:"conflicts_total"`
	Refused   uint64 `json:"refused_total"`
	Dropped   uint64 `json:"dropped_total"`
	// Moves are VIPs that this box took over or gave away.
	Moves uint64 `json:"moves_total"`
}

// VIPRole is what a box does about a VIP.
type VIPRole string

// The roles.
const (
	RoleOwner   VIPRole = "owner"
	RoleStandby VIPRole = "standby" // it would be the owner if those before it went
	RoleOut     VIPRole = "out"     // it could serve, but should not: others do
	RoleNothing VIPRole = "nothing" // it can't serve it
)

// Owned is who of the fleet serves a VIP.
type Owned struct {
	// Owner is a member, empty for nobody; Me tells that it is this box.
	Owner string  `json:"owner,omitempty"`
	Me    bool    `json:"me"`
	Role  VIPRole `json:"role"`
	// Why says in a sentence why Role is what it is.
	Why string `json:"why"`
	// Members are those that can serve it, the one to be preferred first.
	Members []OwnedBy `json:"members"`
	// Held is where this box answers ARP and NDP for it, or would; none without [l2],
	// and for VIPs that it does not concern.
	Held []Held `json:"held,omitempty"`
}

// OwnedBy is a member that can serve a VIP.
type OwnedBy struct {
	Name     string `json:"name"`
	Standing string `json:"standing"`
	// Holds tells that it says that it owns the VIP, Drained that the VIP is drained
	// there.
	Holds   bool `json:"holds"`
	Drained bool `json:"drained,omitempty"`
}

// Held is a VIP on an interface.
type Held struct {
	Interface string `json:"interface"`
	// State is probing, held, contested or idle.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// By is the MAC address that answers for it too, and whose that is, if it is known.
	By string `json:"by,omitempty"`
}

// Fleet is the fleet at a glance.
type Fleet struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
	// Self is this box, State how it is in the fleet and Why that is so.
	Self  string      `json:"self"`
	State MemberState `json:"state"`
	Why   string      `json:"why,omitempty"`
	// Members counts all that are known by State; VIPs as in Members.
	Members map[MemberState]int `json:"members"`
	VIPs    map[VIPRole]int     `json:"vips"`
	// Differing, Unjoined, Error and Insecure are those of Members.
	Differing []Differing       `json:"differing,omitempty"`
	Unjoined  map[string]string `json:"unjoined,omitempty"`
	Error     string            `json:"error,omitempty"`
	Insecure  bool              `json:"insecure,omitempty"`
}

// L2 is where this box answers ARP and NDP for VIPs.
type L2 struct {
	Interfaces []L2Interface `json:"interfaces"`
	// Contested are VIPs that this box should hold, but somebody else answers for.
	Contested []Contested `json:"contested,omitempty"`
	// Duplicates are VIPs that this box holds, and a stranger answers for too.
	Duplicates []Contested `json:"duplicates,omitempty"`
}

// L2Interface is one of them.
type L2Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	// Error is why nothing is answered there: no carrier, no such interface.
	Error     string `json:"error,omitempty"`
	Held      int    `json:"held"`
	Probing   int    `json:"probing"`
	Contested int    `json:"contested"`
	Idle      int    `json:"idle"`
}

// Contested is a VIP that two answer for.
type Contested struct {
	Address   string `json:"address"`
	Interface string `json:"interface"`
	// By is the other's MAC address; Member is whose that is, empty for a stranger's.
	By     string    `json:"by"`
	Member string    `json:"member,omitempty"`
	Since  time.Time `json:"since"`
}

// Judge fills in the State of each member.
func (m *Members) Judge() {
	for i := range m.Members {
		m.Members[i].State = m.Members[i].judge(m.Mode)
	}
}

func (m Member) judge(mode string) MemberState {
	switch {
	case m.Life == "left":
		return MemberLeft
	case m.Away:
		return MemberAway
	case m.Life == "dead":
		return MemberDead
	case m.Suspect:
		return MemberSuspect
	case m.Drain == "drained":
		return MemberDrained
	case m.Drain == "draining":
		return MemberDraining
	case m.Standing == "unfit":
		return MemberUnfit
	case m.Standing == "fresh":
		return MemberFresh
	case m.Holds == 0 && mode == "active-standby":
		return MemberStandby
	}
	return MemberServing
}
