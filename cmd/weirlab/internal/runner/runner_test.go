package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOrderPutsLongTestsFirst(t *testing.T) {
	tests := []Test{{Name: "short", Seconds: 1, Cores: 1}, {Name: "unknown"}, {Name: "wide", Seconds: 2, Cores: 2}, {Name: "long", Seconds: 90, Cores: 1}}
	order(tests)
	var names []string
	for _, one := range tests {
		names = append(names, one.Name)
	}
	if diff := cmp.Diff([]string{"long", "unknown", "wide", "short"}, names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestNextFits(t *testing.T) {
	two := machine{places: 4, processors: 2}
	tests := []Test{{Name: "wide", Cores: 2, Seconds: 10, Used: 8}, {Name: "busy", Cores: 1, Seconds: 10, Used: 10}, {Name: "calm", Cores: 1, Seconds: 10, Used: 2}}
	for _, tc := range []struct {
		name string
		used room
		want int
	}{
		{"an idle machine", room{}, 0},
		{"one box runs, calm", room{1, 1, 0.2}, 0},
		{"one box runs, busy", room{1, 1, 1}, 0},
		{"two are busy", room{2, 2, 2}, -1},
		{"three boxes run", room{3, 3, 0.6}, 1},
		{"three boxes run, one is busy", room{3, 3, 1.2}, 2},
		{"all places are taken", room{4, 4, 0.4}, -1},
		{"much is used by many", room{3, 3, 1.6}, -1},
	} {
		if got := next(tests, tc.used, two); got != tc.want {
			t.Errorf("%s: test %d, want %d", tc.name, got, tc.want)
		}
	}
	if got := next(tests[1:2], room{1, 1, 1}, two); got != 0 {
		t.Error("two busy tests don't get a processor each")
	}
	two.tests = 2
	if got := next(tests, room{2, 2, 0.2}, two); got != -1 {
		t.Errorf("test %d is the third at a time, of at most two", got)
	}
	two.tests = 0
	large := []Test{{Name: "large", Cores: 6, Seconds: 10, Used: 30}}
	if got := next(large, room{}, two); got != 0 {
		t.Error("a test that is larger than the machine never runs")
	}
	if got := next(large, room{1, 1, 0.1}, two); got != -1 {
		t.Error("a test that is larger than the machine runs beside another")
	}
	if got := (Test{Cores: 2}).load(); got != 2*unknownLoad {
		t.Errorf("a test with two boxes that never ran: load %v", got)
	}
}

func TestLongerTimesCountInSmallSteps(t *testing.T) {
	long, short := Result{Took: time.Minute, Used: 9 * time.Second}, Result{Took: 5 * time.Second, Used: 4 * time.Second}
	for _, tc := range []struct {
		name string
		last known
		r    Result
		want float64
	}{
		{"the first", known{}, long, 60}, {"longer, beside others", known{Seconds: 10, Used: 8}, long, 11},
		{"shorter", known{Seconds: 10, Used: 8}, short, 5}, {"it does more", known{Seconds: 10, Used: 3}, long, 60},
	} {
		if got := tc.last.after(tc.r); got.Seconds != tc.want || got.Used != tenths(tc.r.Used) {
			t.Errorf("%s: %+v, want %v seconds", tc.name, got, tc.want)
		}
	}
}

func TestJudge(t *testing.T) {
	one := Test{Package: Package{Name: "p"}, Name: "TestOne"}
	for _, tc := range []struct {
		name, output string
		err          error
		want         Outcome
		reason       string
		counts       Counts
	}{
		{"passed", "--- PASS: TestOne (1.00s)\n    --- PASS: TestOne/a (0.50s)\nPASS\n", nil, Passed, "", Counts{Passed: 2}},
		{"failed", "--- FAIL: TestOne (1.00s)\nFAIL\n", errors.New("exit status 1"), Failed, "exit status 1", Counts{Failed: 1}},
		{"never ran", "PASS\n", nil, Failed, "its process ended well, but TestOne reported no end", Counts{Failed: 1}},
		{"another of its name", "--- PASS: TestOneMore (1.00s)\nPASS\n", nil, Failed, "its process ended well, but TestOne reported no end", Counts{Failed: 1}},
		{"ended in the middle", "=== RUN   TestOne\n--- PASS: TestOne (0.00s)\n", errors.New("signal: killed"), Failed, "signal: killed", Counts{Passed: 1, Failed: 1}},
		{"passed, with a program's tests", "    a_test.go:7: go test:\n        --- FAIL: FuzzOther (2.07s)\n        --- PASS: TestOneMore (0.10s)\n--- PASS: TestOne (2.00s)\nPASS\n", nil, Passed, "", Counts{Passed: 1}},
		{"skipped", "    a_test.go:7: SKIPPED, NO LAB: no root\n--- SKIP: TestOne (0.00s)\nPASS\n", nil, Skipped, "SKIPPED, NO LAB: no root", Counts{Skipped: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			outcome, reason, counts := judge(one, tc.output, tc.err)
			if outcome != tc.want || reason != tc.reason || counts != tc.counts {
				t.Errorf("%v, %q, %+v; want %v, %q, %+v", outcome, reason, counts, tc.want, tc.reason, tc.counts)
			}
		})
	}
}

func TestFaultsAreTheFailedSubtestsWithTheirLines(t *testing.T) {
	got := faults(`=== RUN   TestOne
=== RUN   TestOne/a
    a_test.go:1: a begins
=== RUN   TestOne/b
    a_test.go:2: b begins
=== NAME  TestOne/a
    a_test.go:3: a was wrong
        in two lines
=== NAME  TestOne/b
    a_test.go:4: b is well
--- FAIL: TestOne (1.00s)
    --- FAIL: TestOne/a (0.50s)
    --- PASS: TestOne/b (0.50s)
FAIL
`)
	want := []fault{{"TestOne/a", []string{"    a_test.go:1: a begins", "    a_test.go:3: a was wrong", "        in two lines"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(fault{})); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	got = faults("=== RUN   TestOne\n" + strings.Repeat("line\n", 2*faultLines) + "last\n--- FAIL: TestOne (0.00s)\n")
	if len(got) != 1 || len(got[0].lines) != faultLines || got[0].lines[faultLines-1] != "last" {
		t.Errorf("of a long output: %v", got)
	}
	bad := Report{Bad: []Result{{Test: Test{Name: "TestOne"}, Output: "--- FAIL: TestOne (1.00s)\n    --- FAIL: TestOne/a (0.50s)\n"}}}
	if want := "1 tests failed: TestOne (a)"; bad.Err().Error() != want {
		t.Errorf("%q, want %q", bad.Err(), want)
	}
}

func TestReasonsAreTheLastLinesOfEachFault(t *testing.T) {
	long := strings.Repeat("x", 1000)
	output := "=== RUN   TestOne/a\n" + strings.Repeat("    earlier\n", 9) + "    a_test.go:3: wrong\n    " + long + "\n--- FAIL: TestOne (0.00s)\n    --- FAIL: TestOne/a (0.00s)\nFAIL\n\nmeasured\n"
	got := Reasons([]Result{{Test: Test{Name: "TestOne"}, Output: output, Reason: "exit status 1"}, {Test: Test{Name: "TestTwo"}, Output: "one\nkilled\n", Reason: "it hung"}})
	want := "TestOne/a, in TestOne: exit status 1\n" + strings.Repeat("  | earlier\n", 6) + "  | a_test.go:3: wrong\n  | " + long[:300] + "\nTestTwo, in TestTwo: it hung\n  | one\n  | killed\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOnlyStarvedTestsMayRepeat(t *testing.T) {
	starved := Result{Outcome: Failed, Starved: time.Second, Output: "a visit took too long"}
	if !mayRepeat(starved) {
		t.Error("a starved test may not")
	}
	for _, tc := range []struct {
		name string
		edit func(*Result)
	}{
		{"the machine was there", func(r *Result) { r.Starved = 0 }},
		{"it passed", func(r *Result) { r.Outcome = Passed }},
		{"a panic", func(r *Result) { r.Output = "x\npanic: runtime error\n" }},
		{"a data race", func(r *Result) { r.Output = "WARNING: DATA RACE\n" }},
		{"a wrong answer", func(r *Result) { r.Output = "  kit.go:3: " + WrongAnswer + ": web2 has answered" }},
	} {
		r := starved
		tc.edit(&r)
		if mayRepeat(r) {
			t.Errorf("%s: it may repeat", tc.name)
		}
	}
}

func TestClockCountsGaps(t *testing.T) {
	c, at := &Clock{}, time.Now()
	c.ticked(at, at.Add(tick))
	c.ticked(at, at.Add(tick+gapAt-time.Millisecond))
	if got := c.Starved(at.Add(-time.Hour), at.Add(time.Hour)); got != 0 {
		t.Errorf("ticks that are little late are a gap of %v", got)
	}
	c.ticked(at.Add(time.Minute), at.Add(time.Minute+700*time.Millisecond))
	if got := c.Starved(at, at.Add(time.Hour)); got != 700*time.Millisecond {
		t.Errorf("a gap of 700 ms is %v", got)
	}
	if got := c.Starved(at, at.Add(time.Minute)); got != 0 {
		t.Errorf("a gap after the test counts: %v", got)
	}
}

func TestClockCountsWaitsForTheDisk(t *testing.T) {
	c, at := &Clock{}, time.Now()
	c.wrote(at, at.Add(gapAt-time.Millisecond))
	if got := c.Starved(at, at.Add(time.Minute)); got != 0 {
		t.Errorf("writes that take a little are a gap of %v", got)
	}
	c.wrote(at.Add(time.Second), at.Add(2*time.Second))
	if got := c.Starved(at.Add(1500*time.Millisecond), at.Add(time.Minute)); got < time.Second {
		t.Errorf("a write of a second is a gap of %v", got)
	}
	if got := c.Starved(at.Add(3*time.Second), at.Add(time.Minute)); got != 0 {
		t.Errorf("after it there is a gap of %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	folder, ended := t.TempDir(), make(chan error, 1)
	go func() { ended <- c.WatchDisk(ctx, folder) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := c.WatchDisk(t.Context(), filepath.Join(folder, "none")); err == nil {
		t.Error("no error without a folder")
	}
}

// fakeTests writes a program that behaves as a test binary of two tests.
func fakeTests(t *testing.T, script string) Package {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake.test")
	text := "#!/bin/sh\nif [ \"$1\" = -test.list ]; then echo TestOne; echo TestTwo; echo FuzzThree; exit; fi\nname=$(echo \"$2\" | tr -d '^$')\n" + script
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return Package{Name: "p", Folder: t.TempDir(), Binary: path}
}

func options(t *testing.T, out io.Writer) Options {
	return Options{Limit: time.Minute, Logs: t.TempDir(), Times: filepath.Join(t.TempDir(), "times.json"), Out: out, Clock: &Clock{}, Repeats: MaxRepeats}
}

func TestRunFindsAFailureAndATestThatNeverRan(t *testing.T) {
	p := fakeTests(t, `if [ $name = TestOne ]; then echo "--- PASS: TestOne (0.00s)"; fi; echo PASS`)
	var out strings.Builder
	report, err := Run(t.Context(), []Package{p}, options(t, &out))
	if err != nil {
		t.Fatal(err)
	}
	if report.Err() == nil || report.Err().Error() != "1 tests failed: TestTwo" || len(report.Results) != 2 {
		t.Errorf("%v\n%s", report.Err(), out.String())
	}
}

func TestRunRepeatsWhatWasStarvedAndNothingElse(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	// Each test fails the first time, while the machine pauses, and passes the second time.
	p := fakeTests(t, `if [ -e `+count+`$name ]; then echo "--- PASS: $name (0.00s)"; echo PASS; exit 0; fi
touch `+count+`$name; echo "--- FAIL: $name (0.00s)"; exit 1`)
	for _, tc := range []struct {
		name    string
		starved bool
		repeats int
		bad     int
	}{
		{"not starved", false, 3, 2}, {"starved, one more run left", true, 1, 1}, {"starved", true, 3, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, name := range []string{"TestOne", "TestTwo"} {
				os.Remove(count + name)
			}
			o := options(t, io.Discard)
			o.Repeats = tc.repeats
			if tc.starved {
				o.Clock.ticked(time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
			}
			report, err := Run(t.Context(), []Package{p}, o)
			if err != nil || len(report.Bad) != tc.bad {
				t.Errorf("%d failed (%v), want %d", len(report.Bad), err, tc.bad)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	p := fakeTests(t, "sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := Run(ctx, []Package{p}, options(t, io.Discard)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestMeterCountsAllProcesses has a child use the processor, and another one stay behind.
func TestMeterCountsAllProcesses(t *testing.T) {
	m := newMeter()
	if m == nil {
		t.Skip("SKIPPED: no control group can be made here; as root with cgroup2 it can")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; sleep 1000 >/dev/null 2>&1 &")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	m.begin(cmd.SysProcAttr)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := m.left(100 * time.Millisecond); len(got) != 1 || !strings.HasPrefix(got[0], "sleep (") {
		t.Errorf("it left %q behind", got)
	}
	if got := m.end(0); got <= 0 || got > time.Minute {
		t.Errorf("it used %v", got)
	}
	if _, err := os.Stat(m.folder.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
	if got := (*meter)(nil).end(time.Second); got != time.Second {
		t.Errorf("without a group: %v, want what the process used", got)
	}
}

// TestRunLetsATestPrintItsResults ends a run while a test is in its middle.
func TestRunLetsATestPrintItsResults(t *testing.T) {
	o := options(t, io.Discard)
	log := filepath.Join(o.Logs, "p-TestOne.log")
	p := fakeTests(t, `trap 'echo "results so far"; exit 1' TERM; echo begun; while :; do sleep 0.1; done`)
	p.Run = "One"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for text := ""; !strings.Contains(text, "begun") && t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
			now, _ := os.ReadFile(log) // the log grows while the test runs
			text = string(now)
		}
		cancel()
	}()
	report, err := Run(ctx, []Package{p}, o)
	if !errors.Is(err, context.Canceled) || len(report.Bad) != 1 || !strings.HasSuffix(report.Bad[0].Output, "results so far\n") {
		t.Errorf("%v, %+v", err, report.Bad)
	}
	if text, err := os.ReadFile(log); !strings.HasSuffix(string(text), "results so far\n") {
		t.Errorf("the log is %q, %v", text, err)
	}
}
