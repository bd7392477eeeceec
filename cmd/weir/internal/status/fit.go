package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A status fits one screen: of 80 columns and 24 lines, the last of which is the prompt's.
// What does not fit of its lists is counted.
const (
	screenWidth = 80
	screenLines = 23
)

// list is a part of a status with a line for each of its things.
type list struct {
	title string // empty: the lines belong to what is before them
	lines []string
	least int // so many are shown in any case
	shown int
}

// rows is how many lines of the screen the list takes.
func (l list) rows() int {
	n := 0
	if l.title != "" {
		n = 2 // with an empty one before it
	}
	for _, line := range l.lines[:l.shown] {
		n += rowsOf(line)
	}
	if l.shown > 0 && l.shown < len(l.lines) {
		n++
	}
	return n
}

// rowsOf is how many lines of the screen a line of text takes.
func rowsOf(text string) int {
	return max(1, (len([]rune(text))+screenWidth-1)/screenWidth)
}

// maxLines is how many things of a list are shown at most.
const maxLines = 8

// fit shows of each list at most maxLines things, and fewer of the longest ones until all
// of them take no more than so many rows.
func fit(lists []list, rows int) {
	for i := range lists {
		lists[i].shown = min(len(lists[i].lines), maxLines)
	}
	for {
		sum, longest := 0, -1
		for i, l := range lists {
			sum += l.rows()
			if l.shown > l.least && (longest < 0 || l.shown > lists[longest].shown) {
				longest = i
			}
		}
		if sum <= rows || longest < 0 {
			return
		}
		lists[longest].shown--
	}
}

func (l list) write(w io.Writer) {
	switch {
	case l.shown == 0:
		fmt.Fprintf(w, "\n%s: weir status -o json\n", l.title)
		return
	case l.title != "":
		fmt.Fprintf(w, "\n%s:\n", l.title)
	}
	for _, line := range l.lines[:l.shown] {
		fmt.Fprintln(w, line)
	}
	if more := len(l.lines) - l.shown; more > 0 {
		fmt.Fprintf(w, "  and %d more: weir status -o json\n", more)
	}
}

// Table implements Tabler. The first line says whether all is well.
func (s Status) Table(w io.Writer, now time.Time) {
	head := s.Verdict()
	var whys []string
	if len(s.Why) > 1 && rowsOf(head) > 1 {
		head = fmt.Sprintf("weir is %s: %d things need a look", s.State, len(s.Why))
		for _, why := range s.Why {
			whys = append(whys, "  "+why)
		}
	}
	trial := ""
	if t := s.Config.Trial; t != nil {
		trial = t.Text(now)
	}
	facts := s.facts(now)
	lists := slices.DeleteFunc([]list{
		{lines: whys, least: 3}, clusterList(s.Clusters, now), noteList(s.Notes), drainList(s.Drains, now),
	}, func(l list) bool { return len(l.lines) == 0 })
	rows := screenLines - rowsOf(head) - 1
	if trial != "" {
		rows -= rowsOf(trial)
	}
	for _, f := range facts {
		rows -= rowsOf(f)
	}
	fit(lists, rows)
	fmt.Fprintln(w, head)
	if len(whys) > 0 {
		lists[0].write(w)
		lists = lists[1:]
	}
	if trial != "" {
		fmt.Fprintln(w, trial)
	}
	fmt.Fprintln(w)
	for _, f := range facts {
		fmt.Fprintln(w, f)
	}
	for _, l := range lists {
		l.write(w)
	}
}

// facts are the lines of a status that every one has.
func (s Status) facts(now time.Time) []string {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "Version:\t%s, pid %d, up %s\n", s.Version, s.PID, age(now, s.Started))
	fmt.Fprintf(tw, "Config:\t%s, loaded %s\n", s.Config.File, since(now, s.Config.Loaded))
	fmt.Fprintf(tw, "Kernel:\t%s, mode %s, iptables %s\n", s.Kernel.Release, s.Kernel.Mode, s.Kernel.IPTables)
	fmt.Fprintf(tw, "Holds:\t%d virtual servers, %d real servers, %d set members\n",
		s.Kernel.VirtualServers, s.Kernel.RealServers, s.Kernel.SetMembers)
	fmt.Fprintf(tw, "Backends:\t%d up, %d down, %d unknown, %d draining\n",
		s.Backend.Up, s.Backend.Down, s.Backend.Unknown, s.Backend.Draining)
	fmt.Fprintf(tw, "Synced:\t%s, audited %s, %d drifted objects put right since the start\n",
		since(now, s.Kernel.LastSync), since(now, s.Kernel.LastAudit), s.Kernel.Drift)
	if s.BGP != nil {
		fmt.Fprintf(tw, "BGP:\t%s\n", s.BGP.line())
	}
	if s.Fleet != nil {
		fmt.Fprintf(tw, "Fleet:\t%s\n", s.Fleet.line())
	}
	if s.L2 != nil {
		fmt.Fprintf(tw, "L2:\t%s\n", s.L2.line())
	}
	if s.Addresses != nil {
		fmt.Fprintf(tw, "Addresses:\t%s\n", s.Addresses.line())
	}
	tw.Flush()
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// clusterList has what needs a look first.
func clusterList(clusters []Cluster, now time.Time) list {
	clusters = slices.Clone(clusters)
	slices.SortStableFunc(clusters, func(a, b Cluster) int { return first(a.bad(now) != "", b.bad(now) != "") })
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	for _, c := range clusters {
		fmt.Fprintf(tw, "  %s\t%s\t%s, %s\t%s%s\n", c.Name, c.condition(now), Count(c.Services, "service"), Count(c.Endpoints, "endpoint"),
			strings.Join(c.Kinds, " "), c.where())
	}
	tw.Flush()
	l := list{title: fmt.Sprintf("Clusters (%d)", len(clusters))}
	for line := range strings.Lines(out.String()) {
		l.lines = append(l.lines, strings.TrimSuffix(line, "\n"))
	}
	return l
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

// noteList has what needs a look first.
func noteList(notes []Note) list {
	l := list{title: fmt.Sprintf("Notes (%d)", len(notes))}
	if n := informational(notes); n > 0 {
		l.title = fmt.Sprintf("Notes (%d, %d of them informational)", len(notes), n)
	}
	for _, last := range []bool{false, true} {
		for _, n := range notes {
			if n.Informational == last {
				l.lines = append(l.lines, fmt.Sprintf("  %s  %s  %s", n.Service, n.Reason, n.Text))
			}
		}
	}
	return l
}

func drainList(drains []Drain, now time.Time) list {
	l := list{title: fmt.Sprintf("Draining (%d)", len(drains))}
	for _, d := range drains {
		l.lines = append(l.lines, fmt.Sprintf("  %s of %s, at most %s", d.Backend, d.Frontend, age(d.Deadline, now)))
	}
	return l
}
