package drill

import (
	"fmt"
	"io"
	"strings"
	"time"
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
			if r.Promise.Why != "" {
				fmt.Fprintln(out, "      "+r.Promise.Why)
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
		double = span(r.Double)
	}
	verdict := ""
	if r.Broken() != nil {
		verdict = "  BROKEN"
	}
	lost := fmt.Sprintf("%d of %d", r.Lost, r.Requests)
	line := fmt.Sprintf("%-21s %8s %6d %13s %9s %11s %6d   %s%s", r.Mode, span(r.Gap), r.Late, lost, fmt.Sprintf("%d of %d", r.Cut, r.Held),
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
			fmt.Fprintf(out, "  %-42s %10s %12s %7.2f   %d, %d, %d beside %d, %d, %d\n", ours.Event, span(ours.Gap), span(their.Gap),
				float64(ours.Gap)/float64(max(their.Gap, time.Millisecond)), ours.Late, ours.Lost, ours.Cut, their.Late, their.Lost, their.Cut)
		}
	}
}

// Summary is the figures in one line.
func (r Row) Summary() string {
	return fmt.Sprintf("no answer for %s; late %d, lost %d of %d, cut %d of %d, moves %d", span(r.Gap), r.Late, r.Lost, r.Requests, r.Cut, r.Held, r.Moves)
}
