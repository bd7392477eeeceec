package lb

import (
	"testing"
	"time"
)

// What a reading finds missing is repaired at once. A repair that is in vain is repeated with growing pauses.
func TestAMissingObjectIsRepairedAtOnce(t *testing.T) {
	t.Parallel()
	var p repair
	now := testNow
	for _, want := range []time.Duration{0, 1, 2, 4, 8, 10, 10} {
		p.begin(now)
		if !p.due.IsZero() {
			t.Errorf("a repair is due at %v though a Sync has repaired everything", p.due)
		}
		p.plan(true)
		if got := p.due.Sub(now); got != want*time.Second {
			t.Errorf("the next repair is due after %v, want %v", got, want*time.Second)
		}
		now = p.due
	}
	p.begin(now)
	p.plan(false)
	if !p.due.IsZero() {
		t.Error("a repair is due though nothing is missing")
	}
	p.plan(true)
	if !p.due.Equal(now) {
		t.Error("the first repair after a success is not due at once")
	}
}
