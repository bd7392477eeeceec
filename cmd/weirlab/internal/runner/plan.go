package runner

import (
	"cmp"
	"slices"
)

// Test is a top-level test of a package.
type Test struct {
	Package string  // "weir/cmd/weirlab/e2e"
	Name    string  // "TestFirstPacket"
	Seconds float64 // how long it took last time; 0 if unknown
	Cores   int     // how many processors its labs lease; 0 if unknown
}

// Key names the test in the table of times.
func (t Test) Key() string { return t.Package + "." + t.Name }

// unknownSeconds is taken for a test that has never run.
const unknownSeconds = 30

func (t Test) seconds() float64 { return cmp.Or(t.Seconds, unknownSeconds) }
func (t Test) cores() int       { return max(t.Cores, 1) }

// order sorts tests for running: those that need several processors first, since nothing else runs beside them on a
// small machine and would wait for all others, then the longest first, so that no long one is left over
// at the end.
func order(tests []Test) {
	slices.SortStableFunc(tests, func(a, b Test) int {
		return cmp.Or(cmp.Compare(b.cores(), a.cores()), cmp.Compare(b.seconds(), a.seconds()), cmp.Compare(a.Key(), b.Key()))
	})
}

// next is the first of the tests that fits on so many free processors of all, and -1 if none does.
func next(tests []Test, free, all int) int {
	return slices.IndexFunc(tests, func(t Test) bool { return min(t.cores(), all) <= free })
}
