// Package statefile reads and replaces the small files that weir keeps for its next start. It never follows
// a link, never reads without bound and never leaves half a file behind.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Corrupt is the ending of a file that was set aside.
const Corrupt = ".corrupt"

// Read returns the content of a file of at most limit bytes. Another user may own the folder, so a link, a pipe or a
// device is refused. The error of a missing file matches fs.ErrNotExist.
func Read(name string, limit int64) (content []byte, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file: move it away", name)
	case info.Size() > limit:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", name, info.Size(), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Decode reads one JSON document, and nothing after it. It ignores unknown fields: a newer version wrote
// them, and the operator went back to this one. A newer version that must not be misread so gives its
// document another version number.
func Decode(content []byte, doc any) error {
	dec := json.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(doc); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after the document")
	}
	return nil
}

// Replace writes a file, and makes its folder if there is none. After a power cut the old or the new content is there. The
// owner of the folder owns the file: another user than root must be able to read it afterwards.
func Replace(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	_ = os.Remove(name + ".new") // of a crash, or a link of the owner of the folder
	tmp, err := os.OpenFile(name+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err = errors.Join(err, GiveToOwner(tmp), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return syncFolder(name)
}

// GiveToOwner gives a file that root has made to the owner of its folder.
func GiveToOwner(f *os.File) error {
	var folder unix.Stat_t
	if os.Geteuid() != 0 {
		return nil
	}
	if err := unix.Stat(filepath.Dir(f.Name()), &folder); err != nil {
		return err
	}
	return f.Chown(int(folder.Uid), int(folder.Gid))
}

// Remove deletes a file for good. A missing file is no error.
func Remove(name string) error {
	err := os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncFolder(name))
}

// SetAside renames a file that can't be used.
func SetAside(name string) error { return os.Rename(name, name+Corrupt) }

func syncFolder(name string) error {
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
