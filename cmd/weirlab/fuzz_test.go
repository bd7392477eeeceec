package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"weir/cmd/weirlab/lab"
)

func TestFuzzTargetsAreFound(t *testing.T) {
	all, err := testFunctions(filepath.Join("..", ".."), "Fuzz")
	lab.Must(t, err)
	for _, want := range []testFunction{{"bgp", "FuzzRouter"}, {"cluster", "FuzzDelegates"}, {"cmd/weir/internal/web", "FuzzQuery"}} {
		if !slices.Contains(all, want) {
			t.Errorf("%v is not among %d targets", want, len(all))
		}
	}
}

// A target that reads foreign input has such inputs beside it: valid, borderline and hostile ones. One that takes
// numbers for a generator of rules, Services or kinds has numbers with a rare result, which the name states.
func TestEachFuzzTargetHasACorpus(t *testing.T) {
	const least, mostBytes = 2, 2000
	all, err := testFunctions(filepath.Join("..", ".."), "Fuzz")
	lab.Must(t, err)
	for _, x := range all {
		dir := filepath.Join("..", "..", x.folder, "testdata", "fuzz", x.name)
		files, err := os.ReadDir(dir)
		if err != nil || len(files) < least {
			t.Errorf("%s has %d files, want at least %d: %v", dir, len(files), least, err)
		}
		for _, f := range files {
			if info, err := f.Info(); err != nil || info.Size() > mostBytes {
				t.Errorf("%s has %d bytes, at most %d: %v", filepath.Join(dir, f.Name()), info.Size(), mostBytes, err)
			}
		}
	}
}

func TestExecutions(t *testing.T) {
	for out, want := range map[string]int{
		"": 0, "ok weir/lb 0.1s\n": 0,
		"fuzz: elapsed: 0s, gathering baseline coverage: 0/94 completed\nfuzz: elapsed: 3s, execs: 96 (32/sec), new interesting: 0 (total: 94)\nfuzz: elapsed: 6s, execs: 1293 (399/sec), new interesting: 1 (total: 95)\nPASS\n": 1293,
	} {
		if got := executions(out); got != want {
			t.Errorf("%d executions, want %d, in %q", got, want, out)
		}
	}
}
