// Package runner runs the tests that boot machines: each top-level test in a process of its own, as
// many side by side as there are processors for their labs, the longest first. It never runs a failed
// test again, with one exception: a test during which this machine did not get its processors (see
// Clock) is run once more and marked "starved", three times in a run at most, and never after a panic, a
// data race or a wrong answer.
//
// A test counts as passed only if it was listed by its binary and reported its own end: one that never
// ran is a failure.
package runner
