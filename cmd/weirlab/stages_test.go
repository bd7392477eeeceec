package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/internal/runner"
	"weir/cmd/weirlab/lab"
)

// TestStagesNameTestsThatExist keeps a renamed test from falling out of a list in silence.
func TestStagesNameTestsThatExist(t *testing.T) {
	var there []string
	for _, folder := range []string{".", "e2e", "lab"} {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		lab.Must(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			lab.Must(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(string(text), -1) {
				there = append(there, m[1])
			}
		}
	}
	for _, name := range slices.Concat(oldKernelTests, suspects, conformanceTests, soakedLabTests, []string{"TestDifferential", "TestChurn"}) {
		if !slices.Contains(there, name) {
			t.Errorf("there is no test called %s", name)
		}
	}
}

func TestStageOverItsBudgetFailsUnlessStarved(t *testing.T) {
	slow := stage{"slow", time.Millisecond, func(context.Context, *stages) error {
		time.Sleep(10 * time.Millisecond) // it is the length of the stage
		return nil
	}}
	s := &stages{out: io.Discard, clock: &runner.Clock{}, began: time.Now()}
	s.do(t.Context(), slow)
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "over its budget") {
		t.Errorf("ten times its budget: %v", err)
	}
	var out strings.Builder
	s = &stages{out: &out, clock: &runner.Clock{}, began: time.Now()}
	s.do(t.Context(), stage{"broken", time.Minute, func(context.Context, *stages) error { return errors.New("no") }})
	s.do(t.Context(), stage{"fine", time.Minute, func(context.Context, *stages) error { return nil }})
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "broken: no") || len(s.rows) != 2 {
		t.Errorf("a failed stage: %v, %q", err, s.rows)
	}
	if !strings.HasSuffix(out.String(), "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("it closes with\n%s", out.String())
	}
}

func TestEventsOfGoTestAreCounted(t *testing.T) {
	events := `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise of a test that passes\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB","Elapsed":0.1}
{"Action":"skip","Package":"p","Test":"TestC","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":1.5}
`
	var out strings.Builder
	s := &stages{out: &out}
	lab.Must(t, s.readEvents(io.NopCloser(strings.NewReader(events))))
	if want := (runner.Counts{Passed: 1, Failed: 1, Skipped: 1}); s.counts != want {
		t.Errorf("%+v, want %+v", s.counts, want)
	}
	if want := "    b_test.go:1: wrong\nFAIL\tp\t1.5s\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// TestOutputAfterTheLastTestIsPrinted is about a process that fails by something else than a test: a data race at its end.
func TestOutputAfterTheLastTestIsPrinted(t *testing.T) {
	const events = `{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"q","Test":"TestB","Output":"of another package\n"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p","Elapsed":1.5}
`
	var out strings.Builder
	s := &stages{out: &out}
	lab.Must(t, s.readEvents(io.NopCloser(strings.NewReader(events))))
	if want := "FAIL\tp\t1.5s\nFAIL\nWARNING: DATA RACE\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestProvenOnlyWhenEverythingIs(t *testing.T) {
	l := ledger{path: filepath.Join(t.TempDir(), "commit.json"), Stages: map[string]string{}, Green: map[string]int{}}
	outcomes := func(failed ...string) (results []runner.Result) {
		for _, test := range suspects {
			r := runner.Result{Test: runner.Test{Name: test}, Outcome: runner.Passed}
			if slices.Contains(failed, test) {
				r.Outcome = runner.Failed
			}
			results = append(results, r)
		}
		return results
	}
	for range 5 {
		l.count(allTests, nil, outcomes(), suspects)
	}
	for range 24 {
		l.count("suspects", nil, outcomes(), suspects)
	}
	l.count("suspects", errors.New("one failed"), outcomes(suspects[0]), suspects)
	lab.Must(t, l.save())
	read := ledger{path: l.path}
	lab.Must(t, read.load())
	if got := []int{read.least(allTests, suspects), read.Green[suspects[0]], read.Green[suspects[1]], read.least("suspects", suspects)}; !slices.Equal(got, []int{5, 0, 30, 0}) {
		t.Errorf("all tests, a failed one, another one, and the least: %v, want 5, 0, 30, 0", got)
	}
	if err := read.proven(io.Discard, "commit", 5, 30, suspects); err == nil {
		t.Error("a suspect failed in its last run, and it is proven")
	}
	read.Green[suspects[0]] = 30
	if err := read.proven(io.Discard, "commit", 5, 30, suspects); err != nil {
		t.Errorf("all is green: %v", err)
	}
	read.count(allTests, nil, outcomes()[1:], suspects)
	if read.Green[suspects[0]] != 0 {
		t.Error("a test that did not run counts as green")
	}
}

// TestUnitStageHasAllPackages compares unitPackages with the packages that have tests: a new one must not be left out.
func TestUnitStageHasAllPackages(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	lab.Must(t, err)
	others := append([]string{"weir/cmd/weirlab/prose", "weir/cmd/weirlab/mutate"}, boxPackages...) // stages of their own
	for _, name := range strings.Fields(string(out)) {
		covered := slices.Contains(others, name) || slices.ContainsFunc(unitPackages, func(pattern string) bool {
			folder := strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/...")
			return name == "weir/"+folder || strings.HasPrefix(name, "weir/"+folder+"/")
		})
		if !covered {
			t.Errorf("no stage of make test has the tests of %s", name)
		}
	}
}

// TestWithoutTheDetectorIsNotLeftOut compares packagesWithout with the packages that have such tests: the run with the
// detector skips them everywhere.
func TestWithoutTheDetectorIsNotLeftOut(t *testing.T) {
	var found, names []string
	test := regexp.MustCompile(`(?m)^func (` + strings.Join(withoutDetector, "|") + `)\(t `)
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range test.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
			found = append(found, "./"+strings.TrimPrefix(filepath.Dir(path), "../../"))
		}
		return err
	})
	lab.Must(t, err)
	slices.Sort(found)
	want := slices.Sorted(slices.Values(packagesWithout))
	if diff := cmp.Diff(slices.Compact(found), want); diff != "" {
		t.Errorf("packages with tests that run without the detector (-found +packagesWithout):\n%s", diff)
	}
	for _, name := range withoutDetector {
		if !slices.ContainsFunc(names, regexp.MustCompile("^"+name+"$").MatchString) {
			t.Errorf("there is no test called %s", name)
		}
	}
}
