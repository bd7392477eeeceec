package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestSettleWaitsForTheLastWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	part := filepath.Join(filepath.Dir(file), "conf.d", "a.toml")
	write := func(name string, age time.Duration) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name       string
		main, part time.Duration // ages
		wait       time.Duration
	}{
		{"old files", time.Hour, time.Hour, 0},
		{"the file is new", 0, time.Hour, settled},
		{"a part is new", time.Hour, 0, settled},
		{"a clock was set back", -time.Hour, time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				write(file, tt.main)
				write(part, tt.part)
				for _, want := range []time.Duration{tt.wait, 0} { // the second time there is nothing to wait for
					begin := time.Now()
					settle(t.Context(), file)
					if took := time.Since(begin); took != want {
						t.Errorf("settled after %s, want %s", took, want)
					}
				}
			})
		})
	}
}
