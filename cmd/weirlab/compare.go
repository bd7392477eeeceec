package main

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
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// benchstat separates the changes of benchmarks from noise. Its version is fixed.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

// side is one of the two trees of a comparison.
type side struct {
	name, folder string
	benchmarks   []testFunction
	results      bytes.Buffer // of all rounds, for benchstat
}

// compared are the benchmarks of a package.
type compared struct {
	folder   string
	skip     []string  // benchmarks that one side lacks
	programs [2]string // of base and here
}

// comparison runs the benchmarks of a commit and of these sources in turn: what slows the machine down for a
// while slows down both.
type comparison struct {
	progress, table io.Writer
	bench, time     string
	count           int
	work            string // a folder for the time of the comparison
	base, here      side
	packages        []compared
}

func compareCommand() *cobra.Command {
	c := comparison{bench: ".", time: "1s", count: 10}
	cmd := &cobra.Command{
		Use:   "compare [BASE [PACKAGE...]]",
		Short: "compare Go's benchmarks here with those of a commit, HEAD by default; packages that compile to the same are left out unless named",
	}
	cmd.Flags().StringVar(&c.bench, "bench", c.bench, "only benchmarks that match this regular expression of go test -bench")
	cmd.Flags().StringVar(&c.time, "benchtime", c.time, "how long each benchmark runs, or how often (100x), in each round")
	cmd.Flags().IntVar(&c.count, "count", c.count, "rounds; below 6 benchstat finds few changes")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		c.table, c.progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
		if c.count < 1 {
			return errors.New("--count: want 1 at least")
		}
		if err := needSources(); err != nil {
			return err
		}
		if c.work, err = os.MkdirTemp("", "weirlab-compare-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.work)) }()
		base, patterns := "HEAD", []string(nil)
		if len(args) > 0 {
			base, patterns = args[0], args[1:]
		}
		return c.all(cmd.Context(), base, patterns)
	}
	return cmd
}

func (c *comparison) all(ctx context.Context, base string, patterns []string) error {
	if err := c.checkOut(ctx, base); err != nil {
		return err
	}
	if err := c.choose(ctx, patterns); err != nil {
		return err
	}
	// Without the network a comparison fails here, and not after its last round.
	if _, err := c.run(ctx, ".", "go", "run", benchstat, os.DevNull); err != nil {
		return err
	}
	if err := c.compile(ctx, len(patterns) > 0); err != nil || len(c.packages) == 0 {
		return err
	}
	began := time.Now()
	for round := range c.count {
		for i, p := range c.packages {
			if err := c.measure(ctx, p, round); err != nil {
				return err
			}
			done := round*len(c.packages) + i + 1
			left := time.Since(began) / time.Duration(done) * time.Duration(c.count*len(c.packages)-done)
			fmt.Fprintf(c.progress, "round %d of %d, %s: about %s left\n", round+1, c.count, p.folder, left.Round(time.Second))
		}
		for _, s := range c.sides() {
			if !bytes.Contains(s.results.Bytes(), []byte("\nBenchmark")) {
				return fmt.Errorf("no benchmark of %s matches %s", s.name, c.bench)
			}
		}
	}
	return c.print(ctx)
}

// checkOut puts the base into a folder of its own, without a trace in the clone.
func (c *comparison) checkOut(ctx context.Context, base string) error {
	out, err := c.run(ctx, ".", "git", "rev-parse", "--verify", "--quiet", base+"^{commit}")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) == 0 {
		return fmt.Errorf("this clone has no commit %s; if it is a shallow one, git fetch --unshallow gets the others", base)
	} else if err != nil {
		return err
	}
	name, err := commit(ctx)
	if err != nil {
		return err
	}
	found := strings.TrimSpace(string(out))
	c.base = side{name: "base " + found[:12], folder: filepath.Join(c.work, "base")}
	c.here = side{name: "here " + name, folder: "."}
	fmt.Fprintf(c.progress, "%s, %s\n", c.base.name, c.here.name)
	tar := c.base.folder + ".tar"
	if err := os.Mkdir(c.base.folder, 0o755); err != nil {
		return err
	}
	if _, err := c.run(ctx, ".", "git", "archive", "--format=tar", "--output="+tar, found); err != nil {
		return err
	}
	_, err = c.run(ctx, c.base.folder, "tar", "-xf", tar)
	return err
}

