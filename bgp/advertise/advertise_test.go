package advertise

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func serving(source, namespace, name string, kind lb.VIPKind) lb.Serving {
	return lb.Serving{Service: lb.ServiceID{Source: source, Namespace: namespace, Name: name}, Kind: kind}
}

// text prints paths as the tests compare them, a line for each.
func routesText(changes map[netip.Prefix][]Path) string {
	var lines []string
	for prefix, paths := range changes {
		if len(paths) == 0 {
			lines = append(lines, fmt.Sprintf("%s withdrawn", prefix))
		}
		for _, p := range paths {
			line := fmt.Sprintf("%s to %s", prefix, strings.Join(p.Peers, ","))
			for _, c := range p.Communities {
				line += " " + c.String()
			}
			for _, c := range p.LargeCommunities {
				line += " " + c.String()
			}
			if p.LocalPref.Given {
				line += fmt.Sprintf(" pref %d", p.LocalPref.Value)
			}
			if p.MED.Given {
				line += fmt.Sprintf(" med %d", p.MED.Value)
			}
			if p.Prepend > 0 {
				line += fmt.Sprintf(" prepend %d", p.Prepend)
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func wantChanges(t *testing.T, what string, got map[netip.Prefix][]Path, want ...string) {
	t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), routesText(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantReason(t *testing.T, a *Advertiser, vip netip.Addr, want Reason) Announcement {
	t.Helper()
	x, ok := a.Explain(vip)
	if !ok || x.Reason != want {
		t.Errorf("%s is %q, want %q: %+v", vip, x.Reason, want, x)
	}
	return x
}

// two makes an Advertiser with two peers.
func two(p Policy) *Advertiser {
	p.Peers = []Peer{{Name: "tor2"}, {Name: "tor1"}}
	a := New()
	a.Configure(p, testNow)
	return a
}

func TestRuleMatches(t *testing.T) {
	web := serving("prod", "shop", "web", lb.LoadBalancer)
	static := serving("static", "", "web", lb.LoadBalancer)
	pools := map[string][]netip.Prefix{"public": {netip.MustParsePrefix("192.0.2.0/28"), netip.MustParsePrefix("2001:db8::/64")}}
	for _, test := range []struct {
		name   string
		match  Match
		vip    string
		serves []lb.Serving
		want   bool
	}{
		{"a LoadBalancer by default", Match{}, "192.0.2.1", []lb.Serving{web}, true},
		{"a static one by default", Match{}, "192.0.2.1", []lb.Serving{static}, true},
		{"an external IP not by default", Match{}, "192.0.2.1", []lb.Serving{serving("prod", "shop", "web", lb.ExternalIP)}, false},
		{"a ClusterIP not by default", Match{}, "10.96.0.1", []lb.Serving{serving("prod", "shop", "web", lb.ClusterIP)}, false},
		{"a ClusterIP by its kind", Match{Kinds: []Kind{ClusterIP}}, "10.96.0.1", []lb.Serving{serving("prod", "shop", "web", lb.ClusterIP)}, true},
		{"an external IP by its kind", Match{Kinds: []Kind{Static, ExternalIP}}, "192.0.2.1", []lb.Serving{serving("prod", "shop", "web", lb.ExternalIP)}, true},
		{"static is no LoadBalancer", Match{Kinds: []Kind{LoadBalancer}}, "192.0.2.1", []lb.Serving{static}, false},
		{"a node port never", Match{Kinds: []Kind{LoadBalancer, ExternalIP, ClusterIP, Static}}, "192.0.2.1", []lb.Serving{serving("static", "", "web", lb.NodePort)}, false},
		{"in the pool", Match{Pools: []string{"other", "public"}}, "192.0.2.15", []lb.Serving{web}, true},
		{"in the pool, IPv6", Match{Pools: []string{"public"}}, "2001:db8::1", []lb.Serving{web}, true},
		{"outside of the pool", Match{Pools: []string{"public"}}, "192.0.2.16", []lb.Serving{web}, false},
		{"a pool that is not there", Match{Pools: []string{"other"}}, "192.0.2.1", []lb.Serving{web}, false},
		{"of the cluster", Match{Sources: []string{"test", "prod"}}, "192.0.2.1", []lb.Serving{web}, true},
		{"of another cluster", Match{Sources: []string{"test"}}, "192.0.2.1", []lb.Serving{web}, false},
		{"of the namespace", Match{Namespaces: []string{"shop"}}, "192.0.2.1", []lb.Serving{web}, true},
		{"of another namespace", Match{Namespaces: []string{"mail"}}, "192.0.2.1", []lb.Serving{web}, false},
		{"by name", Match{Services: []string{"web"}}, "192.0.2.1", []lb.Serving{web}, true},
		{"by namespace and name", Match{Services: []string{"shop/web"}}, "192.0.2.1", []lb.Serving{web}, true},
		{"by another namespace and name", Match{Services: []string{"mail/web"}}, "192.0.2.1", []lb.Serving{web}, false},
		{"by a label", Match{Labels: map[string]string{"tier": "gold"}}, "192.0.2.1", []lb.Serving{web}, true},
		{"by two labels, of which it has one", Match{Labels: map[string]string{"tier": "gold", "zone": "a"}}, "192.0.2.1", []lb.Serving{web}, false},
		{"by a label with another value", Match{Labels: map[string]string{"tier": "tin"}}, "192.0.2.1", []lb.Serving{web}, false},
		{"an empty label is not none", Match{Labels: map[string]string{"zone": ""}}, "192.0.2.1", []lb.Serving{web}, false},
		{"the second Service there", Match{Sources: []string{"static"}}, "192.0.2.1", []lb.Serving{web, static}, true},
		{"half by one Service, half by another", Match{Sources: []string{"static"}, Namespaces: []string{"shop"}}, "192.0.2.1", []lb.Serving{web, static}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			claims := servedOf(test.serves, func(id lb.ServiceID) map[string]string {
				if id.Source == "prod" {
					return map[string]string{"tier": "gold"}
				}
				return nil
			})
			if got := test.match.matches(addr(test.vip), claims, pools); got != test.want {
				t.Errorf("matches: %t, want %t", got, test.want)
			}
		})
	}
}

func TestParseKind(t *testing.T) {
	for _, k := range []Kind{LoadBalancer, ExternalIP, ClusterIP, Static} {
		if got, err := ParseKind(strings.ToLower(k.String())); err != nil || got != k {
			t.Errorf("%s: %v, %v", k, got, err)
		}
	}
	if _, err := ParseKind("NodePort"); err == nil || !strings.Contains(err.Error(), "LoadBalancer, ExternalIP, ClusterIP, static") {
		t.Errorf("NodePort: %v", err)
	}
}

func TestWithoutARuleOfTheOperator(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil)})
	got := a.Take([]lb.Route{
		{Addr: addr("192.0.2.1"), Serves: []lb.Serving{serving("prod", "shop", "web", lb.LoadBalancer)}},
		{Addr: addr("2001:db8::1"), Serves: []lb.Serving{serving("static", "", "web", lb.ExternalIP)}},
		{Addr: addr("192.0.2.2"), Serves: []lb.Serving{serving("prod", "shop", "web", lb.ExternalIP)}},
		{Addr: addr("10.96.0.1"), Serves: []lb.Serving{serving("prod", "shop", "web", lb.ClusterIP)}},
	}, nil, testNow)
	wantChanges(t, "routes", got, "192.0.2.1/32 to tor1,tor2", "2001:db8::1/128 to tor1,tor2")
	wantReason(t, a, addr("10.96.0.1"), NoRule)
}

// The rules of pools come after the explicit ones; the default is for who has none.
func TestRulesOfPools(t *testing.T) {
	pool := Rule{Name: "pool inner", Match: Match{Pools: []string{"inner"}}, Refuse: true}
	p := Policy{Rules: Rules(nil, []Rule{pool}), Pools: map[string][]netip.Prefix{"inner": {netip.MustParsePrefix("192.0.2.8/29")}}}
	a := two(p)
	wantChanges(t, "the default beside a pool's", a.Take([]lb.Route{good(1), good(9)}, nil, testNow), "192.0.2.1/32 to tor1,tor2")
	if x := wantReason(t, a, vipOf(9), Refused); x.Peers[0].Rule != "pool inner" {
		t.Errorf("refused by %q", x.Peers[0].Rule)
	}
	p.Rules = Rules([]Rule{{Name: "advertise 1", Match: Match{Namespaces: []string{"mail"}}}}, []Rule{pool})
	p.Peers = []Peer{{Name: "tor1"}}
	wantChanges(t, "an explicit one", a.Configure(p, testNow), "192.0.2.1/32 withdrawn")
	wantReason(t, a, vipOf(1), NoRule)
}

func TestFirstRuleOfAPeerCounts(t *testing.T) {
	a := two(Policy{Rules: []Rule{
		{Name: "quiet", Refuse: true, Peers: []string{"tor1"}, Match: Match{Labels: map[string]string{"visible": "no"}}},
		{
			Name: "gold", Peers: []string{"tor2"}, Match: Match{Labels: map[string]string{"tier": "gold"}},
			Communities: []Community{NoExport, 100}, LargeCommunities: []LargeCommunity{{64500, 1, 1}}, LocalPref: MetricOf(200), MED: MetricOf(0), Prepend: 2,
		},
		{Name: "rest"},
	}})
	labels := map[string]map[string]string{"gold": {"tier": "gold", "visible": "no"}}
	got := a.Take([]lb.Route{
		{Addr: vipOf(1), Serves: []lb.Serving{serving("prod", "shop", "gold", lb.LoadBalancer)}},
		{Addr: vipOf(2), Serves: []lb.Serving{serving("prod", "shop", "plain", lb.LoadBalancer)}},
	}, func(id lb.ServiceID) map[string]string { return labels[id.Name] }, testNow)
	wantChanges(t, "routes", got,
		"192.0.2.1/32 to tor2 0:100 no-export 64500:1:1 pref 200 med 0 prepend 2",
		"192.0.2.2/32 to tor1,tor2")
	want := []PeerAnnouncement{
		{Peer: "tor1", Reason: Refused, Rule: "quiet"},
		{Peer: "tor2", Reason: Announced, Rule: "gold", Prefix: netip.MustParsePrefix("192.0.2.1/32")},
	}
	if diff := cmp.Diff(want, wantReason(t, a, vipOf(1), Announced).Peers, exact); diff != "" {
		t.Errorf("explained (-want +got):\n%s", diff)
	}
}

func TestAggregate(t *testing.T) {
	a := two(Policy{Rules: []Rule{
		{Name: "wide", Aggregate4: 28, Peers: []string{"tor1"}},
		{Name: "each"},
	}})
	wantChanges(t, "the first VIP", a.Take([]lb.Route{good(1)}, nil, testNow), "192.0.2.0/28 to tor1", "192.0.2.1/32 to tor2")
	wantChanges(t, "a second one in it", a.Take([]lb.Route{good(2)}, nil, testNow), "192.0.2.2/32 to tor2")
	wantChanges(t, "one beside it", a.Take([]lb.Route{good(17)}, nil, testNow), "192.0.2.16/28 to tor1", "192.0.2.17/32 to tor2")
	if got, want := a.Aggregates(), []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28"), netip.MustParsePrefix("192.0.2.16/28")}; !slices.Equal(got, want) {
		t.Errorf("aggregates %v, want %v", got, want)
	}
	wantChanges(t, "one is drained", a.Drain(Drains{VIPs: map[netip.Addr]Stage{vipOf(1): Drained}}, testNow), "192.0.2.1/32 withdrawn")
	if x := wantReason(t, a, vipOf(1), Withdrawn); x.Peers[0].Prefix != netip.MustParsePrefix("192.0.2.0/28") || x.Peers[1].Prefix.IsValid() {
		t.Errorf("packets for what is drained in an aggregate still come, and that is not said: %+v", x)
	}
	wantChanges(t, "all of it asks to be avoided", a.Drain(Drains{All: Shutting}, testNow),
		"192.0.2.0/28 to tor1 graceful-shutdown pref 0", "192.0.2.1/32 to tor2 graceful-shutdown pref 0", "192.0.2.16/28 to tor1 graceful-shutdown pref 0",
		"192.0.2.17/32 to tor2 graceful-shutdown pref 0", "192.0.2.2/32 to tor2 graceful-shutdown pref 0")
	gone := []lb.Route{{Addr: vipOf(1), Withheld: lb.Gone}, {Addr: vipOf(2), Withheld: lb.Gone}}
	wantChanges(t, "the last two are gone", a.Take(gone, nil, testNow), "192.0.2.0/28 withdrawn", "192.0.2.1/32 withdrawn", "192.0.2.2/32 withdrawn")
}

