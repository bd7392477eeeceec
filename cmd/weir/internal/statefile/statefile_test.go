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
