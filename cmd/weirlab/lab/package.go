package lab

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// packed are the folders with files that get into a package beside the program.
var packed = []string{"packaging", "systemd", "configs"}

// Package makes weir's deb for amd64 as make package does, but without compression, and returns its path,
// at which every box sees it too: apt-get install takes it from there. An empty version is that of the
// commit. What has been packed once, and has not changed, is not packed again. TestPackages installs the
// deb that users get.
func Package(t testing.TB, version string) string {
	t.Helper()
	weir := Build(t, "weir/cmd/weir")
	root := moduleRoot()
	sum, err := sumOf(version, weir, root)
	Must(t, err)
	dir, err := cached(filepath.Join("bin", "packages-"+sum), func(dir string) error {
		pack := exec.Command("make", "-s", "-C", root, "package", "PACKAGES=amd64.deb", "DIST="+dir, "PACKAGE_VERSION="+version, "DEB_COMPRESSION=none")
		if out, err := pack.CombinedOutput(); err != nil {
			return fmt.Errorf("make package: %w\n%s", err, bytes.TrimSpace(out))
		}
		return nil
	})
	Must(t, err)
	if err := os.Chtimes(dir, time.Time{}, time.Now()); err != nil { // for forgetUnused
		t.Fatal(err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("%d packages are in %s: %v", len(debs), dir, err)
	}
	return debs[0]
}

// sumOf names a package after its version, the program and all that is packed beside it.
func sumOf(version, weir, root string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, version, weir)
	for _, folder := range packed {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			fmt.Fprintf(hash, "%s %x\n", path, sha256.Sum256(content))
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), nil
}
