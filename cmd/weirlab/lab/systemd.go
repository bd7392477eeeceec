package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/inside"
)

// A box with systemd does not show the file system of the machine that carries the lab but a small
// Debian of its own, in which systemd is PID 1: what a server of weir's users is.

const (
	debianRelease = "bookworm"
	// systemdCache is called after what it has: what differs must have another name.
	systemdCache   = "systemd-" + debianRelease + "-1"
	systemdProgram = "/lib/systemd/systemd"
)

var (
	// systemdPackages are in a box with systemd besides what every Debian has.
	systemdPackages = []string{"systemd", "systemd-sysv", "dbus", "iproute2", "iptables", "ipset", "ipvsadm", "kmod", "procps"}
	// masked are units that wait for a person or a disk.
	masked = []string{"getty.target", "console-getty.service", "systemd-update-utmp.service", "systemd-random-seed.service"}
	// idle are units for devices, file systems and tables that a box does not have. Each takes a tenth of a second of a
	// processor at a boot, and the shell script of ipvsadm half a second.
	idle = []string{"ipvsadm", "systemd-update-utmp-runlevel", "modprobe@configfs", "modprobe@dm_mod", "modprobe@drm", "modprobe@efi_pstore", "modprobe@fuse", "modprobe@loop", "kmod-static-nodes", "e2scrub_reap"}
)

// CheckSystemd returns the reason why there can be no boxes with systemd here, and the command that helps; nil when
// there can.
func CheckSystemd() error {
	if _, err := systemdRoot(); err != nil {
		return errors.New("the Debian for boxes with systemd is not there: go run weir/cmd/weirlab install")
	}
	return nil
}

// SystemdRoot is the Debian of boxes with systemd: a read-only folder.
func SystemdRoot(t testing.TB) string {
	t.Helper()
	RequireSystemd(t)
	root, err := systemdRoot()
	Must(t, err)
	return root
}

// RequireSystemd skips or fails a test that needs boxes with systemd, as Start does.
func RequireSystemd(t testing.TB) {
	t.Helper()
	skipFor(t, CheckSystemd())
}

func systemdRoot() (string, error) {
	return cacheWith(systemdCache, systemdProgram)
}

// BuildSystemd puts the Debian of boxes with systemd into the cache, from Debian's packages, unless it
// is there. It takes a minute; what is being done goes to progress.
func BuildSystemd(ctx context.Context, progress io.Writer) error {
	if CheckSystemd() == nil {
		return nil
	}
	fmt.Fprintln(progress, "a small Debian with systemd, for boxes in which it is PID 1: one or two minutes")
	_, err := cached(systemdCache, func(dir string) error {
		if err := runIn(ctx, progress, "/", "debootstrap", "--variant=minbase",
			"--include="+strings.Join(systemdPackages, ","), debianRelease, dir); err != nil {
			return err
		}
		return furnishSystemd(dir)
	})
	return err
}

// furnishSystemd makes a fresh Debian start without questions.
func furnishSystemd(root string) error {
	for _, unit := range masked {
		link := filepath.Join(root, "etc/systemd/system", unit)
		if err := os.Symlink("/dev/null", link); err != nil && !os.IsExist(err) {
			return err
		}
	}
	for name, content := range map[string]string{
		"etc/machine-id": "77656972776569727765697277656972\n", // an empty one means that this is the first boot
		"etc/fstab":      "",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	// Packages once unpacked are not needed again.
	debs, err := filepath.Glob(filepath.Join(root, "var/cache/apt/archives/*.deb"))
	for _, deb := range debs {
		err = errors.Join(err, os.Remove(deb))
	}
	return err
}

// withSystemd makes the first process of a box become systemd, over a root of its own. The binaries
// that the lab builds are seen there, too, and the modules that c.Modules links to.
func (m boot) withSystemd(c *inside.Config, k umlKernel) error {
	root, err := systemdRoot()
	if err != nil {
		return CheckSystemd()
	}
	if m.firewalls {
		if root, err = firewallsRoot(); err != nil {
			return CheckFirewalls()
		}
		c.Legacy = false // as Debian has it
	}
	// In what is kept, every file is root's, which weir is not in such a box: its state is not there.
	c.Keep = slices.DeleteFunc(c.Keep, func(k inside.Keep) bool { return k.Path != configFolder })
	c.Saved = savedFiles
	c.Base, c.Become = root, []string{systemdProgram, "--unit=multi-user.target"}
	c.Show = []string{filepath.Join(filepath.Dir(root), "bin"), k.modules}
	return os.MkdirAll(c.Show[0], 0o755)
}

// savedFiles is where a box with systemd has its files while it has no power.
const savedFiles = configFolder + "/.saved.tar"

// SaveDebian makes the files of some Debian packages outlive the next end of a box with systemd, as if they
// were on a disk: what was installed, all of /etc and of the given folders. Boot puts them back.
func (m *Machine) SaveDebian(ctx context.Context, packages, folders []string) error {
	// /etc/weir is kept anyway.
	out, err := m.Run(ctx, "sh", "-ec", `
		list=$(mktemp)
		for p in `+strings.Join(packages, " ")+`; do dpkg -L $p; done | while read -r f; do [ -d "$f" ] || echo "$f"; done >$list
		tar -cPf `+savedFiles+` --exclude=`+configFolder+` /etc /var/lib/dpkg /var/lib/systemd `+strings.Join(folders, " ")+` -T $list
		sync `+savedFiles)
	if err != nil {
		return fmt.Errorf("%s: save: %w: %s", m.name, err, out.Stderr)
	}
	return nil
}

// forgetSaved deletes what SaveDebian has saved once a box is up with it. (The box can't when it puts it
// back: a kernel that reboots begins once more before its power is taken.)
func (m boot) forgetSaved(ctx context.Context) error {
	if !m.systemd {
		return nil
	}
	_, err := m.Run(ctx, "rm", "-f", savedFiles)
	return err
}

// AwaitSystemd waits until the systemd of a box has started all that it starts by itself.
func (m *Machine) AwaitSystemd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	for {
		out, err := m.Run(ctx, "systemctl", "is-system-running", "--wait")
		if state := strings.TrimSpace(out.Stdout); state == "running" || state == "degraded" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: systemd does not get up: %w", m.name, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
