package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

func TestAKilledMemberIsAway(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		if err := b.Say(State{Settled: true}, []byte("what b has")); err != nil {
			t.Fatal(err)
		}
		within(t, "its Word is here", func() bool { m, _ := a.sees("b"); return m.Word != nil })
		b.stop() // its ports are closed: the kernel refuses
		within(t, "b is away", func() bool { m, _ := a.sees("b"); return m.Away && !m.AwaySince.IsZero() })
		a.wants("b", Dead)
		if m, _ := a.sees("b"); !m.Away || m.Suspect || string(m.Word) != "what b has" || !m.State.Settled {
			t.Errorf("once it is dead it is still away, with what it last said: %+v", m)
		}
		n.run(b.cfg)
		within(t, "b is back", func() bool {
			m, _ := a.sees("b")
			return m.Life == Alive && !m.Away && !m.Suspect
		})
		if n := a.Status().Counters.Suspicions; n != 1 {
			t.Errorf("%d suspicions", n)
		}
	})
}

// hole is a door at which nobody answers.
func hole(ctx context.Context, _, _ string) error { <-ctx.Done(); return ctx.Err() }

func TestABoxWithoutPowerIsNotAway(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.made(n.config("a"))
		a.knock = hole
		a.start()
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		var suspect, away atomic.Bool
		b.stop()
		within(t, "b is dead", func() bool {
			m, _ := a.sees("b")
			suspect.Store(suspect.Load() || m.Suspect)
			away.Store(away.Load() || m.Away)
			return m.Life == Dead
		})
		time.Sleep(2 * knockEvery)
		if m, _ := a.sees("b"); !suspect.Load() || away.Load() || m.Away {
			t.Errorf("suspect before %v, away %v, then %+v", suspect.Load(), away.Load(), m)
		}
	})
}

func TestAMemberWhosePowerFailsWhileItIsAwayIsNotAwayAnyMore(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		var off atomic.Bool
		a := n.made(n.config("a"))
		there := a.knock
		a.knock = func(ctx context.Context, address, fleet string) error {
			if off.Load() {
				return hole(ctx, address, fleet)
			}
			return there(ctx, address, fleet)
		}
		a.start()
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		b.stop()
		within(t, "b is away", func() bool { m, _ := a.sees("b"); return m.Away })
		off.Store(true)
		within(t, "b is gone", func() bool { m, _ := a.sees("b"); return !m.Away })
	})
}

func TestAKnockIsNoMessage(t *testing.T) {
	t.Parallel()
	a := run(t, config(t, "a"))
	within(t, "a listens", func() bool { return knock(t.Context(), a.cfg.Bind.String(), a.cfg.Fleet) == nil })
	b := run(t, config(t, "b", a))
	a.wants("b", Alive)
	for range 20 {
		if err := knock(t.Context(), a.cfg.Bind.String(), a.cfg.Fleet); err != nil {
			t.Fatal(err)
		}
	}
	// What a has read by now it would have counted.
	if err := b.Say(State{Version: "later"}, []byte("later")); err != nil {
		t.Fatal(err)
	}
	within(t, "a hears b", func() bool { m, _ := a.sees("b"); return string(m.Word) == "later" })
	if n := a.Status().Counters.Refused; n != 0 {
		t.Errorf("%d refused", n)
	}
}

func TestAMemberIsKnockedAtOnceAtATimeAndForAMinute(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	m := &Member{Name: "b", Addr: free(t), Life: Dead, missed: now, Away: true}
	f.members["b"] = m
	if got := f.toLookAt(now, time.Second); len(got) != 1 || got[0].ping {
		t.Fatalf("%+v", got)
	}
	if got := f.toLookAt(now.Add(time.Second), time.Second); got != nil {
		t.Errorf("twice at a time: %+v", got)
	}
	m.looking = false
	if got := f.toLookAt(now.Add(time.Second), time.Second); len(got) != 1 {
		t.Errorf("not again: %+v", got)
	}
	m.looking = false
	if got := f.toLookAt(now.Add(knockFor+time.Second), time.Second); got != nil || m.Away {
		t.Errorf("for ever: %+v, %+v", got, m)
	}
}

func TestAnyAnswerEndsASuspicion(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	if err != nil {
		t.Fatal(err)
	}
	m := &Member{Name: "b"}
	f.members["b"] = m
	now := time.Now()
	f.unanswered("b", now)
	if m.Suspect {
		t.Error("suspect after one miss, which a stop of this process looks like")
	}
	f.unanswered("b", now.Add(time.Second))
	if !m.Suspect || !m.missed.Equal(now) {
		t.Errorf("%+v", m)
	}
	f.NotifyPingComplete(m.node(), 0, nil)
	if m.Suspect || m.misses != 0 {
		t.Errorf("%+v", m)
	}
	f.unanswered("b", now)
	if m.Suspect {
		t.Error("misses before an answer count")
	}
}
