package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// TestWatchdog has a loop that is busy, idle and hung in turn.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	beats := 0
	p := &watchdog{every: 20 * time.Second, notify: func(string) { beats++ }}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 1000 { // rounds of a busy loop, for 10 s
		now = now.Add(10 * time.Millisecond)
		p.beat(now)
	}
	if beats != 2 {
		t.Errorf("a busy loop beats %d times in 10 s, want 2: every fourth part of a third of a minute", beats)
	}
	next := p.before(now.Add(time.Hour))
	if d := next.Sub(now); d <= 0 || d > 20*time.Second {
		t.Errorf("an idle loop beats again after %s", d)
	}
	if due := now.Add(time.Millisecond); !p.before(due).Equal(due) {
		t.Error("a beat puts off what is due")
	}
	p.beat(next)
	if beats != 3 {
		t.Errorf("an idle loop has beaten %d times", beats)
	}
	nobody := &watchdog{notify: func(string) { t.Error("nobody watches") }}
	nobody.beat(now)
	if due := now.Add(time.Hour); !nobody.before(due).Equal(due) {
		t.Error("it wakes for nobody")
	}
}

// slow is a kernel that takes its time.
type slow struct {
	*lb.Fake
	step time.Duration
}

func (k slow) Observe(ctx context.Context, only ...lb.Frontend) (lb.Observation, error) {
	time.Sleep(k.step)
	return k.Fake.Observe(ctx, only...)
}

func (k slow) Apply(ctx context.Context, ops []lb.Op) []error {
	time.Sleep(k.step)
	return k.Fake.Apply(ctx, ops)
}

// TestALongPassBeats has a pass take much longer than systemd would wait, in steps that do not.
func TestALongPassBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const allowed = 60 * time.Second
		begin := time.Now()
		last, longest := begin, time.Duration(0)
		p := &watchdog{every: allowed / 3, notify: func(string) {
			longest, last = max(longest, time.Since(last)), time.Now()
		}}
		base := lb.Base{Device: "weir0", Families: []lb.Family{lb.IPv4}}
		rec := lb.NewReconciler(paced{slow{&lb.Fake{}, 25 * time.Second}, p}, lb.Options{Base: base}, config.Source)
		rec.Update(lb.Update{Source: config.Source, Put: []lb.Service{{
			ID: lb.ServiceID{Source: config.Source, Name: "web"},
		}}, Synced: true})
		if _, err := rec.Audit(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 2*allowed || longest > allowed || longest == 0 {
			t.Errorf("in a pass of %s the longest silence is %s", took, longest)
		}
	})
}
