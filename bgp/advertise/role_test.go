package advertise

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

// roles are those of the nth VIPs of a test.
func roles(r Role, of ...int) map[netip.Addr]Role {
	out := map[netip.Addr]Role{}
	for _, i := range of {
		out[vipOf(i)] = r
	}
	return out
}

// fleet makes an Advertiser with a peer for each way of a standby, of which the first
// and the last are alike.
func fleet(rules []Rule, p Policy) *Advertiser {
	p.Rules = rules
	p.Peers = []Peer{
		{Name: "core", Standby: Handicap{LocalPref: StandbyLocalPref}},
		{Name: "edge", Standby: Handicap{Prepend: StandbyPrepend}},
		{Name: "tor1"},
		{Name: "tor2", Standby: Handicap{MED: StandbyMED}},
	}
	a := New()
	a.Configure(p, testNow)
	return a
}

func TestHandicap(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    Handicap
		in   Path
		want Path
	}{
		{"none is MED", Handicap{}, Path{}, Path{MED: MetricOf(100)}},
		{"MED", Handicap{MED: 100}, Path{MED: MetricOf(7), Prepend: 1}, Path{MED: MetricOf(107), Prepend: 1}},
		{"the last MED", Handicap{MED: 100}, Path{MED: MetricOf(math.MaxUint32 - 99)}, Path{MED: MetricOf(math.MaxUint32)}},
		{"LOCAL_PREF of none", Handicap{LocalPref: 50}, Path{}, Path{LocalPref: MetricOf(50)}},
		{"LOCAL_PREF", Handicap{LocalPref: 50}, Path{LocalPref: MetricOf(200)}, Path{LocalPref: MetricOf(150)}},
		{"the last LOCAL_PREF", Handicap{LocalPref: 50}, Path{LocalPref: MetricOf(49)}, Path{LocalPref: MetricOf(0)}},
		{"prepend", Handicap{Prepend: 3}, Path{Prepend: 2}, Path{Prepend: 5}},
		{"the longest path", Handicap{Prepend: 3}, Path{Prepend: 14}, Path{Prepend: 16}},
		{"all", Handicap{1, 2, 3}, Path{}, Path{MED: MetricOf(1), LocalPref: MetricOf(98), Prepend: 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.h.on(tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStandbyIsAdvertisedWorseToEachPeer(t *testing.T) {
	a := fleet([]Rule{{Name: "all", MED: MetricOf(20), LocalPref: MetricOf(300), Communities: []Community{100}}}, Policy{})
	wantChanges(t, "a role before the VIP is there", a.Assign(roles(Standby, 1), testNow))
	wantChanges(t, "the VIP", a.Take([]lb.Route{good(1)}, nil, testNow),
		"192.0.2.1/32 to core 0:100 pref 250 med 20",
		"192.0.2.1/32 to edge 0:100 pref 300 med 20 prepend 3",
		"192.0.2.1/32 to tor1,tor2 0:100 pref 300 med 120")
	x := wantReason(t, a, vipOf(1), OnStandby)
	if x.Role != Standby || x.Peers[0] != (PeerAnnouncement{"core", OnStandby, "all", netip.MustParsePrefix("192.0.2.1/32")}) {
		t.Errorf("explained: %+v", x)
	}
	wantChanges(t, "it takes over", a.Assign(roles(AsRuled, 1), testNow), "192.0.2.1/32 to core,edge,tor1,tor2 0:100 pref 300 med 20")
	wantReason(t, a, vipOf(1), Announced)
	wantChanges(t, "once more", a.Assign(roles(AsRuled, 1, 2), testNow))
	wantChanges(t, "another one", a.Assign(roles(Out, 2), testNow))
	wantChanges(t, "out", a.Assign(roles(Out, 1), testNow), "192.0.2.1/32 withdrawn")
	if x := wantReason(t, a, vipOf(1), ServedElsewhere); x.Role != Out || x.Peers[3].Reason != ServedElsewhere || x.Peers[3].Prefix.IsValid() {
		t.Errorf("explained: %+v", x)
	}
	wantChanges(t, "the VIP that was out before it was there", a.Take([]lb.Route{good(2)}, nil, testNow))
	wantReason(t, a, vipOf(2), ServedElsewhere)
}

// A role outlives its VIP, until AsRuled is assigned.
func TestRoleOfAVIPThatIsGone(t *testing.T) {
	a := fleet([]Rule{DefaultRule()}, Policy{})
	a.Take([]lb.Route{good(1)}, nil, testNow)
	a.Assign(roles(Out, 1), testNow)
	a.Take([]lb.Route{{Addr: vipOf(1), Withheld: lb.Gone}}, nil, testNow)
	wantChanges(t, "made again", a.Take([]lb.Route{good(1)}, nil, testNow))
	a.Take([]lb.Route{{Addr: vipOf(1), Withheld: lb.Gone}}, nil, testNow)
	a.Assign(roles(AsRuled, 1), testNow)
	if len(a.roles) != 0 {
		t.Errorf("kept: %v", a.roles)
	}
	wantChanges(t, "made again, with nothing assigned", a.Take([]lb.Route{good(1)}, nil, testNow), "192.0.2.1/32 to core,edge,tor1,tor2")
}

// A drain asks first and withdraws then, whatever the role is; where another box must
// be preferred anyway, it never makes the route a better one.
func TestRolesAndDrains(t *testing.T) {
	for _, tt := range []struct {
		role             Role
		before, shutting []string
	}{
		{AsRuled, []string{"core,edge,tor1,tor2"}, []string{"core,edge,tor1,tor2 graceful-shutdown pref 0"}},
		{
			Standby,
			[]string{"core pref 50", "edge prepend 3", "tor1,tor2 med 100"},
			[]string{"core graceful-shutdown pref 0", "edge graceful-shutdown pref 0 prepend 3", "tor1,tor2 graceful-shutdown pref 0 med 100"},
		},
		{
			Out, nil,
			[]string{"core graceful-shutdown pref 0", "edge graceful-shutdown pref 0 prepend 3", "tor1,tor2 graceful-shutdown pref 0 med 100"},
		},
	} {
		t.Run(tt.role.String(), func(t *testing.T) {
			lines := func(of []string) (out []string) {
				for _, l := range of {
					out = append(out, "192.0.2.1/32 to "+l)
				}
				return out
			}
			a := fleet([]Rule{DefaultRule()}, Policy{ReannounceDelay: time.Minute})
			a.Assign(roles(tt.role, 1), testNow)
			wantChanges(t, "before", a.Take([]lb.Route{good(1)}, nil, testNow), lines(tt.before)...)
			wantChanges(t, "shutting", a.Drain(Drains{VIPs: map[netip.Addr]Stage{vipOf(1): Shutting}}, testNow), lines(tt.shutting)...)
			if x := wantReason(t, a, vipOf(1), Draining); x.Role != tt.role {
				t.Errorf("role %s", x.Role)
			}
			wantChanges(t, "drained", a.Drain(Drains{All: Drained}, testNow), "192.0.2.1/32 withdrawn")
			wantReason(t, a, vipOf(1), Withdrawn)
			wantChanges(t, "no longer", a.Drain(Drains{}, testNow), lines(tt.before)...)
		})
	}
}

// The move of a drain: the box asks to be avoided, then learns that another one serves
// the VIP, and is withdrawn when the drain ends, not when it learns that.
func TestOutWhileShuttingStays(t *testing.T) {
	a := fleet([]Rule{DefaultRule()}, Policy{})
	a.Take([]lb.Route{good(1)}, nil, testNow)
	a.Drain(Drains{All: Shutting}, testNow)
	wantChanges(t, "out", a.Assign(roles(Out, 1), testNow),
		"192.0.2.1/32 to core graceful-shutdown pref 0",
		"192.0.2.1/32 to edge graceful-shutdown pref 0 prepend 3",
		"192.0.2.1/32 to tor1,tor2 graceful-shutdown pref 0 med 100")
	wantChanges(t, "drained", a.Drain(Drains{All: Drained}, testNow), "192.0.2.1/32 withdrawn")
	wantChanges(t, "undrained, and still out", a.Drain(Drains{}, testNow))
	wantChanges(t, "in again", a.Assign(roles(AsRuled, 1), testNow), "192.0.2.1/32 to core,edge,tor1,tor2")
}

// What is out does not count for the floor and is not kept by it; a standby does.
func TestRolesAndFloor(t *testing.T) {
	var all []lb.Route
	for i := range 8 {
		all = append(all, good(i))
	}
	a := two(Policy{Rules: Rules(nil, nil), MinAnnounced: 0.5})
	a.Take(all, nil, testNow)
	a.Assign(roles(Out, 0, 1, 2, 3), testNow)
	wantChanges(t, "one of the four that are left", a.Take([]lb.Route{bad(4)}, nil, testNow), "192.0.2.4/32 withdrawn")
	wantChanges(t, "two of four", a.Take([]lb.Route{bad(5)}, nil, testNow), "192.0.2.5/32 withdrawn")
	wantChanges(t, "three of four", a.Take([]lb.Route{bad(6)}, nil, testNow))
	wantReason(t, a, vipOf(6), MinAnnounced)
	wantChanges(t, "a standby is kept as well", a.Assign(roles(Standby, 6), testNow), "192.0.2.6/32 to tor1,tor2 med 100")
	if x := wantReason(t, a, vipOf(6), MinAnnounced); x.Role != Standby {
		t.Errorf("role %s", x.Role)
	}
	wantChanges(t, "another box has a backend for it", a.Assign(roles(Out, 6), testNow), "192.0.2.6/32 withdrawn")
	wantReason(t, a, vipOf(6), NoBackend)
	wantChanges(t, "what is out counts again", a.Assign(roles(AsRuled, 0, 1, 2, 3), testNow),
		"192.0.2.0/32 to tor1,tor2", "192.0.2.1/32 to tor1,tor2", "192.0.2.2/32 to tor1,tor2", "192.0.2.3/32 to tor1,tor2")
}

// Roles neither wait for the hold-down nor end it, and an owner that changes is no flap.
func TestRolesAndHoldDown(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil), ReannounceDelay: 5 * time.Second})
	at := func(s int) time.Time { return testNow.Add(time.Duration(s) * time.Second) }
	a.Take([]lb.Route{good(1), good(2)}, nil, at(0))
	a.Assign(roles(Out, 1), at(1))
	wantChanges(t, "in again, at once", a.Assign(roles(Standby, 1), at(1)), "192.0.2.1/32 to tor1,tor2 med 100")
	a.Take([]lb.Route{bad(1)}, nil, at(2))
	a.Assign(roles(Out, 1), at(2)) // another box has backends
	a.Take([]lb.Route{good(1)}, nil, at(3))
	wantChanges(t, "no longer out, but held down", a.Assign(roles(AsRuled, 1), at(4)))
	wantReason(t, a, vipOf(1), ReannounceDelay)
	wantChanges(t, "held down no longer", a.Advance(at(8)), "192.0.2.1/32 to tor1,tor2")

	a.Assign(roles(Out, 2), at(10))
	a.Take([]lb.Route{bad(2)}, nil, at(11))
	a.Take([]lb.Route{good(2)}, nil, at(12))
	wantChanges(t, "it lost its backends while nobody heard of it", a.Assign(roles(AsRuled, 2), at(13)), "192.0.2.2/32 to tor1,tor2")
}

// An aggregate is as good as the best of its VIPs.
func TestRolesAndAggregates(t *testing.T) {
	a := two(Policy{Rules: []Rule{{Name: "wide", Aggregate4: 28}}})
	a.Take([]lb.Route{good(1), good(2)}, nil, testNow)
	wantChanges(t, "one is owned here", a.Assign(roles(Standby, 1), testNow))
	wantReason(t, a, vipOf(1), OnStandby)
	wantChanges(t, "none is", a.Assign(roles(Standby, 2), testNow), "192.0.2.0/28 to tor1,tor2 med 100")
	wantChanges(t, "one is out", a.Assign(roles(Out, 1), testNow))
	if x := wantReason(t, a, vipOf(1), ServedElsewhere); x.Peers[0].Prefix != netip.MustParsePrefix("192.0.2.0/28") {
		t.Errorf("packets for what is out in an aggregate still come, and that is not said: %+v", x)
	}
	wantChanges(t, "a standby is better than one that shuts", a.Drain(Drains{VIPs: map[netip.Addr]Stage{vipOf(1): Shutting}}, testNow))
	wantChanges(t, "both are out", a.Assign(roles(Out, 2), testNow), "192.0.2.0/28 to tor1,tor2 graceful-shutdown pref 0 med 100")
	wantChanges(t, "one is owned here, and shuts", a.Assign(roles(AsRuled, 1), testNow), "192.0.2.0/28 to tor1,tor2 graceful-shutdown pref 0")
	wantChanges(t, "and is drained", a.Drain(Drains{All: Drained}, testNow), "192.0.2.0/28 withdrawn")
}

// Since is when a role became the reason, not when one changed that is none.
func TestSinceOfARole(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil)})
	at := func(s int) time.Time { return testNow.Add(time.Duration(s) * time.Second) }
	a.Take([]lb.Route{good(1), bad(2)}, nil, at(0))
	a.Assign(roles(Standby, 1, 2), at(1))
	a.Assign(roles(Standby, 1, 2), at(2))
	if x := wantReason(t, a, vipOf(1), OnStandby); !x.Since.Equal(at(1)) {
		t.Errorf("on standby since %s, want %s", x.Since, at(1))
	}
	if x := wantReason(t, a, vipOf(2), NoBackend); !x.Since.Equal(at(0)) || x.Role != Standby {
		t.Errorf("no backend since %s as %s, want %s as standby", x.Since, x.Role, at(0))
	}
}

