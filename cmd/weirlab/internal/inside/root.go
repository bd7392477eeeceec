package inside

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The shares of a qemu box are read through 9p. cache=loose keeps them in memory: no program changes the
// programs while a lab runs. A kept folder must reach the other side with every write instead.
const (
	shareOptions = "trans=virtio,version=9p2000.L,msize=512000"
	rootOptions  = shareOptions + ",cache=loose"
)

// enterRoot changes to a root in which everything can be read and all that is written stays in
// memory: an overlay over the file system of the machine that carries the lab.
func enterRoot(c Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	lower := cmp.Or(c.Base, "/")
	if err := os.MkdirAll(c.Scratch, 0o755); err != nil {
		return err
	}
	if err := mount("tmpfs", c.Scratch, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	if c.Root == RootShared {
		lower = filepath.Join(c.Scratch, "lower")
		if err := mount(RootTag, lower, "9p", unix.MS_RDONLY, rootOptions); err != nil {
			return err
		}
	}
	root, err := overlay(c.Scratch, lower)
	if err != nil {
		return err
	}
	if err := fill(c, root); err != nil {
		return err
	}
	return switchTo(root)
}

func overlay(scratch, lower string) (string, error) {
	root := filepath.Join(scratch, "root")
	upper, work := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	for _, dir := range []string{root, upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return "", err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work)
	return root, mount("overlay", root, "overlay", 0, options)
}

// fill mounts in the new root what an overlay of files does not bring.
func fill(c Config, root string) error {
	if c.Root == RootNamespace {
		if err := bindOtherMounts(root, c.Scratch); err != nil {
			return err
		}
		if err := bind("/dev", root+"/dev", unix.MS_REC); err != nil {
			return err
		}
	}
	if err := mountAPI(root); err != nil {
		return err
	}
	if err := mount("tmpfs", root+"/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	if err := os.MkdirAll(root+"/run/lock", 0o1777); err != nil {
		return err
	}
	for _, dir := range c.Show {
		if err := bind(dir, root+dir, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	for _, k := range c.Keep {
		if err := mountKept(c.Root, k, root+k.Path); err != nil {
			return fmt.Errorf("kept folder %s: %w", k.Path, err)
		}
	}
	if c.Modules == "" {
		return nil
	}
	modules := root + "/usr/lib/modules"
	if c.Root == RootShared {
		return bind(filepath.Join(c.Scratch, "lower", c.Modules), modules, 0)
	}
	return bind(c.Modules, modules, 0)
}

// bindOtherMounts shows, read-only, what is mounted besides the root, as other disks and the folders
// a container was given: an overlay sees only one file system.
func bindOtherMounts(root, scratch string) error {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || !wanted(fields[4], scratch) {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[4])
		if err := bindAsIs(point, root+point); err != nil {
			fmt.Printf("weirlab: %s is not visible: %v\n", point, err)
		}
	}
	return nil
}

func wanted(point, scratch string) bool {
	for _, api := range []string{"/proc", "/sys", "/dev", "/run", scratch} {
		if point == api || strings.HasPrefix(point, api+"/") {
			return false
		}
	}
	return point != "/"
}

func bindAsIs(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return bind(from, to, 0)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if f, err := os.OpenFile(to, os.O_CREATE, 0o644); err == nil {
		f.Close()
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

func mountKept(root Root, k Keep, to string) error {
	switch root {
	case RootHostfs:
		return mount("kept", to, "hostfs", 0, k.Source)
	case RootShared:
		return mount(k.Source, to, "9p", 0, shareOptions)
	}
	return bind(k.Source, to, 0)
}

// switchTo makes root the root of the mount namespace: moved over the old one, as an initial RAM file
// system does it, because the kernel's first root cannot be pivoted away.
func switchTo(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move new root to /: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot to new root: %w", err)
	}
	return os.Chdir("/")
}

// restore puts files back that were saved before the power went.
func restore(c Config) error {
	if _, err := os.Stat(c.Saved); os.IsNotExist(err) { // also of no name
		return nil
	}
	if out, err := exec.Command("/bin/tar", "-xpPf", c.Saved, "-C", "/").CombinedOutput(); err != nil {
		return fmt.Errorf("restore %s: %w: %s", c.Saved, err, out)
	}
	return nil
}

// mountAPI mounts the kernel's own file systems under root. What is there already may stay.
func mountAPI(root string) error {
	root = strings.TrimSuffix(root, "/")
	for _, fs := range []struct{ kind, path, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=620,gid=5"},
		{"tmpfs", "/dev/shm", "mode=1777"},
	} {
		if strings.HasPrefix(fs.path, "/dev") && isMountPoint(root+fs.path) {
			continue
		}
		if err := mount(fs.kind, root+fs.path, fs.kind, 0, fs.options); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, root+"/dev/"+name); err != nil && !os.IsExist(err) && !errors.Is(err, unix.EROFS) {
			return err
		}
	}
	return nil
}

func mount(source, to, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, to, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, to, err)
	}
	return nil
}

func bind(from, to string, flags uintptr) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

// isMountPoint reports whether something is mounted on path: its device is not its parent's.
func isMountPoint(path string) bool {
	var here, parent unix.Stat_t
	if unix.Stat(path, &here) != nil || unix.Stat(filepath.Dir(path), &parent) != nil {
		return false
	}
	return here.Dev != parent.Dev
}
