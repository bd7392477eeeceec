package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// debAfterAnother upgrades from the build before: of the release before this commit or,
// before there is one, of the commit before it. Files move and go between builds, which
// the same sources under two versions would never show.
func debAfterAnother(t *testing.T, p *packages) {
	before := debBefore(t)
	c := newChroot(t)
	c.pretend(t)
	c.must(t, "dpkg", "--install", c.bring(t, before))
	had := strings.Fields(c.must(t, "dpkg", "--listfiles", "weir"))
	c.used(t)
	c.asked(t)
	c.must(t, "dpkg", "--install", c.bring(t, p.plain))
	if asked := c.asked(t); asked != "try-restart weir.service" {
		t.Errorf("systemd is asked to %q", asked)
	}
	if out := c.must(t, "dpkg", "--verify", "weir"); out != "" {
		t.Errorf("dpkg --verify: %s", out)
	}
	if out, err := c.run("test", "-e", "/"+enabledLink); err != nil {
		t.Errorf("the unit is not enabled any more: %v %s", err, out)
	}
	c.mustHave(t, "after the upgrade", usersOwn, someState, "etc/weir/credentials/key")
	has := strings.Fields(c.must(t, "dpkg", "--listfiles", "weir"))
	gone := 0
	for _, file := range had {
		// What it is today: /lib is a link, and so a file there may be the one below /usr/lib.
		real := strings.TrimSpace(c.must(t, "realpath", "--canonicalize-missing", file))
		if slices.Contains(has, file) || slices.Contains(has, real) {
			continue
		}
		if gone++; c.has(file) {
			t.Errorf("%s is left of the build before", file)
		}
	}
	t.Logf("%d files, %d of them no longer", len(had), gone)
}

// debBefore makes that build. Where there is no history, or nothing can be made of it, it
// is these sources once more, with an older version.
func debBefore(t *testing.T) string {
	t.Helper()
	begin, dir := time.Now(), t.TempDir()
	dist := filepath.Join(dir, "dist")
	version, err := packBefore(filepath.Join(dir, "sources"), dist)
	if err != nil {
		t.Logf("NO BUILD BEFORE THIS ONE, only the same sources with an older version: %v", err)
		version = "these sources"
		tool(t, "make", "-s", "-C", "../../..", "package", "DIST="+dist, "PACKAGES=amd64.deb", "PACKAGE_VERSION=0~0", "DEB_COMPRESSION=none")
	}
	t.Logf("the build before, of %s, in %.0f s", version, time.Since(begin).Seconds())
	made := packages{dir: dist}
	return made.made(t, "*_amd64.deb")
}

// packBefore makes the deb of an earlier commit, of which it gives the name.
func packBefore(sources, dist string) (revision string, err error) {
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("there is no history here: %w", err)
	}
	revision = "HEAD^"
	if tag, err := exec.Command("git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^").Output(); err == nil {
		revision = strings.TrimSpace(string(tag))
	}
	commit, err := exec.Command("git", "rev-parse", "--verify", "--quiet", revision+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("this clone does not reach back to %s: %w", revision, err)
	}
	for _, args := range [][]string{
		{"git", "clone", "--quiet", "--shared", "--no-checkout", strings.TrimSpace(string(root)), sources},
		{"git", "-C", sources, "checkout", "--quiet", strings.TrimSpace(string(commit))},
		{"make", "-s", "-C", sources, "package", "DIST=" + dist, "PACKAGES=amd64.deb", "DEB_COMPRESSION=none"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return fmt.Sprintf("%s (%.10s)", revision, commit), nil
}
