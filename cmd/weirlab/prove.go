package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/runner"
)

// suspects are the tests that were once flaky, or had second chances: each must pass many times in a row.
var suspects = []string{
	"TestConformanceIPVS", "TestLinuxPackageOnARealKernel", "TestLinuxPackageWithoutIPVS", "TestAnnouncedWhenServed", "TestAppliance",
	"TestAnnouncedByTwoBoxes", "TestDrift", "TestBGP", "TestCommand", "TestDrain", "TestFleetMembers", "TestDrillShort",
}

// proveCommand shows that a red test means a fault: the same commit passes many times.
func proveCommand() *cobra.Command {
	runs, each := 5, 30
	var limit time.Duration
	var short bool
	cmd := &cobra.Command{
		Use:   "prove",
		Short: "repeat all tests, and those that were once flaky; it goes on where it was stopped, as long as the commit is the same",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().IntVar(&runs, "runs", runs, "how many runs of all tests must pass in a row")
	cmd.Flags().IntVar(&each, "each", each, "how many runs of each test that was once flaky")
	cmd.Flags().BoolVar(&short, "short", false, "repeat one test twice, and record nothing")
	cmd.Flags().DurationVar(&limit, "limit", 0, "begin nothing more after this time; 0 means no limit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		name, err := commit(ctx)
		if err != nil {
			return err
		}
		l := ledger{path: filepath.Join("artifacts", "prove", name+".json")}
		often, all := suspects, testStages()
		if short {
			folder, err := os.MkdirTemp("", "weirlab-prove-")
			if err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(folder) }()
			l.path, often, all, runs, each = filepath.Join(folder, "short.json"), []string{"TestExample"}, nil, 0, 2
		}
		if err := l.load(); err != nil {
			return err
		}
		began := time.Now()
		// Runs of all tests come first: they run the suspects, too.
		for _, p := range []struct {
			what   string
			n      int
			stages []stage
		}{
			{allTests, runs, all},
			{"suspects", each, []stage{{"tests that were once flaky", 30 * time.Minute, boxStage("uml-new", exactly(often), "", nil, boxPackages...)}}},
		} {
			for l.least(p.what, often) < p.n && (limit == 0 || time.Since(began) < limit) {
				s := newStages(ctx, cmd.OutOrStdout(), short)
				for _, st := range p.stages {
					s.do(ctx, st)
				}
				failed := s.end()
				if ctx.Err() != nil {
					return ctx.Err()
				}
				l.count(p.what, failed, s.results, often)
				verdict := "green"
				if failed != nil {
					verdict = "RED: " + failed.Error()
				}
				fmt.Fprintf(cmd.OutOrStdout(), "prove: %s %s at %s: %s, %d of %d in a row\n", time.Now().Format(time.DateTime), p.what, name, verdict, l.least(p.what, often), p.n)
				if err := errors.Join(l.save(), failed); err != nil {
					return err
				}
			}
		}
		return l.proven(cmd.OutOrStdout(), name, runs, each, often)
	}
	return cmd
}

// allTests names runs of all tests in the ledger, beside the names of tests.
const allTests = "all tests"

// least returns how often all tests have passed in a row, or each of some tests at least.
func (l *ledger) least(what string, tests []string) int {
	if what == allTests {
		return l.Green[allTests]
	}
	least := l.Green[tests[0]]
	for _, test := range tests {
		least = min(least, l.Green[test])
	}
	return least
}

// count adds a run. A test that failed, or was not run, begins at 0 again.
func (l *ledger) count(what string, failed error, results []runner.Result, tests []string) {
	passed := map[string]bool{}
	if what == allTests {
		passed[allTests], tests = failed == nil, append([]string{allTests}, tests...)
	}
	for _, r := range results {
		good, before := passed[r.Name]
		passed[r.Name] = r.Outcome == runner.Passed && (good || !before)
	}
	for _, test := range tests {
		if passed[test] {
			l.Green[test]++
		} else {
			l.Green[test] = 0
		}
	}
}

// proven prints how often everything has passed in a row, and returns an error unless that is enough.
func (l *ledger) proven(out io.Writer, commit string, runs, each int, tests []string) error {
	fmt.Fprintf(out, "\nprove: in a row at %s: all tests %d of %d\n", commit, l.Green[allTests], runs)
	complete := l.Green[allTests] >= runs
	for _, test := range tests {
		fmt.Fprintf(out, "  %-40s %d of %d\n", test, l.Green[test], each)
		complete = complete && l.Green[test] >= each
	}
	if !complete {
		return errors.New("not proven yet: run it again to go on")
	}
	return nil
}
