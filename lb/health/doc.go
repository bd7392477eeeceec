// Package health asks the backends of static Services whether they work, and
// publishes verdicts. It never decides about traffic and knows no kernel object: what
// a backend that is down means for a frontend is lb.Plan's business.
//
// The caller gives the complete set of groups (Checker.Set) and reads verdicts
// as lb.Health values (Checker.Health). Of weir the package imports only lb.
//
// Inside, three things are apart. An asker (ask.go and a file for each protocol)
// asks one target once and knows no verdicts. The board (board.go, set.go,
// verdict.go) is what is known of all targets and what follows from it: plain
// data without clock, I/O or goroutines. The Checker (checker.go, run.go) holds
// the board behind a lock and has one goroutine that knows what is due when.
//
// A target is a Service, an address and a check. While these stay the same it
// keeps verdict, streak and schedule, whatever else a new configuration brings.
// A check that fails for want of something on this box (files, memory, time to
// run) says nothing of the backend and turns no verdict.
package health
