package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
)

// Report are all findings, the worst first. The JSON names are stable.
type Report struct {
	// Errors and Warnings count findings; Passed and Unknown count checks.
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Passed   int       `json:"passed"`
	Unknown  int       `json:"unknown"`
	Findings []Finding `json:"findings"`
	// Mode and Rules are those of the kernel in weir status; absent without a daemon.
	Mode  string `json:"mode,omitempty"`
	Rules string `json:"rules,omitempty"`
	// All includes passed checks in the table.
	All bool `json:"-"`
}

// ranks orders severities, the worst first.
var ranks = map[Severity]int{Error: 0, Warning: 1, Info: 2, Unknown: 3, Passed: 4}

// Judge returns the report of all Checks that apply to the box, or of the given ones.
func Judge(known facts.Facts, only ...string) Report {
	f := box{known}
	r := Report{Findings: []Finding{}}
	if f.Running != nil {
		r.Mode, r.Rules = f.Running.Kernel.Mode, f.Running.Kernel.Rules
	}
	for _, c := range Checks() {
		if len(only) > 0 && !slices.Contains(only, c.ID) || c.applies != nil && !c.applies(f) {
			continue
		}
		r.add(c, c.run(f))
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(ranks[a.Severity], ranks[b.Severity]) })
	return r
}

// run returns the findings of a check, or one with the reason why it could not run.
func (c Check) run(f box) []Finding {
	for _, p := range c.needs {
		if reason, missing := f.Missing[p]; missing {
			return []Finding{{Severity: Unknown, Text: string(p) + " can't be checked: " + reason}}
		}
	}
	return c.judge(f)
}

// add adds the findings of a check.
func (r *Report) add(c Check, found []Finding) {
	bad := false
	for _, x := range found {
		x.ID = c.ID
		switch x.Severity {
		case Error:
			r.Errors, bad = r.Errors+1, true
		case Warning:
			r.Warnings, bad = r.Warnings+1, true
		}
		if x.Reason == "" && (x.Severity == Error || x.Severity == Warning) {
			x.Reason = c.Means
		}
		r.Findings = append(r.Findings, x)
	}
	if slices.ContainsFunc(found, func(x Finding) bool { return x.Severity == Unknown }) {
		r.Unknown, bad = r.Unknown+1, true
	}
	if bad {
		return
	}
	r.Passed++
	if len(found) == 0 {
		r.Findings = append(r.Findings, Finding{ID: c.ID, Severity: Passed, Text: c.Passed})
	}
}

// OK reports whether there are no errors and warnings.
func (r Report) OK() bool { return r.Errors+r.Warnings == 0 }

// Line returns the summary in one line.
func (r Report) Line() string {
	out := text.Count(r.Passed, "check") + " passed"
	if r.OK() {
		out = "no problems: " + out
	} else {
		out += ", " + text.Count(r.Warnings, "warning") + ", " + text.Count(r.Errors, "error")
	}
	if r.Unknown > 0 {
		out += fmt.Sprintf(", %d could not be checked", r.Unknown)
		if !r.All && slices.ContainsFunc(r.Findings, func(x Finding) bool { return x.Severity == Unknown && !x.shown() }) {
			out += " (--all lists them)"
		}
	}
	return out
}

// Table implements status.Tabler.
func (r Report) Table(w io.Writer, _ time.Time) {
	fmt.Fprintln(w, r.Line())
	if r.Rules != "" {
		fmt.Fprintln(w, "kernel:", status.RulesText(r.Mode, r.Rules))
	}
	for _, x := range r.Findings {
		if !x.shown() {
			continue
		}
		fmt.Fprintf(w, "\n%s  %s  %s\n", x.Severity, x.ID, x.Text)
		for _, line := range []struct{ name, text string }{{"reason", x.Reason}, {"fix", x.Fix}, {"run", x.Command}} {
			if line.text != "" {
				fmt.Fprintf(w, "  %s: %s\n", line.name, line.text)
			}
		}
	}
	if rest := slices.DeleteFunc(slices.Clone(r.Findings), Finding.shown); r.All && len(rest) > 0 {
		fmt.Fprintln(w)
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, x := range rest {
			fmt.Fprintf(tw, "%s\t%s\t%s\n", x.Severity, x.ID, x.Text)
		}
		_ = tw.Flush()
	}
}

// shown reports whether a finding is always in the table, without All. Of what is unknown, that is what has a remedy.
func (x Finding) shown() bool { return x.Severity != Passed && (x.Severity != Unknown || x.Fix != "") }
