package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Screen is the size of a terminal that a document must fit, in characters. Without
// Lines, as in a pipe, nothing is left out.
type Screen struct{ Width, Lines int }

// rows returns the number of lines of the screen that a line of text takes.
func (s Screen) rows(text string) int {
	return max(1, (len([]rune(text))+s.Width-1)/s.Width)
}

// OnScreen is a Status that fits a terminal.
type OnScreen struct {
	Status
	Screen Screen `json:"-"`
}

// Table implements Tabler.
func (s OnScreen) Table(w io.Writer, now time.Time) { s.table(w, now, s.Screen) }

// list is a part of a status with one line for each item.
type list struct {
	title string // empty: the lines belong to the line before
	lines []string
	min   int // the number of lines that are always shown
	shown int
}

// rows returns the number of lines of the screen that the list takes.
func (l list) rows(s Screen) int {
	n := 0
	if l.title != "" {
		n = 2 // with an empty one before it
	}
	for _, line := range l.lines[:l.shown] {
		n += s.rows(line)
	}
	if l.shown > 0 && l.shown < len(l.lines) {
		n++
	}
	return n
}

// fit shortens the longest lists until all of them take no more than the given rows.
func fit(lists []list, rows int, s Screen) {
	if s.Lines > 0 {
		for i, l := range lists { // each line takes a row at least, and there may be very many
			lists[i].shown = min(l.shown, max(l.min, rows))
		}
	}
	for s.Lines > 0 {
		sum, longest := 0, -1
		for i, l := range lists {
			sum += l.rows(s)
			if l.shown > l.min && (longest < 0 || l.shown > lists[longest].shown) {
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

// Table implements Tabler. The first line is the state of the box.
func (s Status) Table(w io.Writer, now time.Time) { s.table(w, now, Screen{}) }

func (s Status) table(w io.Writer, now time.Time, screen Screen) {
	if screen.Width <= 0 {
		screen.Width = 80
	}
	head := s.Summary()
	problems := list{min: 3}
	if len(s.Problems) > 1 && screen.rows(head) > 1 {
		head = fmt.Sprintf("weir is %s: %d problems", s.State, len(s.Problems))
		for _, p := range s.Problems {
			problems.lines = append(problems.lines, "  "+text.OneLine(p.Text))
		}
	}
	trial := ""
	if t := s.Config.Trial; t != nil {
		trial = t.Text(now)
	}
	facts := s.facts(now)
	lists := slices.DeleteFunc([]list{
		problems, clusterList(s.Clusters, now), noteList(s.Notes), drainList(s.Drains, now),
	}, func(l list) bool { return len(l.lines) == 0 })
	rows := screen.Lines - screen.rows(head) - 1
	if trial != "" {
		rows -= screen.rows(trial)
	}
	for _, f := range facts {
		rows -= screen.rows(f)
	}
	for i := range lists {
		lists[i].shown = len(lists[i].lines)
	}
	fit(lists, rows, screen)
	fmt.Fprintln(w, head)
	if len(problems.lines) > 0 {
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

// facts returns the lines that every status has.
func (s Status) facts(now time.Time) []string {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "Version:\t%s, pid %d, up %s\n", s.Version, s.PID, text.Age(now.Sub(s.Started)))
	fmt.Fprintf(tw, "Config:\t%s, loaded %s\n", s.Config.File, text.Ago(now, s.Config.Loaded))
	fmt.Fprintf(tw, "Kernel:\t%s, %s\n", s.Kernel.Release, RulesText(s.Kernel.Mode, s.Kernel.Rules))
	if s.Kernel.IPTablesReason != "" {
		fmt.Fprintf(tw, "Rules:\tin iptables and ipset, not in nftables: %s\n", text.OneLine(s.Kernel.IPTablesReason))
	}
	fmt.Fprintf(tw, "Objects:\t%s, %s, %s\n", text.Count(s.Kernel.VirtualServers, "virtual server"),
		text.Count(s.Kernel.RealServers, "real server"), text.Count(s.Kernel.SetMembers, "set member"))
	fmt.Fprintf(tw, "Backends:\t%d up, %d down, %d unknown, %d draining\n",
		s.Backend.Up, s.Backend.Down, s.Backend.Unknown, s.Backend.Draining)
	fmt.Fprintf(tw, "Synced:\t%s, audited %s, %d drift repairs since the start\n",
		text.Ago(now, s.Kernel.LastSync), text.Ago(now, s.Kernel.LastAudit), s.Kernel.Drift)
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
		if len(s.Addresses.IgnoredNodes) > 0 {
			fmt.Fprintf(tw, "Ignored:\t%s\n", ignoredLine(s.Addresses.IgnoredNodes))
		}
	}
	tw.Flush()
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// clusterList returns the clusters, those with problems first.
func clusterList(clusters []Cluster, now time.Time) list {
	clusters = slices.Clone(clusters)
	slices.SortStableFunc(clusters, func(a, b Cluster) int { return text.TrueFirst(a.problem(now) != "", b.problem(now) != "") })
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	for _, c := range clusters {
		fmt.Fprintf(tw, "  %s\t%s\t%s, %s\t%s%s\n", c.Name, c.condition(now), text.Count(c.Services, "service"), text.Count(c.Endpoints, "endpoint"),
			strings.Join(c.Kinds, " "), c.where())
	}
	tw.Flush()
	l := list{title: fmt.Sprintf("Clusters (%d)", len(clusters))}
	for line := range strings.Lines(out.String()) {
		l.lines = append(l.lines, strings.TrimSuffix(line, "\n"))
	}
	return l
}

// noteList returns the Notes, the informational ones last.
func noteList(notes []Note) list {
	l := list{title: fmt.Sprintf("Notes (%d)", len(notes))}
	if n := informational(notes); n > 0 {
		l.title = fmt.Sprintf("Notes (%d, %d of them informational)", len(notes), n)
	}
	for _, last := range []bool{false, true} {
		for _, n := range notes {
			if n.Informational == last {
				l.lines = append(l.lines, fmt.Sprintf("  %s  %s  %s", n.Service, n.Reason, text.OneLine(n.Text)))
			}
		}
	}
	return l
}

func drainList(drains []Drain, now time.Time) list {
	l := list{title: fmt.Sprintf("Draining (%d)", len(drains))}
	for _, d := range drains {
		l.lines = append(l.lines, fmt.Sprintf("  %s of %s, at most %s", d.Backend, d.Frontend, text.Age(d.Deadline.Sub(now))))
	}
	return l
}
