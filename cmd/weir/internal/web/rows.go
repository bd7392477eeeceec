package web

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Headline returns the state in one line; the problems follow on the overview.
func (v *view) Headline() string {
	if len(v.Status.Problems) > 0 && v.Overview() {
		return "weir is " + string(v.Status.State)
	}
	return v.Status.Summary()
}

// Pace returns the points of the graph of connections per second, in 180 by 28; "" without
// enough readings.
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

// column is the heading of a column of frontends.
type column struct{ Title, Class, Link, Sorted string }

// Columns returns the columns of frontends, with links that sort by them.
func (v *view) Columns() []column {
	out := make([]column, 0, 9)
	for _, c := range []struct{ title, class, order string }{
		{"State", "", "state"}, {"Service", "", "service"}, {"Address", "opt", "address"}, {"Scheduler", "opt", ""},
		{"Up", "n", "backends"}, {"Active", "n mid", "-active"}, {"Conn/s", "n", "-conns"}, {"Bit/s in", "n opt", "-in"}, {"Bit/s out", "n opt", "-out"},
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

// Tabs returns the conditions of frontends, or the levels of events.
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

// Narrow returns the link to one frontend.
func (s *server) Narrow() string {
	return "/services" + query{At: s.At, Sort: firstOrder, Page: 1}.encode()
}

// Listed returns the backends that are shown with a frontend.
func (s *server) Listed() []backend { return s.Backends[:min(len(s.Backends), maxBackends)] }

// More returns the number of backends that are not shown.
func (s *server) More() int { return max(0, len(s.Backends)-maxBackends) }

// Draining reports whether there are drains.
func (v *view) Draining() bool {
	d := v.Status.Drained
	return len(v.Status.Drains) > 0 || d != nil && (d.All != nil || len(d.VIPs) > 0)
}

// MoreDrains returns the number of VIPs and backends that are not shown.
func (v *view) MoreDrains() int {
	n := more(v.Status.Drains)
	if d := v.Status.Drained; d != nil {
		n += more(d.VIPs)
	}
	return n
}

// Reading returns the data of the view.
func (v *view) Reading() *reading { return v.reading }

// NotesShown returns the number of notes in the groups.
func (v *view) NotesShown() (n int) {
	for _, g := range v.NoteGroups {
		n += len(g.Notes)
	}
	return n
}

// When formats the time of an event, with the day unless that is today.
func (v *view) When(t time.Time) string {
	if v.now.YearDay() != t.YearDay() || v.now.Year() != t.Year() {
		return t.Format("Jan 2 15:04:05")
	}
	return t.Format(time.TimeOnly)
}
