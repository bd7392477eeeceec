package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Members are the members of the fleet as this box sees them.
type Members struct {
	// Fleet is its name, empty without [fleet]; Self is this box.
	Fleet string `json:"fleet"`
	Self  string `json:"self"`
	// Mode is active-active, active-standby or l2, Placement spread or single.
	Mode      string `json:"mode"`
	Placement string `json:"placement"`
	// Members by name, Self among them.
	Members []Member `json:"members"`
	// Differing are the sources that have differed between members for a while, by name.
	Differing []Differing `json:"differing"`
	// VIPs counts the VIPs that any member serves by the role of this box: with
	// active-active it has RoleOwner for all that it announces. Owned counts those it owns.
	VIPs  map[VIPRole]int `json:"vips"`
	Owned int             `json:"owned"`
	// UnreachableNames are the names to join that can't be reached, with the error.
	UnreachableNames map[string]string `json:"unreachable_names,omitempty"`
	// Error is the reason that this box is not in the fleet.
	Error string `json:"error,omitempty"`
	// Insecure is set if there is no key: any host that can send a datagram is a member.
	Insecure bool `json:"insecure,omitempty"`
	// HealthScore is the delay of this box in detecting dead members: 0 is none, 7 the worst.
	HealthScore int            `json:"health_score"`
	Counters    MemberCounters `json:"counters"` // since the start of the daemon
}

// Member is one box of the fleet.
type Member struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Self    bool   `json:"self,omitempty"` // it is this box
	// State sums up the other fields; Judge sets it.
	State MemberState `json:"state"`
	// Since is the last change of Life or of ElectionState.
	Since time.Time `json:"since,omitzero"`
	// Reason is the cause if State is neither serving nor standby.
	Reason string `json:"reason,omitempty"`
	// Life is alive, dead or left. A Suspect has not answered this box for longer than
	// it should take. With DaemonDown only the daemon is down: the kernel answers.
	Life       string `json:"life"`
	Suspect    bool   `json:"suspect,omitempty"`
	DaemonDown bool   `json:"daemon_down,omitempty"`
	// Isolated is set if no client can reach this box: it has released the gateways and
	// masquerade sources. It is unknown of other members.
	Isolated bool `json:"isolated,omitempty"`
	// ElectionState is the rank of the member in an election: absent, draining, unfit, fresh
	// or stable.
	ElectionState string `json:"election_state"`
	// FitSince is when it last became fit; zero while it is not.
	FitSince time.Time `json:"fit_since,omitzero"`
	// Drain is serving, draining or drained.
	Drain   string `json:"drain"`
	Weight  int    `json:"weight"`
	Version string `json:"version"`
	// Digest is of its configuration and Services.
	Digest string `json:"digest"`
	// Serves counts the VIPs that it can serve, Owns those that it owns; 0 for an absent
	// member.
	Serves int `json:"serves"`
	Owns   int `json:"owns"`
}

// MemberState is the state of a member in one word.
type MemberState string

// The states of a member, in the order of the checks.
const (
	MemberLeft       MemberState = "left"        // it has left the fleet
	MemberDaemonDown MemberState = "daemon-down" // its kernel answers
	MemberDead       MemberState = "dead"        // it answers no member
	MemberSuspect    MemberState = "suspect"     // it has not answered this box for too long
	MemberDrained    MemberState = "drained"     // an operator drained it, and no connection is left
	MemberDraining   MemberState = "draining"    // an operator drains it
	MemberUnfit      MemberState = "unfit"       // it must not serve, by its own report
	MemberFresh      MemberState = "fresh"       // it is fit, but not yet for preempt_delay
	MemberStandby    MemberState = "standby"     // it is fit, and others own all VIPs
	MemberServing    MemberState = "serving"
)

// VIPRole is what a box does about a VIP.
type VIPRole string

// The roles.
const (
	RoleOwner   VIPRole = "owner"
	RoleStandby VIPRole = "standby" // it would be the owner if those before it went
	RoleOut     VIPRole = "out"     // it could serve, but should not: others do
	RoleNothing VIPRole = "nothing" // it can't serve it
)

// Differing is a source that differs between members.
type Differing struct {
	// Source is the name of a cluster, static for the services of the configuration, or
	// [fleet] for the rules of the election.
	Source string    `json:"source"`
	Since  time.Time `json:"since"`
	// Digests by member; empty for one without the source.
	Digests map[string]string `json:"digests"`
}

// MemberCounters count since the start of the daemon.
type MemberCounters struct {
	Joins  uint64 `json:"joins_total"`  // members that came
	Deaths uint64 `json:"deaths_total"` // members found dead
	// Conflicts are messages of a second box with the name of a member. Refused are those
	// that no key decrypts, or of another fleet. Replayed are those that were older than the
	// known state. Dropped are those that were not requested, or came too fast.
	Conflicts uint64 `json:"conflicts_total"`
	Refused   uint64 `json:"refused_total"`
	Replayed  uint64 `json:"replayed_total"`
	Dropped   uint64 `json:"dropped_total"`
	// Moves are VIPs that this box took over or handed over.
	Moves uint64 `json:"moves_total"`
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
	case m.DaemonDown:
		return MemberDaemonDown
	case m.Life == "dead":
		return MemberDead
	case m.Suspect:
		return MemberSuspect
	case m.Drain == "drained":
		return MemberDrained
	case m.Drain == "draining":
		return MemberDraining
	case m.ElectionState == "unfit":
		return MemberUnfit
	case m.ElectionState == "fresh":
		return MemberFresh
	case m.Owns == 0 && mode != activeActive:
		return MemberStandby
	}
	return MemberServing
}

