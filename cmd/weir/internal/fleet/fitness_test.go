package fleet

import (
	"errors"
	"testing"
	"time"

	"weir/lb/health"
)

func TestUnfit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	fit := fitness{
		box: Box{Ready: true, Routers: []string{"tor1", "tor2"}, BGPStarted: true}, links: Links{SessionUp: true}, asked: since{now.Add(-time.Hour)},
	}
	for _, tt := range []struct {
		name   string
		change func(*fitness)
		want   string
		next   time.Duration // from now
	}{
		{"all is well", func(*fitness) {}, "", 0},
		{"it begins", func(f *fitness) { f.box.Ready = false }, "the first sync is not complete", 0},
		{"no IPVS", func(f *fitness) { f.box.KernelErr, f.box.NoIPVS, f.unreadable.at = errors.New("no IPVS"), true, now }, "the kernel lost IPVS", auditPatience},
		{"a read that failed", func(f *fitness) { f.box.KernelErr, f.unreadable.at = errors.New("no memory"), now.Add(-time.Second) }, "", 2 * time.Second},
		{"reads that fail", func(f *fitness) {
			f.box.KernelErr, f.unreadable.at = errors.New("no memory\nat all"), now.Add(-auditPatience)
		}, "can't read the kernel: no memory", 0},
		{"a cable", func(f *fitness) { f.links.Down = []string{"eth1 has no carrier"} }, "eth1 has no carrier", 0},
		{"checks", func(f *fitness) { f.stuck = true }, "health checks hang", 0},
		{"no session", func(f *fitness) { f.links.SessionUp = false }, "no BGP session is up: tor1, tor2", 0},
		{"no session yet", func(f *fitness) { f.links.SessionUp, f.asked.at = false, now.Add(-time.Second) }, "", 9 * time.Second},
		{"not asked yet", func(f *fitness) { f.links.SessionUp, f.asked.at = false, time.Time{} }, "", 0},
		{"no routers", func(f *fitness) { f.links.SessionUp, f.box.Routers = false, nil }, "", 0},
	} {
		f := fit
		tt.change(&f)
		if got := f.reason(now); got != tt.want {
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

func TestStuckChecks(t *testing.T) {
	t.Parallel()
	groups := []health.Group{{Check: health.Check{Interval: 5 * time.Second, Timeout: time.Second}}, {Check: health.Check{Interval: time.Second}}}
	at := func(n uint64, targets int) health.Stats {
		return health.Stats{Totals: health.Totals{Checks: n}, Targets: targets}
	}
	now := time.Unix(1000, 0)
	var p progress
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
		if got := p.stuck(step.stats, groups, now.Add(step.after)); got != step.want {
			t.Errorf("%s: stuck %v, want %v", step.name, got, step.want)
		}
	}
}
