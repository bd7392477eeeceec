package daemon

import (
	"maps"
	"net/netip"
	"time"

	"weir/cluster"
	"weir/cluster/owner"
)

// How this box stands in the fleet, in time.

// stand is how this box stands.
type stand struct {
	started time.Time
	begun   time.Time // when it began to gossip; zero before
	joined  bool      // it knows who else is there
	knew    bool      // or did, before it had to join anew: that makes it no worse
	alone   time.Time // from then on silence means that nobody is
	self    owner.Self
	ended   time.Duration // how long before started the last run has ended
	now     owner.Now
	why     string    // it is unfit; "" if it is fit
	since   time.Time // when now.Said became what it is
	// fitSince is when it became fit; zero while it is not.
	fitSince time.Time
	cutOff   bool      // nobody can reach it
	next     time.Time // when it may be otherwise though nothing happens
	out      outtake
}

// outtake is what somebody takes off this box: all of it, and how far that has come, or
// some VIPs.
type outtake struct {
	all, done bool
	vips      map[netip.Addr]time.Time
	// gone tells whether a VIP has been taken off for good: nil is that none is.
	gone func(netip.Addr) bool
}

func (o outtake) isGone(a netip.Addr) bool { return o.gone != nil && o.gone(a) }

// begins takes in how long ago the last run, in which the box was settled, has ended.
func (s *stand) begins(ago time.Duration, settled bool) {
	if settled {
		s.ended, s.self.Was = ago, traceLasts-ago
	}
}

// keep has the box count as others count with it: as it was, for restart_grace after the
// last run. Then they have taken over, and it must be there before they let go.
func (s *stand) keep(grace time.Duration) {
	if s.self.Was > 0 {
		s.self.Kept = grace - s.ended
	}
}

// kept tells whether others still count with the box as it was in the last run.
func (s *stand) kept(now time.Time) bool { return now.Sub(s.started) < s.self.Kept }

// advance takes in how the box is and what is taken off it.
func (f *fleet) advance(facts facts, out outtake, now time.Time) {
	s := &f.stand
	before, was := s.now, s.out
	s.why, s.out = facts.unfit(now), out
	if twin := f.heard.Twin; twin != "" {
		s.why = "the box at " + twin + " is called " + f.name() + ", too: give this one another name by cluster.member"
	}
	s.joined = s.joined || f.knowsOthers(now)
	s.knew = s.knew || s.joined
	if facts.ready && s.why != "" {
		s.self.Was, s.self.Kept = 0, 0 // it is not what it was in the last run
	}
	if f.cfg == nil {
		s.now, s.next = owner.Now{Said: owner.Settled, Own: owner.Settled}, facts.next(now)
		f.share.all = f.share.all || before.Own != s.now.Own
		return
	}
	s.now = s.self.Advance(now.Sub(s.started), owner.Facts{
		Fit: s.why == "", Draining: out.all, Joined: s.knew, OthersSettled: f.anySettled(),
	})
	s.fitSince = time.Time{}
	if fit := now.Sub(s.started) - s.now.FitFor; s.why == "" && s.knew {
		s.fitSince = s.started.Add(fit)
	}
	if s.now.Said != before.Said || s.since.IsZero() {
		s.since = now
		f.log.Info("this box in the fleet", "standing", s.now.Said, "why", s.why)
	}
	cutOff, cutNext := f.cutOff(facts, now)
	if cutOff != s.cutOff {
		f.log.Warn("whether anybody can reach this box", "cut_off", cutOff, "why", s.why)
	}
	f.share.all = f.share.all || s.now.Own != before.Own || cutOff != s.cutOff
	s.cutOff = cutOff
	if !maps.EqualFunc(out.vips, was.vips, time.Time.Equal) {
		f.share.all, f.say.stale = true, true
	}
	s.next = soonest(facts.next(now), cutNext)
	if s.now.Next != 0 {
		s.next = soonest(s.next, s.started.Add(s.now.Next))
	}
	if !s.joined && !s.begun.IsZero() && s.alone.After(now) {
		s.next = soonest(s.next, s.alone)
	}
	f.tracer.keep(s.now.Said == owner.Settled, f.holding())
}

// knowsOthers tells whether all whom this box is to join have answered, and said what
// they serve, or the join window is over. The first answer is not enough: of three boxes
// that begin together two would take what is the third one's.
func (f *fleet) knowsOthers(now time.Time) bool {
	if f.gossip == nil {
		return true // there is no fleet, or it can't be had
	}
	if f.stand.begun.IsZero() {
		return false
	}
	if f.heard.Twin != "" {
		return false // whatever it does somebody else does by its name
	}
	if !now.Before(f.stand.alone) {
		return true
	}
	answered := false
	for _, v := range f.fellows {
		if v.member.Life != cluster.Alive || v.member.Suspect || v.member.Since.Before(f.stand.begun) {
			continue // of before this box began, or began anew
		}
		if v.member.State.Word != "" && v.digest != v.member.State.Word {
			return false
		}
		answered = true
	}
	return answered && f.heard.Joined
}

// anySettled tells whether another member is.
func (f *fleet) anySettled() bool {
	for _, v := range f.fellows {
		if v.standing == owner.Settled {
			return true
		}
	}
	return false
}

// state is what this box says of itself in short.
func (f *fleet) state() cluster.State {
	s := &f.stand
	out := cluster.State{Version: f.version, Weight: f.cfg.Weight, Settled: s.now.Said == owner.Settled}
	if s.now.Said == owner.Unfit {
		if out.Unfit = s.why; out.Unfit == "" {
			out.Unfit = "it does not know yet who else is there"
		}
		if why := f.letGo(); why != "" {
			out.Unfit += "; " + why
		}
	}
	if s.now.Said.Fit() && !s.fitSince.IsZero() {
		out.FitSince = s.fitSince.Unix()
	}
	if s.out.all {
		out.Drain = cluster.Draining
		if s.out.done {
			out.Drain = cluster.Drained
		}
	}
	return out
}

// saidStanding is how a member stands by what it says.
func saidStanding(s cluster.State) owner.Standing {
	switch {
	case s.Drain != cluster.Serving:
		return owner.Draining
	case s.Unfit != "":
		return owner.Unfit
	case s.Settled:
		return owner.Settled
	}
	return owner.Fresh
}

// soonest is the earlier of two times, of which zero is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
