package owner

import (
	"net/netip"
	"testing"
)

var vip = netip.MustParseAddr("192.0.2.13")

func always(netip.Addr) bool { return true }

// member is one that serves everything.
func member(name string, s Standing) Member {
	return Member{Name: name, Standing: s, Serves: always}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	// By weight and address a comes first at vip, then c, then b; see TestHashIsGolden.
	all := func(m Member, change ...func(*Member)) Member {
		for _, f := range change {
			f(&m)
		}
		return m
	}
	nothing := func(m *Member) { m.Serves = nil }
	holds := func(m *Member) { m.Holds = always }
	drained := func(m *Member) { m.Drains = always }
	aa, as := Rules{}, Rules{Mode: ActiveStandby}
	stay := Rules{Mode: ActiveStandby, Stay: true}
	for _, c := range []struct {
		name    string
		rules   Rules
		members []Member
		want    map[string]Verdict
	}{
		{"alone", as, []Member{member("a", Settled)}, map[string]Verdict{"a": {Owner, "a", Only}}},
		{"alone and unfit", as, []Member{member("a", Unfit)}, map[string]Verdict{"a": {Owner, "a", Last}}},
		{"nobody serves it", as, []Member{all(member("a", Settled), nothing)}, map[string]Verdict{"a": {Nothing, "", NoBackend}}},
		{"not among the members", as, []Member{member("a", Settled)}, map[string]Verdict{"x": {Out, "a", Starting}}},
		{"three equals", as, []Member{member("a", Settled), member("b", Settled), member("c", Settled)}, map[string]Verdict{
			"a": {Owner, "a", Hashed}, "b": {Standby, "a", Hashed}, "c": {Standby, "a", Hashed},
		}},
		{"three equals, all announce", aa, []Member{member("a", Settled), member("b", Settled), member("c", Fresh)}, map[string]Verdict{
			"a": {Owner, "a", Shared}, "b": {Owner, "a", Shared}, "c": {Owner, "a", Shared},
		}},
		{"the first one serves nothing", as, []Member{all(member("a", Settled), nothing), member("b", Settled), member("c", Settled)}, map[string]Verdict{
			"a": {Nothing, "c", NoBackend}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Hashed},
		}},
		{"the first one is fresh", as, []Member{member("a", Fresh), member("b", Settled), member("c", Settled)}, map[string]Verdict{
			"a": {Standby, "c", IsFresh}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Hashed},
		}},
		{"the first one is gone", as, []Member{member("a", Absent), member("b", Settled)}, map[string]Verdict{
			"a": {Out, "b", Starting}, "b": {Owner, "b", Only},
		}},
		{"unfit and fit", as, []Member{member("a", Unfit), member("b", Fresh)}, map[string]Verdict{
			"a": {Out, "b", IsUnfit}, "b": {Owner, "b", Alone},
		}},
		{"unfit and fit, all announce", aa, []Member{member("a", Unfit), member("b", Fresh)}, map[string]Verdict{
			"a": {Out, "b", IsUnfit}, "b": {Owner, "b", Shared},
		}},
		{"the fit one serves nothing", as, []Member{member("a", Unfit), all(member("b", Settled), nothing)}, map[string]Verdict{
			"a": {Owner, "a", Last}, "b": {Nothing, "a", NoBackend},
		}},
		{"none is fit", as, []Member{member("a", Draining), member("b", Unfit), member("c", Unfit)}, map[string]Verdict{
			"a": {Standby, "c", Hashed}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Last},
		}},
		{"none is fit, all announce", aa, []Member{member("a", Draining), member("b", Unfit)}, map[string]Verdict{
			"a": {Owner, "b", Last}, "b": {Owner, "b", Last},
		}},
		{"drained", as, []Member{member("a", Draining), member("b", Settled)}, map[string]Verdict{
			"a": {Out, "b", IsDraining}, "b": {Owner, "b", Alone},
		}},
		{"one VIP is drained", as, []Member{all(member("a", Settled), drained), member("b", Fresh)}, map[string]Verdict{
			"a": {Out, "b", IsDraining}, "b": {Owner, "b", Alone},
		}},
		{"all have drained it", as, []Member{all(member("a", Settled), drained), all(member("b", Settled), drained)}, map[string]Verdict{
			"a": {Owner, "a", Last}, "b": {Standby, "a", Hashed},
		}},
		{"a holder stays", stay, []Member{member("a", Settled), all(member("b", Settled), holds)}, map[string]Verdict{
			"a": {Standby, "b", Stays}, "b": {Owner, "b", Stays},
		}},
		{"a fresh holder stays too", stay, []Member{member("a", Settled), all(member("b", Fresh), holds)}, map[string]Verdict{
			"a": {Standby, "b", Stays}, "b": {Owner, "b", Stays},
		}},
		{"an unfit holder does not stay", stay, []Member{member("a", Fresh), all(member("b", Unfit), holds)}, map[string]Verdict{
			"a": {Owner, "a", Alone}, "b": {Out, "a", IsUnfit},
		}},
		{"of two holders weight and address decide", stay, []Member{member("a", Settled), all(member("b", Settled), holds), all(member("c", Settled), holds)}, map[string]Verdict{
			"a": {Standby, "c", Hashed}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Hashed},
		}},
		{"holders are none without Stay", as, []Member{member("a", Settled), all(member("b", Settled), holds)}, map[string]Verdict{
			"a": {Owner, "a", Hashed}, "b": {Standby, "a", Hashed},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for self, want := range c.want {
				if got := c.rules.Verdict(self, c.members, vip); got != want {
					t.Errorf("%s: %+v, want %+v", self, got, want)
				}
				if got := c.rules.Owner(c.members, vip); got != want.Owner {
					t.Errorf("owned by %q, want %q", got, want.Owner)
				}
			}
		})
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sight Sight
		away  int
		want  Standing
	}{{Heard, 100, Settled}, {Away, 9, Settled}, {Away, 10, Absent}, {Gone, 0, Absent}} {
		if got := Seen(Settled, c.sight, second(c.away), second(10)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for w := NoBackend; w <= Starting; w++ {
		if w.String() == "" || w.Text() == "" || seen[w.String()] {
			t.Errorf("%d is %q: %q", w, w, w.Text())
		}
		seen[w.String()] = true
	}
	if int(Starting)+1 != len(whys) {
		t.Errorf("%d reasons, of which %d have texts", Starting+1, len(whys))
	}
	for s := Absent; s <= Settled; s++ {
		if text, err := s.MarshalText(); err != nil || string(text) != s.String() {
			t.Errorf("%s: %q, %v", s, text, err)
		}
	}
}
