package cluster

import (
	"context"
	"strings"
	"testing"
)

// A panic of the gossip ends a run of it, with the port closed and no lock held. The next run, which the daemon starts, joins
// the fleet again.
func TestRunJoinsAgainAfterAPanic(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// damage makes the next access to the members panic.
		damage func(f *Fleet)
	}{
		{"in Run or a goroutine of it", func(f *Fleet) {
			f.locked(func() { f.table.members["damaged"] = nil })
			signal(f.wake)
		}},
		{"in a callback of memberlist", func(f *Fleet) {
			func() {
				defer f.caught()
				panic("failpoint")
			}()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := run(t, config(t, "a"))
			b := made(t, config(t, "b", a))
			ctx, cancel := context.WithCancel(context.Background())
			panicked, ended, again := make(chan error, 1), make(chan error, 1), make(chan struct{})
			go func() {
				panicked <- b.Run(ctx)
				<-again
				ended <- b.Run(ctx)
			}()
			a.wants("b", Alive)
			b.wants("a", Alive)
			test.damage(b.Fleet)
			if err := <-panicked; err == nil || !strings.Contains(err.Error(), "panic") || !strings.Contains(err.Error(), "goroutine") {
				t.Errorf("Run ends with %v, want the panic with its stack", err)
			}
			if s := b.Status(); s.Error == "" || s.Joined {
				t.Errorf("after the panic: %+v", s)
			}
			close(again)
			within(t, "b has joined again", func() bool { return b.Status().Joined })
			must(t, b.Publish(State{}, text("after the panic")))
			within(t, "a has what b publishes", func() bool {
				m, ok := a.sees("b")
				return ok && m.Life == Alive && string(m.Message.Head) == "after the panic"
			})
			cancel()
			must(t, <-ended)
		})
	}
}

// Callbacks run in goroutines of memberlist, which a panic must not end.
func TestCallbacksCatchPanics(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	d := delegate{f}
	for name, call := range map[string]func(){
		"NotifyJoin": func() { d.NotifyJoin(nil) }, "NotifyUpdate": func() { d.NotifyUpdate(nil) }, "NotifyLeave": func() { d.NotifyLeave(nil) },
		"NotifyConflict": func() { d.NotifyConflict(nil, nil) }, "NotifyPingComplete": func() { d.NotifyPingComplete(nil, 0, nil) },
		"NotifyAlive": func() {
			if d.NotifyAlive(nil) == nil {
				t.Error("after a panic the member is admitted")
			}
		},
	} {
		call()
		select {
		case <-f.broken:
		default:
			t.Errorf("%s has not panicked", name)
		}
		if !f.mu.TryLock() {
			t.Fatalf("%s keeps the lock", name)
		}
		f.mu.Unlock()
	}
}
