package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAFailedAuditIsSoonMadeAgain(t *testing.T) {
	t.Parallel()
	const period = time.Hour
	t0 := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	broken := errors.New("no memory")
	var s schedule
	for _, step := range []struct {
		name string
		now  time.Time
		err  error
		want schedule
	}{
		{"read", t0, nil, schedule{last: t0, next: t0.Add(period)}},
		{"unreadable", t0.Add(period), broken, schedule{last: t0, next: t0.Add(period + time.Second), err: broken}},
		{"still unreadable", t0.Add(period + time.Second), broken, schedule{last: t0, next: t0.Add(period + 2*time.Second), err: broken}},
		{"read again", t0.Add(2 * period), nil, schedule{last: t0.Add(2 * period), next: t0.Add(3 * period)}},
	} {
		s.audited(step.now, period, step.err)
		if d := cmp.Diff(step.want, s, cmp.AllowUnexported(schedule{}), cmpopts.EquateErrors()); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
}

func TestAShorterPeriodBringsTheNextAuditForward(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := schedule{next: now.Add(time.Hour)}
	s.hasten(now, 10*time.Second)
	if got := s.next.Sub(now); got != 10*time.Second {
		t.Errorf("with a shorter period the next audit is in %s", got)
	}
	s.hasten(now, time.Hour)
	if got := s.next.Sub(now); got != 10*time.Second {
		t.Errorf("with a longer period the next audit is in %s", got)
	}
}
