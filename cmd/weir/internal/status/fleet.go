package status

import (
	"fmt"
	"strings"
	"time"
)

// Fleet is the fleet at a glance.
type Fleet struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
	// Self is this box, State how it is in the fleet and Why that is so.
	Self  string      `json:"self"`
	State MemberState `json:"state"`
	Why   string      `json:"why,omitempty"`
	// CutOff as in Member.
	CutOff bool `json:"cut_off,omitempty"`
	// Members counts all that are known by State; VIPs and Owned as in Members.
	Members map[MemberState]int `json:"members"`
	VIPs    map[VIPRole]int     `json:"vips"`
	Owned   int                 `json:"owned"`
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
	Held      int    `json:"held"`      // VIPs that are answered for
	Probing   int    `json:"probing"`   // VIPs about to be
	Contested int    `json:"contested"` // VIPs that somebody else answers for
	Idle      int    `json:"idle"`      // VIPs of other members
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

// MemberStates are all those of members, the best first.
var MemberStates = []MemberState{
	MemberServing, MemberStandby, MemberFresh, MemberUnfit, MemberDraining, MemberDrained, MemberSuspect, MemberAway, MemberDead, MemberLeft,
}

// line says it in a line.
func (f Fleet) line() string {
	var parts []string
	for _, s := range MemberStates {
		if n := f.Members[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	text := fmt.Sprintf("%s, %s: %s; this box is %s, %s", f.Name, f.Mode, strings.Join(parts, ", "), f.State, does(f.Mode, f.VIPs, f.Owned))
	if f.Insecure {
		text += "; WITHOUT A KEY"
	}
	return text
}

// bad says what needs a look; what lasts for a while is told by Notes.
func (f Fleet) bad() (out []string) {
	if f.Error != "" {
		out = append(out, "this box takes no part in the fleet: "+f.Error)
	}
	if f.State.bad() || f.CutOff {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("this box is %s: %s", f.State, f.Why), ": "))
	}
	for _, s := range MemberStates {
		n := f.Members[s]
		if s == f.State {
			n-- // this box itself
		}
		if s.bad() && n > 0 {
			out = append(out, fmt.Sprintf("other members that are %s: %d (weir members)", s, n))
		}
	}
	return out
}

// line says it in a line.
func (l L2) line() string {
	var parts []string
	for _, x := range l.Interfaces {
		text := fmt.Sprintf("%s %d held", x.Name, x.Held)
		for _, more := range []struct {
			n    int
			what string
		}{{x.Probing, "probing"}, {x.Contested, "contested"}, {x.Idle, "idle"}} {
			if more.n > 0 {
				text += fmt.Sprintf(", %d %s", more.n, more.what)
			}
		}
		if x.Error != "" {
			text += " (" + x.Error + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// bad says what needs a look.
func (l L2) bad() (out []string) {
	for _, x := range l.Interfaces {
		if x.Error != "" {
			out = append(out, fmt.Sprintf("nothing is answered on %s: %s", x.Name, x.Error))
		}
	}
	return out
}