func TestHoldDown(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil), ReannounceDelay: 5 * time.Second})
	at := func(s int) time.Time { return testNow.Add(time.Duration(s) * time.Second) }
	wantChanges(t, "the first time at once", a.Take([]lb.Route{good(1)}, nil, at(0)), "192.0.2.1/32 to tor1,tor2")
	wantChanges(t, "the last backend fails", a.Take([]lb.Route{bad(1)}, nil, at(1)), "192.0.2.1/32 withdrawn")
	wantReason(t, a, vipOf(1), NoBackend)
	wantChanges(t, "it is back", a.Take([]lb.Route{good(1)}, nil, at(10)))
	if x := wantReason(t, a, vipOf(1), ReannounceDelay); !x.Until.Equal(at(15)) || !a.Next().Equal(at(15)) {
		t.Errorf("held down until %s, next %s, want %s", x.Until, a.Next(), at(15))
	}
	wantChanges(t, "a break", a.Take([]lb.Route{bad(1)}, nil, at(14)))
	if !a.Next().IsZero() {
		t.Errorf("something is due at %s", a.Next())
	}
	wantChanges(t, "and back", a.Take([]lb.Route{good(1)}, nil, at(16)))
	wantChanges(t, "too early", a.Advance(at(20)))
	wantChanges(t, "long enough", a.Advance(at(21)), "192.0.2.1/32 to tor1,tor2")

	gone := []lb.Route{{Addr: vipOf(1), Withheld: lb.Gone}}
	wantChanges(t, "deleted", a.Take(gone, nil, at(30)), "192.0.2.1/32 withdrawn")
	wantChanges(t, "made again", a.Take([]lb.Route{good(1)}, nil, at(30)), "192.0.2.1/32 to tor1,tor2")
	wantChanges(t, "not programmed", a.Take([]lb.Route{{Addr: vipOf(1), Withheld: lb.NotProgrammed}}, nil, at(31)), "192.0.2.1/32 withdrawn")
	wantChanges(t, "programmed", a.Take([]lb.Route{good(1)}, nil, at(31)), "192.0.2.1/32 to tor1,tor2")
	wantChanges(t, "drained", a.Drain(Drains{All: Drained}, at(32)), "192.0.2.1/32 withdrawn")
	wantChanges(t, "no longer", a.Drain(Drains{}, at(32)), "192.0.2.1/32 to tor1,tor2")

	wantChanges(t, "fails again", a.Take([]lb.Route{bad(1)}, nil, at(33)), "192.0.2.1/32 withdrawn")
	wantChanges(t, "is back again", a.Take([]lb.Route{good(1)}, nil, at(34)))
	p := a.policy
	p.ReannounceDelay = 0
	wantChanges(t, "the hold-down is switched off", a.Configure(p, at(35)), "192.0.2.1/32 to tor1,tor2")
}

