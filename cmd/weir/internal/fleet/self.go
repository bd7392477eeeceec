package fleet

import (
	"time"

	"weir/bgp/advertise"
	"weir/cluster"
	"weir/cluster/owner"
)

const (
	// JoinWindow is how long a box that starts waits for other members before it
	// concludes that there are none. It claims nothing meanwhile.
	JoinWindow = 3 * time.Second
	// rejoinWindow is the same after a restart of the gossip. rejoinMax bounds it when
	// restarts follow each other: a gossip that panics all the time must not keep the box
	// from decisions for ever.
	rejoinWindow, rejoinMax = JoinWindow + 3*time.Second, 30 * time.Second
)

// self is the state of this box in the fleet.
type self struct {
	started            time.Time
	gossiping          bool      // the gossip has been started
	joined             bool      // it knows the other members
	wasJoined          bool      // it did before it had to join again, which makes it no worse
	unjoined, deadline time.Time // when it began to join, and the end of the join window
	machine            owner.Self
	downtime           time.Duration // between the last run, in which it was stable, and started
	now                owner.Result
	reason             string    // it is unfit; "" if it is fit
	since              time.Time // of the last change of now.Published
	fitSince           time.Time // zero while it is unfit
	next               time.Time // when the passing of time may change the state
}

// StableFor is how long a stable box may be without its daemon and still be stable when
// that is back.
const StableFor = time.Minute

// resume takes how long ago the last run ended, in which the box was stable.
func (s *self) resume(ago time.Duration) { s.downtime, s.machine.StableUntil = ago, StableFor-ago }

// configure sets the times of a configuration. For restart_grace after the last run other
// members count with the box as it was. Then they have taken over, and it must be back
// before they yield.
func (s *self) configure(preempt, grace time.Duration) {
	s.machine.PreemptDelay = preempt
	if s.machine.StableUntil > 0 {
		s.machine.CountedUntil = grace - s.downtime
	}
}

// kept reports whether others still count with the box as it was in the last run.
func (s *self) kept(now time.Time) bool { return now.Sub(s.started) < s.machine.CountedUntil }

// reset makes the box one that has not joined.
func (s *self) reset() { s.joined, s.wasJoined, s.gossiping = false, false, false }

// rejoin makes the box join again, without getting less fit: the gossip is being restarted. The
// members that it does not know then may be alive. fresh: this restart follows no other.
func (s *self) rejoin(fresh bool, now time.Time) {
	if s.joined || fresh {
		s.joined, s.unjoined = false, now
	}
	s.deadline = now.Add(rejoinWindow)
	if end := s.unjoined.Add(rejoinMax); end.Before(s.deadline) {
		s.deadline = end
	}
}

// start starts the gossip once. A box that was stable in a run just before is silent
// until its kernel is ready: the fleet counts with it as it was, and an earlier message
// would report less.
func (s *self) start(ready bool, now time.Time) bool {
	if s.gossiping || !ready && s.kept(now) {
		return false
	}
	s.gossiping, s.unjoined, s.deadline = true, now, now.Add(JoinWindow)
	s.next = Soonest(s.next, s.deadline)
	return true
}

// knows reports whether the box knows the other members: all to join have answered, or
// the join window is over.
func (s *self) knows(m *members, now time.Time) bool {
	switch {
	case !s.gossiping, m.status.Rejoining:
		return false
	case m.status.NameConflict != "":
		return false // another box acts under this name
	case !now.Before(s.deadline):
		return true
	}
	return m.answered()
}

// stable is the state of a box without a fleet.
var stable = owner.Result{Published: owner.Stable, Effective: owner.Stable}

// advance takes the facts of a moment and reports whether the reported state has changed.
func (s *self) advance(fit *fitness, draining, anyStable bool, now time.Time) (changed bool) {
	before := s.now.Published
	s.now = s.machine.Advance(now.Sub(s.started), owner.Facts{
		Fit: s.reason == "", Draining: draining, Joined: s.wasJoined, OtherStable: anyStable,
	})
	s.fitSince = time.Time{}
	if at := now.Sub(s.started) - s.now.FitFor; s.reason == "" && s.wasJoined {
		s.fitSince = s.started.Add(at)
	}
	if changed = s.now.Published != before || s.since.IsZero(); changed {
		s.since = now
	}
	s.next = fit.next(now)
	if s.now.Next != 0 {
		s.next = Soonest(s.next, s.started.Add(s.now.Next))
	}
	if !s.joined && s.gossiping && s.deadline.After(now) {
		s.next = Soonest(s.next, s.deadline)
	}
	return changed
}

// report returns the short state that other members see. isolated is the reason to have
// released the floating addresses, or "".
func (s *self) report(set *settings, drain Drain, isolated string) cluster.State {
	out := cluster.State{Version: set.version, Weight: set.fleet.Weight, Stable: s.now.Published == owner.Stable}
	if s.now.Published == owner.Unfit {
		if out.Unfit = s.reason; out.Unfit == "" {
			out.Unfit = "the other members are not known yet"
		}
		if isolated != "" {
			out.Unfit += "; " + isolated
		}
	}
	if s.now.Published.Fit() && !s.fitSince.IsZero() {
		out.FitSince = s.fitSince.Unix()
	}
	if drain.All {
		out.Drain = cluster.Draining
		if drain.Stages.All == advertise.Drained {
			out.Drain = cluster.Drained
		}
	}
	return out
}
