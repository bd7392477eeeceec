package load

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config/source"
)

var update = flag.Bool("update", false, "write the .err files of testdata/invalid")

// invalid gives the texts of testdata/invalid by their paths.
func invalid(t testing.TB) map[string]string {
	t.Helper()
	names, err := filepath.Glob("testdata/invalid/*.toml")
	if err != nil || len(names) == 0 {
		t.Fatalf("testdata/invalid: %v, %v", names, err)
	}
	out := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		must(t, err)
		out[name] = string(data)
	}
	return out
}

// TestInvalid compares all messages about bad files.
func TestInvalid(t *testing.T) {
	for name := range invalid(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			_, err := File(name)
			var all *source.Errors
			if !errors.As(err, &all) {
				t.Fatalf("Load = %v, want *Errors", err)
			}
			golden := strings.TrimSuffix(name, ".toml") + ".err"
			got := all.Error() + "\n"
			if *update {
				must(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
