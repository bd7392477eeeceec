package load

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuiesceWaitsForTheLastWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	part := filepath.Join(filepath.Dir(file), "conf.d", "a.toml")
	write := func(name string, age time.Duration) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, nil, 0o600))
		then := time.Now().Add(-age)
		must(t, os.Chtimes(name, then, then))
	}
	for _, tt := range []struct {
		name       string
		main, part time.Duration // ages
		wait       time.Duration
	}{
		{"old files", time.Hour, time.Hour, 0},
		{"the file is new", 0, time.Hour, quietTime},
		{"a part is new", time.Hour, 0, quietTime},
		{"a clock was set back", -time.Hour, time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				write(file, tt.main)
				write(part, tt.part)
				for _, want := range []time.Duration{tt.wait, 0} { // the second time there is nothing to wait for
					begin := time.Now()
					Quiesce(t.Context(), file)
					if took := time.Since(begin); took != want {
						t.Errorf("quiet after %s, want %s", took, want)
					}
				}
			})
		})
	}
}

// TestOpenReadsFilesToTheEnd checks that a file is not loaded in the moment in which its writer has emptied it.
func TestOpenReadsFilesToTheEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	text := []byte("[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [80]\nbackends = [\"10.0.0.1\"]\n")
	must(t, os.WriteFile(file, nil, 0o600))
	written := make(chan error, 1)
	go func() {
		time.Sleep(quietTime / 2)
		written <- os.WriteFile(file, text, 0o600)
	}()
	cfg, read, err := Open(t.Context(), file)
	if err != nil || len(cfg.Services) != 1 || len(read.Files[file]) != len(text) {
		t.Errorf("%v, read %q", err, read.Files[file])
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
