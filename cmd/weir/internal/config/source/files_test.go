package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestUnreadableFoldersAreErrors has a loop of symbolic links in place of a folder without permission, which
// root could read.
func TestUnreadableFoldersAreErrors(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.Symlink("loop", filepath.Join(dir, "loop")), os.Mkdir(filepath.Join(dir, "conf.d"), 0o755),
		os.WriteFile(filepath.Join(dir, "conf.d/a.toml"), nil, 0o600), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		pattern string
		want    []string
		err     error
	}{
		{"conf.d/*.toml", []string{"conf.d/a.toml"}, nil},
		{"*.d/a.toml", []string{"conf.d/a.toml"}, nil},
		{"none.d/*.toml", nil, nil},
		{"file/*.toml", nil, nil},
		{"conf.d/none.toml", nil, nil},
		{"loop/*.toml", nil, syscall.ELOOP},
		{"*/*.toml", nil, syscall.ELOOP},
		{"*/*/*.toml", nil, syscall.ELOOP},
		{"loop/a.toml", nil, syscall.ELOOP},
		{"conf.d/[", nil, filepath.ErrBadPattern},
	} {
		got, err := Disk{}.Glob(filepath.Join(dir, tt.pattern))
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], dir+"/")
		}
		if !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v, want %q, %v", tt.pattern, got, err, tt.want, tt.err)
		}
	}
}
