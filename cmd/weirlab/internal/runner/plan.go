package runner

import (
	"cmp"
	"slices"
)

// Test is a top-level test of a package.
type Test struct {
	Package Package
	Name    string  // "TestFirstPacket"
	Seconds float64 // how long it took last time; 0 if unknown
	Used    float64 // how many seconds of a processor it used last time; 0 if unknown
	Cores   int     // how many processors its labs lease; 0 if unknown
}

// Key names the test in the table of times.
func (t Test) Key() string { return t.Package.Name + "." + t.title() }

// title is the test's name, with its kernel if that is not the one of most tests.
func (t Test) title() string {
	if t.Package.Kernel == "" || t.Package.Kernel == usualKernel {
		return t.Name
	}
	return t.Name + " on " + t.Package.Kernel
}

// usualKernel is what most tests boot.
const usualKernel = "uml-new"

// unknownSeconds and unknownLoad, the latter for each box, are taken for a test that has never run.
const (
	unknownSeconds = 30
	unknownLoad    = 0.5
)

func (t Test) seconds() float64 { return cmp.Or(t.Seconds, unknownSeconds) }
func (t Test) cores() int       { return max(t.Cores, 1) }

// load is how many processors the test keeps busy, on average.
func (t Test) load() float64 {
	if t.Seconds <= 0 || t.Used <= 0 {
		return unknownLoad * float64(t.cores())
	}
	return t.Used / t.Seconds
}

// order sorts tests for running: the longest first, so that no long one is left over at the end.
func order(tests []Test) {
	slices.SortStableFunc(tests, func(a, b Test) int {
		return cmp.Or(cmp.Compare(b.seconds(), a.seconds()), cmp.Compare(a.Key(), b.Key()))
	})
}

// room is what tests use of a machine, or may use of it.
type room struct {
	places int     // leases of labs
	load   float64 // processors that are busy
}

// fullLoad is how much of a machine's processors tests may use together, by their averages. It is below 1, since
// tests take longer beside others, and then seem to use less of a processor: with 1.2 eight tests at a time came of it,
// and with 0.9 waits of some seconds for FRR or for a neighbour failed in one run of four.
const fullLoad = 0.8

func (r room) with(t Test) room    { return room{r.places + t.cores(), r.load + t.load()} }
func (r room) without(t Test) room { return room{r.places - t.cores(), r.load - t.load()} }

// next is the first of the tests that fits on a machine beside those that use it, and -1 if none does.
// A test that never fits runs by itself.
func next(tests []Test, used, all room) int {
	return slices.IndexFunc(tests, func(t Test) bool {
		sum := used.with(t)
		return used.places == 0 || sum.places <= all.places && sum.load <= all.load
	})
}
