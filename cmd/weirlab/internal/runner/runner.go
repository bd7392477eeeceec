package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/cmd/weirlab/lab"
)

// Package is one with tests to run, on a kernel. The same one may be given once for each kernel.
type Package struct {
	Name   string // "weir/cmd/weirlab/e2e"
	Folder string // its source, in which its tests run
	Binary string // its compiled tests
	Kernel string // what its labs boot, a name of weirlab check
	Run    string // a regular expression for the names of tests; "" means all
	Skip   string // one for those to leave out; "" means none
}

// Options of a run.
type Options struct {
	Env     []string      // added to the environment
	Limit   time.Duration // of one test; a limit against hanging
	Logs    string        // the folder for outputs, with a folder for each kernel and a file for each test
	Times   string        // the file in which times are kept; "" means none
	Known   string        // the file with times of another machine, for tests that Times does not have
	AtOnce  int           // the most tests at a time; 0 means as many as fit by their times
	Out     io.Writer
	Clock   *Clock // runs
	Repeats int    // how many more starved tests may be run again; see MaxRepeats
}

// MaxRepeats is how many tests of a whole run may be run again.
const MaxRepeats = 3

// Report is what came of a run.
type Report struct {
	Results  []Result // in the order of their ends; of a test that was run again, both runs
	Repeated int
	Counts   Counts // of the last run of each test, subtests included
	Bad      []Result
}

// Err is nil if all tests passed.
func (r Report) Err() error {
	var names []string
	for _, bad := range r.Bad {
		what := bad.title()
		var subtests []string
		for _, f := range faults(bad.Output) {
			if _, subtest, ok := strings.Cut(f.name, "/"); ok {
				subtests = append(subtests, subtest)
			}
		}
		if len(subtests) > 0 {
			what += " (" + strings.Join(subtests, ", ") + ")"
		}
		names = append(names, what)
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%d tests failed: %s", len(names), strings.Join(names, ", "))
}

// Run runs the tests of packages. The error is about the run itself; failed tests are in the report.
func Run(ctx context.Context, packages []Package, o Options) (Report, error) {
	all := machine{o.AtOnce, lab.Places(), runtime.NumCPU()}
	r := &run{Options: o, all: all, wake: make(chan struct{}, 1)}
	var err error
	if r.Logs, err = filepath.Abs(o.Logs); err != nil {
		return Report{}, err
	}
	r.known = times{}
	for _, path := range []string{o.Known, o.Times} {
		if err := ReadJSON(path, &r.known); err != nil {
			return Report{}, fmt.Errorf("read times of tests: %w", err)
		}
	}
	for _, p := range packages {
		if err := os.MkdirAll(filepath.Join(r.Logs, p.Kernel), 0o755); err != nil {
			return Report{}, err
		}
		tests, err := r.list(ctx, p)
		if err != nil {
			return Report{}, err
		}
		r.todo = append(r.todo, tests...)
	}
	if len(r.todo) == 0 {
		return Report{}, errors.New("no test has such a name")
	}
	order(r.todo)
	r.run(ctx)
	if o.Times != "" {
		if err := WriteJSON(o.Times, r.known); err != nil {
			return r.report, err
		}
	}
	return r.report, ctx.Err()
}

// run is a run in progress.
type run struct {
	Options
	all machine

	mu     sync.Mutex
	todo   []Test
	used   room
	lanes  []bool
	done   int
	total  int
	known  times
	report Report
	wake   chan struct{}
}

// list asks a package's binary for its tests.
func (r *run) list(ctx context.Context, p Package) ([]Test, error) {
	cmd := exec.CommandContext(ctx, p.Binary, "-test.list", ".")
	cmd.Dir = p.Folder
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list tests of %s: %w", p.Name, err)
	}
	want, err := regexp.Compile(p.Run)
	if err != nil {
		return nil, err
	}
	not, err := regexp.Compile("^(" + p.Skip + ")$")
	if err != nil {
		return nil, err
	}
	var tests []Test
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Test") || !want.MatchString(name) || p.Skip != "" && not.MatchString(name) {
			continue
		}
		t := Test{Package: p, Name: name}
		k := r.known[t.Key()]
		t.Seconds, t.Used, t.Cores = k.Seconds, k.Used, k.Cores
		tests = append(tests, t)
	}
	return tests, nil
}

// run runs what there is to do, as much at a time as fits.
func (r *run) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	r.total = len(r.todo)
	for {
		r.mu.Lock()
		finished := len(r.todo) == 0 && r.used.places == 0 || ctx.Err() != nil
		at := -1
		if !finished {
			at = next(r.todo, r.used, r.all)
		}
		if at >= 0 {
			t := r.todo[at]
			r.todo = slices.Delete(r.todo, at, at+1)
			r.used = r.used.with(t)
			lane := r.takeLane()
			running.Go(func() {
				r.one(ctx, t, lane)
				r.mu.Lock()
				r.used = r.used.without(t)
				r.lanes[lane] = false
				r.mu.Unlock()
				select {
				case r.wake <- struct{}{}:
				default:
				}
			})
		}
		r.mu.Unlock()
		if finished {
			return
		}
		if at < 0 {
			select {
			case <-r.wake:
			case <-ctx.Done():
			}
		}
	}
}

// takeLane returns the number of a free lane. The caller holds mu.
func (r *run) takeLane() int {
	free := slices.Index(r.lanes, false)
	if free < 0 {
		r.lanes = append(r.lanes, false)
		free = len(r.lanes) - 1
	}
	r.lanes[free] = true
	return free
}

