package kernelmode

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
	var s Audits
	for _, step := range []struct {
		name string
		now  time.Time
		err  error
		want Audits
	}{
		{"read", t0, nil, Audits{Last: t0, Next: t0.Add(period)}},
		{"unreadable", t0.Add(period), broken, Audits{Last: t0, Next: t0.Add(period + time.Second), Err: broken}},
		{"still unreadable", t0.Add(period + time.Second), broken, Audits{Last: t0, Next: t0.Add(period + 2*time.Second), Err: broken}},
		{"read again", t0.Add(2 * period), nil, Audits{Last: t0.Add(2 * period), Next: t0.Add(3 * period)}},
	} {
		s.Audited(step.now, period, step.err)
		if d := cmp.Diff(step.want, s, cmpopts.EquateErrors(), cmpopts.IgnoreUnexported(Audits{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
}

func TestAShorterPeriodBringsTheNextAuditForward(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := Audits{Next: now.Add(time.Hour)}
	s.Hasten(now, 10*time.Second)
	if got := s.Next.Sub(now); got != 10*time.Second {
		t.Errorf("with a shorter period the next audit is in %s", got)
	}
	s.Hasten(now, time.Hour)
	if got := s.Next.Sub(now); got != 10*time.Second {
		t.Errorf("with a longer period the next audit is in %s", got)
	}
}

// An event during an audit is news for it or not: it may have read what has changed already.
func TestAnEventDuringAnAuditMakesAnotherOneDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var s Audits
	begin := func(at time.Time, want bool, when string) {
		t.Helper()
		if s.Begin(at) != want {
			t.Errorf("%s: an audit begins: %v", when, !want)
		}
	}
	begin(now, true, "at first")
	s.Again()
	begin(now.Add(time.Hour), false, "during another one")
	s.Audited(now, time.Minute, nil)
	begin(now, true, "after an event during one")
	s.Audited(now, time.Minute, nil)
	begin(now, false, "after one without an event")
	s.Again()
	begin(now, true, "after an event")
	s.Audited(now, time.Minute, nil)
	begin(now.Add(time.Minute), true, "after its period")
}
