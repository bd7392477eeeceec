package daemon

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kube"
	"weir/lb"
)

func TestWhatAPassShowsIsACauseToo(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := newTestBox(&config.Config{})
	b.target.rec, b.sources.guard = lb.NewReconciler(nil, lb.Options{}), kube.Guard{Guarded: []lb.GuardedSource{{Source: "prod", Until: now}, {Source: "test", Until: now.Add(time.Hour)}, {Source: "dev"}}}
	b.target.causes.Add("the start")
	rep := lb.Report{Drift: []lb.Object{lb.Address{Addr: netip.MustParseAddr("192.0.2.1")}}}
	want := "the start; another program changed the kernel; guard_timeout of prod is over; drains of backends are over; and more"
	if got := b.passes.because(before{draining: 1, pending: 2}, rep, now); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.sources.guard.Guarded = nil
	if got := b.passes.because(before{}, lb.Report{}, now); got != "" {
		t.Errorf("the next pass has causes of the last: %q", got)
	}
}

// Two passes may follow each other at once. A third waits for min_sync_period from the end of the second, however long they take.
func TestTwoPassesFollowAtOnce(t *testing.T) {
	const period, took = 50 * time.Millisecond, 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var p progress
		for i, pass := range []struct{ rest, wait time.Duration }{
			{0, 0}, {0, 0}, {0, period}, {0, period}, {period, 0}, {0, period}, {3 * period, 0}, {0, 0}, {0, period},
		} {
			time.Sleep(pass.rest)
			wait := max(0, time.Until(p.floor))
			if wait != pass.wait {
				t.Errorf("pass %d waits for %v, want %v", i, wait, pass.wait)
			}
			time.Sleep(wait)
			begin := time.Now()
			time.Sleep(took)
			p.passed(begin, period)
		}
	})
}
