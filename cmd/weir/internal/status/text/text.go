// Package text formats numbers, durations and lists for the tables of package status.
// It never reads a document, and imports nothing of weir.
package text

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Plain returns a text without control characters and without characters that change the
// direction of others. Line ends and tabs stay. Documents have texts from clusters,
// routers, members and backends, which must not control a terminal.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
		case r < ' ', r >= 0x7f && r <= 0x9f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// OneLine returns a text without the characters that begin a line or a cell of a table, here and in
// text/tabwriter: a text from outside must not look like a line of weir.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("\n\t\v\f", r) {
			return ' '
		}
		return r
	}, s)
}

// Cut shortens a text to at most so many bytes, at the end of a character.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// TrueFirst compares for an order with true before false.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Count returns a number with its noun: "1 service", "2 services".
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Ago formats the time from t to now; "never" for a zero t.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return Age(now.Sub(t)) + " ago"
}

// Age formats a duration in its largest unit: "3s", "5m", "2h", "9d".
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Names joins the first names of a list, and counts the rest.
func Names(all []string) string {
	const most = 8
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// Dash joins a list with spaces; "-" if it is empty.
func Dash(list []string) string { return cmp.Or(strings.Join(list, " "), "-") }

// Short formats a number in at most six characters, with the prefixes of SI: 0, 0.4, 12.3,
// 1234, 45.6k, 7.89M.
func Short(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x < 9999.5:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	for _, unit := range []string{"k", "M", "G"} {
		x /= 1000
		if x < 99.95 {
			return strconv.FormatFloat(x, 'f', 1, 64) + unit
		}
		if x < 999.5 {
			return strconv.FormatFloat(x, 'f', 0, 64) + unit
		}
	}
	return strconv.FormatFloat(x/1000, 'f', 1, 64) + "T"
}
