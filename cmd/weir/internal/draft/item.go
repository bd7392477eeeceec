package draft

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Severity is the effect of an Item.
type Severity uint8

// The severities.
const (
	Note    Severity = iota // it changes nothing for clients
	Warning                 // the traffic is served, with a difference
	Error                   // some traffic is not served
)

func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// Item is a setting that is not imported.
type Item struct {
	Severity Severity
	// At is the position in the imported file, such as "edge.conf:12"; empty if unknown.
	At     string
	Name   string
	Reason string
}

// String returns one line, without its end.
func (i Item) String() string {
	s := fmt.Sprintf("%s: %s: %s", i.Severity, i.Name, oneLine(i.Reason))
	if i.At != "" {
		s = i.At + ": " + s
	}
	return s
}

// Result is weir's configuration, converted from another program's.
type Result struct {
	// TOML is valid for package load on any machine.
	TOML string
	// Summary counts the imported objects, such as "3 of 4 virtual servers imported".
	Summary string
	// Left are the settings without a key, the worst first; TOML lists them with the reasons.
	Left []Item
}

// IsComplete reports whether clients are served as before: all items are notes.
func (r *Result) IsComplete() bool {
	return !slices.ContainsFunc(r.Left, func(i Item) bool { return i.Severity > Note })
}

// WriteLeft writes the summary and all items, a line for each.
func (r *Result) WriteLeft(w io.Writer) error {
	if r.Summary != "" {
		if _, err := fmt.Fprintf(w, "weir: %s\n", r.Summary); err != nil {
			return err
		}
	}
	for _, i := range r.Left {
		if _, err := fmt.Fprintln(w, i); err != nil {
			return err
		}
	}
	return nil
}

// Worst sorts items by their severity, the worst first. Others keep their order.
func Worst(items []Item) {
	slices.SortStableFunc(items, func(a, b Item) int { return cmp.Compare(b.Severity, a.Severity) })
}
