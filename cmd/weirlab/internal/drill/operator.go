package drill

import (
	"context"
	"fmt"
	"time"
	"weir/cmd/weirlab/internal/traffic"
)

// Events that operators bring about, and those that a clock does. They are of weir's only.

func (t *trial) weir() *weir { return t.app.(*weir) }

// rollingUpgrade restarts each box with another build.
func rollingUpgrade() event {
	return rolling("rolling upgrade", away, func(ctx context.Context, t *trial, box int) error {
		w := t.weir()
		if err := w.stop(ctx, box); err != nil {
			return err
		}
		w.own[box] = w.next
		if err := w.start(ctx, box); err != nil {
			return err
		}
		return traffic.Eventually(ctx, steadyTime, func(ctx context.Context) error {
			doc, err := w.members(ctx, t.other(box))
			for _, m := range doc.Members {
				if m.Name == boxName(box) && m.Version != nextVersion {
					err = fmt.Errorf("box%d reports version %[3]s of %[2]s", t.other(box), m.Name, m.Version)
				}
			}
			return err
		})
	})
}

// allRestarted restarts all daemons at the same time.
func allRestarted() event {
	return event{
		name: "all daemons killed at once, and started",
		do: func(ctx context.Context, t *trial) error {
			w := t.weir()
			for n := range t.boxes {
				if err := w.kill(ctx, n+1); err != nil {
					return err
				}
			}
			return t.all(func(box int) error { return w.start(ctx, box) })
		},
		linger: 5 * time.Second,
		promise: func(m Mode) Promise {
			p := away(m)
			if m == L2 {
				p.Gap, p.Lost = 6*time.Second, Any
				p.Reason = "no box answers ARP until one has joined and claimed; neighbours that know the address go on"
			}
			return p
		},
	}
}

// clocks sets the owner's clock forth and back.
func clocks() event {
	return event{
		name: "owner's clock jumps 400 days ahead, then 401 days back",
		do: toOwner(func(ctx context.Context, t *trial, box int) error {
			for _, jump := range []string{"+400 days", "-401 days"} {
				if _, err := t.boxes[box-1].Run(ctx, "date", "-s", jump); err != nil {
					return err
				}
				if err := traffic.Pause(ctx, 2*time.Second); err != nil {
					return err
				}
			}
			return nil
		}),
		linger:  time.Second,
		promise: quiet,
	}
}

// wrongKey restarts a box that is not the owner with a key that no other has.
func wrongKey() event {
	return event{
		name: "a box restarted with a wrong key",
		do: toOwner(func(ctx context.Context, t *trial, owner int) error {
			w, box := t.weir(), t.other(owner)
			w.key[box] = 7
			t.last = box
			if err := restart(ctx, t, box); err != nil {
				return err
			}
			if err := traffic.Pause(ctx, 2*t.how.preemptDelayTime()); err != nil {
				return err
			}
			doc, err := w.members(ctx, owner)
			if doc.Counters.Refused == 0 {
				t.note("box%d counts no message that no key decrypts", owner)
			}
			return err
		}),
		promise: quiet,
	}
}

// rightKey gives it the others' key again, by a reload.
func rightKey() event {
	return event{
		name: "and with the right one", heals: true,
		do: func(ctx context.Context, t *trial) error {
			w := t.weir()
			delete(w.key, t.last)
			if err := w.reload(ctx, t.last); err != nil {
				return err
			}
			return traffic.Pause(ctx, 2*t.how.preemptDelayTime())
		},
		linger:  2 * time.Second,
		promise: func(m Mode) Promise { return together().promise(m) },
	}
}

// keyRotation brings in another key in the three steps that packaging/doc/fleet.md has.
func keyRotation() event {
	return event{
		name: "another key, in three steps on all boxes",
		do: func(ctx context.Context, t *trial) error {
			w := t.weir()
			for _, files := range [][]string{{weirKey, weirNextKey}, {weirNextKey, weirKey}, {weirNextKey}} {
				w.keys = files
				for n := range t.boxes {
					if err := w.reload(ctx, n+1); err != nil {
						return err
					}
					if err := traffic.Pause(ctx, 500*time.Millisecond); err != nil {
						return err
					}
				}
			}
			return traffic.Pause(ctx, time.Second)
		},
		promise: quiet,
	}
}

// otherConfig gives a box that is not the owner a service that no other has.
func otherConfig() event {
	return event{
		name: "a member with another configuration",
		do: toOwner(func(ctx context.Context, t *trial, owner int) error {
			w, box := t.weir(), t.other(owner)
			t.last = box
			w.extra[box] = "\n[[service]]\nname = \"more\"\nvips = [\"192.0.2.77\"]\nports = [80]\nbackends = [\"10.2.0.11\"]\n"
			if err := w.reload(ctx, box); err != nil {
				return err
			}
			return traffic.Pause(ctx, t.how.preemptDelayTime())
		}),
		undo: func(ctx context.Context, t *trial) error {
			w := t.weir()
			delete(w.extra, t.last)
			return w.reload(ctx, t.last)
		},
		promise: quiet,
	}
}
