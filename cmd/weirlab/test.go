package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/lab"
)

// staticcheck is a tool of the lint stage, at a fixed version.
const staticcheck = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"

// unitPackages have tests that need no machine of their own.
var unitPackages = []string{
	"./lb/...", "./bgp/...", "./cluster/...", "./l2/...", "./k8ssync/...", "./cmd/weir/...", "./configs/...", "./packaging/...",
	"./cmd/weirlab/internal/...",
}

// boxPackages have tests that boot machines.
var boxPackages = []string{"weir/cmd/weirlab/e2e", "weir/cmd/weirlab/lab", "weir/cmd/weirlab"}

// oldKernelTests are run on Debian 12's 6.1, too: what packets meet, and what the kernel is asked for.
var oldKernelTests = []string{
	"TestFirstPacket", "TestProtocols", "TestSpreading", "TestSourceAddress", "TestRules", "TestExample", "TestLinuxPackageOnARealKernel",
}

// exactly is the regular expression for some names.
func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// testStages are those of make test. Together they are the promise: 20 minutes on two idle cores, where
// everything is built.
func testStages() []stage {
	return []stage{
		{"lint: gofmt, go vet, staticcheck", 90 * time.Second, lintStage},
		{"compile all tests", 10 * time.Minute, compileStage},
		{"unit tests with the race detector", 3 * time.Minute, unitStage},
		{"mutations are noticed", 2 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.goTest(ctx, nil, "-count=1", "./cmd/weirlab/mutate")
		}},
		{"weir on real kernels", 15 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.boxes(ctx, "uml-new", "", "", nil, boxPackages...)
		}},
		{"packets on the old kernel, 6.1", 3 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.boxes(ctx, "uml-old", exactly(oldKernelTests), "", nil, "weir/cmd/weirlab/e2e")
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
	cmd.Flags().StringVar(&run, "run", "", "only tests that boot machines, and of these those whose names match this regular expression")
	cmd.Flags().StringVar(&kernel, "kernel", "uml-new", "what --run boots, a name of weirlab check")
	cmd.Flags().StringSliceVar(&only, "stage", nil, "only stages whose names contain one of these words")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		if _, err := os.Stat("go.mod"); err != nil {
			return errors.New("no go.mod here: run this in the root folder of weir's sources")
		}
		s := newStages(ctx, cmd.OutOrStdout())
		if run != "" {
			s.do(ctx, stage{"tests " + run + " on " + kernel, time.Hour, func(ctx context.Context, s *stages) error {
				return s.boxes(ctx, kernel, run, "", nil, boxPackages...)
			}})
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

// named reports whether a name contains one of some words, or whether there are none.
func named(name string, words []string) bool {
	for _, word := range words {
		if strings.Contains(name, word) {
			return true
		}
	}
	return len(words) == 0
}

func lintStage(ctx context.Context, s *stages) error {
	out, err := exec.CommandContext(ctx, "gofmt", "-l", ".").CombinedOutput()
	if out = bytes.TrimSpace(out); err != nil || len(out) > 0 {
		return fmt.Errorf("gofmt -w these: %s", bytes.ReplaceAll(out, []byte("\n"), []byte(" ")))
	}
	return errors.Join(
		s.command(ctx, nil, "go", "vet", "./..."),
		s.command(ctx, nil, "go", "run", staticcheck, "./..."),
	)
}

// compileStage builds what the other stages run, so that their times are those of tests.
func compileStage(ctx context.Context, s *stages) error {
	var out bytes.Buffer
	err := s.pipe(ctx, []string{"CGO_ENABLED=1"}, &out, "go", append([]string{"test", "-race", "-run", "^$"}, unitPackages...)...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(out.Bytes()))
	}
	for _, name := range append([]string{"weir/lb/linux", "weir/l2"}, boxPackages...) {
		if _, err := lab.TestBinary(name); err != nil {
			return err
		}
	}
	_, err = lab.Binary("weir/cmd/weir")
	return err
}

func unitStage(ctx context.Context, s *stages) error {
	return errors.Join(
		s.goTest(ctx, []string{"CGO_ENABLED=1"}, append([]string{"-race"}, unitPackages...)...),
		// GoBGP's own races keep it from the detector.
		s.goTest(ctx, nil, "-run", "TestGracefulRestartKeepsTheRoutes", "./bgp"),
	)
}

// conformanceCommand puts the 90 checks to weir in both modes and to kube-proxy.
func conformanceCommand() *cobra.Command {
	var write string
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "put 90 checks of what Kubernetes means by a Service to weir, in both modes, and to kube-proxy",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&write, "write", "", "a file; the table is written there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		env := []string{"WEIR_CONFORMANCE=kube-proxy"}
		if write != "" {
			path, err := filepath.Abs(write)
			if err != nil {
				return err
			}
			env = append(env, "WEIR_CONFORMANCE_WRITE="+path)
		}
		s := newStages(ctx, cmd.OutOrStdout())
		s.do(ctx, stage{"conformance, three columns", 12 * time.Minute, func(ctx context.Context, s *stages) error {
			return s.boxes(ctx, "uml-new", "^TestConformance$", "", env, "weir/cmd/weirlab/e2e")
		}})
		return s.end()
	}
	return cmd
}
