package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Start puts up a site for a test, and for its subtests; it is removed when the test ends. When the
// test failed, logs and kernel state of every machine are in a folder, and its name is logged.
//
// Where a lab cannot run, the test is skipped with the reason; with CI=true or WEIR_LAB=require in the
// environment it fails instead.
func Start(t testing.TB, site Site) *Lab {
	t.Helper()
	complete, err := site.withKernels()
	skipFor(t, err)
	Require(t, complete.kernels()...)
	l, err := Open(t.Context(), site)
	if err != nil {
		t.Fatalf("lab: %v", err)
	}
	t.Cleanup(l.Close)
	l.Watch(t)
	return l
}

// Require skips or fails a test that cannot have the lab it needs, as Start does.
func Require(t testing.TB, kernels ...Kernel) {
	t.Helper()
	skipFor(t, Check(kernels...))
}

func skipFor(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if required(os.Getenv) {
		t.Fatalf("NO LAB, and here it is required: %v", err)
	}
	t.Skipf("SKIPPED, NO LAB: %v", err)
}

// required reports whether a test that cannot have its lab must not pass for one that was run.
func required(getenv func(string) string) bool {
	return getenv("CI") == "true" || getenv("WEIR_LAB") == "require"
}

// Watch dumps the lab when the test fails, or in any case if packets are kept. For a test that uses a
// lab which others use too; Start does it by itself.
func (l *Lab) Watch(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() && os.Getenv(PacketsVariable) == "" {
			return
		}
		folder := artifacts(t.Name())
		if err := l.Dump(folder); err != nil {
			t.Logf("dump lab: %v", err)
		}
		t.Logf("logs and kernel state of every machine are in %s", folder)
	})
}

// artifacts is the folder for what a failed test leaves behind.
func artifacts(test string) string {
	base := os.Getenv("WEIR_LAB_ARTIFACTS")
	if base == "" {
		base = filepath.Join(moduleRoot(), "artifacts")
	}
	plain := regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(test, "_")
	return filepath.Join(base, plain+"-"+time.Now().Format("20060102-150405"))
}

// moduleRoot is the folder of the module under test.
func moduleRoot() string {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || mod == "" || mod == os.DevNull {
		return "."
	}
	return filepath.Dir(mod)
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Build is Binary for a test.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	binary, err := Binary(pkg)
	Must(t, err)
	return binary
}

// Must runs a command on the machine, fails the test when that fails, and returns what it printed to
// standard output.
func (m *Machine) Must(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mustTime)
	defer cancel()
	out, err := m.Run(ctx, args...)
	Must(t, err)
	return out.Stdout
}

// mustTime bounds a command that a test does not bound itself.
const mustTime = time.Minute
