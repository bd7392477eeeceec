package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// table prints figures, each beside its peer.
type table struct {
	out    io.Writer
	missed []error // promises that a figure breaks
	points []point // of the plot of growth
}

// figure is one line of the table.
type figure struct {
	what  string
	ours  string
	peer  string // what it is beside
	their string
	ratio float64 // 0 is none
	limit float64 // what ratio should stay under, 0 is nothing
}

const tableFormat = "  %-44s %12s   %-34s %12s %7s"

func (t *table) head(text string) {
	fmt.Fprintf(t.out, "%s\n\n", text)
	t.line(fmt.Sprintf(tableFormat, "", "weir", "beside it", "", "ratio"))
}

func (t *table) add(f figure) {
	ratio := ""
	if f.ratio > 0 {
		ratio = fmt.Sprintf("%.2f", f.ratio)
	}
	line := fmt.Sprintf(tableFormat, f.what, f.ours, f.peer, f.their, ratio)
	switch {
	case f.limit > 0 && f.ratio <= f.limit:
		line += fmt.Sprintf("  <= %.2f", f.limit)
	case f.limit > 0:
		line += fmt.Sprintf("  ABOVE %.2f", f.limit)
		t.miss("%s: %.2f of %s, want at most %.2f", f.what, f.ratio, f.peer, f.limit)
	}
	t.line(line)
}

// miss notes a broken promise. The others are measured all the same.
func (t *table) miss(format string, args ...any) {
	t.missed = append(t.missed, fmt.Errorf(format, args...))
}

func (t *table) line(text string) { fmt.Fprintln(t.out, strings.TrimRight(text, " ")) }

// times adds a line that compares two durations.
func (t *table) times(what string, ours time.Duration, peer string, their time.Duration, limit float64) {
	t.add(figure{what, span(ours), peer, span(their), ratioOf(int(ours), int(their)), limit})
}

// counts adds a line that compares two numbers.
func (t *table) counts(what string, ours int, peer string, their int) {
	t.add(figure{what: what, ours: count(ours), peer: peer, their: count(their), ratio: ratioOf(ours, their)})
}

// memory adds a line that compares two amounts in MiB.
func (t *table) memory(what string, ours int, peer string, their int) {
	t.add(figure{what: what, ours: fmt.Sprintf("%d MiB", ours), peer: peer, their: fmt.Sprintf("%d MiB", their), ratio: ratioOf(ours, their)})
}

// ratioOf is 0, which is none, where there is nothing to divide by.
func ratioOf(ours, their int) float64 {
	if their == 0 {
		return 0
	}
	return float64(ours) / float64(their)
}

// span is a duration with three digits that count.
func span(d time.Duration) string {
	unit := time.Nanosecond
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}

// count is a number with thousands set off: 10,000.
func count(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
