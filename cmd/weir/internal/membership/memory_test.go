package membership

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cluster"
	"weir/cmd/weirlab/fuzzing"
)

// remembered returns a Fleet that has run and ended, with the Memory in a folder.
func remembered(t *testing.T, dir string, now time.Time) (*remembering, string) {
	t.Helper()
	var out bytes.Buffer
	cfg := cluster.Config{Fleet: "edge", Name: "a", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Open: true}
	r, err := remember(cfg, dir, slog.New(slog.NewTextHandler(&out, nil)), now)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, r.Run(ctx))
	return r, out.String()
}

func TestEpochsGrowOverRestarts(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 11, 24, 6, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	last := uint64(0)
	for _, jump := range []time.Duration{0, 0, 400 * day, -400 * day, 0} {
		r, _ := remembered(t, dir, now.Add(jump))
		if epoch := r.Memory().Epoch; epoch <= last {
			t.Errorf("epoch %d after %d", epoch, last)
		}
		last = r.Memory().Epoch
	}
	left, err := readMemory(filepath.Join(dir, memoryFile))
	if err != nil || left.Epoch != last {
		t.Errorf("%+v, %v on the disk, want epoch %d", left, err, last)
	}
}

func TestMembersAreRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, memoryFile)
	must(t, os.WriteFile(file, []byte(`{"epoch":7,"known":{"b":{"e":5,"n":3},"no name":{"e":1}}}`), 0o600))
	r, _ := remembered(t, dir, time.Unix(0, 0))
	if got := r.Memory(); got.Epoch != 8 || len(got.Known) != 1 || got.Known["b"] != (cluster.Stamp{Epoch: 5, Sequence: 3}) {
		t.Errorf("%+v", got)
	}
}

func TestAFileThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 11, 24, 6, 0, 0, 0, time.UTC)
	file := filepath.Join(dir, memoryFile)
	must(t, os.WriteFile(file, []byte(`{"epoch":`), 0o600))
	r, logged := remembered(t, dir, now)
	if r.Memory().Epoch != uint64(now.UnixMilli()) || !strings.Contains(logged, "fleet epochs not read") {
		t.Errorf("epoch %d, logged: %s", r.Memory().Epoch, logged)
	}
	if _, err := os.Stat(file + ".corrupt"); err != nil {
		t.Error(err)
	}
	r, logged = remembered(t, filepath.Join(file, "no folder"), now)
	if r.Memory().Epoch == 0 || strings.Count(logged, "fleet epochs not written") != 1 {
		t.Errorf("epoch %d, logged: %s", r.Memory().Epoch, logged)
	}
}

// A disk that hangs must not keep the box out of the fleet: without other members it would take all VIPs.
func TestADiskThatHangs(t *testing.T) {
	t.Parallel()
	cfg := cluster.Config{Fleet: "edge", Name: "a", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Open: true}
	r, err := remember(cfg, t.TempDir(), slog.New(slog.DiscardHandler), time.Now())
	must(t, err)
	hangs := make(chan struct{})
	r.replace = func(string, []byte) error { <-hangs; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	for end := time.Now().Add(diskPatience + 10*time.Second); !r.Status().Joined && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if !r.Status().Joined {
		t.Error("the box has not joined")
	}
	cancel()
	close(hangs)
	must(t, <-ended)
}

func FuzzMemory(f *testing.F) {
	fuzzing.Wide(f)
	f.Add([]byte(`{"epoch":7,"known":{"b":{"e":5,"n":3}}}`))
	f.Add([]byte(`{"epoch":18446744073709551615,"known":{"b":{"e":9223372036854775808}}}`))
	f.Add([]byte(`{"epoch":-1}`))
	fleet, err := cluster.New(cluster.Config{Fleet: "edge", Name: "a", Bind: netip.MustParseAddrPort("127.0.0.1:7946"), Open: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		last, err := parseMemory(content)
		if err != nil {
			return
		}
		fleet.Restore(last, time.Unix(0, 0))
		if epoch := fleet.Memory().Epoch; epoch == 0 || epoch < 1<<62 && epoch <= last.Epoch {
			t.Errorf("epoch %d after %d", epoch, last.Epoch)
		}
	})
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