// Six of ten fail together: five stay announced, one of which has no backend.
// What can be withdrawn is, as others come back.
func TestFloor(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil), MinAnnounced: 0.5})
	var all, failing []lb.Route
	for i := range 10 {
		all = append(all, good(i))
	}
	for i := range 6 {
		failing = append(failing, bad(i))
	}
	a.Take(all, nil, testNow)
	wantChanges(t, "six of ten", a.Take(failing, nil, testNow.Add(time.Second)),
		"192.0.2.0/32 withdrawn", "192.0.2.1/32 withdrawn", "192.0.2.2/32 withdrawn", "192.0.2.3/32 withdrawn", "192.0.2.4/32 withdrawn")
	wantReason(t, a, vipOf(5), MinAnnounced)
	wantReason(t, a, vipOf(4), NoBackend)
	wantChanges(t, "an hour later", a.Advance(testNow.Add(time.Hour)))
	wantChanges(t, "another one is deleted", a.Take([]lb.Route{{Addr: vipOf(9), Withheld: lb.Gone}}, nil, testNow.Add(time.Hour)), "192.0.2.9/32 withdrawn")
	wantChanges(t, "one that was withdrawn is back", a.Take([]lb.Route{good(0)}, nil, testNow.Add(time.Hour)), "192.0.2.0/32 to tor1,tor2")
	wantReason(t, a, vipOf(5), MinAnnounced) // of nine, five
	wantChanges(t, "and another one", a.Take([]lb.Route{good(1)}, nil, testNow.Add(time.Hour)), "192.0.2.1/32 to tor1,tor2", "192.0.2.5/32 withdrawn")
	wantReason(t, a, vipOf(5), NoBackend)
}

