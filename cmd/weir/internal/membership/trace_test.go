package membership

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weirlab/fuzzing"
)

func TestReadTrace(t *testing.T) {
	t.Parallel()
	left := trace{Boot: "b1", Uptime: time.Hour, Owned: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for _, tt := range []struct {
		name string
		boot string
		now  time.Duration
		want bool
	}{
		{"a restart", "b1", time.Hour + 3*time.Second, true},
		{"as late as may be", "b1", time.Hour + fleet.StableFor, true},
		{"too late", "b1", time.Hour + fleet.StableFor + 1, false},
		{"another boot", "b2", time.Hour + 3*time.Second, false},
		{"a time to come", "b1", time.Hour - 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, left.save(dir))
			got, ok := readTrace(dir, tt.boot, tt.now)
			want := trace{}
			if tt.want {
				want = left
			}
			if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); ok != tt.want || d != "" {
				t.Errorf("believed %v (-want +got):\n%s", ok, d)
			}
		})
	}
}

func TestReadTraceIgnoresBadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, ok := readTrace(dir, "b1", time.Hour); ok {
		t.Error("believed without a file")
	}
	for _, content := range []string{"", "{", `{"boot":"b1","uptime":1}{}`, `{"boot":"b1","uptime":"1"}`, `{"boot":"b1","uptime":1,"owned":["x"]}`} {
		must(t, os.WriteFile(filepath.Join(dir, traceFile), []byte(content), 0o600))
		if got, ok := readTrace(dir, "b1", time.Second); ok {
			t.Errorf("%q is believed: %+v", content, got)
		}
	}
}

func TestRemoveTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := removeTrace(dir); err != nil {
		t.Errorf("without one: %v", err)
	}
	must(t, (trace{Boot: "b1", Uptime: time.Second}).save(dir))
	must(t, removeTrace(dir))
	if _, ok := readTrace(dir, "b1", time.Second); ok {
		t.Error("it is still there")
	}
}

// A trace that cannot be written or removed is reported once, and done when the folder is back.
func TestTroubleWithTheTrace(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	dir := filepath.Join(t.TempDir(), "weir")
	tr, now := tracer{dir: dir, boot: "b1"}, time.Hour
	reports := func(name, want string) {
		t.Helper()
		for range 2 {
			now += traceEvery
			tr.touch(now, log)
		}
		if n := strings.Count(out.String(), "\n"); n > 1 || !strings.Contains(out.String(), want) || n > 0 && want == "" {
			t.Errorf("%s: logged %q, want one line with %q", name, &out, want)
		}
		out.Reset()
	}
	tr.keep(true, nil)
	reports("there is no folder", "not written")
	must(t, os.Mkdir(dir, 0o700))
	reports("there is one", "")
	tr.keep(false, nil)
	trace := filepath.Join(dir, traceFile)
	must(t, errors.Join(os.Remove(trace), os.MkdirAll(filepath.Join(trace, "full"), 0o700)))
	reports("it cannot be removed", "not removed")
	must(t, os.Remove(filepath.Join(trace, "full")))
	reports("it can", "")
	if _, err := os.Stat(trace); err == nil {
		t.Error("the trace is still there")
	}
}

func TestBoot(t *testing.T) {
	t.Parallel()
	before := uptime()
	time.Sleep(time.Millisecond)
	if after := uptime(); before <= 0 || after-before < time.Millisecond {
		t.Errorf("uptime went from %s to %s", before, after)
	}
	if bootID() == "" {
		t.Error("this boot has no name")
	}
}

func FuzzParseTrace(f *testing.F) {
	fuzzing.Wide(f)
	good, _ := json.Marshal(trace{Boot: "b1", Uptime: time.Second, Owned: []netip.Addr{netip.MustParseAddr("2001:db8::1")}})
	f.Add(good)
	f.Add([]byte(`{"boot":"b1","uptime":-1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, ok := parseTrace(content, "b1", time.Minute)
		if ok && (got.Boot != "b1" || got.Uptime < 0 || got.Uptime > time.Minute) {
			t.Errorf("%q is believed as %+v", content, got)
		}
		if !ok && (got.Boot != "" || got.Owned != nil) {
			t.Errorf("%q gives %+v and is not believed", content, got)
		}
	})
}
