package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// cacheFolder holds what is made once and used by every lab: binaries, module folders, qemu's kernel,
// and "work", the empty folder on which each lab mounts its own memory, visible to this lab only. With
// elements it returns a path below it.
func cacheFolder(elements ...string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = "/var/cache" // without HOME: a service
	}
	dir := filepath.Join(base, "weirlab")
	return filepath.Join(append([]string{dir}, elements...)...), os.MkdirAll(filepath.Join(dir, "work"), 0o755)
}

// cached returns the folder name of the cache, which make fills if it is not there. Only a complete
// folder ever has the name, and only one process at a time makes one.
func cached(name string, make func(dir string) error) (string, error) {
	dir, err := cacheFolder(name)
	if err != nil {
		return "", err
	}
	unlock, err := lock(context.Background(), dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil { // of a process that was killed
		return "", err
	}
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return "", err
	}
	if err := make(unfinished); err != nil {
		return "", errors.Join(fmt.Errorf("make %s: %w", dir, err), os.RemoveAll(unfinished))
	}
	return dir, os.Rename(unfinished, dir)
}

// cacheWith returns a folder of the cache, and an error unless it has a file.
func cacheWith(folder, file string) (string, error) {
	dir, err := cacheFolder(folder)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(filepath.Join(dir, file))
	return dir, err
}

// forgetUnused removes files and folders that were not used for long.
func forgetUnused(pattern string, after time.Duration) {
	old, _ := filepath.Glob(pattern) // the pattern is a good one
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > after {
			_ = os.RemoveAll(path) // what stays now goes another time
		}
	}
}

// lock waits for an exclusive lock as long as ctx lasts. The lock ends with this process at the latest.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() { locked <- flock(file, unix.LOCK_EX) }()
	select {
	case err := <-locked:
		if err != nil {
			file.Close()
			return nil, err
		}
		return func() { file.Close() }, nil
	case <-ctx.Done():
		go func() { <-locked; file.Close() }() //nolint:errcheck // its turn comes, and goes to the next
		return nil, ctx.Err()
	}
}

// tryLock returns the locked file, or nil if another has it.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err = flock(file, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return file, nil
	}
	file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

func flock(file *os.File, how int) error {
	for {
		if err := unix.Flock(int(file.Fd()), how); err == nil {
			return nil
		} else if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
}
