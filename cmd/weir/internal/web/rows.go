package web

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"weir/cmd/weir/internal/status"
)

// What the templates ask of a view.

// Headline says in a line whether all is well; what is wrong has lines of its own.
func (v *view) Headline() string {
	if len(v.Status.Why) > 0 && v.Overview() {
		return "weir is " + string(v.Status.State)
	}
	return v.Status.Verdict()
}

// Now is when the page is made.
func (v *view) Now() time.Time { return v.now }

// StateClass is what the state of the box looks like.
func (v *view) StateClass() string {
	switch v.Status.State {
	case status.OK:
		return "good"
	case status.Failed:
		return "bad"
	}
	return "warn"
}

// Checked is how many backends have a check.
func (v *view) Checked() int { b := v.Status.Backend; return b.Up + b.Down + b.Unknown }

// Pace is the line of connections per second, as points in 180 by 28; "" without
// enough of them.
func (v *view) Pace() string {
	most := 0.0
	for _, x := range v.pace {
		most = max(most, x)
	}
	if len(v.pace) < 3 || most == 0 {
		return ""
	}
	points := make([]string, len(v.pace))
	from := paceLength - len(v.pace)
	for i, x := range v.pace {
		points[i] = fmt.Sprintf("%d,%d", 180*(from+i)/(paceLength-1), 27-int(math.Round(25*x/most)))
	}
	return strings.Join(points, " ")
}

// column is the head of a column of frontends.
type column struct{ Title, Class, Link, Sorted string }

// Columns are those of frontends, with the links that sort by them.
func (v *view) Columns() []column {
	out := make([]column, 0, 9)
	for _, c := range []struct{ title, class, order string }{
		{"State", "", "state"}, {"Service", "", "service"}, {"Address", "opt", "address"}, {"Scheduler", "opt", ""},
		{"Up", "n", "backends"}, {"Active", "n mid", "-active"}, {"Conn/s", "n", "-conns"}, {"B/s in", "n opt", "-in"}, {"B/s out", "n opt", "-out"},
	} {
		x := column{Title: c.title, Class: c.class}
		order, descends := strings.CutPrefix(v.Query.Sort, "-")
		switch {
		case v.Overview() || c.order == "":
		case order == strings.TrimPrefix(c.order, "-"):
			x.Sorted = "ascending"
			other := "-" + order
			if descends {
				x.Sorted, other = "descending", order
			}
			x.Link = v.Link(v.Query.withSort(other))
		default:
			x.Link = v.Link(v.Query.withSort(c.order))
		}
		out = append(out, x)
	}
	return out
}

// tab is a link to the rows of one condition or level.
type tab struct {
	Title, Link string
	Count       int
	Chosen      bool
}

// Tabs are the conditions that frontends have, or the levels of events.
func (v *view) Tabs() []tab {
	counts, names := map[string]int{}, levels
	if v.Kind.Path == "services" {
		names = nil
		for _, c := range conditions {
			names = append(names, string(c))
			counts[string(c)] = v.By[c]
		}
	} else {
		for _, e := range v.Events.Events {
			counts[e.Level]++
		}
	}
	all := tab{Title: "all", Link: v.Link(v.Query.withState("")), Chosen: v.Query.State == ""}
	out := []tab{all}
	for _, name := range names {
		out[0].Count += counts[name]
		if n := counts[name]; n > 0 || v.Query.State == name {
			out = append(out, tab{name, v.Link(v.Query.withState(name)), n, v.Query.State == name})
		}
	}
	return out
}

// Narrow is the address of one frontend alone.
func (v *view) Narrow(s *server) string {
	return "/services" + query{At: s.At, Sort: firstOrder, Page: 1}.encode()
}

// Owner says what else there is to know of a frontend: the kind of its VIP, and who of
// the fleet has it.
func (v *view) Owner(s *server) string {
	var out []string
	if s.Mark != 0 {
		out = append(out, "inside")
	}
	if s.Kind != "" && s.Kind != "LoadBalancer" {
		out = append(out, s.Kind)
	}
	if s.Local {
		out = append(out, "Local")
	}
	if s.Role != "" && s.Role != status.RoleOwner {
		out = append(out, string(s.Role))
		if s.Owner != "" {
			out = append(out, s.Owner+" owns it")
		}
	}
	return strings.Join(out, ", ")
}

// BackendsOf are those that are shown with a frontend.
func (v *view) BackendsOf(s *server) []backend { return s.Backends[:min(len(s.Backends), maxBackends)] }

// More is how many backends are not.
func (v *view) More(s *server) int { return max(0, len(s.Backends)-maxBackends) }

// MemberClass is what a member's state looks like.
func (v *view) MemberClass(m status.Member) string {
	switch m.State {
	case status.MemberServing, status.MemberStandby:
		return "good"
	case status.MemberDead, status.MemberAway:
		return "bad"
	case status.MemberLeft:
		return "dim"
	}
	return "warn"
}

// PeerState is the state of a session; a range is nobody's.
func (v *view) PeerState(n status.Neighbor) string {
	if n.Address == "" && n.Range != "" {
		return "waiting"
	}
	return n.State
}

// PeerClass is what that looks like.
func (v *view) PeerClass(n status.Neighbor) string {
	switch {
	case v.PeerState(n) == "waiting":
		return "dim"
	case n.State == status.Established && n.Problem == "":
		return "good"
	case n.State == status.Established:
		return "warn"
	}
	return "bad"
}

// PeerWhy is why a session is not there, or what is wrong with it.
func (v *view) PeerWhy(n status.Neighbor) string {
	if n.State == status.Established {
		return n.Problem
	}
	return n.Down
}

// ClusterWhy is what is wrong with a cluster.
func (v *view) ClusterWhy(c status.Cluster) string {
	why := cmp.Or(c.Error, c.FileError, c.EventsError)
	if c.Stale {
		why = strings.TrimSuffix("from its file; "+why, "; ")
	}
	return why
}

func first[T any](list []T) []T { return list[:min(len(list), rowsAtMost)] }

func more[T any](list []T) int { return len(list) - len(first(list)) }

// FirstWithheld are the first of the VIPs that no router hears of; the others are like
// it.
func (v *view) FirstWithheld() []status.WithheldVIP { return first(v.Withheld) }
func (v *view) MoreWithheld() int                   { return more(v.Withheld) }
func (v *view) FirstPending() []status.Pending      { return first(v.Pools.Pending) }
func (v *view) MorePending() int                    { return more(v.Pools.Pending) }
func (v *view) FirstDrains() []status.Drain         { return first(v.Status.Drains) }

// FirstVIPs are the first of those that an operator has drained.
func (v *view) FirstVIPs() []status.DrainedVIP {
	if v.Status.Drained == nil {
		return nil
	}
	return first(v.Status.Drained.VIPs)
}

// MoreDrains is how many VIPs and backends are not shown.
func (v *view) MoreDrains() int {
	n := more(v.Status.Drains)
	if d := v.Status.Drained; d != nil {
		n += more(d.VIPs)
	}
	return n
}

// Draining tells whether there is anything to say of drains.
func (v *view) Draining() bool {
	d := v.Status.Drained
	return len(v.Status.Drains) > 0 || d != nil && (d.All != nil || len(d.VIPs) > 0)
}

// NotesShown is how many notes the groups have.
func (v *view) NotesShown() (n int) {
	for _, g := range v.NoteGroups {
		n += len(g.Notes)
	}
	return n
}

// When is the time of an event, with the day if that is not today.
func (v *view) When(t time.Time) string {
	if v.now.YearDay() != t.YearDay() || v.now.Year() != t.Year() {
		return t.Format("Jan 2 15:04:05")
	}
	return t.Format(time.TimeOnly)
}

// Datetime is the same for a program.
func (v *view) Datetime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// LevelClass is what the level of an event looks like.
func (v *view) LevelClass(level string) string {
	switch level {
	case "error":
		return "bad"
	case "warn":
		return "warn"
	}
	return "dim"
}

// PrevPage and NextPage are the neighbours of the page.
func (v *view) PrevPage() int { return v.Query.Page - 1 }
func (v *view) NextPage() int { return v.Query.Page + 1 }
