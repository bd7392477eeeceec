package l2

import (
	"container/heap"
	"slices"
	"time"
)

// timers are the bindings that wait for a time, the next one first.
type timers []*binding

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].heapIndex, t[j].heapIndex = i, j
}

// Push and Pop are for package heap.
func (t *timers) Push(x any) {
	s := x.(*binding)
	s.heapIndex = len(*t)
	*t = append(*t, s)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	s := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	s.heapIndex = notQueued
	return s
}

// notQueued is the heapIndex of a binding that waits for no time.
const notQueued = -1

// set makes a binding wait until due; the zero Time ends the wait.
func (t *timers) set(s *binding, due time.Time) {
	s.due = due
	switch {
	case due.IsZero() && s.heapIndex != notQueued:
		heap.Remove(t, s.heapIndex)
	case due.IsZero():
	case s.heapIndex != notQueued:
		heap.Fix(t, s.heapIndex)
	default:
		heap.Push(t, s)
	}
}

// setAnswered makes an answered binding wait for its next announcement, or until the other user of
// the VIP may be forgotten.
func (t *timers) setAnswered(b *binding) {
	due := b.nextGratuitous
	if b.other.mac != (MAC{}) && (due.IsZero() || b.other.forget.Before(due)) {
		due = b.other.forget
	}
	t.set(b, due)
}

// affirm announces an answered VIP for a member that has probed for it, so late that no switch
// would: the member knows that this box lives, although it receives no gossip.
func (t *timers) affirm(b *binding, now time.Time) {
	if at := now.Add(affirmAfter); b.nextGratuitous.IsZero() || at.Before(b.nextGratuitous) {
		b.nextGratuitous = at
		t.setAnswered(b)
	}
}

// Unsolicited frames are paced on each interface: 10,000 frames a second, which is
// 7 Mbit/s on the wire, and at most 256 at once.
const (
	paceGap   = 100 * time.Microsecond
	paceBurst = 256
)

// pace is when the next frame would be due if all were sent one paceGap apart.
type pace time.Time

// take reports whether a frame may be sent now, and counts it.
func (p *pace) take(now time.Time) bool {
	at := time.Time(*p)
	if at.Before(now) {
		at = now
	}
	if at.Sub(now) >= paceBurst*paceGap {
		return false
	}
	*p = pace(at.Add(paceGap))
	return true
}

// next returns when a quarter of a burst may be sent.
func (p pace) next() time.Time { return time.Time(p).Add(-paceBurst * paceGap * 3 / 4) }

// priority is the urgency of a queued frame. Within a priority, frames keep their order.
type priority uint8

const (
	priorityMove       priority = iota // first announcements and defences, which move a VIP
	priorityProbing                    // later probes: of thousands of claims, the first ones complete soon
	priorityFirstProbe                 // the first probe
	priorityRepeat                     // repeated announcements, and probes of contested VIPs
	priorities
)

// queuedFrame is a frame to send for a binding as soon as the pace allows. It is void if
// the generation of the binding has changed.
type queuedFrame struct {
	binding    *binding
	generation uint
	kind       frameKind
}

type frameKind uint8

const (
	kindProbe frameKind = iota
	kindGratuitous
	kindGratuitousReply // see gratuitousReply
	kindDefence         // a gratuitous frame beside the burst
)

// frameQueue has one queue for each priority.
type frameQueue [priorities][]queuedFrame

// pop returns the next frame that is not void.
func (q *frameQueue) pop() (queuedFrame, priority, bool) {
	for c := range q {
		for len(q[c]) > 0 {
			e := q[c][0]
			q[c][0] = queuedFrame{}
			q[c] = q[c][1:]
			if e.generation == e.binding.generation {
				return e, priority(c), true
			}
		}
		q[c] = nil
	}
	return queuedFrame{}, 0, false
}

// waiting reports whether a frame is queued.
func (q *frameQueue) waiting() bool {
	return slices.ContainsFunc(q[:], func(frames []queuedFrame) bool { return len(frames) > 0 })
}
