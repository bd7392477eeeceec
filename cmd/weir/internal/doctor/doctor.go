// Package doctor says what is wrong with a box, and how to mend it: with a daemon or
// without one, with a valid configuration or without.
//
// Gather looks: at /proc and /sys, links, routes and neighbors, rules, sockets, the
// daemon's documents, and whether others answer. Each look has a time limit of its own,
// none changes anything, and what can't be looked at is said and not guessed. Judge is
// pure: Facts in, a Report out. Checks are the table of all there is to find; doctor.md,
// among the documentation, has the same.
//
// The chapters: facts.go and its sisters (what is known), gather.go and its sisters (how
// that is found out), checks.go (what is judged), the judges by theme (judge_kernel.go,
// judge_sysctl.go, judge_conntrack.go, judge_firewall.go, judge_network.go,
// judge_ports.go, judge_peers.go, judge_daemon.go) and report.go (how it reads).
//
// Of weir it imports config, status, bgp, k8ssync, lb and lb/linux, which is what reads
// rules.
package doctor

// Severity says how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	// Error: something that is configured does not work, or will not for long.
	Error Severity = "error"
	// Warning: it works, and will fail some day, or for some clients.
	Warning Severity = "warning"
	// Info is worth knowing; nothing fails of it.
	Info Severity = "info"
	// Unknown: it could not be looked at.
	Unknown Severity = "unknown"
	// Fine: it was looked at, and nothing is wrong.
	Fine Severity = "ok"
)

// Finding is what one check has found. The JSON names are stable.
type Finding struct {
	// ID is that of the check, and its row in doctor.md: "rp-filter".
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// What is found, naming the thing; Why it matters.
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	// Fix says what to do. Command does it, typed by root into a shell as it stands;
	// empty where no command can know what is meant.
	Fix     string `json:"fix,omitempty"`
	Command string `json:"command,omitempty"`
}

// Check is one thing that is looked at.
type Check struct {
	ID string
	// Fine says what is so when nothing is found; Means, what a finding means, and why it
	// matters; Fix, in general, what helps.
	Fine, Means, Fix string

	// needs are the parts of Facts without which nothing can be said.
	needs []Part
	// applies tells whether this box has to do with it at all; nil is always.
	applies func(Facts) bool
	// judge gives findings without their ID; Why is Means, if an error or a warning has
	// none of its own.
	judge func(Facts) []Finding
}
