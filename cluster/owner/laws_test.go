package owner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
)

// laws are what holds of a fleet, whatever happens to it.
type laws struct {
	*sim
	t *testing.T
	// witness[b][c][v]: since b has power, c has been Stable, has served v, and both
	// have received each other's messages.
	witness [][][]bool
	booted  []time.Duration
	bare    []time.Duration // since when a VIP that could be served is not announced; 0: it is
	checked int             // how often views were equal
}

func newLaws(t *testing.T, s *sim) *laws {
	l := &laws{sim: s, t: t, booted: make([]time.Duration, len(s.boxes)), bare: make([]time.Duration, len(s.vips))}
	for range s.boxes {
		l.witness = append(l.witness, make([][]bool, len(s.boxes)))
	}
	return l
}

func (l *laws) fail(format string, args ...any) {
	l.t.Helper()
	for _, b := range l.boxes {
		l.note("%s: power %v, process %v, says %s, own %s, joined %v, serves %v, claims %v, announces %v",
			b, b.power, b.process, b.now.Published, b.now.Effective, b.joined, b.serves, b.claims, b.announces)
	}
	l.t.Fatalf("%s at %v\n%s", fmt.Sprintf(format, args...), l.now, strings.Join(l.log[max(0, len(l.log)-40):], "\n"))
}

// check checks all laws now.
func (l *laws) check() {
	l.t.Helper()
	for v := range l.vips {
		l.checkAnnounced(v)
	}
	for _, b := range l.boxes {
		l.checkNewcomer(b)
	}
	for _, group := range l.groups() {
		if l.equalViews(group) {
			l.checked++
			for v := range l.vips {
				l.checkOwner(group, v)
			}
		}
	}
}

// checkAnnounced: whatever can be served is announced, but for the time in which a
// crash, or that backends are gone, is noticed.
func (l *laws) checkAnnounced(v int) {
	l.t.Helper()
	can, is := false, false
	for _, b := range l.boxes {
		can = can || b.runs(l.now) && l.now >= b.ready && b.serves[v]
		is = is || b.power && b.serves[v] && b.announces[v]
	}
	if is || !can {
		l.bare[v] = 0
		return
	}
	if l.bare[v] == 0 {
		l.bare[v] = l.now
	}
	if l.loss > 0 && l.now-l.bare[v] <= ActDelay { // a message of a box may take longer than HeardAfter
		return
	}
	if l.now-l.lastHard > deadAfter+l.delay+5*tickEvery {
		l.fail("nobody announces %s, since %v; %v after the last event that could be why", l.vips[v], l.bare[v], l.now-l.lastHard)
	}
}

// checkNewcomer: a new member takes nothing from those that are stable.
func (l *laws) checkNewcomer(b *simBox) {
	l.t.Helper()
	for _, c := range l.boxes {
		w := l.witness[b.id][c.id]
		for v := range w {
			w[v] = w[v] && c.runs(l.now) && c.joined && c.now.Published == Stable && c.serves[v] && !c.drains[v] &&
				!l.cut[b.id][c.id] && !l.cut[c.id][b.id]
			if w[v] && b.runs(l.now) && b.claims[v] && l.now-l.booted[b.id] < preemptDelay {
				l.fail("%s has power since %v and owns %s, which %s has served all the time", b, l.booted[b.id], l.vips[v], c)
			}
		}
	}
}

// groups are the boxes that receive each other's messages, all of them.
func (l *laws) groups() [][]*simBox {
	var out [][]*simBox
	seen := map[int]bool{}
	for _, a := range l.boxes {
		if !a.runs(l.now) || seen[a.id] {
			continue
		}
		group := []*simBox{}
		for _, b := range l.boxes {
			if b.runs(l.now) && (a == b || !l.cut[a.id][b.id] && !l.cut[b.id][a.id]) {
				group = append(group, b)
				seen[b.id] = true
			}
		}
		out = append(out, group)
	}
	return out
}

// equalViews reports whether all of a group have the messages of the others in it, count
// with no other member, and have acted upon it.
func (l *laws) equalViews(group []*simBox) bool {
	for _, a := range group {
		if !a.joined || l.now < a.ready || a.now.Published != a.now.Effective {
			return false
		}
		for _, b := range l.boxes {
			switch in := slices.Contains(group, b); {
			case a == b:
			case in && (a.others[b.id].seq != b.says.seq || a.sees(b.id) != b.now.Effective):
				return false
			case !in && a.sees(b.id) != Absent:
				return false
			}
		}
	}
	return true
}

// checkOwner: exactly one of a group owns what some member of it can serve, and it is
// one that should.
func (l *laws) checkOwner(group []*simBox, v int) {
	l.t.Helper()
	owners, can, best := []*simBox{}, false, Absent
	standing := func(b *simBox) State {
		if b.drains[v] {
			return Draining
		}
		return b.now.Effective
	}
	for _, b := range group {
		if b.claims[v] {
			owners = append(owners, b)
		}
		if b.serves[v] {
			can, best = true, max(best, standing(b))
		}
		if b.verdicts[v].Owner != group[0].verdicts[v].Owner {
			l.fail("%s: %s thinks %q, %s thinks %q", l.vips[v], b, b.verdicts[v].Owner, group[0], group[0].verdicts[v].Owner)
		}
	}
	if can && len(owners) != 1 || !can && len(owners) > 0 {
		l.fail("%s is owned by %v of %v, can be served: %v", l.vips[v], owners, group, can)
	}
	if can && standing(owners[0]) != best && (!l.rules.NoPreempt || !standing(owners[0]).Fit()) {
		l.fail("%s is owned by %s, which is %s, and there is one that is %s", l.vips[v], owners[0], standing(owners[0]), best)
	}
}

