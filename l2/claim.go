package l2

import (
	"net/netip"
	"time"
)

// Probes: RFC 5227 has three, one to two seconds apart, after a wait of up to one, and
// then two more of silence, for hosts that are in no hurry. Here clients wait.
const (
	probes      = 3
	probeGap    = 100 * time.Millisecond
	doubtProbes = 8
	doubtGap    = 75 * time.Millisecond
	// While somebody else answers, it is asked again so often, and less often after some
	// time.
	contestGap     = 200 * time.Millisecond
	contestCalm    = 5 * time.Second
	contestCalmGap = time.Second
	// defendGap is the shortest time between two defences of a VIP, and two conflicts
	// that are counted.
	defendGap = time.Second
	// wantedGap is how often it is noted that a fellow asks for a VIP that is held.
	wantedGap = time.Second
	// otherMemory is how long is remembered who else answered.
	otherMemory = time.Minute
	// maxStrangers are remembered for the log.
	maxStrangers = 1000
)

// burst is when a VIP that was taken over is announced, after the time of the takeover.
// The last is for switches whose port is closed for 30 s after the cable is in (spanning
// tree).
var burst = [...]time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	5 * time.Second, 10 * time.Second, 30 * time.Second}

// seat is a claim on one interface.
type seat struct {
	vip      netip.Addr
	link     *link
	doubtful bool
	state    State
	since    time.Time

	silent int       // probes that nobody has answered
	round  int       // of burst, that comes next
	again  time.Time // when the next announcement is due

	other   MAC
	fellow  string
	heard   time.Time
	counted time.Time // when a conflict was last counted, and answered
	wanted  time.Time // while it is held: when a fellow last asked whether it is free

	turn  uint // ends the errands of the turns before
	due   time.Time
	place int // in timers
}

// patience is how many probes, and how far apart, before silence is believed.
func (s *seat) patience() (int, time.Duration) {
	if s.doubtful {
		return doubtProbes, doubtGap
	}
	return probes, probeGap
}

// become changes the state, which begins a new turn.
func (e *engine) become(s *seat, state State, now time.Time) {
	s.turn++
	e.stirred = true
	s.silent, s.round, s.again, s.wanted = 0, 0, time.Time{}, time.Time{}
	e.timers.set(s, time.Time{})
	if s.state != state {
		s.link.count[s.state]--
		s.link.count[state]++
		s.state, s.since = state, now
		e.changed = true
	}
	switch state {
	case Probing:
		e.ask(s, sayProbe, classProbe)
	case Contested:
		e.timers.set(s, now.Add(contestGap))
	case Held:
		s.link.Takeovers++
		s.counted = time.Time{} // a conflict from now on is another
		e.ask(s, sayUnasked, classFirst)
	}
}

// reset puts a seat where its link says that it belongs, as if it were new.
func (e *engine) reset(s *seat, now time.Time) {
	s.other, s.fellow, s.heard = MAC{}, "", time.Time{}
	state := Idle
	if s.link.ready() {
		state = Probing
	}
	e.become(s, state, now)
}

// wake does what a seat has waited for.
func (e *engine) wake(s *seat, now time.Time) {
	e.timers.set(s, time.Time{})
	switch s.state {
	case Probing, Contested:
		if need, _ := s.patience(); s.silent >= need {
			e.become(s, Held, now)
			return
		}
		if s.state == Contested && s.silent == 0 {
			e.ask(s, sayProbe, classLater)
			return
		}
		e.ask(s, sayProbe, classBegun)
	case Held:
		if s.other != (MAC{}) && now.Sub(s.heard) >= otherMemory {
			s.other, s.fellow = MAC{}, ""
			e.changed = true
		}
		if !s.again.IsZero() && !now.Before(s.again) {
			s.again = time.Time{}
			e.ask(s, sayUnasked, classLater)
		}
		e.waitHeld(s)
	}
}

// waitHeld has a seat that is held wait for its next announcement, or until it may
// forget who else had the VIP.
func (e *engine) waitHeld(s *seat) {
	due := s.again
	if forget := s.heard.Add(otherMemory); s.other != (MAC{}) && (due.IsZero() || forget.Before(due)) {
		due = forget
	}
	e.timers.set(s, due)
}

