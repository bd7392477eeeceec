package owner

import (
	"testing"
	"time"
)

func second(n int) time.Duration { return time.Duration(n) * time.Second }

// step is what a box knows at a second, and how it stands then.
type step struct {
	at        int
	facts     Facts
	said, own State
	next      int // seconds; 0: none
}

func TestABoxInTime(t *testing.T) {
	t.Parallel()
	fit := Facts{Fit: true, Joined: true}
	second1 := Facts{Fit: true, Joined: true, OtherStable: true}
	unfit := Facts{Joined: true, OtherStable: true}
	draining := Facts{Fit: true, Joined: true, Draining: true, OtherStable: true}
	for name, c := range map[string]struct {
		self  Self
		steps []step
	}{
		"the first one": {Self{}, []step{
			{0, Facts{}, Unfit, Absent, 0},
			{1, Facts{Fit: true}, Unfit, Absent, 0},
			{3, fit, Stable, Stable, 0},
		}},
		"one that comes later": {Self{}, []step{
			{0, Facts{OtherStable: true}, Unfit, Absent, 0},
			{1, second1, Fresh, Fresh, 31},
			{30, second1, Fresh, Fresh, 31},
			{31, second1, Stable, Stable, 0},
		}},
		"one that comes later, and the first one goes": {Self{}, []step{
			{1, second1, Fresh, Fresh, 31},
			{5, fit, Stable, Stable, 0},
			{6, second1, Stable, Stable, 0},
		}},
		"unfit at once, and slowly back": {Self{}, []step{
			{0, fit, Stable, Stable, 0},
			{10, unfit, Unfit, Stable, 11}, // published, and not acted upon before others have received it
			{11, unfit, Unfit, Unfit, 0},
			{20, second1, Fresh, Fresh, 50},
			{40, unfit, Unfit, Fresh, 41},
			{45, second1, Fresh, Fresh, 75},
			{75, second1, Stable, Stable, 0},
		}},
		"unfit for a moment": {Self{}, []step{
			{0, fit, Stable, Stable, 0},
			{10, unfit, Unfit, Stable, 11},
			{10, second1, Fresh, Fresh, 40},
		}},
		"a restart": {Self{CountedUntil: second(10)}, []step{
			{0, Facts{OtherStable: true}, Stable, Absent, 10},
			{2, Facts{Joined: true, OtherStable: true}, Stable, Stable, 10},
			{3, second1, Stable, Stable, 0},
			{20, unfit, Unfit, Stable, 21},
			{22, second1, Fresh, Fresh, 52},
		}},
		"unfit soon after a restart": {Self{CountedUntil: second(10)}, []step{
			{2, second1, Stable, Stable, 0},
			{4, unfit, Unfit, Stable, 5}, // Kept is over with the first time that it is fit
			{5, unfit, Unfit, Unfit, 0},
			{6, second1, Fresh, Fresh, 36},
		}},
		"a restart after a while": {Self{StableUntil: second(40), CountedUntil: second(-10)}, []step{
			{0, Facts{OtherStable: true}, Unfit, Absent, 0},
			{2, second1, Stable, Stable, 0},
		}},
		"a restart after too long": {Self{StableUntil: second(40), CountedUntil: second(-10)}, []step{
			{0, Facts{OtherStable: true}, Unfit, Absent, 0},
			{41, second1, Fresh, Fresh, 71},
		}},
		"a restart that comes to nothing": {Self{CountedUntil: second(10)}, []step{
			{0, Facts{OtherStable: true}, Stable, Absent, 10},
			{10, unfit, Unfit, Stable, 11},
			{11, unfit, Unfit, Unfit, 0},
			{12, second1, Fresh, Fresh, 42},
		}},
		"a drain is no break": {Self{}, []step{
			{0, second1, Fresh, Fresh, 30},
			{30, second1, Stable, Stable, 0},
			{40, draining, Draining, Stable, 41},
			{41, draining, Draining, Draining, 0},
			{50, second1, Stable, Stable, 0},
		}},
		"a drain that survives a restart": {Self{}, []step{
			{0, Facts{Draining: true}, Draining, Absent, 0},
			{3, draining, Draining, Draining, 33},
			{33, draining, Draining, Draining, 0},
			{34, second1, Stable, Stable, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.self.PreemptDelay = second(30)
			for _, s := range c.steps {
				got := c.self.Advance(second(s.at), s.facts)
				if got.Published != s.said || got.Effective != s.own || got.Next != second(s.next) {
					t.Fatalf("at %d: says %s, counts itself as %s, again at %v; want %s, %s, %v",
						s.at, got.Published, got.Effective, got.Next, s.said, s.own, second(s.next))
				}
			}
		})
	}
}

// A box that is no longer fit, or drains, goes on as before for a second, to the
// nanosecond. Half of it would be less than a message may take to all members.
func TestABoxActsAfterOtherMembersReceivedItsState(t *testing.T) {
	t.Parallel()
	if ActDelay != time.Second {
		t.Errorf("HeardAfter is %v, want a second", ActDelay)
	}
	for _, worse := range []Facts{
		{Joined: true, OtherStable: true},
		{Fit: true, Joined: true, Draining: true, OtherStable: true},
	} {
		s := Self{PreemptDelay: second(30)}
		s.Advance(second(1), Facts{Fit: true, Joined: true})
		at := second(10)
		s.Advance(at, worse)
		if got := s.Advance(at+time.Second-1, worse); got.Effective != Stable || got.Next != at+time.Second {
			t.Errorf("%+v: a nanosecond before: counts itself as %s, next at %v", worse, got.Effective, got.Next)
		}
		if got := s.Advance(at+time.Second, worse); got.Effective != got.Published || got.Next != 0 {
			t.Errorf("%+v: then: counts itself as %s and says %s, next at %v", worse, got.Effective, got.Published, got.Next)
		}
	}
}

func TestFitDurationIsPublished(t *testing.T) {
	t.Parallel()
	s := Self{PreemptDelay: second(30)}
	f := Facts{Fit: true, Joined: true, OtherStable: true}
	s.Advance(second(5), f)
	if got := s.Advance(second(17), f); got.FitFor != second(12) {
		t.Errorf("%+v", got)
	}
	if got := s.Advance(second(18), Facts{Joined: true}); got.FitFor != 0 {
		t.Errorf("%+v", got)
	}
}
