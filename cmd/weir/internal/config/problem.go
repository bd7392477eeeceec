package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a Problem keeps one from.
type Severity uint8

// The severities.
const (
	// Note is worth knowing, and may well be meant so.
	Note Severity = iota
	// Warning is hardly meant so, but can be run.
	Warning
	// Error can't be run.
	Error
)

func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Severity Severity
	File     string
	// Line counts from 1; 0 is the file as a whole.
	Line int
	// Key is the key as its user thinks of it: service.web.scheduler. Services go
	// by their names, other tables of a list by their place in it, from 1:
	// service.web.backend[2].weight. It may be empty.
	Key string
	// Text says what is wrong, Suggestion how to put it right.
	Text, Suggestion string
}

// String gives one line, in the form that editors know how to jump to.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
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
// lines, warnings included. At least one is an Error.
type Errors struct {
	Problems []Problem
}

// Error gives one line for each problem.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Worst gives the highest severity among problems, and false if there are none.
func Worst(problems []Problem) (Severity, bool) {
	if len(problems) == 0 {
		return 0, false
	}
	worst := slices.MaxFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Severity, b.Severity) })
	return worst.Severity, true
}
