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
)

// Members are the boxes of the fleet as one of them sees it.
type Members struct {
	// Fleet is its name, empty without [cluster]; Self is the box that says all this.
	Fleet string `json:"fleet"`
	Self  string `json:"self"`
	// Mode is active-active, active-standby or l2, Owners spread or one.
	Mode   string `json:"mode"`
	Owners string `json:"owners"`
	// Members by name, Self among them.
	Members []Member `json:"members"`
	// Differing are the sources of which members have heard different things for a
	// while, by name.
	Differing []Differing `json:"differing"`
	// VIPs counts the VIPs that any member serves, by what this box does about them: with
	// active-active it has RoleOwner for all that it announces. Owned is how many it owns.
	VIPs  map[VIPRole]int `json:"vips"`
	Owned int             `json:"owned"`
	// Unjoined are the names to join that can't be reached, and why.
	Unjoined map[string]string `json:"unjoined,omitempty"`
	// Error is why this box takes no part in the fleet.
	Error string `json:"error,omitempty"`
	// Insecure tells that there is no key: whoever can send a datagram is a member.
	Insecure bool `json:"insecure,omitempty"`
	// Strain is how late this box is with its own part of finding dead members, 0 to 7.
	Strain   int            `json:"strain"`
	Counters MemberCounters `json:"counters"` // since the start of the daemon
}

// Member is one box of the fleet.
type Member struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Self    bool   `json:"self,omitempty"` // it is the box that says all this
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
	// CutOff tells that nobody can reach this box: it has let go of what the owner of
	// everything has beside the VIPs. Of other members it is not known.
	CutOff bool `json:"cut_off,omitempty"`
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
	// Serves is how many VIPs it can serve, Holds how many it says that it owns; 0 of one
	// that does not count any more.
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
	// Source is the name of a cluster, static for the services of the configuration, or
	// [cluster] for the rules by which members share VIPs.
	Source string    `json:"source"`
	Since  time.Time `json:"since"`
	// Digests by member; empty for one that does not have the source at all.
	Digests map[string]string `json:"digests"`
}

// MemberCounters count since the start of the daemon.
type MemberCounters struct {
	Joins  uint64 `json:"joins_total"`  // members that came
	Deaths uint64 `json:"deaths_total"` // members found dead
	// Conflicts are messages of a second box with a member's name, Refused those that
	// no key decrypts or that are another fleet's, Dropped those that were not asked for
	// or came too fast.
	Conflicts uint64 `json:"conflicts_total"`
	Refused   uint64 `json:"refused_total"`
	Dropped   uint64 `json:"dropped_total"`
	// Moves are VIPs that this box took over or gave away.
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
	case m.Holds == 0 && mode != activeActive:
		return MemberStandby
	}
	return MemberServing
}

// Well tells whether this box takes part in the fleet, and all members do that should.
func (m Members) Well() bool {
	return m.Error == "" && len(m.Unjoined)+len(m.Differing) == 0 &&
		!slices.ContainsFunc(m.Members, func(x Member) bool { return x.State.bad() || x.CutOff })
}

// bad tells whether a state needs a look.
func (s MemberState) bad() bool {
	return slices.Contains([]MemberState{MemberAway, MemberDead, MemberSuspect, MemberUnfit}, s)
}

// Table implements Tabler.
func (m Members) Table(w io.Writer, now time.Time) {
	if m.Fleet == "" {
		fmt.Fprintln(w, "this box is in no fleet: the configuration has no [cluster]")
		return
	}
	fmt.Fprintf(w, "Fleet %s, %s, %s\n\n", m.Fleet, m.Mode, owners[m.Owners])
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "MEMBER\tADDRESS\tSTATE\tSINCE\tVERSION\tDIGEST\tDRAIN\tWEIGHT\tSERVES\tOWNS\tWHY")
	for _, x := range m.Members {
		name, since := x.Name, "-"
		serves, holds := strconv.Itoa(x.Serves), strconv.Itoa(x.Holds)
		if x.Standing == "absent" {
			serves, holds = "-", "-"
		}
		if x.Self {
			name += " *"
		}
		if !x.Since.IsZero() {
			since = age(now, x.Since)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", name, cmp.Or(x.Address, "-"), x.State, since, cmp.Or(x.Version, "-"),
			shorten(x.Digest), x.drain(), x.Weight, serves, holds, cmp.Or(x.Why, "-"))
	}
	tw.Flush()
	fmt.Fprintf(w, "\nThis box, marked *, %s.\n", does(m.Mode, m.VIPs, m.Owned))
	for _, line := range m.wrong(now) {
		fmt.Fprintln(w, line)
	}
}

// owners says what Members.Owners is.
var owners = map[string]string{"spread": "VIPs spread over the members", "one": "one owner of all VIPs"}

func (m Member) drain() string {
	if m.Drain == "serving" || m.Drain == "" {
		return "-"
	}
	return m.Drain
}

// shorten gives as much of a digest as tells two apart.
func shorten(digest string) string { return cmp.Or(digest[:min(len(digest), 8)], "-") }

// does says what a box does about VIPs.
func does(mode string, vips map[VIPRole]int, owned int) string {
	out := "owns " + Count(owned, "VIP")
	if mode == activeActive {
		out = fmt.Sprintf("serves %s, owns %d", Count(vips[RoleOwner], "VIP"), owned)
	}
	for _, x := range []struct {
		role VIPRole
		form string
	}{{RoleStandby, "stands by for %d"}, {RoleOut, "leaves %d to others"}, {RoleNothing, "can't serve %d"}} {
		if n := vips[x.role]; n > 0 {
			out += ", " + fmt.Sprintf(x.form, n)
		}
	}
	return out
}

// The modes.
const (
	activeActive = "active-active"
	// ModeL2 is that of a fleet that tells no router: whatever its mode is otherwise, each
	// VIP has one owner, who answers for it.
	ModeL2 = "l2"
)

// wrong has a line for each thing that needs a look, beside the states of members.
func (m Members) wrong(now time.Time) []string {
	var out []string
	line := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m.Error != "" {
		line("This box takes no part: %s", m.Error)
	}
	if m.Insecure {
		line("THERE IS NO KEY: whoever can send this box a datagram is a member (cluster.keys)")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Unjoined)) {
		line("Can't be joined: %s: %s", name, m.Unjoined[name])
	}
	for _, d := range m.Differing {
		line("%s", d.text(now))
	}
	if n := m.Counters.Refused; n > 0 {
		line("Messages that no key here decrypts, or of another fleet: %d", n)
	}
	if n := m.Counters.Conflicts; n > 0 {
		line("Messages of a second box with the name of a member, which is not heard: %d", n)
	}
	if m.Strain > 2 {
		line("This box is late with its part, %d of 7: it is overloaded, or loses many packets", m.Strain)
	}
	return out
}

// The sources of Differing that are no clusters.
const (
	staticSource = "static"
	rulesSource  = "[cluster]"
)

// text says who has what, in a line.
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
	what := "What is known of cluster " + d.Source + " differs"
	switch d.Source {
	case staticSource:
		what = "The services of the configuration differ"
	case rulesSource:
		what = "The rules of [cluster] and [l2] differ"
	}
	return fmt.Sprintf("%s since %s: %s", what, age(now, d.Since), strings.Join(parts, "; "))
}
