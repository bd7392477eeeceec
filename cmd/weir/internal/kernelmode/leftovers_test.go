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
