package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// weirlab runs the command, as make does: a process of its own may keep itself to one processor.
func weirlab(t *testing.T, args ...string) string {
	t.Helper()
	begin := time.Now()
	out, progress, err := weirlabIn(t, filepath.Join("..", ".."), args...)
	if err != nil {
		t.Errorf("weirlab %v: %v\n%s", args, err, progress)
	}
	t.Logf("weirlab %v: %s\n%s", args, time.Since(begin).Round(time.Second), out)
	return out
}

func weirlabIn(t *testing.T, folder string, args ...string) (out, progress string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, lab.Build(t, "weir/cmd/weirlab"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Dir = folder
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// mustMatch checks that an output has these lines.
func mustMatch(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("nothing is like %q in\n%s", want, text)
		}
	}
}

// TestDrillShort lets everything go wrong once.
func TestDrillShort(t *testing.T) {
	lab.Require(t, lab.UML)
	lab.Routers.Require(t)
	lab.Keepalived.Require(t)
	out := weirlab(t, "drill", "--short")
	mustMatch(t, out, `kernel \d`, `power cut of the owner\n(.*\n)*? +l2 +[\d.]+m?s `, `another key, in three steps`, `\n  l2, masq `, `\n  l2, 3 boxes `, `\n  keepalived `, `beside keepalived: no service`)
}

// TestBenchShort runs all chapters of the benchmark with the least sizes.
func TestBenchShort(t *testing.T) {
	lab.Require(t, lab.UML)
	lab.Routers.Require(t)
	plot := filepath.Join(t.TempDir(), "growth.svg")
	out := weirlab(t, "bench", "--short", "--plot", plot)
	if svg, err := os.ReadFile(plot); err != nil || bytes.Count(svg, []byte("grows as n^")) < 6 {
		t.Errorf("the plot of growth: %v\n%s", err, svg)
	}
	mustMatch(t, out, `weir, client masqueraded`, `20 x 1, tunnel: connections per second`, `20 x 1, direct: bytes through the box`,
		`20 x 10, VIPs by one route`, `20: up, by its check .*\n.* messages; programs run: 0\n`, `20: audit`,
		`10: endpoint changed until reached`, `20 x 10: started again, to READY .*\n +writes +0 `, `20 x 10: processor time of an idle 1s .*reads`,
		`20: endpoint changed until reached`, `20: endpoint changed while audits run`, `15 NodePorts x 10: rules`, `20 x 10, nftables: rules`, `50 addresses given`, `100 routes announced until in the router`, `200 connections, 4 backends replaced: slowest pass`,
		`\n  scrape +n\^\S+ +from 10 to 20 +n\^`, `\n  cluster: scrape +n\^`)
}

// TestConformanceShort goes through the code of make conformance, with a few checks of kube-proxy.
func TestConformanceShort(t *testing.T) {
	lab.Require(t, lab.UML)
	out := weirlab(t, "conformance", "--short")
	// On a busy machine kube-proxy fails checks that it passes on others. One pass shows that the judge does both.
	mustMatch(t, out, `no\. +check +kube-proxy`, `\n *1 .* (pass|FAIL) [\d.]+ s`, `\n *\d+ .* pass [\d.]+ s`, `\n *2 .* not run`, `[1-4] of 4 in`)
}

// TestSoakShort goes through the code of make soak.
func TestSoakShort(t *testing.T) {
	lab.Require(t, lab.UML)
	out := weirlab(t, "soak", "--short")
	mustMatch(t, out, `laws: .* passed`, `k8ssync/ipam FuzzParseName +\d+ +passed`, `fuzz: .* passed`, `new: .* passed`)
}

// TestProveShort goes through the code of make prove.
func TestProveShort(t *testing.T) {
	lab.Require(t, lab.UML)
	out := weirlab(t, "prove", "--short")
	mustMatch(t, out, `suspects at .*: green, 2 of 2 in a row`, `TestExample +2 of 2`)
}

// TestCompareShort goes through the code of make compare, with one benchmark. HEAD is in every clone.
func TestCompareShort(t *testing.T) {
	if err := exec.Command("git", "rev-parse", "--verify", "HEAD").Run(); err != nil {
		t.Skipf("SKIPPED, these sources are no clone: %v", err)
	}
	out := weirlab(t, "compare", "HEAD", "./cluster/owner", "--benchtime", "1x", "--count", "2")
	mustMatch(t, out, `base [0-9a-f]{12} +│ +here [0-9a-f]{12}`, `FleetOf5With5000VIPs.*n=2`, `allocs/op`)
}

// TestBenchmarksOfPackages runs the second half of make bench once, with smaller sizes: Go's benchmarks.
func TestBenchmarksOfPackages(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	root := filepath.Join("..", "..")
	rules, err := os.ReadFile(filepath.Join(root, "Makefile"))
	lab.Must(t, err)
	packages := regexp.MustCompile(`(?m)^\tgo test -run xxx -bench \. (.+) && exit`).FindSubmatch(rules)
	if packages == nil {
		t.Fatal("the Makefile runs no benchmarks of packages")
	}
	args := []string{"test", "-run", "xxx", "-bench", ".", "-benchtime", "1x", "-short"}
	cmd := exec.CommandContext(ctx, "go", append(args, strings.Fields(string(packages[1]))...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOGC=400") // no figure of one round means much, and to collect garbage takes a processor
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
	t.Logf("%s", out)
	mustMatch(t, string(out), `BenchmarkReconciler/one_backend_of_10000_services`, `BenchmarkHealth10000`,
		`BenchmarkUntilLastUpdate/gobgp`, `BenchmarkLength/10000_VIPs`, `BenchmarkScrape/backends`)
}

// TestLostRepliesTurnATestRed runs a packet test where no host replies to three of ten connections: it
// must fail. It makes 18 connections, so that one run of 600 loses no reply, and has three tries to
// fail.
func TestLostRepliesTurnATestRed(t *testing.T) {
	lab.Require(t, lab.Any)
	binary, err := lab.TestBinary("weir/cmd/weirlab/e2e")
	lab.Must(t, err)
	const name = "TestFirstPacket"
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+name+"$", "-test.v", "-test.count=3", "-test.failfast")
	cmd.Dir = "e2e"
	cmd.Env = append(os.Environ(), lab.LossVariable+"=0.3", "WEIR_LAB_ARTIFACTS="+filepath.Join(t.TempDir(), "artifacts"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+name) {
		t.Errorf("%s does not fail (%v):\n%s", name, err, out)
	}
}
