package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cacheFolder holds what is made once and used by every lab: binaries, module folders, qemu's kernel,
// and "work", the empty folder on which each lab mounts its own memory, visible to this lab only.
func cacheFolder() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = "/var/cache" // without HOME: a service
	}
	dir := filepath.Join(base, "weirlab")
	return dir, os.MkdirAll(filepath.Join(dir, "work"), 0o755)
}

// cached returns the folder name of the cache, which make fills if it is not there. Only a complete
// folder ever has the name, and only one process at a time makes one.
func cached(name string, make func(dir string) error) (string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	unlock, err := lock(dir + ".lock")
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
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, folder)
	_, err = os.Stat(filepath.Join(dir, file))
	return dir, err
}

// lock waits for an exclusive lock, which ends with this process at the latest.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
