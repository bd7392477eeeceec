package main

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestFuzzTargetsAreFound(t *testing.T) {
	all, err := fuzzTargets(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []fuzzTarget{{"../../bgp", "FuzzRouter"}, {"../../cluster", "FuzzDelegates"}, {"../../cmd/weir/internal/web", "FuzzQuery"}} {
		if !slices.Contains(all, want) {
			t.Errorf("%v is not among %d targets", want, len(all))
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