// happen makes an event happen to a box.
func (l *laws) happen() {
	b := l.boxes[l.IntN(len(l.boxes))]
	v := l.IntN(len(l.vips))
	hard := true
	switch l.IntN(16) {
	case 0, 1:
		l.note("%s loses power", b)
		l.powerOff(b)
	case 2, 3, 4, 5:
		l.revive(b)
	case 6:
		l.note("%s is killed", b)
		l.kill(b)
	case 7:
		l.note("everybody is restarted")
		for _, b := range l.boxes {
			l.kill(b)
			l.revive(b)
		}
	case 8:
		l.note("%s stops for a while", b)
		b.frozen = l.now + time.Duration(l.IntN(6000))*time.Millisecond
	case 9:
		b.broken = !b.broken
		hard = false
		l.note("%s is broken: %v", b, b.broken)
	case 10:
		b.draining = !b.draining
		hard = false
		l.note("%s is being drained: %v", b, b.draining)
	case 11:
		b.drains[v] = !b.drains[v]
		hard = false
		l.note("%s of %s is being drained: %v", l.vips[v], b, b.drains[v])
	case 12, 13:
		b.serves[v] = !b.serves[v]
		hard = !b.serves[v]
		l.note("%s serves %s: %v", b, l.vips[v], b.serves[v])
	case 14:
		oneWay := l.IntN(2) == 0
		mask := l.IntN(1 << len(l.boxes))
		l.note("the fleet is cut: %b, one way %v", mask, oneWay)
		l.part(func(b *simBox) bool { return mask>>b.id&1 == 1 }, oneWay)
		hard = false
	case 15:
		l.note("the fleet is whole again")
		l.heal()
		hard = false
	}
	if hard {
		l.lastHard = max(l.lastHard, l.now, b.frozen)
	}
}

// revive brings a box up again, or only its process.
func (l *laws) revive(b *simBox) {
	switch {
	case !b.power:
		l.note("%s has power again", b)
		b.power = true
		l.start(b)
		l.booted[b.id] = l.now
		for _, c := range l.boxes {
			l.witness[b.id][c.id] = make([]bool, len(l.vips))
			for v := range l.vips {
				l.witness[b.id][c.id][v] = b != c
			}
		}
	case !b.process:
		l.note("%s is started", b)
		l.start(b)
	}
}

// fleets is how many there are of each story.
func fleets() uint64 { return histories.Times(6) }

// TestLaws has fleets live through everything that we could think of, for ten minutes
// each.
func TestLaws(t *testing.T) {
	t.Parallel()
	for seed := range fleets() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rules := Rules{Mode: Mode(seed % 2), SingleOwner: seed%7 == 0, NoPreempt: seed%3 == 0}
			l := newLaws(t, newSim(seed, 2+int(seed%4), 6, rules))
			if seed%4 >= 2 {
				l.loss, l.delay = 0.3, 600*time.Millisecond
			}
			for range 8 {
				for range 4 + l.IntN(12) {
					l.happen()
					l.quiet(time.Duration(l.IntN(4000))*time.Millisecond, l.check)
				}
				l.note("nothing happens for a while")
				l.quiet(20*time.Second, l.check)
				l.agree()
				l.quiet(preemptDelay, l.check)
				l.settledOwners()
			}
			if l.checked == 0 {
				t.Error("views were never equal")
			}
		})
	}
}

// agree waits until all that receive each other's messages agree.
func (l *laws) agree() {
	l.t.Helper()
	agreed := make([]bool, len(l.boxes)) // of the first of each group
	l.quiet(5*time.Second, func() {
		l.check()
		for _, group := range l.groups() {
			agreed[group[0].id] = agreed[group[0].id] || l.equalViews(group)
		}
	})
	for _, group := range l.groups() {
		if l.whole(group) && !agreed[group[0].id] {
			l.fail("%v do not agree about who is there", group)
		}
	}
}

// whole reports whether all of a group receive each other's messages, and no others.
func (l *laws) whole(group []*simBox) bool {
	for _, a := range group {
		for _, b := range l.boxes {
			if a == b || !b.runs(l.now) {
				continue
			}
			in := slices.Contains(group, b)
			if l.cut[a.id][b.id] == in || l.cut[b.id][a.id] == in {
				return false
			}
		}
	}
	return true
}

// settledOwners: when nothing has happened for so long, nothing moves any more.
func (l *laws) settledOwners() {
	l.t.Helper()
	for _, b := range l.boxes {
		clear(b.turnedOn)
		clear(b.turnedOff)
	}
	l.quiet(10*time.Second, l.check)
	for _, group := range l.groups() {
		for _, b := range group {
			for v := range l.vips {
				if l.whole(group) && b.turnedOn[v]+b.turnedOff[v] > 0 {
					l.fail("%s of %s moves, and nothing has happened", l.vips[v], b)
				}
			}
		}
	}
}
