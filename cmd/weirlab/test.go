package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/lab"
)

// staticcheck is a tool of the lint stage, at a fixed version.
const staticcheck = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"

// unitPackages have tests that need no machine of their own. Those with the longest tests come first.
var unitPackages = []string{
	"./lb/linux/...", "./bgp", "./lb", "./lb/health/...", "./bgp/...", "./cluster/...", "./k8ssync/...", "./cmd/weir/...", "./configs/...", "./packaging/...",
	"./cmd/weirlab/internal/...", ownModule,
}

// boxPackages have tests that boot machines.
var boxPackages = []string{"weir/cmd/weirlab/e2e", "weir/cmd/weirlab/lab", "weir/cmd/weirlab"}

// oldKernelTests are run on Debian 12's 6.1, too: what packets meet, and what the kernel is asked for.
var oldKernelTests = []string{
	"TestFirstPacket", "TestProtocols", "TestExample", "TestLinuxPackageOnARealKernel",
}

// exactly is the regular expression for some names.
func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// testStages are those of make test. The aim is 20 minutes together, on two idle cores where everything is built.
// Each budget is for the first run on a machine, when Go compiles every mutation and staticcheck reads every
// package for the first time. README.md has the measured times.
func testStages() []stage {
	return []stage{
		{"compile all tests", 10 * time.Minute, compileStage},
		{"lint: gofmt, go vet, staticcheck, text, sizes, advisories", 3 * time.Minute, lintStage},
		{"unit tests with the race detector", 4 * time.Minute, unitStage},
		{"mutations are noticed", 4 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.goTest(ctx, nil, "-count=1", "./cmd/weirlab/mutate")
		}},
		{"weir on real kernels, some of it on 6.1, too", 20 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.boxesOn(ctx, nil,
				boxTests{kernel: "uml-new", packages: boxPackages},
				boxTests{kernel: "uml-old", run: exactly(oldKernelTests), packages: []string{"weir/cmd/weirlab/e2e"}})
		}},
	}
}

func testCommand() *cobra.Command {
	var run, kernel string
	var only []string
	cmd := &cobra.Command{
		Use:   "test",
		Short: "run all tests, in stages with a budget each; or, with --run, some of those that boot machines",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&run, "run", "", "only tests that boot machines, and of these those with names that match this regular expression")
	cmd.Flags().StringVar(&kernel, "kernel", "uml-new", "what --run boots, a name of weirlab check")
	cmd.Flags().StringSliceVar(&only, "stage", nil, "only stages with names that contain one of these words")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := needSources(); err != nil {
			return err
		}
		s := newStages(ctx, cmd.OutOrStdout(), false)
		if run != "" {
			s.do(ctx, stage{"tests " + run + " on " + kernel, time.Hour, boxStage(kernel, run, "", nil, boxPackages...)})
			return s.end()
		}
		for _, st := range testStages() {
			if named(st.name, only) {
				s.do(ctx, st)
			}
		}
		return s.end()
	}
	return cmd
}

// needSources returns an error unless the command is run where make runs it.
func needSources() error {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("no go.mod here: run this in the root folder of weir's sources")
	}
	return nil
}

// named reports whether a name contains one of some words, or whether there are none.
func named(name string, words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}

// structureTests are about packages, files and types: part of lint.
const structureTests = "TestSizes|TestImportsPointDown|TestFilesFormLayers"

// ownModule is the package of bgp/channels, a module in place of a library.
const ownModule = "github.com/eapache/channels"

func lintStage(ctx context.Context, s *stages) error {
	out, err := exec.CommandContext(ctx, "gofmt", "-l", ".").CombinedOutput()
	if out = bytes.TrimSpace(out); err != nil || len(out) > 0 {
		return fmt.Errorf("gofmt -w these: %s", bytes.ReplaceAll(out, []byte("\n"), []byte(" ")))
	}
	return errors.Join(
		s.command(ctx, nil, "go", "vet", "./...", ownModule),
		s.command(ctx, nil, "go", "run", staticcheck, "./...", ownModule),
		s.command(ctx, nil, "go", "test", "-count=1", "./cmd/weirlab/prose"),
		s.command(ctx, nil, "go", "test", "-count=1", "-run", exactly([]string{structureTests}), "./cmd/weir"),
		s.command(ctx, nil, "go", "test", "-count=1", "-run", "^(TestNames|TestScrapeIsClean)$", "./cmd/weir/internal/metrics"),
		s.command(ctx, nil, "go", "test", "-count=1", "-run", "^TestNoModuleHasAKnownAdvisory$", "./packaging/pack"),
	)
}