// Another handicap of a peer changes what it receives about standbys, and nothing else.
func TestAnotherHandicap(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil)})
	a.Assign(roles(Standby, 1), testNow)
	a.Take([]lb.Route{good(1), good(2)}, nil, testNow)
	p := a.policy
	p.Peers = []Peer{{Name: "tor1", Standby: Handicap{Prepend: 3}}, {Name: "tor2"}}
	wantChanges(t, "prepended", a.Configure(p, testNow), "192.0.2.1/32 to tor1 prepend 3", "192.0.2.1/32 to tor2 med 100")
}

// A role that changes costs as much as there are changes, with ten VIPs as with ten
// thousand.
func TestOneRoleIsOneChange(t *testing.T) {
	allocs := map[int]float64{}
	for _, n := range []int{10, 10_000} {
		a := many(n)
		standby, owner := roles(Standby, 7), roles(AsRuled, 7)
		allocs[n] = testing.AllocsPerRun(100, func() {
			a.Assign(standby, testNow)
			a.Assign(owner, testNow)
		})
		for _, r := range []map[netip.Addr]Role{standby, owner} {
			if changes := a.Assign(r, testNow); len(changes) != 1 {
				t.Errorf("%d VIPs: %d changes", n, len(changes))
			}
		}
		if changes := a.Assign(owner, testNow); changes != nil {
			t.Errorf("%d VIPs: nothing new changes %v", n, changes)
		}
	}
	if allocs[10_000] > allocs[10]+2 {
		t.Errorf("the same change costs %g allocations of ten VIPs, %g of ten thousand", allocs[10], allocs[10_000])
	}
}