// One after the other over a long time they are withdrawn, and a floor of 0 is none.
func TestFloorAcceptsASlowLoss(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil), MinAnnounced: 0.5})
	for i := range 10 {
		a.Take([]lb.Route{good(i)}, nil, testNow)
	}
	now := testNow
	for i := range 10 {
		now = now.Add(61 * time.Second)
		a.Take([]lb.Route{bad(i)}, nil, now)
		wantReason(t, a, vipOf(i), NoBackend)
	}
	p := a.policy
	p.MinAnnounced = 0
	a.Configure(p, now)
	for i := range 10 {
		a.Take([]lb.Route{good(i)}, nil, now)
	}
	for i := range 10 {
		a.Take([]lb.Route{bad(i)}, nil, now)
	}
	if left := routesText(a.Announced()); left != "" {
		t.Errorf("without a floor is left:\n%s", left)
	}
}

func TestFloorIsNotForFew(t *testing.T) {
	for n := 1; n <= 4; n++ {
		a := two(Policy{Rules: Rules(nil, nil), MinAnnounced: 1})
		for i := range n {
			a.Take([]lb.Route{good(i)}, nil, testNow)
		}
		a.Take([]lb.Route{bad(0)}, nil, testNow)
		want := NoBackend
		if n == 4 {
			want = MinAnnounced
		}
		wantReason(t, a, vipOf(0), want)
	}
}

