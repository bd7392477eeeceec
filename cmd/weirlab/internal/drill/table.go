package drill

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"weir/cmd/weirlab/internal/traffic"
)

// Print prints the table: all rows of an event together, in the order of the first.
func Print(out io.Writer, rows []Row) {
	fmt.Fprintf(out, "%-23s %8s %6s %13s %9s %11s %6s   %s\n", "", "gap", "late", "lost", "cut", "two owners", "moves", "promised")
	done := map[string]bool{}
	for _, first := range rows {
		if done[first.Event] {
			continue
		}
		done[first.Event] = true
		fmt.Fprintln(out, first.Event)
		for _, r := range rows {
			if r.Event != first.Event {
				continue
			}
			fmt.Fprintln(out, "  "+r.line())
			if r.Promise.Reason != "" {
				fmt.Fprintln(out, "      "+r.Promise.Reason)
			}
			for _, note := range r.Notes {
				fmt.Fprintln(out, "      "+note)
			}
		}
	}
	ratios(out, rows)
}

func (r Row) line() string {
	double := "-"
	if r.Mode != string(ActiveActive) {
		double = traffic.Round(r.Double)
	}
	verdict := ""
	for _, c := range r.counts() {
		if c.most != Any && c.got > c.most {
			verdict = "  BROKEN"
		}
	}
	if verdict == "" && len(r.Slow()) > 0 {
		verdict = "  SLOW"
	}
	lost := fmt.Sprintf("%d of %d", r.Lost(), r.Tried())
	line := fmt.Sprintf("%-21s %8s %6d %13s %9s %11s %6d   %s%s", r.Mode, traffic.Round(r.Gap), r.Late, lost, fmt.Sprintf("%d of %d", r.Cut, r.Held),
		double, r.Moves, r.Promise, verdict)
	return strings.TrimRight(line, " ")
}

// ratios sets weir's l2 beside keepalived, event by event.
func ratios(out io.Writer, rows []Row) {
	head := false
	for _, ours := range rows {
		if ours.Mode != string(L2) {
			continue
		}
		for _, their := range rows {
			if their.Event != ours.Event || their.Mode != string(Keepalived) || their.Gap == 0 {
				continue
			}
			if !head {
				fmt.Fprintf(out, "\n%-44s %10s %12s %7s   %s\n", "weir's l2 beside keepalived: no service for", "weir", "keepalived", "ratio", "late, lost, cut")
				head = true
			}
			fmt.Fprintf(out, "  %-42s %10s %12s %7.2f   %d, %d, %d beside %d, %d, %d\n", ours.Event, traffic.Round(ours.Gap), traffic.Round(their.Gap),
				float64(ours.Gap)/float64(max(their.Gap, time.Millisecond)), ours.Late, ours.Lost(), ours.Cut, their.Late, their.Lost(), their.Cut)
		}
	}
}

// Markdown is the table for a document: a row for each event, a column for each mode.
func Markdown(rows []Row) string {
	var modes, events []string
	cell := map[[2]string]string{}
	for _, r := range rows {
		if !slices.Contains(modes, r.Mode) {
			modes = append(modes, r.Mode)
		}
		if !slices.Contains(events, r.Event) {
			events = append(events, r.Event)
		}
		cell[[2]string{r.Event, r.Mode}] = r.cell()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| event | %s |\n|%s\n", strings.Join(modes, " | "), strings.Repeat(" --- |", len(modes)+1))
	for _, e := range events {
		b.WriteString("| " + e)
		for _, m := range modes {
			b.WriteString(" | " + cell[[2]string{e, m}])
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// cell is a row's figures that are not zero: "1.7s; 115 late; 8 of 12 cut".
func (r Row) cell() string {
	words := []string{"-"}
	if r.Gap >= 100*time.Millisecond { // less is not worth mention
		words[0] = traffic.Round(r.Gap.Round(100 * time.Millisecond))
	}
	for _, n := range []struct {
		n    int
		text string
	}{{r.Late, fmt.Sprintf("%d late", r.Late)}, {r.Lost(), fmt.Sprintf("%d lost", r.Lost())}, {r.Cut, fmt.Sprintf("%d of %d cut", r.Cut, r.Held)}} {
		if n.n > 0 {
			words = append(words, n.text)
		}
	}
	if r.Double > slack {
		words = append(words, "two owners "+traffic.Round(r.Double.Round(100*time.Millisecond)))
	}
	return strings.Join(words, "; ")
}
