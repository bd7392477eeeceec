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

// busyLoad is the load from which a test waits for nothing but a processor.
const busyLoad = 0.85

// busy reports whether the test keeps one processor busy for as long as it runs: it compiles, emulates, or counts.
// Such a test takes what others leave of the processors: it runs niced, beside tests that wait for routers and boxes.
func (t Test) busy() bool { return t.Seconds > 0 && t.cores() == 1 && t.load() >= busyLoad }

// order sorts tests for running: the longest first, so that no long one is left over at the end.
func order(tests []Test) {
	slices.SortStableFunc(tests, func(a, b Test) int {
		return cmp.Or(cmp.Compare(b.seconds(), a.seconds()), cmp.Compare(a.Key(), b.Key()))
	})
}

// room is what tests use of a machine.
type room struct {
	places int     // leases of labs
	load   float64 // processors that tests keep busy, but for busy tests
	busy   int     // busy tests
}

// machine is what tests may use.
type machine struct {
	places     int
	processors int
}

// fullLoad is how much of a machine's processors tests may use together, by their averages, beside one busy
// test. It is below 1, since tests take longer beside others, and then seem to use less of a processor: with 1.2
// eight tests at a time came of it, and with 0.9 waits of some seconds for FRR or for a neighbour failed in one run
// of four.
const fullLoad = 0.8

func (r room) with(t Test) room    { return r.add(t, 1) }
func (r room) without(t Test) room { return r.add(t, -1) }

func (r room) add(t Test, n int) room {
	r.places += n * t.cores()
	if t.busy() {
		r.busy += n
	} else {
		r.load += float64(n) * t.load()
	}
	return r
}

// fits reports whether a test may begin beside those that use the machine. One that never fits runs by itself.
func (m machine) fits(t Test, used room) bool {
	sum := used.with(t)
	switch {
	case used.places == 0:
		return true
	case sum.places > m.places:
		return false
	case t.busy() && used.busy > 0: // two are two processors
		return sum.load+float64(sum.busy) <= float64(m.processors)
	case t.busy():
		return true
	default:
		return sum.load+float64(max(sum.busy-1, 0)) <= fullLoad*float64(m.processors)
	}
}

// next is the first of the tests that fits on a machine beside those that use it, and -1 if none does.
func next(tests []Test, used room, m machine) int {
	return slices.IndexFunc(tests, func(t Test) bool { return m.fits(t, used) })
}
