package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// fuzzed is how targets are fuzzed: each one for a time, in which it must reach so many executions.
type fuzzed struct {
	time  time.Duration
	least int
}

// testFunction is a fuzz target or a benchmark of a package.
type testFunction struct{ folder, name string }

// testFunctions returns those below a folder, by the kind Fuzz or Benchmark, in the order of their files.
func testFunctions(root, kind string) (out []testFunction, err error) {
	function, files := regexp.MustCompile(`(?m)^func (`+kind+`\w+)\(`), os.DirFS(root)
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(files, name)
		for _, found := range function.FindAllSubmatch(text, -1) {
			out = append(out, testFunction{path.Dir(name), string(found[1])})
		}
		return err
	})
	return out, err
}

// fuzz fuzzes targets one after the other on one processor, and prints a table. A target that finds a fault
// leaves its input below testdata of its package.
func (s *stages) fuzz(ctx context.Context, how fuzzed, targets []testFunction) error {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tEXECUTIONS\tVERDICT")
	var failed []error
	for _, x := range targets {
		if ctx.Err() != nil {
			break
		}
		var out bytes.Buffer
		err := s.pipe(ctx, nil, io.MultiWriter(&out, s.out), "go", "test", "./"+x.folder, "-run", "^$", "-fuzz", "^"+x.name+"$", "-fuzztime", how.time.String(), "-parallel", "1")
		if endedLate(out.String()) {
			err = nil
		}
		n, verdict := executions(out.String()), "passed"
		switch {
		case err != nil:
			verdict = "FAILED"
			s.counts.Failed++
		case n < how.least:
			verdict = fmt.Sprintf("FAILED: fewer than %d", how.least)
			err = fmt.Errorf("%d executions in %s, want %d", n, how.time, how.least)
			s.counts.Failed++
		default:
			s.counts.Passed++
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w", x.folder, x.name, err))
		}
		fmt.Fprintf(w, "%s %s\t%d\t%s\n", x.folder, x.name, n, verdict)
	}
	_ = w.Flush() // into memory
	fmt.Fprintf(s.out, "\n%s\n", table.String())
	return errors.Join(failed...)
}

// endedLate reports whether a target has failed only because its worker was busy when the time was over,
// which go test reports as a failure without an input.
func endedLate(out string) bool {
	return strings.Contains(out, "context deadline exceeded") && !strings.Contains(out, "Failing input written")
}

var fuzzExecs = regexp.MustCompile(`execs: (\d+) `)

// executions returns the last number of executions in the output of go test -fuzz.
func executions(out string) int {
	all := fuzzExecs.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.Atoi(all[len(all)-1][1])
	if err != nil {
		return 0
	}
	return n
}
