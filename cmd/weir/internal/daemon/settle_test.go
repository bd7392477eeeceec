package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
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
		waits      bool
	}{
		{"old files", time.Hour, time.Hour, false},
		{"the file is new", 0, time.Hour, true},
		{"a part is new", time.Hour, 0, true},
		{"a clock was set back", -time.Hour, time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(file, tt.main)
			write(part, tt.part)
			settle(context.Background(), file)
			if got := time.Since(lastWrite(file)); tt.waits && got < settled {
				t.Errorf("settled %s after the last write, want %s at least", got, settled)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			begin := time.Now()
			settle(ctx, file)
			if took := time.Since(begin); took > settled/2 {
				t.Errorf("took %s with nothing to wait for", took)
			}
		})
	}
}
