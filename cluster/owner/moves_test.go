package owner

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// each runs a story with fleets of 2 to 5 members, in both modes, with and without
// Stay and Together, and with a network that loses.
func each(t *testing.T, story func(l *laws)) {
	t.Helper()
	t.Parallel()
	for seed := range fleets() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			l := newLaws(t, newSim(seed, 2+int(seed%4), 12, Rules{Mode: Mode(seed / 2 % 2), NoPreempt: seed/4%2 == 1, SingleOwner: seed%5 == 4}))
			if seed%3 == 0 {
				l.loss = 0.3
			}
			l.lastHard = 5 * time.Second // all begin
			l.quiet(5*time.Second+preemptDelay, l.check)
			story(l)
		})
	}
}

// forget begins to count moves.
func (l *laws) forget() {
	for _, b := range l.boxes {
		clear(b.turnedOn)
		clear(b.turnedOff)
	}
}

// owned gives the owners of all VIPs.
func (l *laws) owned() []string {
	out := make([]string, len(l.vips))
	for v := range l.vips {
		for _, b := range l.boxes {
			if b.claims[v] && b.power {
				out[v] += b.name
			}
		}
	}
	return out
}

// still wants that no member has become the owner of anything, nor stopped to be.
func (l *laws) still(what string) {
	l.t.Helper()
	for _, b := range l.boxes {
		for v := range l.vips {
			if b.turnedOn[v]+b.turnedOff[v] > 0 {
				l.fail("%s: %s moved to or from %s", what, l.vips[v], b)
			}
		}
	}
}

func TestAHealMovesAVIPOnceAtMost(t *testing.T) {
	each(t, func(l *laws) {
		mask := 1 + l.IntN(1<<len(l.boxes)-2)
		l.part(func(b *simBox) bool { return mask>>b.id&1 == 1 }, false)
		l.quiet(20*time.Second, l.check)
		l.forget()
		l.heal()
		l.quiet(time.Minute, l.check)
		for _, b := range l.boxes {
			for v := range l.vips {
				if b.turnedOn[v] > 0 || b.turnedOff[v] > 1 {
					l.fail("%s became the owner of %s %d times, and stopped to be %d times", b, l.vips[v], b.turnedOn[v], b.turnedOff[v])
				}
			}
		}
	})
}

func TestARestartMovesNothing(t *testing.T) {
	each(t, func(l *laws) {
		l.forget()
		for range 3 {
			b := l.boxes[l.IntN(len(l.boxes))]
			l.kill(b)
			l.quiet(time.Duration(500+l.IntN(7000))*time.Millisecond, l.check)
			l.start(b)
			l.quiet(20*time.Second, l.check)
		}
		l.still("a restart")
		for _, b := range l.boxes { // all at once
			l.kill(b)
		}
		l.quiet(time.Second, l.check)
		for _, b := range l.boxes {
			l.start(b)
		}
		l.lastHard = l.now
		l.quiet(20*time.Second, l.check)
		l.still("a restart of all")
	})
}

func TestARollingDrainMovesWhatItHasToOnly(t *testing.T) {
	each(t, func(l *laws) {
		before := l.owned()
		for _, b := range l.boxes {
			l.forget()
			b.draining = true
			l.quiet(10*time.Second, l.check)
			b.draining = false
			l.quiet(10*time.Second, l.check)
			for _, c := range l.boxes {
				for v := range l.vips {
					if c.turnedOn[v]+c.turnedOff[v] > 2 || before[v] != b.name && !l.rules.NoPreempt && c.turnedOn[v]+c.turnedOff[v] > 0 {
						l.fail("%s is drained, and %s moves to or from %s", b, l.vips[v], c)
					}
				}
			}
		}
		if after := l.owned(); !l.rules.NoPreempt && !slices.Equal(before, after) {
			l.fail("%v, and then %v", before, after)
		}
	})
}

func TestOneThatComesAndGoesTakesNothing(t *testing.T) {
	each(t, func(l *laws) {
		b := l.boxes[0]
		l.powerOff(b)
		l.lastHard = l.now
		l.quiet(20*time.Second, l.check)
		l.forget()
		for range 5 {
			l.revive(b)
			l.quiet(time.Duration(5+l.IntN(20))*time.Second, l.check)
			l.powerOff(b)
			l.quiet(time.Duration(5+l.IntN(20))*time.Second, l.check)
		}
		l.still("a box that does not stay")
		l.revive(b)
		l.quiet(5*time.Second+preemptDelay, l.check)
		share := 0
		for v := range l.vips {
			if b.claims[v] {
				share++
			}
		}
		if took := share > 0; took == l.rules.NoPreempt && !l.rules.SingleOwner {
			l.fail("after a while it has %d VIPs; holders stay: %v", share, l.rules.NoPreempt)
		}
	})
}

func TestHoldersStay(t *testing.T) {
	each(t, func(l *laws) {
		l.rules.NoPreempt = true
		l.quiet(5*time.Second, l.check)
		b := l.boxes[l.IntN(len(l.boxes))]
		l.powerOff(b)
		l.lastHard = l.now
		l.quiet(20*time.Second, l.check)
		l.forget()
		l.revive(b)
		l.quiet(2*preemptDelay, l.check)
		l.still("holders stay")
	})
}

// The clocks of all boxes differ in simBox.clock; this one is set while it runs.
func TestAClockThatStopsForAWhileTakesNothing(t *testing.T) {
	each(t, func(l *laws) {
		l.forget()
		for range 4 {
			b := l.boxes[l.IntN(len(l.boxes))]
			b.frozen = l.now + 2*time.Second // shorter than it takes to be dead
			l.lastHard = b.frozen
			l.quiet(8*time.Second, l.check)
		}
		l.still("a short stop")
	})
}

func TestAllThatAreUnfitAtOnceServeOn(t *testing.T) {
	each(t, func(l *laws) {
		l.loss = 0
		for _, b := range l.boxes {
			b.broken = l.IntN(2) == 0
			b.draining = !b.broken
		}
		l.quiet(20*time.Second, l.check) // which sees that all is announced at all times
	})
}

func TestTheFirstMemberAfterAPowerCutKeepsAllForAWhile(t *testing.T) {
	each(t, func(l *laws) {
		for _, b := range l.boxes {
			l.powerOff(b)
		}
		l.quiet(2*time.Minute, l.check)
		first := l.boxes[l.IntN(len(l.boxes))]
		l.revive(first)
		l.lastHard = l.now
		l.quiet(8*time.Second, l.check)
		for v := range l.vips {
			if !first.claims[v] {
				l.fail("%s is not owned by the only one that is there", l.vips[v])
			}
		}
		l.forget()
		for _, b := range l.boxes {
			l.revive(b)
		}
		l.quiet(preemptDelay-time.Second, l.check)
		l.still("for a while")
	})
}
