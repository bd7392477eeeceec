package owner

import (
	"net/netip"
	"testing"
)

var vip = netip.MustParseAddr("192.0.2.13")

func always(netip.Addr) bool { return true }

// member is one that serves everything.
func member(name string, s State) Member {
	return Member{Name: name, State: s, Serves: always}
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
	holds := func(m *Member) { m.Owns = always }
	drained := func(m *Member) { m.Drains = always }
	aa, as := Rules{}, Rules{Mode: ActiveStandby}
	stay := Rules{Mode: ActiveStandby, NoPreempt: true}
	for _, c := range []struct {
		name    string
		rules   Rules
		members []Member
		want    map[string]Decision
	}{
		{"alone", as, []Member{member("a", Stable)}, map[string]Decision{"a": {Owner, "a", Only}}},
		{"alone and unfit", as, []Member{member("a", Unfit)}, map[string]Decision{"a": {Owner, "a", Last}}},
		{"nobody serves it", as, []Member{all(member("a", Stable), nothing)}, map[string]Decision{"a": {None, "", NoBackend}}},
		{"not among the members", as, []Member{member("a", Stable)}, map[string]Decision{"x": {Out, "a", Starting}}},
		{"three equals", as, []Member{member("a", Stable), member("b", Stable), member("c", Stable)}, map[string]Decision{
			"a": {Owner, "a", Hashed}, "b": {Standby, "a", Hashed}, "c": {Standby, "a", Hashed},
		}},
		{"three equals, all announce", aa, []Member{member("a", Stable), member("b", Stable), member("c", Fresh)}, map[string]Decision{
			"a": {Owner, "a", Shared}, "b": {Owner, "a", Shared}, "c": {Owner, "a", Shared},
		}},
		{"the first one serves nothing", as, []Member{all(member("a", Stable), nothing), member("b", Stable), member("c", Stable)}, map[string]Decision{
			"a": {None, "c", NoBackend}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Hashed},
		}},
		{"the first one is fresh", as, []Member{member("a", Fresh), member("b", Stable), member("c", Stable)}, map[string]Decision{
			"a": {Standby, "c", IsFresh}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Hashed},
		}},
		{"the first one is gone", as, []Member{member("a", Absent), member("b", Stable)}, map[string]Decision{
			"a": {Out, "b", Starting}, "b": {Owner, "b", Only},
		}},
		{"unfit and fit", as, []Member{member("a", Unfit), member("b", Fresh)}, map[string]Decision{
			"a": {Out, "b", IsUnfit}, "b": {Owner, "b", BestState},
		}},
		{"unfit and fit, all announce", aa, []Member{member("a", Unfit), member("b", Fresh)}, map[string]Decision{
			"a": {Out, "b", IsUnfit}, "b": {Owner, "b", Shared},
		}},
		{"the fit one serves nothing", as, []Member{member("a", Unfit), all(member("b", Stable), nothing)}, map[string]Decision{
			"a": {Owner, "a", Last}, "b": {None, "a", NoBackend},
		}},
		{"none is fit", as, []Member{member("a", Draining), member("b", Unfit), member("c", Unfit)}, map[string]Decision{
			"a": {Standby, "c", Hashed}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Last},
		}},
		{"none is fit, all announce", aa, []Member{member("a", Draining), member("b", Unfit)}, map[string]Decision{
			"a": {Owner, "b", Last}, "b": {Owner, "b", Last},
		}},
		{"drained", as, []Member{member("a", Draining), member("b", Stable)}, map[string]Decision{
			"a": {Out, "b", IsDraining}, "b": {Owner, "b", BestState},
		}},
		{"one VIP is drained", as, []Member{all(member("a", Stable), drained), member("b", Fresh)}, map[string]Decision{
			"a": {Out, "b", IsDraining}, "b": {Owner, "b", BestState},
		}},
		{"all have drained it", as, []Member{all(member("a", Stable), drained), all(member("b", Stable), drained)}, map[string]Decision{
			"a": {Owner, "a", Last}, "b": {Standby, "a", Hashed},
		}},
		{"a holder stays", stay, []Member{member("a", Stable), all(member("b", Stable), holds)}, map[string]Decision{
			"a": {Standby, "b", Incumbent}, "b": {Owner, "b", Incumbent},
		}},
		{"a fresh holder stays too", stay, []Member{member("a", Stable), all(member("b", Fresh), holds)}, map[string]Decision{
			"a": {Standby, "b", Incumbent}, "b": {Owner, "b", Incumbent},
		}},
		{"an unfit holder does not stay", stay, []Member{member("a", Fresh), all(member("b", Unfit), holds)}, map[string]Decision{
			"a": {Owner, "a", BestState}, "b": {Out, "a", IsUnfit},
		}},
		{"of two holders weight and address decide", stay, []Member{member("a", Stable), all(member("b", Stable), holds), all(member("c", Stable), holds)}, map[string]Decision{
			"a": {Standby, "c", Hashed}, "b": {Standby, "c", Hashed}, "c": {Owner, "c", Hashed},
		}},
		{"holders are none without Stay", as, []Member{member("a", Stable), all(member("b", Stable), holds)}, map[string]Decision{
			"a": {Owner, "a", Hashed}, "b": {Standby, "a", Hashed},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for self, want := range c.want {
				if got := c.rules.Decide(self, c.members, vip); got != want {
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
		sight Liveness
		away  int
		want  State
	}{{Alive, 100, Stable}, {ProcessDown, 9, Stable}, {ProcessDown, 10, Absent}, {Dead, 0, Absent}} {
		if got := StateOf(Stable, c.sight, second(c.away), second(10)); got != c.want {
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
	if int(Starting)+1 != len(reasons) {
		t.Errorf("%d reasons, of which %d have texts", Starting+1, len(reasons))
	}
	for s := Absent; s <= Stable; s++ {
		if text, err := s.MarshalText(); err != nil || string(text) != s.String() {
			t.Errorf("%s: %q, %v", s, text, err)
		}
	}
}

// Prefers is the rule by which Owner chooses among equals, and it never calls two
// members, or none, the preferred one.
func TestPrefersAgreesWithOwner(t *testing.T) {
	yes := func(netip.Addr) bool { return true }
	members := []Member{
		{Name: "a", Weight: 10, State: Stable, Serves: yes},
		{Name: "b", Weight: 200, State: Stable, Serves: yes},
		{Name: "c", State: Stable, Serves: yes},
	}
	for _, rules := range []Rules{{}, {SingleOwner: true}} {
		for i := range 1000 {
			vip := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			best := rules.Owner(members, vip)
			for j := range members {
				for k := range members {
					one, two := &members[j], &members[k]
					if one != two && rules.Prefers(one, two, vip) == rules.Prefers(two, one, vip) {
						t.Fatalf("%v: %s and %s do not agree", vip, one.Name, two.Name)
					}
					if one.Name == best && one != two && !rules.Prefers(one, two, vip) {
						t.Fatalf("%v: the owner is %s, and %s is preferred", vip, best, two.Name)
					}
				}
			}
		}
	}
}
