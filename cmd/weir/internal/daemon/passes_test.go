package daemon

import (
	"net/netip"
	"testing"
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
