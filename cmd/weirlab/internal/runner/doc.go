// Package runner runs the tests that boot machines: each top-level test in a process of its own, in
// parallel as far as their labs have places and processors are idle, the longest first. It never retries a failed
// test, with one exception: a test during which this machine did not get its processors (see Clock)
// runs once more and is marked "starved", three times in a run at most, and never after a panic, a data
// race or a wrong answer.
//
// A test counts as passed only if it was listed by its binary and reported its own end: one that never
// ran is a failure.
package runner
