package drill

import (
	"context"
	"fmt"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// Events that any appliance can meet: the power, the cables, the program.

// powerCut takes the owner's power, and gives it back in a trial of its own.
func powerCut() event {
	return event{
		name: "power cut of the owner",
		do: toOwner(func(ctx context.Context, t *trial, box int) error {
			t.last = box
			t.boxes[box-1].PowerCut()
			return nil
		}),
		linger: time.Second,
		promise: func(m Mode) Promise {
			p := Promise{Gap: 5 * time.Second, Lost: Any, Moves: 1}
			switch m {
			case ActiveActive:
				p.Gap, p.Cut, p.Double = 3*time.Second, Any, Any
				p.Reason = "cut: those of the dead box, since the backends saw its address"
			case ActiveStandby:
				p.Moves = 2
			case Keepalived:
				p = anything()
			}
			return p
		},
	}
}

// bootAll boots the boxes without power, and starts what ran on them.
func (t *trial) bootAll(ctx context.Context) error {
	for n, m := range t.boxes {
		if lab.Powered(m) {
			continue
		}
		if err := t.bootOne(ctx, n+1); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) bootOne(ctx context.Context, box int) error {
	if err := t.powered(ctx, box); err != nil {
		return err
	}
	return t.app.start(ctx, box)
}

// powerBack gives the power back to a box that would be the owner.
func powerBack() event {
	return event{
		name: "its power comes back", heals: true,
		do: func(ctx context.Context, t *trial) error {
			if err := t.bootAll(ctx); err != nil {
				return err
			}
			return t.returned(ctx)
		},
		linger: 2 * time.Second,
		promise: func(m Mode) Promise {
			p := Promise{Gap: 2 * time.Second, Moves: 1}
			switch m {
			case ActiveStandby:
				p.Double, p.Reason = time.Second, bothRoutes
			case ActiveActive:
				p = Promise{Gap: smooth, Lost: 30, Cut: Any, Double: Any, Moves: Any,
					Reason: "lost, cut: those under way that the router's hash sends to the other box now"}
			case Keepalived:
				p = anything()
			}
			return p
		},
	}
}

// returned waits until the box of the last event has the VIP again, where it is to have it: weir
// gives it back after preempt_delay, keepalived with nopreempt does not.
func (t *trial) returned(ctx context.Context) error {
	if t.Mode == ActiveActive || t.Mode == Keepalived {
		return traffic.Pause(ctx, t.how.preemptDelayTime())
	}
	return traffic.Eventually(ctx, steadyTime, func(context.Context) error {
		box, err := t.owner(time.Now().Add(-10 * askBeat))
		if err == nil && box != t.last {
			err = fmt.Errorf("box%d has the VIP, want box%d", box, t.last)
		}
		return err
	})
}

const bothRoutes = "two owners: routers have two standbys until the gateway has moved; what goes by the wrong one is late"

// anything is promised of others' programs.
func anything() Promise { return Promise{Gap: Any, Lost: Any, Cut: Any, Double: Any, Moves: Any} }

// linkDown has the owner lose its carrier to the clients, and see that.
func linkDown() event {
	return event{
		name: "cable pulled, which the owner sees",
		do: toOwner(func(ctx context.Context, t *trial, box int) error {
			t.last = box
			_, err := t.boxes[box-1].Run(ctx, "ip", "link", "set", frontOf(box), "down")
			return err
		}),
		linger: time.Second,
		promise: func(m Mode) Promise {
			p := Promise{Gap: 5 * time.Second, Lost: Any, Moves: 2}
			switch m {
			case ActiveActive:
				p.Gap, p.Cut, p.Double = 3*time.Second, Any, Any
				p.Reason = "cut: those of that box, since the backends saw its address"
			case Keepalived:
				p = anything()
			}
			return p
		},
	}
}

// toOwner has an event begin with the number of the box that owns the VIP.
func toOwner(do func(ctx context.Context, t *trial, owner int) error) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		owner, err := t.has(ctx)
		if err != nil {
			return err
		}
		return do(ctx, t, owner)
	}
}

// linkUp puts the cable back.
func linkUp() event {
	return event{
		name: "that cable back", heals: true,
		do: func(ctx context.Context, t *trial) error {
			script := fmt.Sprintf("ip link set %s up; ip route replace 10.0.0.0/24 via %s", frontOf(t.last), routerAddr)
			if _, err := t.boxes[t.last-1].Run(ctx, "sh", "-ec", script); err != nil {
				return err
			}
			return t.returned(ctx)
		},
		linger: 4 * time.Second,
		promise: func(m Mode) Promise {
			if m == Keepalived {
				return anything()
			}
			return powerBack().promise(m)
		},
	}
}

