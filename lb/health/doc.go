// Package health checks the backends of static Services and publishes their states. It never
// decides about traffic and knows no kernel object: the effect of a backend that is down is
// decided by lb.Plan.
//
// The caller passes the complete set of groups (Checker.Set) and reads the states as lb.Health
// values: all (Checker.Health), or those that have turned (Checker.Turned). Of weir the package imports only lb and bfd.
//
// It has three parts. An asker (ask.go and a file for each protocol) checks one target once
// and knows no states. The table (table.go, set.go, state.go) has all targets and their
// states: plain data without clock, I/O or goroutines. The Checker (checker.go, run.go) has
// the table behind a lock, and one goroutine that starts each check when it is due.
//
// Checks of kind BFD have sessions (bfd.go), which go on between the checks. A change of a session
// makes its checks due.
//
// A target is a Service, an address and a check. While these stay the same it keeps state,
// streak and schedule, whatever else a new configuration changes. A check that fails because
// this box lacks something (files, memory, time to run, the unit for programs) is no result,
// and changes no state.
package health