// choose finds the packages that have a benchmark on both sides.
func (c *comparison) choose(ctx context.Context, patterns []string) error {
	top, err := c.topLevel()
	if err != nil {
		return err
	}
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	listed, err := c.run(ctx, ".", append([]string{"go", "list", "-f", "{{slice .Dir (len .Module.Dir)}}"}, patterns...)...)
	if err != nil {
		return err
	}
	for _, s := range c.sides() {
		if s.benchmarks, err = testFunctions(s.folder, "Benchmark"); err != nil {
			return err
		}
		s.benchmarks = slices.DeleteFunc(s.benchmarks, func(f testFunction) bool { return !top.MatchString(f.name) })
	}
	var lonely []string
	for line := range strings.Lines(string(listed)) {
		p, both := compared{folder: filepath.Join(".", strings.TrimSpace(line))}, false
		for i, s := range c.sides() {
			other := c.sides()[1-i]
			for _, f := range s.benchmarks {
				if f.folder != p.folder {
					continue
				}
				if slices.Contains(other.benchmarks, f) {
					both = true
					continue
				}
				p.skip = append(p.skip, f.name)
				lonely = append(lonely, fmt.Sprintf("%s in %s is only %s", f.name, f.folder, []string{"in the base", "here"}[i]))
			}
		}
		if both {
			c.packages = append(c.packages, p)
		}
	}
	switch {
	case len(c.packages) == 0 && len(lonely) == 0:
		return fmt.Errorf("no benchmark of %s matches %s", strings.Join(patterns, " "), c.bench)
	case len(c.packages) == 0:
		return fmt.Errorf("nothing to compare: %s", strings.Join(lonely, ", "))
	}
	for _, line := range lonely {
		fmt.Fprintln(c.progress, "left out:", line)
	}
	return nil
}

// topLevel is the part of --bench that concerns the functions of benchmarks. The rest concerns their parts.
func (c *comparison) topLevel() (*regexp.Regexp, error) {
	top, _, parts := strings.Cut(c.bench, "/")
	if parts && strings.Contains(c.bench, "|") {
		top = "" // which / belongs to which function only go test knows
	}
	re, err := regexp.Compile(top)
	if err != nil {
		return nil, fmt.Errorf("--bench: %w", err)
	}
	return re, nil
}

// compile makes a program of each package's tests on both sides. If they are the same, any difference is noise, and
// the package is left out unless it is named.
func (c *comparison) compile(ctx context.Context, named bool) error {
	all := c.packages
	c.packages = nil
	for _, p := range all {
		fmt.Fprintf(c.progress, "compile %s\n", p.folder)
		var content [2][]byte
		for i, s := range c.sides() {
			p.programs[i] = filepath.Join(c.work, fmt.Sprintf("%d-%s", i, strings.ReplaceAll(p.folder, "/", "-")))
			_, err := c.run(ctx, s.folder, "go", "test", "-c", "-trimpath", "-buildvcs=false", "-o", p.programs[i], "./"+p.folder)
			if err != nil {
				return fmt.Errorf("%s of %s does not compile: %w", p.folder, s.name, err)
			}
			if content[i], err = os.ReadFile(p.programs[i]); err != nil {
				return err
			}
		}
		if bytes.Equal(content[0], content[1]) {
			if !named {
				fmt.Fprintf(c.progress, "left out: %s, the same program on both sides\n", p.folder)
				continue
			}
			fmt.Fprintf(c.progress, "%s is the same program on both sides: all differences are noise\n", p.folder)
		}
		c.packages = append(c.packages, p)
	}
	if len(c.packages) == 0 {
		fmt.Fprintln(c.table, "All programs are the same on both sides: no benchmark has changed.")
	}
	return nil
}

// measure runs a package once on both sides, in the other order than in the round before: the second side may
// find a warmer processor.
func (c *comparison) measure(ctx context.Context, p compared, round int) error {
	for n := range 2 {
		i := (round + n) % 2
		s := c.sides()[i]
		args := []string{p.programs[i], "-test.run=^$", "-test.bench=" + c.bench, "-test.benchmem", "-test.benchtime=" + c.time}
		if len(p.skip) > 0 {
			args = append(args, "-test.skip="+exactly(p.skip))
		}
		out, err := c.run(ctx, filepath.Join(s.folder, p.folder), args...)
		s.results.Write(out)
		if err != nil {
			fmt.Fprintf(c.progress, "%s", out)
			return fmt.Errorf("the benchmarks of %s of %s: %w", p.folder, s.name, err)
		}
	}
	return nil
}

// print prints benchstat's table.
func (c *comparison) print(ctx context.Context) error {
	args := []string{"go", "run", benchstat}
	for i, s := range c.sides() {
		file := filepath.Join(c.work, fmt.Sprintf("%d.txt", i))
		if err := os.WriteFile(file, s.results.Bytes(), 0o644); err != nil {
			return err
		}
		args = append(args, s.name+"="+file)
	}
	out, err := c.run(ctx, ".", args...)
	fmt.Fprintf(c.table, "%s", out)
	return err
}

func (c *comparison) sides() [2]*side { return [2]*side{&c.base, &c.here} }

// run returns what a program prints; its error has the first line that is not progress of go. At
// an interrupt the program has a moment to remove what it has not finished.
func (c *comparison) run(ctx context.Context, folder string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		for line := range strings.Lines(string(exit.Stderr)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "go: downloading ") {
				return out, fmt.Errorf("%s: %s", args[0], line)
			}
		}
	}
	return out, err
}
