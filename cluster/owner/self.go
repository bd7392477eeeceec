package owner

import "time"

// Self is the standing of this box itself, in time. Its zero value, with the
// durations filled in, is that of a box that has just begun. Times are those of any
// clock that never jumps.
type Self struct {
	// TakeBack is how long a box has to be fit before it is Settled, if somebody else
	// is.
	TakeBack time.Duration
	// Was is until when it counts that the box was Settled before its process began
	// anew: if it is fit by then it is Settled at once. 0: it was not.
	Was time.Duration
	// Kept is until when other members count with it as it was, which was Settled:
	// restart_grace after the process before this one has ended. Until then, or until
	// it is fit, it says Settled, for nothing has changed that others should act upon.
	// After that others have taken over, and it has to be there before they let go. 0:
	// it was not Settled, or others know nothing of it any more.
	Kept time.Duration

	began bool          // it was fit since its process began
	fit   bool          // at the last Advance
	since time.Duration // when it became fit
	level Standing      // Fresh or Settled, while it is fit
	said  Standing
	worse time.Duration // when it last said that it is no longer fit
	was   Standing      // what it said before that
}

// Facts are what a box knows of itself and the fleet at a moment.
type Facts struct {
	// Fit tells whether it is fit.
	Fit bool
	// Draining tells whether it is being drained. That is no break: one that is no
	// longer drained is what it would have been.
	Draining bool
	// Joined tells whether it knows who else is there: all whom it asks to join have
	// answered, and their Words are here, or its join window is over. It stays so.
	Joined bool
	// OthersSettled tells whether another member is Settled.
	OthersSettled bool
}

// Now is how a box stands at a moment.
type Now struct {
	// Said is what it is to say of itself, and Own what it is to count itself as in its
	// own Verdicts. They differ in two cases. A box that does not know who else is
	// there counts itself as Absent. And one that is no longer fit, or begins to
	// drain, says so at once but acts upon it HeardAfter later, when others have heard
	// of it: two that become unfit at the same moment would otherwise both leave the
	// VIP to the other.
	Said, Own Standing
	// FitFor is for how long it has been fit.
	FitFor time.Duration
	// Next is when Advance has to be called though nothing happens; 0: not at all.
	Next time.Duration
}

// HeardAfter is how long a box goes on as before after it said that it is no longer
// fit.
const HeardAfter = time.Second

// Advance tells how the box stands now.
func (s *Self) Advance(now time.Duration, f Facts) Now {
	out := Now{}
	next := func(at time.Duration) {
		if at > now && (out.Next == 0 || at < out.Next) {
			out.Next = at
		}
	}
	ready := f.Fit && f.Joined
	kept := !s.began && now < s.Kept
	was := !s.began && now < max(s.Was, s.Kept)
	switch {
	case ready && !s.fit:
		s.since, s.level = now, Fresh
		if was {
			s.level = Settled
		}
		s.began = true
	case !ready && kept:
		next(s.Kept)
	}
	s.fit = ready
	if s.fit && s.level == Fresh {
		if now-s.since >= s.TakeBack || !f.OthersSettled {
			s.level = Settled
		} else {
			next(s.since + s.TakeBack)
		}
	}
	said := Unfit
	switch {
	case f.Draining:
		said = Draining
	case s.fit:
		said = s.level
	case kept:
		said = Settled
	}
	if s.said.Fit() && !said.Fit() {
		s.was, s.worse = s.said, now
	}
	s.said = said
	out.Said, out.Own = said, said
	if s.fit {
		out.FitFor = now - s.since
	}
	switch {
	case !f.Joined:
		out.Own = Absent
	case !said.Fit() && s.was.Fit() && now-s.worse < HeardAfter:
		out.Own = s.was
		next(s.worse + HeardAfter)
	}
	return out
}

// Sight is how another member looks from here.
type Sight uint8

// The sights.
const (
	// Heard is a member that is alive.
	Heard Sight = iota
	// Away is one whose process is not there although its box is: its kernel forwards
	// on what it has.
	Away
	// Gone is one that is dead, or has left.
	Gone
)

// Seen gives the standing of another member: what it said, as long as it is Heard, or
// has been Away for less than grace.
func Seen(said Standing, sight Sight, away, grace time.Duration) Standing {
	if sight == Heard || sight == Away && away < grace {
		return said
	}
	return Absent
}
