package kernelmode

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/lb"
)

// holding is a kernel with a connection of the other mode.
type holding struct{ cut bool }

func (k *holding) ForgetOther(_ context.Context, _ func(lb.Frontend) bool, cut bool) (int, error) {
	if k.cut = cut; cut {
		return 0, nil
	}
	return 1, nil
}

// A request that is on its way when this mode takes over is answered, even if the drain is 0.
func TestTheFirstCheckEndsNoConnection(t *testing.T) {
	for _, tt := range []struct{ drain, cut time.Duration }{
		{0, leftoversEvery}, {time.Second, leftoversEvery}, {leftoversEvery, leftoversEvery}, {5 * time.Second, 6 * time.Second},
	} {
		var o Leftovers
		kernel, start := &holding{}, time.Now()
		for at := start; ; at = o.Next() {
			o.Forget(t.Context(), kernel, func() func(lb.Frontend) bool { return nil }, tt.drain, at, slog.New(slog.DiscardHandler))
			if after := at.Sub(start); kernel.cut != (after >= tt.cut) {
				t.Fatalf("drain %s: after %s connections are cut: %t, want this from %s", tt.drain, after, kernel.cut, tt.cut)
			}
			if kernel.cut {
				break
			}
		}
	}
}

// refusing is a kernel that removes nothing, for a reason.
type refusing struct{ err error }

func (k *refusing) ForgetOther(context.Context, func(lb.Frontend) bool, bool) (int, error) {
	return 0, k.err
}

// A kernel that refuses to remove the leftovers is asked every two seconds, and reported once.
func TestLeftoversThatStayAreReportedOnce(t *testing.T) {
	var out strings.Builder
	log, kernel, now := slog.New(slog.NewTextHandler(&out, nil)), &refusing{}, time.Now()
	var o Leftovers
	for i, reason := range []string{"busy", "busy", "refused", "refused", "busy", ""} {
		if kernel.err = errors.New(reason); reason == "" {
			kernel.err = nil
		}
		o.Forget(t.Context(), kernel, func() func(lb.Frontend) bool { return nil }, 0, now, log)
		if next := o.Next(); next.After(now) == (reason == "") {
			t.Errorf("check %d: the next one is at %s", i, next)
		}
		now = now.Add(leftoversEvery)
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines, want 3:\n%s", n, &out)
	}
}