// compileStage compiles what the other stages run, so that their times are those of tests: with the race
// detector for the unit tests, without for the others, and two tools. go list -export compiles and links
// nothing; go test links once more in any case.
func compileStage(ctx context.Context, s *stages) error {
	list := []string{"list", "-test", "-deps", "-export", "-f", "{{with .Error}}{{.}}{{end}}"}
	for _, c := range []struct {
		env      []string
		race     []string
		packages []string
	}{{[]string{"CGO_ENABLED=1"}, []string{"-race"}, unitPackages}, {nil, nil, []string{"./..."}}} {
		if err := s.pipe(ctx, c.env, io.Discard, "go", slices.Concat(list, c.race, c.packages)...); err != nil {
			return err
		}
	}
	for _, tool := range [][]string{{staticcheck, "-version"}, {benchstat, os.DevNull}} {
		if err := s.pipe(ctx, nil, io.Discard, "go", append([]string{"run"}, tool...)...); err != nil {
			return err
		}
	}
	for _, name := range append([]string{"weir/lb/linux", "weir/cluster/l2"}, boxPackages...) {
		if _, err := lab.TestBinary(name); err != nil {
			return err
		}
	}
	_, err := lab.Binary("weir/cmd/weir")
	return err
}

// withoutDetector are tests that the race detector would only make slower, by a factor of five, or can't stand.
var withoutDetector = []string{
	// They start no goroutines.
	"TestLaw.*",
	"TestNFTSetsTakeFewMessages", "TestNFTSetsOfNestedRanges", "TestNFTServersInMapsComeBack",
	"TestShownConfigurationLoads", "TestEveryKeyCounts", "TestValidConfigurationIsValidToAllReaders",
	"TestMembersThatAgreeSendLittle", "TestRandomMessagesAreReadAsWritten", "TestTheCostOfAnAllocationIsFlat",
	// GoBGP's own races keep it from the detector.
	"TestGracefulRestartKeepsTheRoutes", "TestRoutesOutliveAPanic", "TestARangeOfAnyASNHasInternalRouters",
	// The detector takes memory, too.
	"TestAScrapeMakesLittleGarbage", "TestHeapOfAState",
	// The detector fails in bubbles with thousands of timers.
	"TestLeaseRequestsOfAThousandBoxes", "TestWriterIsReplacedWithoutARush",
}

// packagesWithout have them.
var packagesWithout = []string{
	"./lb", "./lb/linux", "./bgp", "./bgp/advertise", "./cluster/owner", "./k8ssync", "./k8ssync/ipam",
	"./cmd/weir/internal/config/load", "./cmd/weir/internal/fleet", "./cmd/weir/internal/fleet/message", "./cmd/weir/internal/metrics",
}

// sideBySide is how many packages are tested at a time: the longest wait for more than half of their time.
var sideBySide = strconv.Itoa(2 * runtime.NumCPU())

func unitStage(ctx context.Context, s *stages) error {
	return errors.Join(
		// The detector sleeps for a second at the end of each program otherwise. The lint stage runs vet, and
		// the tests of the structure.
		s.goTest(ctx, []string{"CGO_ENABLED=1", "GORACE=atexit_sleep_ms=100"}, slices.Concat(
			[]string{"-p", sideBySide, "-race", "-vet=off", "-skip", exactly(append([]string{structureTests}, withoutDetector...))}, unitPackages)...),
		s.goTest(ctx, nil, slices.Concat([]string{"-p", sideBySide, "-vet=off", "-run", exactly(withoutDetector)}, packagesWithout)...),
	)
}
