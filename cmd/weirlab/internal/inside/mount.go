package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }
