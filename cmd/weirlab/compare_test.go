package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// tinyBenchmarks allocate once in the base, and three times here.
const tinyBenchmarks = `package pkg

import ("os"; "testing"; "time")

var kept *[64]byte

func BenchmarkAlloc(b *testing.B) { for b.Loop() { for range TIMES { kept = new([64]byte) } } }
func BenchmarkONLY(b *testing.B)  { b.Fatal("it runs") }
func BenchmarkFails(b *testing.B) { b.Fatal("this is the cause") }
func BenchmarkHangs(b *testing.B) { os.WriteFile(os.Getenv("HANGS"), nil, 0o600); time.Sleep(time.Hour) }
`

// tinyClone has three tagged commits: good, which allocates less; broken; and same, which is checked out.
func tinyClone(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "pkg", "pkg_test.go")
	lab.Must(t, os.Mkdir(filepath.Dir(file), 0o755))
	lab.Must(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module tiny\n\ngo 1.26\n"), 0o644))
	git := func(args ...string) {
		args = append([]string{"-C", folder, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "--quiet")
	for _, c := range []struct{ name, times, only string }{{"good", "1", "Gone"}, {"broken", "NOTHING", "Gone"}, {"same", "3", "New"}} {
		text := strings.NewReplacer("TIMES", c.times, "ONLY", c.only).Replace(tinyBenchmarks)
		lab.Must(t, os.WriteFile(file, []byte(text), 0o644))
		git("add", ".")
		git("commit", "--quiet", "--message", c.name)
		git("tag", c.name)
	}
	return folder
}

// TestCompare finds a benchmark that allocates more, reports each failure by one line that names the cause, and
// leaves nothing behind.
func TestCompare(t *testing.T) {
	clone, noClone, left := tinyClone(t), t.TempDir(), t.TempDir()
	lab.Must(t, os.WriteFile(filepath.Join(noClone, "go.mod"), []byte("module none\n"), 0o644))
	t.Setenv("TMPDIR", left)
	for _, tc := range []struct {
		name, folder, args string
		fails              bool
		want               []string // of the progress and the table
	}{
		{"more allocations", clone, "good --bench Alloc|Gone|New", false, []string{
			`left out: BenchmarkGone in pkg is only in the base\n`, `left out: BenchmarkNew in pkg is only here\n`,
			`round 4 of 4, pkg`, `Alloc\S* +1\.000 .* 3\.000 .* \+200\.00% \(p=0\.029 n=4\)`}},
		{"a failing benchmark", clone, "good ./pkg --bench Fails", true, []string{`this is the cause\n`, `weirlab: the benchmarks of pkg of base \w+: exit status 1\n$`}},
		{"the same", clone, "same --bench Alloc", false, []string{`left out: pkg, the same program`, `no benchmark has changed`}},
		{"no clone", noClone, "", true, []string{`^weirlab: git: fatal: not a git repository.*\n$`}},
		{"an unknown commit", clone, "nowhere", true, []string{`^weirlab: this clone has no commit nowhere; .*\n$`}},
		{"no benchmark", clone, "good --bench Nothing", true, []string{`\nweirlab: no benchmark of ./... matches Nothing\n$`}},
		{"no part of a benchmark", clone, "good --bench Alloc/nothing", true, []string{`\nround 1 of 4, pkg: .* left\nweirlab: no benchmark of base \w+ matches Alloc/nothing\n$`}},
		{"no expression", clone, "good --bench (", true, []string{`\nweirlab: --bench: error parsing regexp: missing .*\n$`}},
		{"no rounds", clone, "--count 0", true, []string{`^weirlab: --count: want 1 at least\n$`}},
		{"a new benchmark", clone, "good --bench New", true, []string{`\nweirlab: nothing to compare: BenchmarkNew in pkg is only here\n$`}},
		{"an unknown package", clone, "good ./none", true, []string{`\nweirlab: go: stat .*/none: directory not found\n$`}},
		{"a broken base", clone, "broken", true, []string{`\nweirlab: pkg of base \w+ does not compile: go: pkg/pkg_test.go:\d+:\d+: undefined: NOTHING\n$`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, progress, err := weirlabIn(t, tc.folder, append([]string{"compare", "--benchtime", "10x", "--count", "4"}, strings.Fields(tc.args)...)...)
			if (err != nil) != tc.fails {
				t.Errorf("it ends with %v", err)
			}
			mustMatch(t, out+progress, tc.want...)
			mustBeEmpty(t, left)
		})
	}
}

// TestInterruptedCompareLeavesNothing interrupts a benchmark that would take an hour.
func TestInterruptedCompareLeavesNothing(t *testing.T) {
	clone, left, hangs := tinyClone(t), t.TempDir(), filepath.Join(t.TempDir(), "hangs")
	program := lab.Build(t, "weir/cmd/weirlab")
	cmd := exec.Command(program, "compare", "good", "--bench", "Hangs")
	cmd.Dir = clone
	cmd.Env = append(os.Environ(), "TMPDIR="+left, "HANGS="+hangs)
	lab.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(hangs); err == nil || time.Now().After(deadline) {
			break
		}
	}
	lab.Must(t, cmd.Process.Signal(os.Interrupt))
	if err := <-ended; err == nil || cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("it ends with %v", err)
	}
	mustBeEmpty(t, left)
}

func mustBeEmpty(t *testing.T, folder string) {
	t.Helper()
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
