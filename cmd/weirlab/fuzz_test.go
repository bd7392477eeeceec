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

// generated are targets that take numbers for a generator of rules, Services or kinds. No program or host sends
// such an input: their seeds are in the code.
var generated = []string{"FuzzTenant", "FuzzRulesReadBack", "FuzzServerRulesReadBack", "FuzzIPTablesReadBack"}

// Every other target reads what others write, and has such inputs beside it: valid, borderline and hostile ones.
func TestEachFuzzTargetHasACorpus(t *testing.T) {
	const least, mostBytes = 2, 2000
	all, err := testFunctions(filepath.Join("..", ".."), "Fuzz")
	lab.Must(t, err)
	for _, x := range all {
		dir := filepath.Join("..", "..", x.folder, "testdata", "fuzz", x.name)
		files, err := os.ReadDir(dir)
		if slices.Contains(generated, x.name) {
			continue
		}
		if err != nil || len(files) < least {
			t.Errorf("%s has %d files, want at least %d: %v", dir, len(files), least, err)
		}
		for _, f := range files {
			if info, err := f.Info(); err != nil || info.Size() > mostBytes {
				t.Errorf("%s has %d bytes, at most %d: %v", filepath.Join(dir, f.Name()), info.Size(), mostBytes, err)
			}
		}
	}
	for _, name := range generated {
		if !slices.ContainsFunc(all, func(x testFunction) bool { return x.name == name }) {
			t.Errorf("there is no target %s", name)
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
