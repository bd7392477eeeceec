// Package health asks the backends of static Services whether they work, and
// publishes verdicts.
//
// The caller gives the complete set of groups (Checker.Set) and reads verdicts
// as lb.Health values (Checker.Health); it never learns how they came about. The
// package decides nothing about traffic and knows no kernel object: what a
// backend that is down means for a frontend is lb.Plan's business. Of weir it
// imports only lb.
package health
