package inside

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// KeeperSocket is the name of the keeper's socket in the work folder.
const KeeperSocket = "keeper.sock"

// Keeper is the first process of a lab, in namespaces of its own. All that the lab makes lives in
// them: when the keeper ends, and it ends when its standard input does, the kernel takes away every
// process, mount, network card and file. Its standard input is a pipe from the test process, so this
// holds however that process ends.
//
// work is an empty folder; the lab's memory file system is mounted there.
func Keeper(work string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends, the parent is gone
		os.Exit(0)
	}()
	os.Setenv("TMPDIR", work) // user-mode Linux keeps the memory of its machines there
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Nothing in the lab can write to the machine that carries it.
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(-1, "/", unix.AT_RECURSIVE, readOnly); err != nil {
		return fmt.Errorf("make mounts read-only: %w", err)
	}
	for _, fs := range []struct{ kind, path string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", work}} {
		if err := unix.Mount(fs.kind, fs.path, fs.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", fs.kind, fs.path, err)
		}
	}
	if err := beSwitch(); err != nil {
		return err
	}
	listener, err := listenUnix(filepath.Join(work, KeeperSocket))
	if err != nil {
		return err
	}
	return runAgent(listener, nil)
}

// beSwitch makes the keeper's end of the networks take no part in them: no addresses of its own, and
// where the machine has br_netfilter, no firewall for what only passes by.
func beSwitch() error {
	for name, value := range map[string]string{
		"ipv6/conf/all/disable_ipv6":          "1",
		"ipv6/conf/default/disable_ipv6":      "1",
		"bridge/bridge-nf-call-iptables":      "0",
		"bridge/bridge-nf-call-ip6tables":     "0",
		"bridge/bridge-nf-call-arptables":     "0",
		"bridge/bridge-nf-filter-vlan-tagged": "0",
	} {
		err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
