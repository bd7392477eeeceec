package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// suspects are the tests that were once flaky, or had second chances: each must pass many times in a row.
var suspects = []string{
	"TestConformance", "TestLinuxPackageOnARealKernel", "TestLinuxPackageWithoutIPVS", "TestAnnouncedWhenServed", "TestAppliance",
	"TestAnnouncedByTwoBoxes", "TestDrift", "TestBGP", "TestCommand", "TestDrain", "TestFleetMembers", "TestDrillShort",
}

// proveCommand shows that a red test means a fault: the same commit passes again and again.
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
		repeat := func(what string, n int, stages ...stage) error {
			for l.Green[what] < n {
				if limit > 0 && time.Since(began) > limit {
					return nil
				}
				s := newStages(ctx, cmd.OutOrStdout())
				if short {
					s.most = 0 // the test that runs it may itself be run again
				}
				for _, st := range stages {
					s.do(ctx, st)
				}
				err := errors.Join(s.end(), ctx.Err())
				if err == nil {
					l.Green[what]++
				} else if ctx.Err() == nil {
					l.Green[what] = 0
				}
				verdict := "green"
				if err != nil {
					verdict = "RED: " + err.Error()
				}
				fmt.Fprintf(cmd.OutOrStdout(), "prove: %s %s at %s: %s, %d of %d in a row\n", time.Now().Format(time.DateTime), what, name, verdict, l.Green[what], n)
				if err := errors.Join(l.save(), err); err != nil {
					return err
				}
			}
			return nil
		}
		for _, test := range often {
			err := repeat(test, each, stage{test, 10 * time.Minute, func(ctx context.Context, s *stages) error {
				return s.boxes(ctx, "uml-new", "^"+test+"$", "", nil, boxPackages...)
			}})
			if err != nil {
				return err
			}
		}
		if err := repeat("all tests", runs, all...); err != nil {
			return err
		}
		return l.proven(cmd.OutOrStdout(), name, runs, each, often)
	}
	return cmd
}

// proven prints how often everything has passed in a row, and returns an error unless that is enough.
func (l *ledger) proven(out io.Writer, commit string, runs, each int, tests []string) error {
	fmt.Fprintf(out, "\nprove: in a row at %s: all tests %d of %d\n", commit, l.Green["all tests"], runs)
	complete := l.Green["all tests"] >= runs
	for _, test := range tests {
		fmt.Fprintf(out, "  %-40s %d of %d\n", test, l.Green[test], each)
		complete = complete && l.Green[test] >= each
	}
	if !complete {
		return errors.New("not proven yet: run it again to go on")
	}
	return nil
}
