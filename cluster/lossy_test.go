package cluster

import (
	"fmt"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
)

// bad has a fleet of n members that know each other, and then makes their network bad.
func (n *air) bad(members int, timing Timing, loss float64, jitter time.Duration) []*box {
	n.t.Helper()
	var boxes []*box
	for i := range members {
		cfg := n.config(fmt.Sprint("box", i+1), boxes...)
		cfg.Timing = timing
		boxes = append(boxes, n.run(cfg))
	}
	know(boxes)
	for _, b := range boxes {
		b.wire.mu.Lock()
		b.wire.loss, b.wire.jitter = loss, jitter
		b.wire.mu.Unlock()
	}
	return boxes
}

// know waits until all see that all others are alive.
func know(boxes []*box) {
	for _, a := range boxes {
		a.t.Helper()
		for _, b := range boxes {
			if a != b {
				a.wants(b.cfg.Name, Alive)
			}
		}
	}
}

func deaths(boxes ...*box) (n uint64) {
	for _, b := range boxes {
		n += b.Status().Counters.Deaths
	}
	return n
}

// A third of all datagrams is lost in either direction, and a handshake mostly. In eight
// hours of three such members there were four false deaths.
func TestABadNetworkKillsNoMember(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		boxes := n.bad(3, LAN, 0.3, 100*time.Millisecond)
		within(t, "somebody is doubted", func() bool { return boxes[0].Status().Counters.Suspicions > 0 })
		times := histories.Times(1)
		time.Sleep(time.Duration(times) * time.Minute)
		if n := deaths(boxes...); n > 2*times {
			t.Errorf("%d false deaths in %d minutes", n, times)
		}
		know(boxes)
	})
}

// One does not receive from another, which receives from it; a third one receives from both.
func TestOneDirectionIsNotEnoughToDie(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		boxes := n.bad(3, LAN, 0, 0)
		cut := func(to *box) {
			w := boxes[0].wire
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.cutTo = boxes[0].cfg.Advertise; to != nil {
				w.cutTo = to.cfg.Bind
			}
		}
		cut(boxes[1])
		within(t, "who gets no answer doubts", func() bool { m, _ := boxes[0].sees("box2"); return m.Suspect })
		time.Sleep(20 * time.Second)
		if n := deaths(boxes...); n > 1 {
			t.Errorf("%d false deaths", n)
		}
		cut(nil)
		within(t, "an answer ends it", func() bool { m, _ := boxes[0].sees("box2"); return m.Life == Alive && !m.Suspect })
	})
}
