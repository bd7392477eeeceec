package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/runner"
)

// soaked is set for tests that run in their full size.
const soaked = "WEIR_SOAK=1"

// soakedLabTests are the tests of the lab itself that soak in their full size.
var soakedLabTests = []string{"TestQemuBox", "TestKubeProxyOnABox"}

// soakStages are the tests that are slow by nature. Each has a small form in make test. One takes an hour at most,
// but for churn, which takes as many as HOURS gives. Seeds is a file: the differential test goes on after those
// that have passed.
func soakStages(churn time.Duration, seeds string) []stage {
	e2e := func(kernel, run, skip string, env ...string) func(context.Context, *stages) error {
		return boxStage(kernel, run, skip, append(env, soaked), "weir/cmd/weirlab/e2e")
	}
	self := func(args ...string) func(context.Context, *stages) error {
		return func(ctx context.Context, s *stages) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			return s.command(ctx, []string{"WEIR_LAB_KERNEL=uml-new"}, program, args...)
		}
	}
	return []stage{
		{"laws: random histories, 20 times as many", 40 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.goTest(ctx, []string{"WEIR_HISTORIES=20"}, "-timeout", "1h", "-run", "Random|Histor|Law|Storm|BadNetwork|Moves|TakesNothing", "./lb/...", "./k8ssync/...", "./cluster/...", "./bgp/...")
		}},
		{"fuzz: every target for 30 seconds", 60 * time.Minute, func(ctx context.Context, s *stages) error {
			targets, err := testFunctions(".", "Fuzz")
			if err != nil {
				return err
			}
			return s.fuzz(ctx, fuzzed{30 * time.Second, 10_000}, targets)
		}},
		{"kernel: Fake and kernel over random histories", 40 * time.Minute, e2e("uml-new", "^TestFakeMatchesTheKernel$", "", "WEIR_HISTORIES=40")},
		{"new: all stories in their full size", 60 * time.Minute, e2e("uml-new", "", "TestConformance.*|TestDifferential|TestChurn")},
		{"old: all stories on 6.1, built here", 60 * time.Minute, e2e("uml-6.1", "", "TestConformance.*|TestDifferential|TestSharedBackends|TestChurn")},
		{"qemu: Debian's kernel; kube-proxy on a box", 6 * time.Minute, boxStage("uml-new", exactly(soakedLabTests), "", []string{soaked}, "weir/cmd/weirlab/lab")},
		{"conformance: five columns on 7", 15 * time.Minute, e2e("uml-new", exactly(conformanceTests), "", "WEIR_CONFORMANCE=all")},
		{"conformance-old: nftables on 6.1, built here", 30 * time.Minute, e2e("uml-6.1", exactly(nftablesColumns), "", "WEIR_CONFORMANCE=all")},
		{"conformance-debian: iptables on Debian's binary of 6.1", 20 * time.Minute, e2e("uml-old", exactly(iptablesColumns), "", "WEIR_CONFORMANCE=all")},
		{"differential: 50 seeds, beside kube-proxy", 60 * time.Minute, e2e("uml-new", "^TestDifferential$", "", "WEIR_DIFFERENTIAL=1-50", "WEIR_DIFFERENTIAL_RECORD="+seeds)},
		{"drill: all events in all modes, beside keepalived", 40 * time.Minute, self("drill")},
		{"bench: full sizes, beside ipvsadm and kube-proxy", 40 * time.Minute, self("bench")},
		{"churn: everything changes, a victim is served", churn + 15*time.Minute, e2e("uml-new", "^TestChurn$", "", fmt.Sprintf("WEIR_CHURN=%s", churn))},
	}
}

// shortSoakStages go through the code of soakStages in a minute: the other programs and the churn have
// short forms of their own. make test itself has the same story on an older kernel, see oldKernelTests.
func shortSoakStages() []stage {
	return []stage{
		{"laws: of one package, twice", 2 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.goTest(ctx, []string{"WEIR_HISTORIES=2"}, "-run", "Random|Law", "./cluster/owner")
		}},
		{"fuzz: two targets for two seconds", 3 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.fuzz(ctx, fuzzed{2 * time.Second, 100}, []testFunction{{"bgp/advertise", "FuzzCommunity"}, {"k8ssync/ipam", "FuzzParseName"}})
		}},
		{"new: one story", 2 * time.Minute, boxStage("uml-new", "^TestExample$", "", []string{soaked}, "weir/cmd/weirlab/e2e")},
	}
}

func soakCommand() *cobra.Command {
	var only []string
	var afresh, short bool
	hours := 1.0
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "run what is slow by nature, in stages; a stage that has passed at this commit is not run again",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&only, "stage", nil, "only these stages")
	cmd.Flags().BoolVar(&afresh, "again", false, "run stages that have passed, too")
	cmd.Flags().Float64Var(&hours, "hours", hours, "how long the churn lasts")
	cmd.Flags().BoolVar(&short, "short", false, "go through the code in a minute, and record nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		commit, err := commit(ctx)
		if err != nil {
			return err
		}
		done := ledger{path: filepath.Join("artifacts", "soak", commit+".json")}
		if err := done.load(); err != nil {
			return err
		}
		seeds, err := filepath.Abs(filepath.Join("artifacts", "soak", commit+"-seeds.txt"))
		if err != nil {
			return err
		}
		if strings.HasSuffix(commit, "-dirty") {
			seeds = "" // the next run may be of other sources
		}
		if afresh && !short && (len(only) == 0 || slices.Contains(only, "differential")) {
			_ = os.Remove(seeds) // it may not be there
		}
		stages := soakStages(time.Duration(hours*float64(time.Hour)), seeds)
		if short {
			done, stages = ledger{}, shortSoakStages()
		}
		s, found := newStages(ctx, cmd.OutOrStdout(), short), false
		var names []string
		for _, st := range stages {
			name, _, _ := strings.Cut(st.name, ":")
			names = append(names, name)
			if len(only) > 0 && !slices.Contains(only, name) {
				continue
			}
			found = true
			if when := done.Stages[name]; when != "" && !afresh {
				s.rows = append(s.rows, fmt.Sprintf("%-52s %26s", st.name, "passed at "+when))
				continue
			}
			before := len(s.failed)
			s.do(ctx, st)
			if len(s.failed) == before && ctx.Err() == nil && !short {
				if err := done.add(name); err != nil {
					return err
				}
			}
		}
		if !found {
			return fmt.Errorf("--stage %s: there is no such stage, only %s", strings.Join(only, ","), strings.Join(names, ", "))
		}
		return errors.Join(s.end(), ctx.Err())
	}
	return cmd
}

// commit names the sources: results are those of a commit. Sources that are not committed are marked, so
// that their results are never taken for the commit's.
func commit(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "", fmt.Errorf("git describe, to note which commit was tested: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ledger is what has passed at a commit.
type ledger struct {
	path   string
	Stages map[string]string `json:"stages"` // when each passed
	Green  map[string]int    `json:"green"`  // how often in a row
}

func (l *ledger) load() error {
	l.Stages, l.Green = map[string]string{}, map[string]int{}
	if err := runner.ReadJSON(l.path, l); err != nil {
		return fmt.Errorf("%s: %w; remove it to start over", l.path, err)
	}
	return nil
}

func (l *ledger) add(stage string) error {
	l.Stages[stage] = time.Now().Format(time.DateTime)
	return l.save()
}

func (l *ledger) save() error { return runner.WriteJSON(l.path, l) }
