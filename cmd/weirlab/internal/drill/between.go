package drill

import (
	"context"
	"fmt"
	"strings"
	"time"
	"weir/cmd/weirlab/internal/traffic"
)

// Events between boxes: messages between members get lost.

// Matches of the packets that a box drops. Each rule sees only what those before it let through: of ten packets the first, the second and the sixth are lost, in each run the same.
var (
	allPackets  = []string{""}
	threeInTen  = []string{nth(10, 0), nth(9, 0), nth(8, 3)}
	ruleComment = "-m comment --comment drill"
)

func nth(every, packet int) string {
	return fmt.Sprintf("-m statistic --mode nth --every %d --packet %d", every, packet)
}

// deaf has a box drop what comes from another one, at all of its addresses, as far as it matches.
func (t *trial) deaf(ctx context.Context, box, to int, matches []string) error {
	var script strings.Builder
	for _, addr := range []string{boxAddr(to), backAddr(to)} {
		for i, match := range matches {
			fmt.Fprintf(&script, "iptables -w -I INPUT %d -s %s %s %s -j DROP\n", i+1, addr, match, ruleComment)
		}
	}
	_, err := t.boxes[box-1].Run(ctx, "sh", "-ec", script.String())
	return err
}

// reconnect undoes all of that on a box.
func (t *trial) reconnect(ctx context.Context, box int) error {
	const script = "iptables -w -S INPUT | grep -e '--comment drill' | sed 's/^-A/-D/' | while read rule; do iptables -w $rule; done"
	_, err := t.boxes[box-1].Run(ctx, "sh", "-c", script)
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
	return t.all(func(box int) error { return t.reconnect(ctx, box) })
}

// apart cuts all IP messages between the boxes: neighbours still find them, and the
// router receives from both.
func apart(hold time.Duration) event {
	return event{
		name: "no messages between boxes, the router reaches all",
		do: func(ctx context.Context, t *trial) error {
			if err := t.pairs(func(box, to int) error { return t.deaf(ctx, box, to, allPackets) }); err != nil {
				return err
			}
			return traffic.Pause(ctx, hold)
		},
		promise: func(m Mode) Promise {
			p := quiet(m)
			if m != ActiveActive {
				p.Reason = "each box takes itself for the owner, but asks the neighbours first, and one answers for the gateway"
			}
			return unlessKeepalived(m, p)
		},
	}
}

func together() event {
	return event{
		name: "and messages pass again", heals: true,
		do: func(ctx context.Context, t *trial) error {
			if err := t.healAll(ctx); err != nil {
				return err
			}
			return traffic.Pause(ctx, 2*t.how.preemptDelayTime())
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
		do: toOwner(func(ctx context.Context, t *trial, box int) error {
			t.note("box%d had the VIP", box)
			return t.Host("switch").Unplug("far")
		}),
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
			return traffic.Pause(ctx, 2*t.how.preemptDelayTime())
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

// lossy loses a part of the messages between boxes for a while.
func lossy(name string, hold time.Duration, do func(ctx context.Context, t *trial) error) event {
	return event{
		name: fmt.Sprintf("%s, for %s", name, hold),
		do: func(ctx context.Context, t *trial) error {
			if err := do(ctx, t); err != nil {
				return err
			}
			if err := traffic.Pause(ctx, hold); err != nil {
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

// oneWay cuts the messages of the others to the owner, but not those of the owner.
func oneWay(hold time.Duration) event {
	return lossy("the owner receives nothing from the others, they receive from it", hold, toOwner(func(ctx context.Context, t *trial, box int) error {
		for n := range t.boxes {
			if n+1 != box {
				if err := t.deaf(ctx, box, n+1, allPackets); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// thirdLost has every box lose three of ten packets of every other one.
func thirdLost(hold time.Duration) event {
	return lossy("30 % of the packets between boxes lost", hold, func(ctx context.Context, t *trial) error {
		return t.pairs(func(box, to int) error { return t.deaf(ctx, box, to, threeInTen) })
	})
}