// All VIPs of a box that takes over, or is taken over.
func BenchmarkAssign(b *testing.B) {
	a := many(10_000)
	var all []int
	for i := range 10_000 {
		all = append(all, i)
	}
	standby, owner := roles(Standby, all...), roles(AsRuled, all...)
	for b.Loop() {
		if len(a.Assign(standby, testNow)) != len(all) || len(a.Assign(owner, testNow)) != len(all) {
			b.Fatal("not all of them change")
		}
	}
}

// An address that is no VIP, such as the source of masqueraded connections, is
// announced as one of a static Service that is not in the file, by the same rules, and
// has a role like any other.
func TestAnAddressOfNoService(t *testing.T) {
	shared := lb.Route{Addr: addr("192.0.2.250"), Serves: []lb.Serving{{Service: lb.ServiceID{Source: "static", Name: "masquerade"}}}}
	quiet := Rule{Name: "quiet", Refuse: true, Match: Match{Sources: []string{"static"}, Services: []string{"masquerade"}}}
	for _, tt := range []struct {
		name  string
		rules []Rule
		want  []string
	}{
		{"by default", Rules(nil, nil), []string{"192.0.2.250/32 to tor1,tor2 med 100"}},
		{"static ones are announced", []Rule{{Name: "static", Match: Match{Kinds: []Kind{Static}}}}, []string{"192.0.2.250/32 to tor1,tor2 med 100"}},
		{"clusters' are", []Rule{{Name: "rest", Match: Match{Kinds: []Kind{LoadBalancer}}}}, nil},
		{"it is not", []Rule{quiet, DefaultRule()}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := two(Policy{Rules: tt.rules})
			a.Assign(map[netip.Addr]Role{shared.Addr: Standby}, testNow)
			wantChanges(t, "taken", a.Take([]lb.Route{shared}, nil, testNow), tt.want...)
			a.Take([]lb.Route{{Addr: shared.Addr, Withheld: lb.Gone}}, nil, testNow)
			if left := routesText(a.Announced()); left != "" {
				t.Errorf("when it is gone there is left:\n%s", left)
			}
		})
	}
}