// one runs a test, and once more where the rule allows it.
func (r *run) one(ctx context.Context, t Test, lane int) {
	result := r.try(ctx, t, lane)
	r.mu.Lock()
	again := mayRepeat(result) && r.Repeats > r.report.Repeated
	if again {
		r.report.Repeated++
	}
	r.finish(result, again)
	r.mu.Unlock()
	if !again {
		return
	}
	result = r.try(ctx, t, lane)
	r.mu.Lock()
	r.finish(result, false)
	r.mu.Unlock()
}

// finish records a result and prints it. The caller holds mu.
func (r *run) finish(result Result, again bool) {
	r.report.Results = append(r.report.Results, result)
	if again {
		fmt.Fprintf(r.Out, "STARVED  %6.1fs  %s: it failed while this machine stood still for %s; it runs once more\n%s",
			result.Took.Seconds(), result.title(), result.Starved.Round(time.Millisecond), quote(result.Output))
		return
	}
	r.done++
	r.report.Counts.add(result.Counts)
	fmt.Fprintf(r.Out, "%s %3d/%d  lane %d  %6.1fs, %5.1fs of a processor  %s", []string{"ok  ", "FAIL", "skip"}[result.Outcome], r.done, r.total, result.Lane, result.Took.Seconds(), result.Used.Seconds(), result.title())
	switch result.Outcome {
	case Failed:
		r.report.Bad = append(r.report.Bad, result)
		fmt.Fprintf(r.Out, ": %s\n", result.Reason)
		for _, f := range faults(result.Output) {
			fmt.Fprintf(r.Out, "FAILED   %s, its last lines:\n%s", f.name, quote(strings.Join(f.lines, "\n")))
		}
		fmt.Fprintf(r.Out, "All that %s printed:\n%s", result.Name, quote(result.Output))
	case Skipped:
		fmt.Fprintf(r.Out, ": %s\n", result.Reason)
	default:
		if result.Counts.Passed > 1 {
			fmt.Fprintf(r.Out, " (%d subtests)", result.Counts.Passed-1)
		}
		fmt.Fprintln(r.Out)
		r.known[result.Key()] = r.known[result.Key()].after(result)
	}
}

// grace is the time in which a test may print its results so far, when the run is ended.
const grace = 30 * time.Second

// try runs a test in a process of its own. Its log grows as the test prints.
func (r *run) try(ctx context.Context, t Test, lane int) Result {
	p := t.Package
	base := filepath.Join(r.Logs, p.Kernel, filepath.Base(p.Name)+"-"+t.Name)
	leases := base + ".cores"
	os.Remove(leases)
	log := &logFile{}
	log.file, log.err = os.Create(base + ".log")
	defer log.close()
	ctx, cancel := context.WithTimeout(ctx, r.Limit+time.Minute) // the test's own limit prints goroutines, before
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Binary, "-test.run", "^"+regexp.QuoteMeta(t.Name)+"$", "-test.v", "-test.count=1", "-test.timeout", r.Limit.String())
	cmd.Dir = p.Folder
	cmd.Env = append(append(os.Environ(), r.Env...), lab.LeaseVariable+"="+leases, lab.KernelVariable+"="+p.Kernel)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	meter := newMeter()
	meter.begin(cmd.SysProcAttr)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // labs have groups of their own
	cmd.WaitDelay = grace
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, log)
	cmd.Stderr = cmd.Stdout
	began := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has started
	}
	result := Result{Test: t, Lane: lane, Took: time.Since(began), Output: out.String()}
	result.Outcome, result.Reason, result.Counts = judge(t, result.Output, err)
	result.Cores = leased(leases)
	if result.Outcome == Passed {
		if left := meter.left(leaveLimit); len(left) > 0 {
			result.Outcome, result.Reason = Failed, "it left processes behind, which are killed now: "+strings.Join(left, ", ")
		}
	}
	result.Starved = r.Clock.Starved(began, time.Now())
	result.Used = meter.end(used(cmd.ProcessState))
	if log.err != nil && result.Outcome == Passed {
		result.Outcome, result.Reason = Failed, log.err.Error()
	}
	return result
}

// logFile is a test's log. A full disk must not end the test: the first error is kept, and ends the log.
type logFile struct {
	file *os.File
	err  error
}

func (l *logFile) Write(p []byte) (int, error) {
	if l.err == nil {
		_, l.err = l.file.Write(p)
	}
	return len(p), nil
}

func (l *logFile) close() { _ = l.file.Close() } // each write has kept its error

// used is the processor time of a process and of those that it waited for.
func used(end *os.ProcessState) time.Duration {
	if end == nil {
		return 0 // it did not begin
	}
	return end.UserTime() + end.SystemTime()
}

// leased is the largest number of processors that labs of a test have leased at once.
func leased(path string) (most int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0 // it had no lab
	}
	os.Remove(path)
	for field := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(field); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// quote keeps results of a test that failed from being taken for the run's own.
func quote(s string) string {
	return "  | " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  | ") + "\n"
}

// Tails prints what tests have measured.
func (r Report) Tails(out io.Writer) {
	for _, result := range r.Results {
		if text := tail(result.Output); text != "" && result.Outcome == Passed {
			fmt.Fprintf(out, "\n%s:\n%s\n", result.Name, text)
		}
	}
}
