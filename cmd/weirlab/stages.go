package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/runner"
	"weir/cmd/weirlab/lab"
)

// stage is a part of a run of tests, with the time that it may take on two idle cores.
type stage struct {
	name   string
	budget time.Duration
	run    func(ctx context.Context, r *stages) error
}

// overrun is how much of its budget a stage may take before it fails, on a machine that was not starved.
const overrun = 1.5

// minLimit is how long a test may hang before it is ended; one of a longer stage may take as long as the
// stage.
const minLimit = 15 * time.Minute

// starvedShare is the part of a stage's time for which a machine must be stopped to excuse an overrun.
const starvedShare = 0.02

// stages runs some, one after the other, and prints what each took.
type stages struct {
	out    io.Writer
	clock  *runner.Clock
	began  time.Time
	limit  time.Duration // of one test of the stage that runs
	counts runner.Counts
	again  int // tests that were run again
	most   int // of these
	rows   []string
	failed []error
	// results are those of the tests that booted machines; bad are the failed ones, with those of goTest.
	results, bad []runner.Result
}

func newStages(ctx context.Context, out io.Writer, short bool) *stages {
	s := &stages{out: out, clock: &runner.Clock{}, began: time.Now(), most: runner.MaxRepeats}
	if short {
		s.most = 0 // the test that runs it may itself be run again
	}
	fmt.Fprintf(out, "%s, %d processors\n", processor(), runtime.NumCPU())
	go s.clock.Run(ctx) // ends with the command
	go func() {
		if err := s.clock.WatchDisk(ctx, ""); err != nil {
			fmt.Fprintln(out, "the disk is not watched:", err)
		}
	}()
	return s
}

// do runs a stage. A failed one does not keep the next from running: a person wants to know all that
// is wrong.
func (s *stages) do(ctx context.Context, st stage) {
	if ctx.Err() != nil {
		return
	}
	fmt.Fprintf(s.out, "\n== %s (budget %s)\n", st.name, st.budget)
	s.limit = max(minLimit, st.budget)
	began := time.Now()
	err := st.run(ctx, s)
	took, starved := time.Since(began), s.clock.Starved(began, time.Now())
	verdict := "passed"
	switch {
	case err != nil:
		verdict = "FAILED"
	case took > time.Duration(overrun*float64(st.budget)) && starved.Seconds() < starvedShare*took.Seconds():
		verdict = "FAILED: over its budget by more than half, on a machine that was not starved"
		err = errors.New(verdict)
	case took > st.budget:
		verdict = "passed, over its budget"
	}
	row := fmt.Sprintf("%-52s %7s of %7s  %s", st.name, took.Round(time.Second), st.budget, verdict)
	if starved > 0 {
		row += fmt.Sprintf("; the machine stood still for %s", starved.Round(100*time.Millisecond))
	}
	fmt.Fprintf(s.out, "== %s\n", row)
	s.rows = append(s.rows, row)
	if err != nil {
		s.failed = append(s.failed, fmt.Errorf("%s: %w", st.name, err))
	}
}

// end prints the table of stages and the closing line.
func (s *stages) end() error {
	fmt.Fprintf(s.out, "\n== all stages: %s\n", time.Since(s.began).Round(time.Second))
	for _, row := range s.rows {
		fmt.Fprintln(s.out, row)
	}
	fmt.Fprintf(s.out, "%d tests were starved and run again, of at most %d\n", s.again, s.most)
	fmt.Fprint(s.out, runner.Reasons(s.bad))
	failed := s.counts.Failed
	if failed == 0 && len(s.failed) > 0 {
		failed = len(s.failed) // stages that count no tests
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.counts.Passed, failed, s.counts.Skipped)
	return errors.Join(s.failed...)
}

// command runs a program of the stage's and passes on what it prints.
func (s *stages) command(ctx context.Context, env []string, name string, args ...string) error {
	return s.pipe(ctx, env, s.out, name, args...)
}

