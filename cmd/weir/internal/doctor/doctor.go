// Package doctor finds the problems of a box and their remedies, with or without a daemon
// and a valid configuration. It never changes anything.
//
// Package gather collects the facts. Judge is pure: it turns facts into a Report by the
// table of Checks, which doctor.md repeats.
package doctor

import "weir/cmd/weir/internal/doctor/facts"

// Severity is the importance of a finding.
type Severity string

// The severities, the worst first.
const (
	// Error: a configured function does not work, or will fail soon.
	Error Severity = "error"
	// Warning: it works, but will fail some day or for some clients.
	Warning Severity = "warning"
	// Info: nothing fails.
	Info Severity = "info"
	// Unknown: it could not be checked.
	Unknown Severity = "unknown"
	// Passed: it was checked, without a problem.
	Passed Severity = "ok"
)

// Finding is a result of a check. The JSON names are stable.
type Finding struct {
	// ID is the name of the check, and of its row in doctor.md: "rp-filter".
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Text describes the problem, Reason its effect.
	Text   string `json:"text"`
	Reason string `json:"reason,omitempty"`
	// Fix is the remedy. Command applies it in a shell of root; empty if that depends on the
	// intention of the operator.
	Fix     string `json:"fix,omitempty"`
	Command string `json:"command,omitempty"`
}

// Check is one row of the table.
type Check struct {
	ID string
	// Passed is the text without a problem, Means the effect of a problem, Fix the general
	// remedy.
	Passed, Means, Fix string

	// needs are the parts of Facts that the check requires.
	needs []facts.Part
	// applies reports whether the check concerns this box; nil is always.
	applies func(box) bool
	// judge returns findings without their ID; Reason defaults to Means.
	judge func(box) []Finding
}

// box is a box with the questions of the checks.
type box struct{ facts.Facts }
