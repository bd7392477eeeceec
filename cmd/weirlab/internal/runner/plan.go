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

// room is what tests use of a machine.
type room struct {
	tests  int
	places int     // leases of labs
	load   float64 // processors that are busy
}

// machine is what tests may use.
type machine struct {
	tests      int // 0 is no limit
	places     int
	processors int
}

// fullLoad is how much of a machine's processors tests may use together, by their averages, if there are more of
// them than processors. It is below 1, since tests take longer beside others, and then seem to use less of a
// processor: with 1.2 eight tests at a time came of it, and with 0.9 waits of some seconds for FRR or for a neighbour
// failed in one run of four. Busy tests that run niced beside these were tried: they took what others need, and all
// took twice the time of a processor.
const fullLoad = 0.85

func (r room) with(t Test) room    { return room{r.tests + 1, r.places + t.cores(), r.load + t.load()} }
func (r room) without(t Test) room { return room{r.tests - 1, r.places - t.cores(), r.load - t.load()} }

// fits reports whether a machine has room. Each of a few tests may have a processor to itself.
func (m machine) fits(r room) bool {
	limit := float64(m.processors)
	if r.tests > m.processors {
		limit *= fullLoad
	}
	return (m.tests == 0 || r.tests <= m.tests) && r.places <= m.places && r.load <= limit
}

// next is the first of the tests that fits on a machine beside those that use it, and -1 if none does.
// A test that never fits runs by itself.
func next(tests []Test, used room, m machine) int {
	return slices.IndexFunc(tests, func(t Test) bool { return used.tests == 0 || m.fits(used.with(t)) })
}
