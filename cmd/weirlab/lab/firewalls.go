package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The firewalls of users are on top of the Debian of boxes with systemd, in a root of their own: no other
// test waits for their download.

var (
	firewallsCache = systemdCache + "-firewalls-1"
	// firewallPackages: with busybox a container has a web server without an image from a registry.
	firewallPackages = []string{"ufw", "firewalld", "docker.io", "nftables", "busybox-static"}
	// firewallUnits do not start by themselves: a test enables the one that it is about.
	firewallUnits = []string{"ufw", "firewalld", "docker.service", "docker.socket", "containerd", "nftables"}
)

// CheckFirewalls returns the reason why there can be no boxes with firewalls here; nil when there can.
func CheckFirewalls() error {
	if _, err := firewallsRoot(); err != nil {
		return errors.New("the Debian with ufw, firewalld and Docker is not there: go run weir/cmd/weirlab install")
	}
	return nil
}

// RequireFirewalls skips or fails a test that needs boxes with firewalls, as Start does.
func RequireFirewalls(t testing.TB) {
	t.Helper()
	skipFor(t, errors.Join(CheckSystemd(), CheckFirewalls()))
}

func firewallsRoot() (string, error) {
	return cacheWith(firewallsCache, systemdProgram)
}

// BuildFirewalls puts the Debian of boxes with firewalls into the cache, unless it is there: that of
// BuildSystemd and more packages. The size of the download goes to progress.
func BuildFirewalls(ctx context.Context, progress io.Writer) error {
	if CheckFirewalls() == nil {
		return nil
	}
	base, err := systemdRoot()
	if err != nil {
		return CheckSystemd()
	}
	fmt.Fprintln(progress, "ufw, firewalld and Docker in that Debian: 77 MB to download, a minute")
	_, err = cached(firewallsCache, func(dir string) error {
		debs, forget, err := fetchDebs(ctx, progress, base, debianRelease, firewallPackages)
		if err != nil {
			return err
		}
		defer forget()
		if err := runIn(ctx, progress, "/", "cp", "-a", base+"/.", dir); err != nil {
			return err
		}
		return errors.Join(installDebs(ctx, progress, dir, debs), furnishSystemd(dir))
	})
	return err
}

// installDebs installs packages in a root, and disables firewallUnits. A process that a package starts
// nevertheless ends with the installation.
func installDebs(ctx context.Context, progress io.Writer, root string, debs []string) error {
	allow, err := forbidServices(filepath.Join(root, policyFile))
	if err != nil {
		return err
	}
	in := func(args ...string) error {
		return runIn(ctx, progress, "/", "unshare", slices.Concat([]string{"--mount", "--pid", "--fork", "--mount-proc=" + filepath.Join(root, "proc"), "chroot", root}, args)...)
	}
	install := []string{"apt-get", "-qy", "--no-install-recommends", "-o", "Dir::State::lists=/nowhere", "-o", "Dpkg::Use-Pty=0", "install"}
	for _, deb := range debs {
		inside := filepath.Join("/var/cache/apt/archives", filepath.Base(deb))
		if err := os.Rename(deb, filepath.Join(root, inside)); err != nil {
			return err
		}
		install = append(install, inside)
	}
	if err := in(install...); err != nil {
		return err
	}
	return errors.Join(in(append([]string{"systemctl", "disable"}, firewallUnits...)...), allow())
}

// fetchDebs downloads packages, and those that they need and a root lacks. The files are in a folder
// beside the root that forget removes.
func fetchDebs(ctx context.Context, progress io.Writer, root, suite string, packages []string) (debs []string, forget func(), err error) {
	work := filepath.Join(filepath.Dir(root), "firewalls-build")
	if err := os.RemoveAll(work); err != nil { // of a process that was killed
		return nil, nil, err
	}
	forget = func() { _ = os.RemoveAll(work) }
	conf, _, err := aptSource(ctx, work, map[string]string{labelMain: suite}, filepath.Join(root, "var/lib/dpkg/status"))
	for _, args := range [][]string{{"update"}, slices.Concat([]string{"install", "-y", "--no-install-recommends", "--download-only"}, packages)} {
		if err == nil {
			err = runIn(ctx, progress, "/", "env", append([]string{"APT_CONFIG=" + conf, "apt-get", "-q", "-o", "Dpkg::Use-Pty=0"}, args...)...)
		}
	}
	if err == nil {
		debs, err = filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
	}
	if err != nil {
		forget()
	}
	return debs, forget, err
}

// aptSource makes a configuration for apt in a folder, with package lists of its own: those of a suite for
// each archive that this machine installs Debian from, by its label. status is the file of installed packages.
// It returns the suites as well.
func aptSource(ctx context.Context, work string, by map[string]string, status string) (conf string, suites []string, err error) {
	mirrors, err := debianMirrors(ctx)
	if err != nil {
		return "", nil, err
	}
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return "", nil, err
		}
	}
	source := ""
	for _, label := range slices.Sorted(maps.Keys(by)) {
		if uri := mirrors[label]; uri != "" {
			source += fmt.Sprintf("deb [signed-by=%s] %s %s main\n", archiveKeyring, uri, by[label])
			suites = append(suites, by[label])
		}
	}
	text := fmt.Sprintf("Dir::Etc::sourcelist %q;\nDir::Etc::sourceparts \"-\";\nDir::State::lists %q;\nDir::Cache %q;\nDir::State::status %q;\nAPT::Sandbox::User \"root\";\n",
		filepath.Join(work, "sources.list"), filepath.Join(work, "lists"), filepath.Join(work, "cache"), status)
	conf = filepath.Join(work, "apt.conf")
	return conf, suites, errors.Join(os.WriteFile(filepath.Join(work, "sources.list"), []byte(source), 0o644), os.WriteFile(conf, []byte(text), 0o644))
}
