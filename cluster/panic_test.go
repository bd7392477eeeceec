package cluster

import (
	"context"
	"strings"
	"testing"
	"unsafe"
)

// A panic of the gossip ends a run of it, with the port closed and no lock held. The next run, which the daemon starts, joins
// the fleet again.
func TestRunJoinsAgainAfterAPanic(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// damage makes the next access to a map panic, in the function where.
		damage func(a, b *box)
		repair func(b *box)
		where  string
	}{
		{"in Run or a goroutine of it", func(_, b *box) {
			b.locked(func() { b.table.members["damaged"] = nil })
			signal(b.wake)
		}, func(*box) {}, "cluster.(*Fleet).serve"},
		{"in a callback of memberlist", func(a, b *box) {
			b.locked(func() { b.epochs.known = nil })
			must(t, a.Publish(State{Version: "2"}, text("another state")))
		}, func(b *box) {
			b.locked(func() { b.epochs = newEpochs() })
		}, "cluster.delegate.NotifyUpdate"},
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
			test.damage(a, b)
			if err := <-panicked; err == nil || !strings.Contains(err.Error(), "panic") || !strings.Contains(err.Error(), test.where) {
				t.Errorf("Run ends with %v, want a panic with its stack, in %s", err, test.where)
			}
			if s := b.Status(); s.Error == "" || s.Joined {
				t.Errorf("after the panic: %+v", s)
			}
			test.repair(b)
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
	f.table.members["b"], f.table.members["damaged"] = &entry{}, nil
	f.own.state.Version = *(*string)(unsafe.Pointer(&[2]uintptr{0, 1})) // a byte at the address 0
	d := newDelegate(f)
	for name, call := range map[string]func(){
		"NodeMeta": func() { d.NodeMeta(0) }, "NotifyMsg": func() { d.NotifyMsg(encodePacket(packetParts, "b", nil)) },
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
		case err := <-f.broken:
			if !strings.Contains(err.Error(), "cluster.delegate."+name) {
				t.Errorf("%s: a panic elsewhere: %v", name, err)
			}
		default:
			t.Errorf("%s has not panicked", name)
		}
		if !f.mu.TryLock() {
			t.Fatalf("%s keeps the lock", name)
		}
		f.mu.Unlock()
	}
}

// A panic that comes when its run is over, of a callback of the list that has ended, does not end the next run.
func TestALatePanicEndsNoOtherRun(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	newDelegate(f).NotifyJoin(nil)
	list, err := f.begin()
	must(t, err)
	defer f.end(list)
	select {
	case err := <-f.broken:
		t.Errorf("the next run has %v", err)
	default:
	}
}
