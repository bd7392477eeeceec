package lab

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"
)

// selfPackage is the command that runs inside the lab as its first processes and agents.
const selfPackage = "weir/cmd/weirlab"

// Binary builds a command of this module as a static binary and returns its path, at which every
// host and box of a lab sees it too. It is called after its content: a lab that runs keeps the binary
// it was started with.
func Binary(pkg string) (string, error) {
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
	fresh := filepath.Join(dir, "unfinished")
	build := exec.Command("go", "build", "-o", fresh, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, bytes.TrimSpace(out))
	}
	content, err := os.ReadFile(fresh)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	binary := filepath.Join(dir, fmt.Sprintf("%s-%x", path.Base(pkg), sum[:6]))
	forgetOld(dir)
	return binary, os.Rename(fresh, binary)
}

// forgetOld removes the binaries that nobody built for a day.
func forgetOld(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// self is the path of a static weirlab binary: this program, if it is one, else one built for it. It
// must be static because in a qemu box it starts before any library can be seen.
func self() (string, error) {
	if info, ok := debug.ReadBuildInfo(); ok && info.Path == selfPackage {
		path, err := os.Executable()
		if err != nil || isStatic(path) {
			return path, err
		}
	}
	return Binary(selfPackage)
}

func isStatic(path string) bool {
	binary, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer binary.Close()
	return !slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