// Neither a deletion nor a drain is ever refused, nor what the kernel does not hold;
// and VIPs that no peer receives hold up no floor.
func TestFloorIsOnlyForLostBackends(t *testing.T) {
	for name, withdraw := range map[string]func(a *Advertiser){
		"deleted": func(a *Advertiser) {
			a.Take([]lb.Route{{Addr: vipOf(0), Withheld: lb.Gone}, {Addr: vipOf(1), Withheld: lb.Gone}, {Addr: vipOf(2), Withheld: lb.Gone}, {Addr: vipOf(3), Withheld: lb.Gone}}, nil, testNow)
		},
		"not programmed": func(a *Advertiser) {
			a.Take([]lb.Route{{Addr: vipOf(0), Withheld: lb.NotProgrammed}, {Addr: vipOf(1), Withheld: lb.NotProgrammed}, {Addr: vipOf(2), Withheld: lb.NotProgrammed}, {Addr: vipOf(3), Withheld: lb.NotProgrammed}}, nil, testNow)
		},
		"drained": func(a *Advertiser) { a.Drain(Drains{All: Drained}, testNow) },
		"failing while it is drained": func(a *Advertiser) {
			a.Drain(Drains{All: Shutting}, testNow)
			a.Take([]lb.Route{bad(0), bad(1), bad(2), bad(3)}, nil, testNow)
		},
		"drained while it is kept": func(a *Advertiser) {
			a.Take([]lb.Route{bad(0), bad(1), bad(2), bad(3)}, nil, testNow)
			a.Drain(Drains{All: Shutting}, testNow)
		},
	} {
		a := two(Policy{Rules: Rules(nil, nil), MinAnnounced: 1})
		a.Take([]lb.Route{good(0), good(1), good(2), good(3)}, nil, testNow)
		withdraw(a)
		if left := routesText(a.Announced()); left != "" {
			t.Errorf("%s: still announced:\n%s", name, left)
		}
	}
	a := two(Policy{Rules: Rules(nil, nil), MinAnnounced: 0.5})
	var routes []lb.Route
	for i := range 20 {
		routes = append(routes, lb.Route{Addr: vipOf(100 + i), Serves: []lb.Serving{serving("prod", "shop", "web", lb.ClusterIP)}})
	}
	a.Take(append(routes, good(0), good(1), good(2), good(3)), nil, testNow)
	wantChanges(t, "four among twenty that nobody hears of", a.Take([]lb.Route{bad(0), bad(1), bad(2), bad(3)}, nil, testNow),
		"192.0.2.0/32 withdrawn", "192.0.2.1/32 withdrawn")
}

