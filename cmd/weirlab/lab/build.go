package lab

import (
	"bytes"
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
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "bin")
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
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
	forgetOld(dir)
	if err := os.Link(last, binary); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	now := time.Now()
	return binary, os.Chtimes(binary, now, now) // for forgetOld
}

// forgetOld removes the binaries and packages that were not used lately.
func forgetOld(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && time.Since(info.ModTime()) > remembered {
			os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
}