// said follows up on a frame that has been sent.
func (e *engine) said(s *seat, w what, now time.Time) {
	switch w {
	case sayProbe:
		s.link.Probes++
		s.silent++
		_, gap := s.patience()
		e.timers.set(s, now.Add(gap))
	case sayUnasked:
		s.link.Gratuitous++
		if s.vip.Is4() {
			e.ask(s, sayReply, classLater)
		}
		s.round++
		e.planNext(s, now)
	case sayReply, sayDefend:
		s.link.Gratuitous++
	}
}

// planNext plans the next announcement: of the burst, then by Config.Refresh.
func (e *engine) planNext(s *seat, now time.Time) {
	switch {
	case s.round < len(burst):
		s.again = now.Add(burst[s.round] - burst[s.round-1])
	case e.config.Refresh > 0:
		s.again = now.Add(e.config.Refresh)
	default:
		s.again = time.Time{}
	}
	e.waitHeld(s)
}

// announce begins the burst again.
func (e *engine) announce(s *seat, c class) {
	s.turn++
	s.round, s.again = 0, time.Time{}
	e.ask(s, sayUnasked, c)
	e.waitHeld(s)
}

// conflict is when somebody uses a VIP that is claimed.
func (e *engine) conflict(s *seat, from MAC, now time.Time) {
	if s.state == Idle {
		return
	}
	f, known := e.fellows[from]
	e.note(s, from, f.Name, now)
	if s.state != Held {
		e.contest(s, known, now)
		return
	}
	if known && f.Wins != nil && f.Wins(s.vip) {
		e.countConflict(s, known, now)
		e.become(s, Contested, now)
		return
	}
	if !e.countConflict(s, known, now) {
		e.waitHeld(s)
		return
	}
	if known { // it yields, and its neighbours must learn
		e.announce(s, classFirst)
		return
	}
	e.ask(s, sayDefend, classFirst)
	e.waitHeld(s)
}

// rival is when somebody else probes for a VIP, to take it, that is being probed for
// here. One of the two goes on: of fellows the winner, else the one with the smaller MAC.
func (e *engine) rival(s *seat, from MAC, now time.Time) {
	f, known := e.fellows[from]
	wins := string(from[:]) < string(s.link.mac[:])
	if known {
		wins = f.Wins != nil && f.Wins(s.vip)
	}
	if wins {
		e.note(s, from, f.Name, now)
		e.contest(s, known, now)
	}
}

// wantedBy is when a fellow asks whether a VIP is free that is held here.
func (e *engine) wantedBy(s *seat, now time.Time) {
	if now.Sub(s.wanted) >= wantedGap {
		s.wanted, e.changed = now, true
	}
}

// contest has a seat that is not held wait, and ask again later.
func (e *engine) contest(s *seat, known bool, now time.Time) {
	if s.state == Probing {
		e.countConflict(s, known, now)
		e.become(s, Contested, now)
		return
	}
	s.turn++
	s.silent = 0
	gap := contestGap
	if now.Sub(s.since) >= contestCalm {
		gap = contestCalmGap
	}
	e.timers.set(s, now.Add(gap))
}

// note remembers who else uses the VIP.
func (e *engine) note(s *seat, from MAC, fellow string, now time.Time) {
	if s.other != from || s.fellow != fellow {
		e.changed, e.stirred = true, true
		if fellow == "" && len(e.strangers) < maxStrangers {
			e.strangers = append(e.strangers, stranger{s.vip, s.link.name, from})
		}
	}
	s.other, s.fellow, s.heard = from, fellow, now
}

// countConflict counts one, at most once in a defendGap; false: not this time.
func (e *engine) countConflict(s *seat, known bool, now time.Time) bool {
	if !s.counted.IsZero() && now.Sub(s.counted) < defendGap {
		return false
	}
	s.counted = now
	if known {
		s.link.FellowConflicts++
	} else {
		s.link.StrangerConflicts++
	}
	return true
}
