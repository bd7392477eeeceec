package l2

import (
	"container/heap"
	"time"
)

// timers are the seats that wait for a time, the next one first.
type timers []*seat

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

// Push and Pop are for package heap.
func (t *timers) Push(x any) {
	s := x.(*seat)
	s.place = len(*t)
	*t = append(*t, s)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	s := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	s.place = nowhere
	return s
}

// nowhere is the place of a seat that waits for no time.
const nowhere = -1

// set has a seat wait until due; the zero Time is no more.
func (t *timers) set(s *seat, due time.Time) {
	s.due = due
	switch {
	case due.IsZero() && s.place != nowhere:
		heap.Remove(t, s.place)
	case due.IsZero():
	case s.place != nowhere:
		heap.Fix(t, s.place)
	default:
		heap.Push(t, s)
	}
}

// What is said unasked is said at a bounded pace on each interface: 10,000 frames a
// second, which is 7 Mbit/s on the wire, and at most 256 at once.
const (
	paceGap   = 100 * time.Microsecond
	paceBurst = 256
)

// pace is when the next frame would be due if all were sent one paceGap apart.
type pace time.Time

// take tells whether a frame may be sent now, and counts it.
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

// next is when a quarter of a burst may be sent again.
func (p pace) next() time.Time { return time.Time(p).Add(-paceBurst * paceGap * 3 / 4) }

// class is how urgent a frame is. What is of a class is sent in the order of asking.
type class uint8

const (
	classFirst class = iota // what moves a VIP: its first announcement, and a defence
	classBegun              // the probes after the first: of thousands, the first ones are soon done
	classProbe              // the first probe
	classLater              // announcements again, and probes of what somebody else has
	classes
)

// errand is a frame to be sent for a seat as soon as the pace allows; it is void if the
// seat's turn is another by then.
type errand struct {
	seat *seat
	turn uint
	what what
}

type what uint8

const (
	sayProbe what = iota
	sayUnasked
	sayReply  // unaskedReply
	sayDefend // unasked, out of turn
)

// errands are waiting lines, one for each class.
type errands [classes][]errand

// pop gives the next one that is not void.
func (q *errands) pop() (errand, class, bool) {
	for c := range q {
		for len(q[c]) > 0 {
			e := q[c][0]
			q[c][0] = errand{}
			q[c] = q[c][1:]
			if e.turn == e.seat.turn {
				return e, class(c), true
			}
		}
		q[c] = nil
	}
	return errand{}, 0, false
}

// waiting tells whether there is any errand.
func (q *errands) waiting() bool {
	for c := range q {
		if len(q[c]) > 0 {
			return true
		}
	}
	return false
}
