package kernelmode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/statefile"
	"weir/lb/linux"
)

// LockFolder is the folder of the lock. Only root and weir's user may write to it, so that
// no other user can hold the lock and keep weir from starting.
const LockFolder = "/run/weir"

// lockTries bounds the attempts with a folder that is removed meanwhile: one that is a link to nowhere is there, and has no
// file.
const lockTries = 100

// Owner is the lock of a network namespace.
type Owner struct {
	file *os.File
	made bool // its folder, too
}

// Lock makes this process the only weir of its network namespace, until the result is closed. It
// locks a file of folder that is named by the namespace's inode, as there is one IPVS in each.
// The lock ends with its process; the file stays in a folder that was there before.
func Lock(folder string) (*Owner, error) {
	var space unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &space); err != nil {
		return nil, fmt.Errorf("lock the network namespace: %w", err)
	}
	name := filepath.Join(folder, fmt.Sprintf("owner-%d.lock", space.Ino))
	for o, try := (Owner{}), 1; ; try++ {
		err := os.Mkdir(folder, 0o755) // systemd makes it, a start by hand has none
		o.made = o.made || err == nil
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock the network namespace: %w", err)
		}
		switch o.file, err = lockFile(name); {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.New("another weir runs in this network namespace, and only one can own the kernel: systemctl status weir, or pgrep -a weir")
		case err != nil && (!errors.Is(err, fs.ErrNotExist) || try == lockTries): // or the folder was removed meanwhile
			return nil, fmt.Errorf("lock the network namespace: %w", err)
		case err == nil && o.file != nil:
			return &o, nil
		}
	}
}

// Close ends the lock. It leaves nothing behind of a folder that Lock made.
func (o *Owner) Close() error {
	if o.made {
		_ = os.Remove(o.file.Name())
		_ = os.Remove(filepath.Dir(o.file.Name())) // stays if others use it
	}
	return o.file.Close()
}

// lockFile opens a file and locks it. It returns nil if the file was removed meanwhile, as systemd
// does with the folder when the service stops.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	locked, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if now, err := os.Stat(name); err != nil || !os.SameFile(locked, now) {
		return nil, f.Close()
	}
	if err := statefile.GiveToOwner(f); err != nil { // the service must be able to lock it afterwards
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// RefuseKubeProxy returns an error if kube-proxy runs, or has run, with weir's names: each would remove the objects of
// the other.
func RefuseKubeProxy(ctx context.Context, kernel *linux.Kernel) error {
	trace, err := kernel.KubeProxy(ctx)
	if err != nil {
		return fmt.Errorf("detect kube-proxy: %w", err)
	}
	if trace == "" {
		return nil
	}
	return fmt.Errorf("kube-proxy works in this kernel, or has: there is %s. Both use the same sets and chains. "+
		"Remove kube-proxy and run kube-proxy --cleanup, or give weir names of its own: kernel.name_prefix and kernel.device", trace)
}
