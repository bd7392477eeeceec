package supervise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"weir/lb"
)

// TestWatchdog has a loop that is busy, idle and hung in turn.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	beats := 0
	p := &Watchdog{every: 20 * time.Second, notify: func(string) { beats++ }}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 1000 { // rounds of a busy loop, for 10 s
		now = now.Add(10 * time.Millisecond)
		p.Beat(now)
	}
	if beats != 2 {
		t.Errorf("a busy loop beats %d times in 10 s, want 2: every fourth part of a third of a minute", beats)
	}
	next := p.Before(now.Add(time.Hour))
	if d := next.Sub(now); d <= 0 || d > 20*time.Second {
		t.Errorf("an idle loop beats again after %s", d)
	}
	if due := now.Add(time.Millisecond); !p.Before(due).Equal(due) {
		t.Error("a beat puts off what is due")
	}
	p.Beat(next)
	if beats != 3 {
		t.Errorf("an idle loop has beaten %d times", beats)
	}
	nobody := &Watchdog{notify: func(string) { t.Error("nobody watches") }}
	nobody.Beat(now)
	if due := now.Add(time.Hour); !nobody.Before(due).Equal(due) {
		t.Error("it wakes for nobody")
	}
}

// TestAClockThatIsSetIsNoSilence sets the clock by an hour between two readings, as chrony does after a boot.
func TestAClockThatIsSetIsNoSilence(t *testing.T) {
	t.Parallel()
	for _, hours := range []int64{1, -1} {
		w := &Watchdog{}
		w.Beat(time.Now())
		now := time.Now()
		// A Time has the seconds of the wall clock above 30 bits, and the monotonic clock in another word.
		*(*uint64)(unsafe.Pointer(&now)) += uint64(hours * 3600 << 30)
		if got := w.Silence(now); got < 0 || got > time.Minute {
			t.Errorf("%d hours: a loop that has just beaten is silent for %s", hours, got)
		}
	}
}

// slow is a kernel that takes its time.
type slow struct {
	*lb.Fake
	step time.Duration
}

func (k slow) Observe(ctx context.Context, expected *lb.Table, only ...lb.Frontend) (lb.Observation, error) {
	time.Sleep(k.step)
	return k.Fake.Observe(ctx, expected, only...)
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
		p := &Watchdog{every: allowed / 3, notify: func(string) {
			longest, last = max(longest, time.Since(last)), time.Now()
		}}
		base := lb.Base{Device: "weir0", Families: []lb.Family{lb.IPv4}}
		rec := lb.NewReconciler(p.Paced(slow{&lb.Fake{}, 25 * time.Second}), lb.Options{Base: base}, "static")
		rec.Update(lb.Update{Source: "static", Put: []lb.Service{{
			ID: lb.ServiceID{Source: "static", Name: "web"},
		}}, Synced: true})
		if _, err := rec.Audit(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 2*allowed || longest > allowed || longest == 0 {
			t.Errorf("in a pass of %s the longest silence is %s", took, longest)
		}
	})
}

// TestProgress checks what a pass of many operations reports to systemd and to readers.
func TestProgress(t *testing.T) {
	var told []string
	w := &Watchdog{notify: func(state string) { told = append(told, state) }}
	if done, total := w.Working(); done+total > 0 {
		t.Error("work without a pass")
	}
	w.Progress(10_000, 40_000)
	w.Progress(20_000, 40_000) // within the same second
	if done, total := w.Working(); done != 20_000 || total != 40_000 {
		t.Errorf("working: %d of %d", done, total)
	}
	if w.Silence(time.Now()) > time.Second {
		t.Errorf("a pass that progresses is silent for %s", w.Silence(time.Now()))
	}
	w.Progress(40_000, 40_000)
	if done, total := w.Working(); done+total > 0 {
		t.Errorf("working after the pass: %d of %d", done, total)
	}
	if len(told) != 1 || told[0] != "STATUS=weir is programming the kernel: 10000 of 40000 operations" {
		t.Errorf("systemd was told %q", told)
	}
}
