package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func TestTheProcessOfAKilledMemberIsDown(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		must(t, b.Publish(State{Stable: true}, text("what b has")))
		within(t, "its Word is here", func() bool { m, _ := a.sees("b"); return !m.Message.empty() })
		b.stop() // its ports are closed: the kernel refuses
		within(t, "b is away", func() bool { m, _ := a.sees("b"); return m.ProcessDown && !m.ProcessDownSince.IsZero() })
		a.wants("b", Dead)
		if m, _ := a.sees("b"); !m.ProcessDown || m.Suspect || string(m.Message.Head) != "what b has" || !m.State.Stable {
			t.Errorf("once it is dead it is still away, with what it last said: %+v", m)
		}
		n.run(b.cfg)
		within(t, "b is back", func() bool {
			m, _ := a.sees("b")
			return m.Life == Alive && !m.ProcessDown && !m.Suspect
		})
		if n := a.Status().Counters.Suspicions; n != 1 {
			t.Errorf("%d suspicions", n)
		}
	})
}

// hole is an address that never answers.
func hole(ctx context.Context, _, _ string) error { <-ctx.Done(); return ctx.Err() }

func TestABoxWithoutPowerIsDead(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.made(n.config("a"))
		a.hooks.connect = hole
		a.start()
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		var suspect, away atomic.Bool
		b.stop()
		within(t, "b is dead", func() bool {
			m, _ := a.sees("b")
			suspect.Store(suspect.Load() || m.Suspect)
			away.Store(away.Load() || m.ProcessDown)
			return m.Life == Dead
		})
		time.Sleep(2 * connectEvery)
		if m, _ := a.sees("b"); !suspect.Load() || away.Load() || m.ProcessDown {
			t.Errorf("suspect before %v, away %v, then %+v", suspect.Load(), away.Load(), m)
		}
	})
}

func TestPowerFailsWhileTheProcessIsDown(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		var off atomic.Bool
		a := n.made(n.config("a"))
		there := a.hooks.connect
		a.hooks.connect = func(ctx context.Context, address, fleet string) error {
			if off.Load() {
				return hole(ctx, address, fleet)
			}
			return there(ctx, address, fleet)
		}
		a.start()
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		b.stop()
		within(t, "b is away", func() bool { m, _ := a.sees("b"); return m.ProcessDown })
		off.Store(true)
		within(t, "b is gone", func() bool { m, _ := a.sees("b"); return !m.ProcessDown })
	})
}

// A busy box answers one connection too late while its process restarts: it still forwards, and must
// not lose its VIPs for that.
func TestALateRefusalLeavesTheBoxUp(t *testing.T) {
	t.Parallel()
	m := &entry{Member: Member{Name: "b", Life: Dead}, missedSince: time.Now()}
	for i, one := range []struct {
		result        error
		down, changed bool
	}{
		{context.DeadlineExceeded, false, false}, // nothing is known about the box yet
		{syscall.ECONNREFUSED, true, true},
		{context.DeadlineExceeded, true, false},
		{syscall.ECONNREFUSED, true, false},
		{context.DeadlineExceeded, true, false},
		{nil, true, false},
		{context.DeadlineExceeded, true, false},
		{context.DeadlineExceeded, false, true}, // two in a row
		{context.DeadlineExceeded, false, false},
		{syscall.ECONNREFUSED, true, true},
	} {
		if changed := m.connected(one.result); m.ProcessDown != one.down || changed != one.changed {
			t.Errorf("connection %d (%v): its process is down: %v, changed: %v", i, one.result, m.ProcessDown, changed)
		}
	}
}

// A box restarts its process, which answers pings before memberlist reports the earlier one as dead: the box
// keeps its VIPs.
func TestTheDeathOfTheEarlierProcessLeavesTheBoxUp(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for _, tt := range []struct {
		name   string
		after  time.Duration // of the death, since the last answer
		missed int           // pings between them
		down   bool
	}{
		{"the new process has answered", 40 * time.Millisecond, 0, true},
		{"it has missed a ping since", 40 * time.Millisecond, 1, false},
		{"it has been silent", justAnswered, 0, false},
	} {
		f := newTable()
		m := &entry{Member: Member{Name: "b"}, missedSince: start}
		f.members["b"] = m
		f.unanswered("b", start)
		f.unanswered("b", start)
		if m.connected(syscall.ECONNREFUSED); !m.Suspect || !m.ProcessDown {
			t.Fatalf("%s: %+v", tt.name, m)
		}
		if f.answered("b", start); m.ProcessDown {
			t.Fatalf("%s: the new process is down", tt.name)
		}
		for range tt.missed {
			f.unanswered("b", start)
		}
		if f.remove("b", start.Add(tt.after)); m.Life != Dead || m.ProcessDown != tt.down {
			t.Errorf("%s: its process is down: %t, want %t", tt.name, m.ProcessDown, tt.down)
		}
		if m.connected(context.DeadlineExceeded); m.connected(context.DeadlineExceeded) != tt.down || m.ProcessDown {
			t.Errorf("%s: a box without power keeps its VIPs", tt.name)
		}
	}
}

