package daemon

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/supervise"
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

// What a pass postponed does not wait for min_sync_period.
func TestPostponedOperationsFollowAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := fakeBox(t, nil)
		now := time.Now()
		b.passes.progress.lastPass, b.passes.progress.floor, b.passes.progress.since = now, now.Add(time.Hour), now
		if due := b.passes.due(); !due.Equal(now.Add(time.Hour)) {
			t.Errorf("a change is due at %v", due)
		}
		b.passes.progress.later = 1
		if due := b.passes.due(); !due.Equal(now) {
			t.Errorf("what was postponed is due at %v", due)
		}
	})
}

// A stream of changes is written in two passes at once, and then in one for each min_sync_period.
func TestAStreamOfChangesIsWrittenOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrent(t)
		time.Sleep(time.Minute) // the start waits no longer for clusters
		rules, period := lb.Rules{Family: lb.IPv4}, c.target.cfg.Kernel.MinSyncPeriod
		lastPass := func() (last time.Time) {
			synctest.Wait()
			if err := c.calls.Do(t.Context(), func() { last = c.box.passes.progress.lastPass }); err != nil {
				t.Fatal(err)
			}
			return last
		}
		var got, want []time.Duration
		begin, last := time.Now(), lastPass()
		for range 1000 {
			c.kernel.Remove(rules)
			c.events.Add(lb.Event{Lost: []lb.Object{rules}, What: "a test"})
			if now := lastPass(); !now.Equal(last) {
				last = now
				got = append(got, now.Sub(begin))
			}
			time.Sleep(time.Millisecond)
		}
		want = append(want, 0, time.Millisecond)
		for next := period; next < time.Second; next += period {
			want = append(want, next)
		}
		if diff := cmp.Diff(want, got); diff != "" || period < 10*time.Millisecond {
			t.Errorf("passes with min_sync_period %v (-want +got):\n%s", period, diff)
		}
		c.end()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
}

// A reload writes at once. The pass after it waits for the new min_sync_period, whatever the old one was.
func TestAShorterPeriodIsInForceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p progress
		for range 3 {
			p.passed(time.Now(), 24*time.Hour)
		}
		p.passed(time.Now(), 50*time.Millisecond)
		if wait := time.Until(p.floor); wait != 50*time.Millisecond {
			t.Errorf("the next pass waits for %v", wait)
		}
	})
}

// endlessCount is a kernel with so many connections that no count of them ends.
type endlessCount struct{ begun chan struct{} }

func (k endlessCount) CountConns(ctx context.Context, _ []lb.RealServer) (map[lb.Object]lb.Conns, error) {
	close(k.begun)
	<-ctx.Done()
	return nil, ctx.Err()
}

// The loop does not read connections: while those of draining backends are counted it applies changes at once, and ends drains at
// their deadlines.
func TestTheLoopDoesNotWaitForACountOfDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := idleConcurrent(t)
		kernel := endlessCount{make(chan struct{})}
		c.passes.counter = supervise.NewDrainCounter(c.log, kernel, func(time.Duration) {})
		c.run(t, t.Context())
		time.Sleep(time.Minute) // the start waits no longer for clusters
		do := func(f func()) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := c.calls.Do(ctx, f); err != nil {
				t.Fatalf("the loop is busy: %v", err)
			}
		}
		serve := func(backend string) {
			t.Helper()
			svc := served(1)
			svc.ID.Source, svc.ID.Namespace, svc.Drain = config.Source, "", time.Hour
			svc.Ports[0].Backends[0].Addr = netip.MustParseAddrPort(backend)
			do(func() {
				if err := c.apply(t.Context(), c.config(t, []lb.Service{svc})); err != nil {
					t.Error(err)
				}
			})
			rs := lb.RealServer{Frontend: lb.Frontend{Addr: svc.VIPs[0].Addr, Port: 80, Proto: lb.TCP}, Addr: svc.Ports[0].Backends[0].Addr}
			if c.kernel.Objects()[rs.ID()] == nil {
				t.Errorf("%s is not in the kernel", rs)
			}
		}
		serve("10.0.0.1:80")
		serve("10.0.0.2:80")
		<-kernel.begun
		serve("10.0.0.3:80")
		draining := func() (n int) { do(func() { n = c.target.rec.Draining() }); return n }
		if n := draining(); n != 2 {
			t.Errorf("%d backends drain, want 2", n)
		}
		time.Sleep(2 * time.Hour)
		if n := draining(); n != 0 {
			t.Errorf("%d backends drain after their deadline", n)
		}
		c.end()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
}

// What was derived between the reception of Services and the pass that plans them is stale after it. A pass without a
// change leaves it.
func TestAPassMakesOwnersStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gaugeBox(t, oneRouter)
		for _, changed := range []bool{true, false} {
			if changed {
				g.target.changes.services++
			}
			before := g.target.changes.services
			g.box.passes.sync(t.Context())
			if stale := g.target.changes.services != before; stale != changed {
				t.Errorf("after a pass with a change %v, the owners are stale: %v", changed, stale)
			}
		}
	})
}
