package source

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity is the effect of a Problem.
type Severity uint8

// The severities.
const (
	// Note is for a configuration that may be intended.
	Note Severity = iota
	// Warning is for a configuration that works but is probably not intended.
	Warning
	// Error is for a configuration that weir refuses.
	Error
)

func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// Problem is one fault of a configuration.
type Problem struct {
	Severity Severity
	File     string
	// Line and Column count from 1; 0 means the file as a whole, or the whole line.
	Line, Column int
	// Key is the key with the names of its tables: service.web.scheduler. Tables of a
	// list without a name have their position in it, from 1: service.web.backend[2].weight.
	// It may be empty.
	Key string
	// Text states the fault, Suggestion the fix.
	Text, Suggestion string
}

// String returns one line in the form that editors can jump to.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Column > 0 {
		fmt.Fprintf(&b, ":%d", p.Column)
	}
	b.WriteString(": ")
	if p.Severity != Error {
		b.WriteString(p.Severity.String() + ": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Text)
	if p.Suggestion != "" {
		b.WriteString("; " + p.Suggestion)
	}
	return b.String()
}

// Errors is an invalid configuration: all its problems in the order of files and
// lines, including warnings. At least one is an Error.
type Errors struct {
	Problems []Problem
}

// Error returns Lines of the problems.
func (e *Errors) Error() string { return strings.Join(Lines(e.Problems), "\n") }

// mostLines limits what a file with a fault in each of its services prints.
const mostLines = 100

// Lines returns one line for each of at most 100 problems, and one that counts the others. If
// there are more, Errors come before the rest.
func Lines(problems []Problem) []string {
	shown := problems
	if len(shown) > mostLines {
		shown = slices.Clone(shown)
		slices.SortStableFunc(shown, func(a, b Problem) int { return cmp.Compare(b.Severity, a.Severity) })
		shown = shown[:mostLines]
	}
	lines := make([]string, 0, len(shown)+1)
	for _, p := range shown {
		lines = append(lines, p.String())
	}
	if rest := len(problems) - len(shown); rest > 0 {
		lines = append(lines, fmt.Sprintf("... and %d more: repair these first", rest))
	}
	return lines
}

// Worst returns the highest severity among problems, and false if there are none.
func Worst(problems []Problem) (Severity, bool) {
	if len(problems) == 0 {
		return 0, false
	}
	worst := slices.MaxFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Severity, b.Severity) })
	return worst.Severity, true
}

// Problems collects problems.
type Problems struct {
	All []Problem
}

// Add records a problem.
func (p *Problems) Add(severity Severity, at Place, key, text, suggestion string) {
	p.All = append(p.All, Problem{severity, at.File, at.Line, 0, key, text, suggestion})
}

// Failed reports whether there is an Error.
func (p *Problems) Failed() bool {
	worst, ok := Worst(p.All)
	return ok && worst == Error
}

// Sort orders the problems by files, as in names, and lines.
func (p *Problems) Sort(names []string) {
	place := map[string]int{}
	for i, name := range names {
		place[name] = i
	}
	slices.SortStableFunc(p.All, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(place[a.File], place[b.File]),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	p.All = slices.Compact(p.All)
}

// Fault is a Problem without its position and key.
type Fault struct {
	Text, Fix string
	Severity  Severity
}

// Faultf returns a Fault that is an Error.
func Faultf(fix, format string, args ...any) *Fault {
	return &Fault{fmt.Sprintf(format, args...), fix, Error}
}
