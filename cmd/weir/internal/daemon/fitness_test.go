package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb/health"
	"weir/lb/linux"
)

func TestUnfit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	fit := facts{ready: true, routers: []string{"tor1", "tor2"}, asked: now.Add(-time.Hour), heard: true}
	for _, tt := range []struct {
		name   string
		change func(*facts)
		want   string
		next   time.Duration // from now
	}{
		{"all is well", func(*facts) {}, "", 0},
		{"it begins", func(f *facts) { f.ready = false }, "the kernel does not hold the first state yet", 0},
		{"no IPVS", func(f *facts) { f.kernel, f.unread = linux.ErrNoIPVS, now }, "the kernel has no IPVS any more", auditPatience},
		{"a read that failed", func(f *facts) { f.kernel, f.unread = errors.New("no memory"), now.Add(-time.Second) }, "", 2 * time.Second},
		{"reads that fail", func(f *facts) { f.kernel, f.unread = errors.New("no memory\nat all"), now.Add(-auditPatience) }, "the kernel can't be read: no memory", 0},
		{"a cable", func(f *facts) { f.dark = []string{"eth1 has no carrier"} }, "eth1 has no carrier", 0},
		{"checks", func(f *facts) { f.still = true }, "no health check ends any more", 0},
		{"no session", func(f *facts) { f.heard = false }, "no BGP session is up: tor1, tor2", 0},
		{"no session yet", func(f *facts) { f.heard, f.asked = false, now.Add(-time.Second) }, "", 9 * time.Second},
		{"not asked yet", func(f *facts) { f.heard, f.asked = false, time.Time{} }, "", 0},
		{"no routers", func(f *facts) { f.heard, f.routers = false, nil }, "", 0},
	} {
		f := fit
		tt.change(&f)
		if got := f.unfit(now); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		next := time.Duration(0)
		if n := f.next(now); !n.IsZero() {
			next = n.Sub(now)
		}
		if next != tt.next {
			t.Errorf("%s: to be judged again in %s, want %s", tt.name, next, tt.next)
		}
	}
}

func TestChecksThatStandStill(t *testing.T) {
	t.Parallel()
	groups := []health.Group{{Check: health.Check{Interval: 5 * time.Second, Timeout: time.Second}}, {Check: health.Check{Interval: time.Second}}}
	at := func(n uint64, targets int) health.Stats {
		return health.Stats{Totals: health.Totals{Checks: n}, Targets: targets}
	}
	now := time.Unix(1000, 0)
	var p pulse
	for _, step := range []struct {
		name  string
		after time.Duration
		stats health.Stats
		want  bool
	}{
		{"begin", 0, at(1, 2), false},
		{"as long as may be", 16 * time.Second, at(1, 2), false},
		{"longer", 16*time.Second + 1, at(1, 2), true},
		{"one ends", 17 * time.Second, at(2, 2), false},
		{"none are left", time.Hour, at(2, 0), false},
	} {
		if got := p.still(step.stats, groups, now.Add(step.after)); got != step.want {
			t.Errorf("%s: still %v, want %v", step.name, got, step.want)
		}
	}
}

func TestSigns(t *testing.T) {
	t.Parallel()
	links := t.TempDir()
	write := func(name, file, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(links, name), 0o755), os.WriteFile(filepath.Join(links, name, file), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("eth0", "carrier", "1\n")
	write("eth0", "address", "02:00:00:00:00:01\n")
	write("eth1", "carrier", "0\n")
	heard := true
	s := signs{links: links, heard: func() bool { return heard }}
	s.watch([]string{"eth0", "eth1", "eth9"}, nil)
	want := reading{
		dark: []string{"eth1 has no carrier", "there is no interface eth9"}, darkNames: []string{"eth1", "eth9"},
		macs: []string{"02:00:00:00:00:01"}, heard: true,
	}
	if d := cmp.Diff(want, s.read(), cmp.AllowUnexported(reading{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if s.look() {
		t.Error("nothing has changed")
	}
	write("eth1", "carrier", "1\n")
	heard = false
	if !s.look() || len(s.read().dark) != 1 || s.read().heard {
		t.Errorf("a cable is back: %+v", s.read())
	}
}
