package status

import (
	"fmt"
	"strings"
	"time"
)

// Fleet is the fleet in short.
type Fleet struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
	// Self is this box, State its state in the fleet and Reason the cause.
	Self   string      `json:"self"`
	State  MemberState `json:"state"`
	Reason string      `json:"reason,omitempty"`
	// Isolated as in Member.
	Isolated bool `json:"isolated,omitempty"`
	// Members counts all that are known by State; VIPs and Owned as in Members.
	Members map[MemberState]int `json:"members"`
	VIPs    map[VIPRole]int     `json:"vips"`
	Owned   int                 `json:"owned"`
	// Differing, UnreachableNames, Error and Insecure are those of Members.
	Differing        []Differing       `json:"differing,omitempty"`
	UnreachableNames map[string]string `json:"unreachable_names,omitempty"`
	Error            string            `json:"error,omitempty"`
	Insecure         bool              `json:"insecure,omitempty"`
}

// L2 are the interfaces on which this box answers ARP and NDP.
type L2 struct {
	Interfaces []L2Interface `json:"interfaces"`
	// Contested are VIPs of this box that another host answers for.
	Contested []Contested `json:"contested,omitempty"`
	// Duplicates are VIPs that both this box and an unknown host answer for.
	Duplicates []Contested `json:"duplicates,omitempty"`
	// Overruled are VIPs that this box has taken over in the last minute although another host
	// answered for them. Their owner was dead, and the host only answered probes.
	Overruled []Contested `json:"overruled,omitempty"`
}

// L2Interface is one of them.
type L2Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	// Error is the reason that ARP is not answered there: no carrier, no such interface.
	Error     string `json:"error,omitempty"`
	Answered  int    `json:"answered"`  // VIPs that this box answers for
	Probing   int    `json:"probing"`   // VIPs that this box probes for
	Contested int    `json:"contested"` // VIPs that another host answers for
	Idle      int    `json:"idle"`      // VIPs that wait for the interface
}

// Contested is a VIP that two hosts answer for.
type Contested struct {
	Address   string `json:"address"`
	Interface string `json:"interface"`
	// By is the MAC address of the other host; Member is its name, empty for an unknown host.
	By     string    `json:"by"`
	Member string    `json:"member,omitempty"`
	Since  time.Time `json:"since"`
}

// MemberStates are all states of members, the best first.
var MemberStates = []MemberState{
	MemberServing, MemberStandby, MemberFresh, MemberUnfit, MemberDraining, MemberDrained, MemberSuspect, MemberDaemonDown, MemberDead, MemberLeft,
}

// line returns it in one line.
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

// problems returns the present problems; Notes report the lasting ones.
func (f Fleet) problems() (out []Problem) {
	if f.Error != "" {
		out = append(out, problem(ProblemMember, "this box is not in the fleet: %s", f.Error))
	}
	if f.State.bad() || f.Isolated {
		out = append(out, problem(ProblemMember, "%s", strings.TrimSuffix(fmt.Sprintf("this box is %s: %s", f.State, f.Reason), ": ")))
	}
	for _, s := range MemberStates {
		n := f.Members[s]
		if s == f.State {
			n-- // this box itself
		}
		if s.bad() && n > 0 {
			out = append(out, problem(ProblemOtherMembers, "other members that are %s: %d (weir members)", s, n))
		}
	}
	return out
}

// line returns it in one line.
func (l L2) line() string {
	var parts []string
	for _, x := range l.Interfaces {
		text := fmt.Sprintf("%s %d answered", x.Name, x.Answered)
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

// problems returns the interfaces without ARP and NDP.
func (l L2) problems() (out []Problem) {
	for _, x := range l.Interfaces {
		if x.Error != "" {
			out = append(out, problem(ProblemL2, "no ARP and NDP on %s: %s", x.Name, x.Error))
		}
	}
	return out
}
