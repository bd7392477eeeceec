package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// firstPackage is the program of the lab's first processes and agents.
const firstPackage = "weir/cmd/weirlab/internal/first"

// RunVariable in the environment names a run of tests, such as make test. Its processes, one for each test,
// share what one of them has built: to find out that nothing has changed keeps a processor busy for half
// a second, in every process and at every boot of a box.
const RunVariable = "WEIR_LAB_RUN"

// remembered is how long a binary outlives its last build, which every use begins with.
const remembered = 3 * time.Hour

// Binary builds a command of this module as a static binary and returns its path, at which every
// host and box of a lab sees it too. It is called after its content: a lab that runs keeps the binary
// it was started with. Flags are go build's: with other -ldflags it is another build of the same.
func Binary(pkg string, flags ...string) (string, error) {
	return build(path.Base(pkg), "build", append(slices.Clone(flags), pkg)...)
}

// TestBinary does the same with the tests of a package, for tests that need a kernel to themselves.
func TestBinary(pkg string) (string, error) {
	return build(path.Base(pkg)+".test", "test", "-c", pkg)
}

func build(name, verb string, args ...string) (string, error) {
	dir, err := cacheFolder("bin")
	if err != nil {
		return "", err
	}
	unlock, err := lock(context.Background(), dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	note := noteOfRun(dir, name, args)
	if binary, err := os.ReadFile(note); err == nil && touch(string(binary)) == nil {
		return string(binary), nil
	}
	// What go has built to this path before, and would build again, it leaves as it is: linking takes
	// seconds, in each process that tests. Otherwise it puts another file in its place, so that a link
	// to the one before stays what it was.
	last := filepath.Join(dir, fmt.Sprintf("last-%s-%s", name, sumOfBytes([]byte(moduleRoot()+strings.Join(args, " ")))))
	cmd := exec.Command("go", append([]string{verb, "-buildvcs=false", "-o", last}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, bytes.TrimSpace(out))
	}
	content, err := os.ReadFile(last)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	binary := filepath.Join(dir, fmt.Sprintf("%s-%x", name, sum[:6]))
	forgetUnused(filepath.Join(dir, "*"), remembered)
	if err := os.Link(last, binary); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if note != "" {
		if err := os.WriteFile(note, []byte(binary), 0o644); err != nil {
			return "", err
		}
	}
	return binary, touch(binary)
}

// noteOfRun is the file in which this run of tests notes a binary that it has built, "" for no run.
func noteOfRun(dir, name string, args []string) string {
	run := os.Getenv(RunVariable)
	if run == "" {
		return ""
	}
	folder, _ := os.Getwd() // it distinguishes clones; a missing note costs time, nothing else
	return filepath.Join(dir, fmt.Sprintf("run-%s-%s", name, sumOfBytes([]byte(run+folder+strings.Join(args, " ")))))
}

// touch keeps a binary from forgetUnused.
func touch(binary string) error {
	now := time.Now()
	return os.Chtimes(binary, now, now)
}
