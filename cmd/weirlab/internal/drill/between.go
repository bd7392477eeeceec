package drill

import (
	"context"
	"fmt"
	"time"
)

// Events between boxes: what they no longer hear of each other.

// deaf has a box drop what comes from another one, at all of its addresses, or a share of it.
func (t *trial) deaf(ctx context.Context, box, to int, share float64) error {
	match := ""
	if share < 1 {
		match = fmt.Sprintf("-m statistic --mode random --probability %.2f", share)
	}
	script := fmt.Sprintf("for a in %s %s; do iptables -w -I INPUT -s $a %s -j DROP; done", boxAddr(to), backAddr(to), match)
	_, err := t.boxes[box-1].Run(ctx, "sh", "-ec", script)
	return err
}

// hearing undoes it.
func (t *trial) hearing(ctx context.Context, box, to int) error {
	script := fmt.Sprintf(`for a in %s %s; do
iptables -w -S INPUT | grep -e "-s $a/32.*-j DROP" | sed 's/^-A/-D/' | while read rule; do iptables -w $rule; done
done`, boxAddr(to), backAddr(to))
	_, err := t.boxes[box-1].Run(ctx, "sh", "-ec", script)
	return err
}

// pairs calls do for each box with each other one.
func (t *trial) pairs(do func(box, to int) error) error {
	for a := range t.boxes {
		for b := range t.boxes {
			if a == b {
				continue
			}
			if err := do(a+1, b+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *trial) healAll(ctx context.Context) error {
	return t.pairs(func(box, to int) error { return t.hearing(ctx, box, to) })
}

// apart has the boxes hear nothing of each other, by IP: neighbours still find them, and the
// router hears both.
func apart(hold time.Duration) event {
	return event{
		name: "boxes hear nothing of each other, the router hears all",
		do: func(ctx context.Context, t *trial) error {
			if err := t.pairs(func(box, to int) error { return t.deaf(ctx, box, to, 1) }); err != nil {
				return err
			}
			return pause(ctx, hold)
		},
		promise: func(m Mode) Promise {
			p := quiet(m)
			if m != ActiveActive {
				p.Why = "each box takes itself for the owner, but asks the neighbours first, and one answers for the gateway"
			}
			return unlessKeepalived(m, p)
		},
	}
}

func together() event {
	return event{
		name: "and hear each other again", heals: true,
		do: func(ctx context.Context, t *trial) error {
			if err := t.healAll(ctx); err != nil {
				return err
			}
			return pause(ctx, 2*takeBack)
		},
		linger: 2 * time.Second,
		promise: func(m Mode) Promise {
			p := quiet(m)
			if m == ActiveStandby {
				p.Gap, p.Double, p.Moves = 2*time.Second, time.Second, 1
			}
			return unlessKeepalived(m, p)
		},
	}
}

// split pulls the cable between the two halves of the network: box 1 sees the router, no other does.
func split() event {
	return event{
		name: "network split, only box1 sees the router",
		do: func(ctx context.Context, t *trial) error {
			box, err := t.has(ctx)
			if err != nil {
				return err
			}
			t.note("box%d had the VIP", box)
			return t.Host("switch").Unplug("far")
		},
		linger: 3 * time.Second,
		promise: func(m Mode) Promise {
			p := Promise{Gap: 8 * time.Second, Lost: Any, Cut: Any, Moves: 1}
			if m == ActiveActive {
				p.Double = Any
			}
			return unlessKeepalived(m, p)
		},
	}
}

func joined() event {
	return event{
		name: "the halves joined again", heals: true,
		do: func(ctx context.Context, t *trial) error {
			if err := t.Host("switch").Plug("far"); err != nil {
				return err
			}
			return pause(ctx, 2*takeBack)
		},
		linger: 4 * time.Second,
		promise: func(m Mode) Promise {
			p := pluggedIn().promise(m)
			if m != ActiveActive && m != Keepalived {
				p.Gap, p.Lost, p.Cut = 5*time.Second, Any, Any
			}
			return p
		},
	}
}

// lossy has boxes hear each other badly for a while: with share 1 one way only.
func lossy(name string, hold time.Duration, do func(ctx context.Context, t *trial) error) event {
	return event{
		name: fmt.Sprintf("%s, for %s", name, hold),
		do: func(ctx context.Context, t *trial) error {
			if err := do(ctx, t); err != nil {
				return err
			}
			if err := pause(ctx, hold); err != nil {
				return err
			}
			moves := sum(singles(t.owners.owners(t.acted)), time.Now()).moves
			t.note("false takeovers: %d in %s, that is %.0f an hour if it went on like that", moves, hold, float64(moves)*float64(time.Hour/hold))
			return nil
		},
		undo:    func(ctx context.Context, t *trial) error { return t.healAll(ctx) },
		promise: func(m Mode) Promise { return unlessKeepalived(m, quiet(m)) },
	}
}

// oneWay has the owner hear nothing of the others, who hear it.
func oneWay(hold time.Duration) event {
	return lossy("the owner hears nothing of the others, they hear it", hold, func(ctx context.Context, t *trial) error {
		box, err := t.has(ctx)
		if err != nil {
			return err
		}
		for n := range t.boxes {
			if n+1 != box {
				if err := t.deaf(ctx, box, n+1, 1); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// thirdLost has every box lose three of ten packets of every other one.
func thirdLost(hold time.Duration) event {
	return lossy("30 % of the packets between boxes lost", hold, func(ctx context.Context, t *trial) error {
		return t.pairs(func(box, to int) error { return t.deaf(ctx, box, to, 0.3) })
	})
}
