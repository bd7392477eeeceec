package runner

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// WrongAnswer marks, in a test's output, a fault that no slow machine explains: such a test is not run
// again.
const WrongAnswer = "WRONG ANSWER"

// Outcome is the end of a test.
type Outcome int

// The outcomes.
const (
	Passed Outcome = iota
	Failed
	Skipped
)

// Result is one run of a test.
type Result struct {
	Test
	Outcome Outcome
	Reason  string // of a failure or a skip, in a line
	Output  string
	Lane    int
	Took    time.Duration
	Used    time.Duration // of a processor, with its machines
	Starved time.Duration // for how long the machine stood still meanwhile
	Counts  Counts
}

// Counts are those of tests and subtests.
type Counts struct{ Passed, Failed, Skipped int }

func (c *Counts) add(o Counts) {
	c.Passed += o.Passed
	c.Failed += o.Failed
	c.Skipped += o.Skipped
}

var (
	verdictLine = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
	markLine    = regexp.MustCompile(`^=== (?:RUN|CONT|NAME|PAUSE) +(\S+)$`)
	skipReason  = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*(?:SKIPPED|skipped|soak).*)$`)
	hardFault   = regexp.MustCompile(`(?m)^panic: |^fatal error: |WARNING: DATA RACE|` + WrongAnswer)
)

// judge reads what a test's process printed. failed is its end; nil is exit code 0. Tests of a program that
// the test started count as its output.
func judge(t Test, output string, failed error) (o Outcome, reason string, c Counts) {
	own := ""
	for _, m := range verdictLine.FindAllStringSubmatch(output, -1) {
		if name, _, _ := strings.Cut(m[2], "/"); name != t.Name {
			continue
		}
		switch m[1] {
		case "PASS":
			c.Passed++
		case "FAIL":
			c.Failed++
		case "SKIP":
			c.Skipped++
		}
		if m[2] == t.Name {
			own = m[1]
		}
	}
	switch {
	case failed != nil:
		c.Failed = max(c.Failed, 1)
		return Failed, firstLine(failed.Error()), c
	case own == "PASS":
		return Passed, "", c
	case own == "SKIP":
		if m := skipReason.FindStringSubmatch(output); m != nil {
			return Skipped, m[1], c
		}
		return Skipped, "no reason given", c
	}
	c.Failed = max(c.Failed, 1)
	return Failed, fmt.Sprintf("its process ended well, but %s reported no end", t.Name), c
}

// mayRepeat reports whether a failed run may have failed for lack of processor time only.
func mayRepeat(r Result) bool {
	return r.Outcome == Failed && r.Starved > 0 && !hardFault.MatchString(r.Output)
}

// fault is a failed test or subtest that has no failed subtest, with the last lines that it printed.
type fault struct {
	name  string
	lines []string
}

// faultLines is how many lines of a fault are shown before the whole output.
const faultLines = 12

// faults finds in a test's output what failed, in the order of their ends.
func faults(output string) []fault {
	printed, now := map[string][]string{}, ""
	var failed []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		if m := markLine.FindStringSubmatch(line); m != nil {
			now = m[1]
			continue
		}
		if m := verdictLine.FindStringSubmatch(line); m != nil {
			if m[1] == "FAIL" {
				failed = append(failed, m[2])
			}
			continue
		}
		if line == "FAIL" {
			now = "" // the tables of what was measured follow
		}
		if printed[now] = append(printed[now], line); len(printed[now]) > faultLines {
			printed[now] = printed[now][1:]
		}
	}
	var all []fault
	for _, name := range failed {
		if !slices.ContainsFunc(failed, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			all = append(all, fault{name, printed[name]})
		}
	}
	return all
}

// Reasons names failed tests, each with its last lines, few and short. They end the output of a run, where a log that
// was cut in the middle still has them.
func Reasons(bad []Result) string {
	const most, width = 8, 300
	var b strings.Builder
	for _, result := range bad {
		all := faults(result.Output)
		if len(all) == 0 { // it was ended, or ended early
			all = []fault{{result.Name, strings.Split(strings.TrimSpace(result.Output), "\n")}}
		}
		for _, f := range all {
			fmt.Fprintf(&b, "%s, in %s: %s\n", f.name, result.title(), result.Reason)
			for _, line := range f.lines[max(0, len(f.lines)-most):] {
				fmt.Fprintf(&b, "  | %.*s\n", width, strings.TrimSpace(line))
			}
		}
	}
	return b.String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// tail is what a test binary prints after its result: tables of what was measured.
func tail(output string) string {
	at := -1
	for _, end := range []string{"\nPASS\n", "\nFAIL\n"} {
		if i := strings.LastIndex(output, end); i > at {
			at = i + len(end)
		}
	}
	if at < 0 {
		return ""
	}
	return strings.TrimSpace(output[at:])
}
