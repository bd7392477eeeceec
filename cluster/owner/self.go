package owner

import "time"

// Self is the state of this box over time. Its zero value, with the durations set, is that
// of a box that has just started. Times are those of a monotonic clock.
type Self struct {
	// PreemptDelay is how long a box must be fit before it is Stable, if another member
	// is.
	PreemptDelay time.Duration
	// StableUntil is the end of the period in which it counts that the box was Stable
	// before its process restarted: if it is fit by then it is Stable at once. 0: it was
	// not.
	StableUntil time.Duration
	// CountedUntil is the end of the period in which other members count the box as it
	// was, Stable: restart_grace after the previous process has ended. Until then, or
	// until it is fit, it publishes Stable, since nothing has changed for the others.
	// After that others have taken over, and it must be ready before they stop. 0: it was
	// not Stable, or the others no longer know it.
	CountedUntil time.Duration

	wasFit     bool          // it has been fit since its process started
	fit        bool          // at the last Advance
	since      time.Duration // when it became fit
	level      State         // Fresh or Stable, while it is fit
	published  State
	unfitSince time.Duration // when it last published that it is no longer fit
	before     State         // what it published before that
}

// Facts are what a box knows about itself and the fleet.
type Facts struct {
	// Fit: it is fit.
	Fit bool
	// Draining: it is being drained. That is no interruption: afterwards it is what it
	// would have been.
	Draining bool
	// Joined: it knows the other members, since all hosts that it joins have answered and
	// their messages are here, or its join window is over. It stays true.
	Joined bool
	// OtherStable: another member is Stable.
	OtherStable bool
}

// Result is the state of a box at a moment.
type Result struct {
	// Published is the state to publish, and Effective the state to decide with. They
	// differ in two cases. A box that does not know the other members decides as Absent.
	// And a box that is no longer fit, or begins to drain, publishes that at once but acts
	// upon it ActDelay later, when others know it: two members that become unfit at the
	// same moment would otherwise both leave the VIP to the other.
	Published, Effective State
	// FitFor is for how long it has been fit.
	FitFor time.Duration
	// Next is when Advance must be called even if nothing happens; 0: not at all.
	Next time.Duration
}

// ActDelay is how long a box goes on as before after it has published that it is no longer
// fit.
const ActDelay = time.Second

// Advance returns the present state of the box.
func (s *Self) Advance(now time.Duration, f Facts) Result {
	out := Result{}
	next := func(at time.Duration) {
		if at > now && (out.Next == 0 || at < out.Next) {
			out.Next = at
		}
	}
	ready := f.Fit && f.Joined
	kept := !s.wasFit && now < s.CountedUntil
	was := !s.wasFit && now < max(s.StableUntil, s.CountedUntil)
	switch {
	case ready && !s.fit:
		s.since, s.level = now, Fresh
		if was {
			s.level = Stable
		}
		s.wasFit = true
	case !ready && kept:
		next(s.CountedUntil)
	}
	s.fit = ready
	if s.fit && s.level == Fresh {
		if now-s.since >= s.PreemptDelay || !f.OtherStable {
			s.level = Stable
		} else {
			next(s.since + s.PreemptDelay)
		}
	}
	state := Unfit
	switch {
	case f.Draining:
		state = Draining
	case s.fit:
		state = s.level
	case kept:
		state = Stable
	}
	if s.published.Fit() && !state.Fit() {
		s.before, s.unfitSince = s.published, now
	}
	s.published = state
	out.Published, out.Effective = state, state
	if s.fit {
		out.FitFor = now - s.since
	}
	switch {
	case !f.Joined:
		out.Effective = Absent
	case !state.Fit() && s.before.Fit() && now-s.unfitSince < ActDelay:
		out.Effective = s.before
		next(s.unfitSince + ActDelay)
	}
	return out
}

// Liveness is how another member looks from here.
type Liveness uint8

// The values of Liveness.
const (
	// Alive: the member answers.
	Alive Liveness = iota
	// ProcessDown: its process is down while its box is up, and its kernel still forwards.
	ProcessDown
	// Dead: it is dead, or has left.
	Dead
)

// StateOf returns the state of another member: the published one while it is Alive, or
// ProcessDown for less than grace; else Absent.
func StateOf(published State, sight Liveness, down, grace time.Duration) State {
	if sight == Alive || sight == ProcessDown && down < grace {
		return published
	}
	return Absent
}
