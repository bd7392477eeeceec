package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// weirlab runs the command, as make does: a process of its own may keep itself to one processor.
func weirlab(t *testing.T, limit time.Duration, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, lab.Build(t, "weir/cmd/weirlab"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Dir = filepath.Join("..", "..") // as make runs it
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		t.Errorf("weirlab %v: %v\n%s", args, err, progress.String())
	}
	t.Logf("weirlab %v: %s\n%s", args, time.Since(begin).Round(time.Second), out.String())
	return out.String()
}

// mustMatch checks that a table has these lines.
func mustMatch(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the table has nothing like %q", want)
		}
	}
}

// TestDrillShort lets everything go wrong once.
func TestDrillShort(t *testing.T) {
	lab.Require(t, lab.UML)
	lab.RequireRouters(t)
	lab.RequireKeepalived(t)
	out := weirlab(t, 10*time.Minute, "drill", "--short")
	mustMatch(t, out, `kernel \d`, `power cut of the owner\n(.*\n)*? +l2 +[\d.]+m?s `, `another key, in three steps`, `\n  l2, masq `, `\n  l2, 3 boxes `, `\n  keepalived `, `beside keepalived: no service`)
}

// TestBenchShort runs all chapters of the benchmark with the least sizes.
func TestBenchShort(t *testing.T) {
	lab.Require(t, lab.UML)
	lab.RequireRouters(t)
	plot := filepath.Join(t.TempDir(), "growth.svg")
	out := weirlab(t, 10*time.Minute, "bench", "--short", "--plot", plot)
	if svg, err := os.ReadFile(plot); err != nil || bytes.Count(svg, []byte("grows as n^")) < 6 {
		t.Errorf("the plot of growth: %v\n%s", err, svg)
	}
	mustMatch(t, out, `weir, client masqueraded`, `20 x 1, tunnel: connections per second`, `20 x 1, direct: bytes through the box`,
		`20 x 10, VIPs by one route`, `20: up, by its check .*\n.* messages; programs run: 0\n`, `20: audit`,
		`10: endpoint changed until reached`, `20: endpoint changed until reached`, `20: endpoint changed while audits run`, `15 NodePorts x 10: rules`, `20 x 10, nftables: rules`, `50 addresses given`, `100 routes announced until in the router`)
}

// TestConformanceShort goes through the code of make conformance, with a few checks of kube-proxy.
func TestConformanceShort(t *testing.T) {
	lab.Require(t, lab.UML)
	out := weirlab(t, 10*time.Minute, "conformance", "--short")
	mustMatch(t, out, `no\. +check +kube-proxy`, `\n1 .* pass `, `\n2 .* not run`, `of 4 in`)
}

// TestSoakShort goes through the code of make soak.
func TestSoakShort(t *testing.T) {
	lab.Require(t, lab.UML)
	out := weirlab(t, 10*time.Minute, "soak", "--short")
	mustMatch(t, out, `laws: .* passed`, `k8ssync/ipam FuzzParseName +\d+ +passed`, `fuzz: .* passed`, `new: .* passed`, `old: .* passed`)
}

// TestProveShort goes through the code of make prove.
func TestProveShort(t *testing.T) {
	lab.Require(t, lab.UML)
	out := weirlab(t, 10*time.Minute, "prove", "--short")
	mustMatch(t, out, `suspects at .*: green, 2 of 2 in a row`, `TestExample +2 of 2`)
}

// TestBenchmarksOfPackages runs the second half of make bench once, with smaller sizes: Go's benchmarks.
func TestBenchmarksOfPackages(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "xxx", "-bench", ".", "-benchtime", "1x", "-short", "./lb/", "./lb/health/")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
	t.Logf("%s", out)
	mustMatch(t, string(out), `BenchmarkReconciler/one_backend_of_10000_services`, `BenchmarkHealth10000`)
}