func (s *stages) pipe(ctx context.Context, env []string, stdout io.Writer, name string, args ...string) error {
	fmt.Fprintf(s.out, "+ %s\n", strings.Join(slices.Concat(env, []string{name}, args), " "))
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = stdout, s.out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// goTest runs go test, prints a line a package and what failed tests have printed, and counts. Results of earlier
// runs, which go test may have of another clone, count as none.
func (s *stages) goTest(ctx context.Context, env []string, args ...string) error {
	events, write := io.Pipe()
	read := make(chan error, 1)
	go func() { read <- s.readEvents(events) }()
	err := s.pipe(ctx, env, write, "go", append([]string{"test", "-json", "-count=1"}, args...)...)
	write.Close()
	return errors.Join(err, <-read)
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func (s *stages) readEvents(from io.ReadCloser) error {
	defer from.Close() // else the writer would wait for a reader that is gone
	printed := map[string]string{}
	for lines := json.NewDecoder(from); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read go test -json: %w", err)
		}
		key := e.Package + " " + e.Test
		switch {
		case e.Action == "output" || e.Action == "build-output":
			printed[key] += e.Output
			continue
		case e.Action == "build-fail":
			fmt.Fprint(s.out, printed[key])
		case e.Test == "" && (e.Action == "pass" || e.Action == "fail"):
			fmt.Fprintf(s.out, "%s\t%s\t%.1fs\n", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], e.Package, e.Elapsed)
			if e.Action == "fail" {
				fmt.Fprint(s.out, printed[key])
				delete(printed, key)
				for _, of := range slices.Sorted(maps.Keys(printed)) { // what a process printed after its last test
					if strings.HasPrefix(of, e.Package+" ") {
						fmt.Fprint(s.out, printed[of])
					}
				}
			}
		case e.Action == "pass":
			s.counts.Passed++
		case e.Action == "skip" && e.Test != "":
			s.counts.Skipped++
		case e.Action == "fail":
			s.counts.Failed++
			fmt.Fprint(s.out, printed[key])
			s.bad = append(s.bad, runner.Result{Test: runner.Test{Name: e.Test}, Output: printed[key], Reason: e.Package})
		default:
			continue
		}
		delete(printed, key)
	}
}

// boxTests are tests that boot machines, on a kernel.
type boxTests struct {
	kernel, run, skip string // see runner.Package
	packages          []string
}

// boxes runs tests on a kernel.
func (s *stages) boxes(ctx context.Context, kernel, run, skip string, env []string, packages ...string) error {
	return s.boxesOn(ctx, env, boxTests{kernel, run, skip, packages})
}

// boxStage is what a stage runs that has such tests only.
func boxStage(kernel, run, skip string, env []string, packages ...string) func(context.Context, *stages) error {
	return func(ctx context.Context, s *stages) error { return s.boxes(ctx, kernel, run, skip, env, packages...) }
}

// boxesOn runs tests on several kernels, side by side. A kernel that few stages need is built first.
func (s *stages) boxesOn(ctx context.Context, env []string, all ...boxTests) error {
	var compiled []runner.Package
	for _, tests := range all {
		if err := lab.PrepareKernel(ctx, s.out, tests.kernel); err != nil {
			return err
		}
		for _, name := range tests.packages {
			binary, err := lab.TestBinary(name)
			if err != nil {
				return err
			}
			folder, err := filepath.Abs(strings.TrimPrefix(name, "weir/"))
			if err != nil {
				return err
			}
			compiled = append(compiled, runner.Package{
				Name: name, Folder: folder, Binary: binary, Kernel: tests.kernel, Run: tests.run, Skip: tests.skip,
			})
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	times, atOnce := filepath.Join(cache, "weirlab", "times.json"), 0
	if len(env) > 0 { // tests of other sizes than those of make test: what they use is not known
		times, atOnce = "", runtime.NumCPU()
	}
	report, err := runner.Run(ctx, compiled, runner.Options{
		Env: append([]string{"WEIR_LAB=require", fmt.Sprintf("%s=%d", lab.RunVariable, s.began.UnixNano())}, env...), Limit: s.limit, Logs: filepath.Join("artifacts", "logs"),
		Times: times, Known: "cmd/weirlab/times.json", AtOnce: atOnce, Out: s.out, Clock: s.clock, Repeats: s.most - s.again,
	})
	if err != nil {
		return err
	}
	s.again += report.Repeated
	s.counts.Passed += report.Counts.Passed
	s.counts.Failed += report.Counts.Failed
	s.counts.Skipped += report.Counts.Skipped
	s.results = append(s.results, report.Results...)
	s.bad = append(s.bad, report.Bad...)
	report.Tails(s.out)
	return report.Err()
}