func TestAConnectionIsNoMessage(t *testing.T) {
	t.Parallel()
	a := run(t, config(t, "a"))
	within(t, "a listens", func() bool { return connect(t.Context(), a.cfg.Bind.String(), a.cfg.Fleet) == nil })
	b := run(t, config(t, "b", a))
	a.wants("b", Alive)
	for range 20 {
		must(t, connect(t.Context(), a.cfg.Bind.String(), a.cfg.Fleet))
		c, err := net.Dial("tcp", a.cfg.Bind.String()) // as weir doctor of another member
		must(t, err)
		must(t, c.Close())
	}
	// What a has read by now it would have counted.
	must(t, b.Publish(State{Version: "later"}, text("later")))
	within(t, "a hears b", func() bool { m, _ := a.sees("b"); return string(m.Message.Head) == "later" })
	if n := a.Status().Counters.Refused; n != 0 {
		t.Errorf("%d refused", n)
	}
}

// A connection on which nothing is sent until it is reset, or until the timeout, is no message either. Those of other
// fleets are.
func TestASilentConnectionIsNoMessage(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	for _, c := range []struct {
		end     func(client *net.TCPConn, server net.Conn) error
		foreign bool
	}{
		{func(_ *net.TCPConn, server net.Conn) error { return server.SetDeadline(time.Now()) }, false},
		{func(client *net.TCPConn, _ net.Conn) error { return errors.Join(client.SetLinger(0), client.Close()) }, false},
		{func(client *net.TCPConn, _ net.Conn) error {
			_, err := client.Write([]byte{label[0], 9}) // and no label
			return errors.Join(err, client.Close())
		}, true},
	} {
		client, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		server, err := l.Accept()
		must(t, err)
		must(t, c.end(client.(*net.TCPConn), server))
		_, _, err = memberlist.RemoveLabelHeaderFromStream(server)
		text := fmt.Sprintf("failed to receive and remove the stream label header: %s from=127.0.0.1:1", err) // by handleConn
		if err == nil || isForeign(text) != c.foreign {
			t.Errorf("%q is foreign: %v", text, isForeign(text))
		}
		_, _ = client.Close(), server.Close()
	}
	for text, want := range map[string]bool{
		`discarding stream with unacceptable label "": from=127.0.0.1:1`:      false, // nothing, or of a fleet without a label,
		`discarding packet with unacceptable label "": from=127.0.0.1:1`:      true,  // which sends these, too
		`discarding stream with unacceptable label "other": from=127.0.0.1:1`: true,
	} {
		if isForeign(text) != want {
			t.Errorf("%q is foreign: %v", text, !want)
		}
	}
}

func TestAMemberIsProbedOnceAtATimeAndForMinutes(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	now := time.Now()
	m := &entry{Member: Member{Name: "b", Addr: free(t), Life: Dead, ProcessDown: true, ProcessDownSince: now}, missedSince: now}
	f.table.members["b"] = m
	due := prober{f, nil, time.Second}.due
	if got := due(now); len(got) != 1 || got[0].ping {
		t.Fatalf("%+v", got)
	}
	if got := due(now.Add(time.Second)); got != nil {
		t.Errorf("twice at a time: %+v", got)
	}
	m.probing = false
	if got := due(now.Add(time.Second)); len(got) != 1 {
		t.Errorf("not again: %+v", got)
	}
	// restart_grace may be as long as MaxRestartGrace.
	m.probing = false
	if got := due(now.Add(MaxRestartGrace - time.Second)); len(got) != 1 || !m.ProcessDown {
		t.Errorf("its box still forwards: %+v, %+v", got, m)
	}
	m.probing = false
	if got := due(now.Add(MaxRestartGrace + time.Second)); got != nil || m.ProcessDown {
		t.Errorf("for ever: %+v, %+v", got, m)
	}
	m.probed = now // it has no process for sure, and was late twice
	if got := due(now.Add(connectFor + time.Second)); len(got) != 1 {
		t.Errorf("a box that was late is not probed any more")
	}
	m.probing, m.probed, m.ProcessDownSince = false, now, time.Time{}
	if got := due(now.Add(connectFor + time.Second)); got != nil {
		t.Errorf("a box that is gone is probed on: %+v", got)
	}
}

func TestAnyAnswerEndsASuspicion(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	m := &entry{Member: Member{Name: "b"}}
	f.table.members["b"] = m
	now := time.Now()
	f.unanswered("b", now)
	if m.Suspect {
		t.Error("suspect after one miss, which a stop of this process looks like")
	}
	f.unanswered("b", now.Add(time.Second))
	if !m.Suspect || !m.missedSince.Equal(now) {
		t.Errorf("%+v", m)
	}
	newDelegate(f).NotifyPingComplete(m.node(), 0, nil)
	if m.Suspect || m.missed != 0 {
		t.Errorf("%+v", m)
	}
	f.unanswered("b", now)
	if m.Suspect {
		t.Error("misses before an answer count")
	}
}