// OK reports whether this box and all members that should be in the fleet are.
func (m Members) OK() bool {
	return m.Error == "" && len(m.UnreachableNames)+len(m.Differing) == 0 &&
		!slices.ContainsFunc(m.Members, func(x Member) bool { return x.State.bad() || x.Isolated })
}

// bad reports whether a state is a problem.
func (s MemberState) bad() bool {
	return slices.Contains([]MemberState{MemberDaemonDown, MemberDead, MemberSuspect, MemberUnfit}, s)
}

// Table implements Tabler.
func (m Members) Table(w io.Writer, now time.Time) {
	if m.Fleet == "" {
		fmt.Fprintln(w, "this box is in no fleet: the configuration has no [fleet]")
		return
	}
	fmt.Fprintf(w, "Fleet %s, %s, %s\n\n", m.Fleet, m.Mode, placements[m.Placement])
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "MEMBER\tADDRESS\tSTATE\tSINCE\tVERSION\tDIGEST\tDRAIN\tWEIGHT\tSERVES\tOWNS\tREASON")
	for _, x := range m.Members {
		name, since := x.Name, "-"
		serves, owns := strconv.Itoa(x.Serves), strconv.Itoa(x.Owns)
		if x.ElectionState == "absent" {
			serves, owns = "-", "-"
		}
		if x.Self {
			name += " *"
		}
		if !x.Since.IsZero() {
			since = text.Age(now.Sub(x.Since))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", name, cmp.Or(x.Address, "-"), x.State, since, cmp.Or(x.Version, "-"),
			shorten(x.Digest), x.drain(), x.Weight, serves, owns, cmp.Or(x.Reason, "-"))
	}
	tw.Flush()
	fmt.Fprintf(w, "\nThis box, marked *, %s.\n", does(m.Mode, m.VIPs, m.Owned))
	for _, line := range m.wrong(now) {
		fmt.Fprintln(w, line)
	}
}

// placements are the texts of Members.Placement.
var placements = map[string]string{"spread": "VIPs spread over the members", "single": "one owner of all VIPs"}

func (m Member) drain() string {
	if m.Drain == "serving" || m.Drain == "" {
		return "-"
	}
	return m.Drain
}

// shorten returns the first characters of a digest.
func shorten(digest string) string { return cmp.Or(digest[:min(len(digest), 8)], "-") }

// does returns what a box does about VIPs.
func does(mode string, vips map[VIPRole]int, owned int) string {
	out := "owns " + text.Count(owned, "VIP")
	if mode == activeActive {
		out = fmt.Sprintf("serves %s, owns %d", text.Count(vips[RoleOwner], "VIP"), owned)
	}
	for _, x := range []struct {
		role VIPRole
		form string
	}{{RoleStandby, "is standby for %d"}, {RoleOut, "leaves %d to others"}, {RoleNothing, "can't serve %d"}} {
		if n := vips[x.role]; n > 0 {
			out += ", " + fmt.Sprintf(x.form, n)
		}
	}
	return out
}

// The modes.
const (
	activeActive = "active-active"
	// ModeL2 is the mode of a fleet without routers: each VIP has one owner, which answers
	// ARP for it.
	ModeL2 = "l2"
)

// wrong returns a line for each problem beside the states of members.
func (m Members) wrong(now time.Time) []string {
	var out []string
	line := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m.Error != "" {
		line("This box is not in the fleet: %s", m.Error)
	}
	if m.Insecure {
		line("THERE IS NO KEY: any host that can send this box a datagram is a member (fleet.keys)")
	}
	for _, name := range slices.Sorted(maps.Keys(m.UnreachableNames)) {
		line("Can't be joined: %s: %s", name, m.UnreachableNames[name])
	}
	for _, d := range m.Differing {
		line("%s", d.text(now))
	}
	if n := m.Counters.Refused; n > 0 {
		line("Messages that no key here decrypts, or of another fleet: %d", n)
	}
	if n := m.Counters.Replayed; n > 0 {
		line("States of members that were older than the known ones, recorded by a host or late: %d", n)
	}
	if n := m.Counters.Conflicts; n > 0 {
		line("Messages of a second box with the name of a member, ignored: %d", n)
	}
	if m.HealthScore > 2 {
		line("This box detects dead members late, %d of 7: it is overloaded, or loses many packets", m.HealthScore)
	}
	return out
}

// The sources of Differing that are no clusters.
const (
	staticSource = "static"
	rulesSource  = "[fleet]"
)

// text returns the members by their digests, in a line.
func (d Differing) text(now time.Time) string {
	by := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(d.Digests)) {
		digest := shorten(d.Digests[name])
		if digest == "-" {
			digest = "nothing"
		}
		by[digest] = append(by[digest], name)
	}
	var parts []string
	for _, digest := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, digest+" on "+strings.Join(by[digest], ", "))
	}
	what := "The Services of cluster " + d.Source + " differ"
	switch d.Source {
	case staticSource:
		what = "The services of the configuration differ"
	case rulesSource:
		what = "The rules of [fleet] and [l2] differ"
	}
	return fmt.Sprintf("%s since %s: %s", what, text.Age(now.Sub(d.Since)), strings.Join(parts, "; "))
}
