package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReplaceMakesTheFolder(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "not", "there", "x.json")
	for _, want := range []string{"first", "second"} {
		if err := Replace(name, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(name, 100); err != nil || string(got) != want {
			t.Errorf("%q, %v instead of %q", got, err, want)
		}
	}
	if _, err := Read(name, 3); err == nil {
		t.Error("a file over the limit is read")
	}
	for range 2 {
		if err := Remove(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := Read(name, 100); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestReadRefusesIrregularFiles(t *testing.T) {
	t.Parallel()
	for what, put := range map[string]func(name string) error{
		"a pipe":      func(name string) error { return unix.Mkfifo(name, 0o600) },
		"a link":      func(name string) error { return os.Symlink("/dev/zero", name) },
		"a directory": func(name string) error { return os.Mkdir(name, 0o700) },
	} {
		name := filepath.Join(t.TempDir(), "x.json")
		if err := put(name); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(name, 100); err == nil {
			t.Errorf("%s is read as %q", what, got)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var doc struct{ A int }
	for content, ok := range map[string]bool{`{"A":1}`: true, `{"A":1,"B":1}`: true, `{"A":1}{}`: false, ``: false} {
		if err := Decode([]byte(content), &doc); (err == nil) != ok {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// TestTheOwnerOfTheFolderOwnsTheFile runs as root, as a start by hand does, in the folder of the service. That user may have
// left a link there.
func TestTheOwnerOfTheFolderOwnsTheFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const user, group = 65534, 65533
	folder, foreign := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
	name := filepath.Join(folder, "x.json")
	for _, err := range []error{
		os.Chown(folder, user, group), os.WriteFile(foreign, []byte("secret"), 0o600), os.Symlink(foreign, name+".new"), Replace(name, []byte("new")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]unix.Stat_t{name: {Uid: user, Gid: group, Size: 3}, foreign: {Size: 6}} {
		var got unix.Stat_t
		if err := unix.Lstat(file, &got); err != nil || got.Uid != want.Uid || got.Gid != want.Gid || got.Size != want.Size || got.Mode != unix.S_IFREG|0o600 {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
	}
}
