package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status"
)

// Report is everything that was found, the worst first. The JSON names are stable.
type Report struct {
	// Errors and Warnings count findings; Fine counts checks, and so does Unknown, those
	// that could not be looked at.
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Fine     int       `json:"fine"`
	Unknown  int       `json:"unknown"`
	Findings []Finding `json:"findings"`
	// All lets the table show what is fine, too.
	All bool `json:"-"`
}

// ranks orders severities, the worst first.
var ranks = map[Severity]int{Error: 0, Warning: 1, Info: 2, Unknown: 3, Fine: 4}

// Judge judges facts by all Checks that apply to the box, or only by some, by their IDs.
func Judge(f Facts, only ...string) Report {
	r := Report{Findings: []Finding{}}
	for _, c := range Checks() {
		if len(only) > 0 && !slices.Contains(only, c.ID) || c.applies != nil && !c.applies(f) {
			continue
		}
		r.add(c, c.look(f))
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(ranks[a.Severity], ranks[b.Severity]) })
	return r
}

// look gives a check's findings, or the one that says why there can be none.
func (c Check) look(f Facts) []Finding {
	for _, p := range c.needs {
		if why, missing := f.Missing[p]; missing {
			return []Finding{{Severity: Unknown, What: string(p) + " can't be looked at: " + why}}
		}
	}
	return c.judge(f)
}

// add counts the findings of a check and keeps them.
func (r *Report) add(c Check, found []Finding) {
	ill := false
	for _, x := range found {
		x.ID = c.ID
		switch x.Severity {
		case Error:
			r.Errors, ill = r.Errors+1, true
		case Warning:
			r.Warnings, ill = r.Warnings+1, true
		case Unknown:
			r.Unknown, ill = r.Unknown+1, true
		}
		if x.Why == "" && (x.Severity == Error || x.Severity == Warning) {
			x.Why = c.Means
		}
		r.Findings = append(r.Findings, x)
	}
	if ill {
		return
	}
	r.Fine++
	if len(found) == 0 {
		r.Findings = append(r.Findings, Finding{ID: c.ID, Severity: Fine, What: c.Fine})
	}
}

// Well tells whether there is nothing to mend.
func (r Report) Well() bool { return r.Errors+r.Warnings == 0 }

// Line says in one line whether all is well.
func (r Report) Line() string {
	out := status.Count(r.Fine, "check") + " fine"
	if r.Well() {
		out = "all is well: " + out
	} else {
		out += ", " + status.Count(r.Warnings, "warning") + ", " + status.Count(r.Errors, "error")
	}
	if r.Unknown > 0 {
		out += fmt.Sprintf(", %d could not be looked at", r.Unknown)
		if !r.All {
			out += " (--all shows them)"
		}
	}
	return out
}

// Table implements status.Tabler. The first line says whether all is well.
func (r Report) Table(w io.Writer, _ time.Time) {
	fmt.Fprintln(w, r.Line())
	for _, x := range r.Findings {
		if x.Severity == Fine || x.Severity == Unknown {
			continue
		}
		fmt.Fprintf(w, "\n%s  %s  %s\n", x.Severity, x.ID, x.What)
		for _, line := range []struct{ name, text string }{{"why", x.Why}, {"fix", x.Fix}, {"run", x.Command}} {
			if line.text != "" {
				fmt.Fprintf(w, "  %s: %s\n", line.name, line.text)
			}
		}
	}
	if r.All {
		r.rest(w)
	}
}

// rest lists what is fine, and what is not known.
func (r Report) rest(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	begun := false
	for _, x := range r.Findings {
		if x.Severity != Unknown && x.Severity != Fine {
			continue
		}
		if !begun {
			begun = true
			fmt.Fprintln(w)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", x.Severity, x.ID, x.What)
	}
	_ = tw.Flush() // to a terminal or a file, of which the next write tells
}