// unplugged pulls a cable that the owner can't see: beyond a switch.
func unplugged() event {
	return event{
		name: "cable pulled beyond a switch",
		do: toOwner(func(ctx context.Context, t *trial, box int) error {
			t.last = box
			return t.boxes[box-1].Unplug(frontOf(box))
		}),
		linger: time.Second,
		promise: func(m Mode) Promise {
			p := linkDown().promise(m)
			if m == L2 {
				p.Gap = 8 * time.Second
			}
			return p
		},
	}
}

// pluggedIn puts that back: two boxes think that they are the owner, for a moment.
func pluggedIn() event {
	return event{
		name: "and back", heals: true,
		do: func(ctx context.Context, t *trial) error {
			if err := t.boxes[t.last-1].Plug(frontOf(t.last)); err != nil {
				return err
			}
			return t.returned(ctx)
		},
		linger: 4 * time.Second,
		promise: func(m Mode) Promise {
			p := powerBack().promise(m)
			if m == L2 || m == ActiveStandby {
				p.Double, p.Moves = time.Second, 2
			}
			return p
		},
	}
}

// killed ends the owner's program with SIGKILL; its kernel lives, and a supervisor starts it again.
func killed() event {
	return event{
		name: "daemon killed with -9, started again after 2 s",
		do: toOwner(func(ctx context.Context, t *trial, box int) error {
			if err := t.app.kill(ctx, box); err != nil {
				return err
			}
			if err := traffic.Pause(ctx, 2*time.Second); err != nil {
				return err
			}
			return t.app.start(ctx, box)
		}),
		linger: 3 * time.Second,
		promise: func(m Mode) Promise {
			return unlessKeepalived(m, away(m))
		},
	}
}

// away is the promise for a daemon that is gone for a moment: nothing. But where routers spread
// clients over all boxes, and ask by BFD three times a second whether they are there, they steer the
// clients of that box to another one, which backends take for others.
func away(m Mode) Promise {
	p := quiet(m)
	if m == ActiveActive {
		p.Lost, p.Cut, p.Moves = 30, Any, Any
		p.Reason = "lost, cut: BFD has the router leave a box without its daemon after 0.9 s; without BFD it keeps the routes"
	}
	return p
}

// quiet is nothing for a mode.
func quiet(m Mode) Promise {
	p := nothing()
	if m == ActiveActive {
		p.Double = Any
	}
	return p
}

func unlessKeepalived(m Mode, p Promise) Promise {
	if m == Keepalived {
		return anything()
	}
	return p
}

// rolling does something to a box after the other.
func rolling(name string, promise func(Mode) Promise, each func(ctx context.Context, t *trial, box int) error) event {
	return event{
		name: name, promise: promise, linger: time.Second,
		do: func(ctx context.Context, t *trial) error {
			for n := range t.boxes {
				if err := each(ctx, t, n+1); err != nil {
					return err
				}
				if err := traffic.Eventually(ctx, steadyTime, t.app.ready); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func restart(ctx context.Context, t *trial, box int) error {
	if err := t.app.stop(ctx, box); err != nil {
		return err
	}
	return t.app.start(ctx, box)
}

func rollingRestart() event {
	return rolling("rolling restart", func(m Mode) Promise { return unlessKeepalived(m, away(m)) }, restart)
}

// rollingDrain takes each box out, restarts it and puts it back.
func rollingDrain() event {
	promise := func(m Mode) Promise {
		p := Promise{Gap: smooth, Moves: Any}
		switch m {
		case ActiveActive:
			p.Cut, p.Double = Any, Any
			p.Reason = "cut: routers move all packets of a box that is drained at once, and backends saw its address"
		case L2:
			p.Gap = 2 * time.Second
		case ActiveStandby:
			p.Gap, p.Double, p.Reason = 2*time.Second, 2*time.Second, bothRoutes
		case Keepalived:
			p = anything()
		}
		return p
	}
	return rolling("rolling drain, each box stopped meanwhile", promise, func(ctx context.Context, t *trial, box int) error {
		if err := t.app.drain(ctx, box); err != nil {
			return err
		}
		if t.Mode != Keepalived { // its drain is that already
			if err := restart(ctx, t, box); err != nil {
				return err
			}
		}
		return t.app.undrain(ctx, box)
	})
}