func TestDrain(t *testing.T) {
	a := two(Policy{Rules: []Rule{{Name: "all", Communities: []Community{100}, LocalPref: MetricOf(300)}}})
	a.Take([]lb.Route{good(1), good(2)}, nil, testNow)
	one := map[netip.Addr]Stage{vipOf(1): Shutting}
	wantChanges(t, "asks to be avoided", a.Drain(Drains{VIPs: one}, testNow), "192.0.2.1/32 to tor1,tor2 0:100 graceful-shutdown pref 0")
	wantReason(t, a, vipOf(1), Draining)
	one[vipOf(1)] = Drained // the Advertiser has its own
	wantChanges(t, "the same again", a.Drain(Drains{VIPs: map[netip.Addr]Stage{vipOf(1): Shutting}}, testNow))
	wantChanges(t, "withdrawn", a.Drain(Drains{VIPs: one}, testNow), "192.0.2.1/32 withdrawn")
	wantChanges(t, "and the whole box", a.Drain(Drains{All: Drained, VIPs: one}, testNow), "192.0.2.2/32 withdrawn")
	wantChanges(t, "a VIP that comes meanwhile", a.Take([]lb.Route{good(3)}, nil, testNow))
	wantReason(t, a, vipOf(3), Withdrawn)
	wantChanges(t, "back", a.Drain(Drains{}, testNow),
		"192.0.2.1/32 to tor1,tor2 0:100 pref 300", "192.0.2.2/32 to tor1,tor2 0:100 pref 300", "192.0.2.3/32 to tor1,tor2 0:100 pref 300")
}

func TestReasonsOfPeers(t *testing.T) {
	a := New()
	a.Configure(Policy{Rules: Rules(nil, nil)}, testNow)
	six := lb.Route{Addr: addr("2001:db8::1"), Serves: good(1).Serves}
	a.Take([]lb.Route{six}, nil, testNow)
	wantReason(t, a, six.Addr, NobodyThere)
	a.Configure(Policy{Rules: Rules(nil, nil), Peers: []Peer{{Name: "four", Families: Families{IPv4: true}}}}, testNow)
	wantReason(t, a, six.Addr, NoFamily)
	if _, known := a.Explain(vipOf(9)); known {
		t.Error("explained what is not known")
	}
	// lb's words are those of this package.
	for _, want := range []Reason{NoBackend, NotProgrammed, NotServed} {
		a.Take([]lb.Route{{Addr: six.Addr, Withheld: lb.Withheld(want)}}, nil, testNow)
		x := wantReason(t, a, six.Addr, want)
		if want != NotServed && len(x.Serves) != 1 {
			t.Errorf("%s: who served there is forgotten: %+v", want, x)
		}
	}
	if got, want := []lb.Withheld{lb.NoLiveBackend, lb.NotProgrammed, lb.NotServed}, []lb.Withheld{"no-backend", "not-programmed", "not-served"}; !slices.Equal(got, want) {
		t.Errorf("lb says %q, this package %q", got, want)
	}
}

// Of two words on one address in one call the last one counts.
func TestTakeUsesTheLastState(t *testing.T) {
	a := two(Policy{Rules: Rules(nil, nil)})
	wantChanges(t, "routes", a.Take([]lb.Route{bad(1), good(1), good(2), bad(2)}, nil, testNow), "192.0.2.1/32 to tor1,tor2")
}
