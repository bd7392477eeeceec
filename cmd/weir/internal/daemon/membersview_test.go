package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/fleet/message"
	"weir/cmd/weir/internal/metrics"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func TestMembersDoc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine, theirs)
		addr := netip.MustParseAddr
		b := stablePeer("b")
		held := serving(addr(mine), addr(theirs))
		held.VIPs[addr(theirs)] |= message.Owns
		m.gossip.report(t, b, held)
		for _, x := range []struct {
			name string
			make func(*cluster.Member)
		}{
			{"c", func(c *cluster.Member) { c.State = cluster.State{Unfit: "eth1 has no carrier"} }},
			{"d", func(d *cluster.Member) { d.State.Stable = false }},
			{"e", func(e *cluster.Member) { e.Suspect = true }},
			{"f", func(f *cluster.Member) { f.Suspect, f.ProcessDown, f.ProcessDownSince = true, true, time.Now() }},
			{"g", func(g *cluster.Member) { g.Life = cluster.Dead }},
			{"h", func(h *cluster.Member) { h.Life = cluster.Left }},
			{"i", func(i *cluster.Member) { i.State.Drain = cluster.Drained }},
			{"j", func(j *cluster.Member) { j.State, j.Unreadable = cluster.State{}, "of a later version" }},
		} {
			c := stablePeer(x.name)
			x.make(&c)
			m.gossip.report(t, c, serving())
		}
		m.gossip.status.Unreachable = map[string]string{"10.9.0.2": "it is there by now", "10.9.0.77": "refused"}
		m.receive(t)
		doc := m.steering.fleet.Members(time.Now())
		got := map[string]string{}
		for _, x := range doc.Members {
			got[x.Name] = strings.TrimSuffix(string(x.State)+": "+x.Reason, ": ")
		}
		want := map[string]string{
			"a": "serving", "b": "serving", "c": "unfit: eth1 has no carrier", "d": "fresh", "e": "suspect: it does not answer this box",
			"f": "daemon-down: its daemon is down and its kernel forwards; it counts as before for 10s", "g": "dead: it answers no member",
			"h": "left: it has left the fleet", "i": "drained", "j": "unfit: its message can't be read: of a later version",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("members (-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]string{"10.9.0.77": "refused"}, doc.UnreachableNames); d != "" {
			t.Errorf("unreachable (-want +got):\n%s", d)
		}
		me := doc.Members[0]
		if !me.Self || me.Serves != 2 || me.Owns != 1 || me.FitSince.IsZero() || me.Digest == "" || doc.Self != "a" || !doc.Insecure {
			t.Errorf("this box: %+v of %+v", me, doc)
		}
		if d := cmp.Diff(map[status.VIPRole]int{status.RoleOwner: 1, status.RoleStandby: 1}, doc.VIPs); d != "" {
			t.Errorf("VIPs (-want +got):\n%s", d)
		}
		if g := m.steering.fleet.View().Status(time.Now()); g.State != status.MemberServing || g.Members[status.MemberUnfit] != 2 || g.Members[status.MemberServing] != 2 {
			t.Errorf("at a glance: %+v", g)
		}
		o := m.steering.fleet.View().Owned(addr(theirs))
		if o == nil || o.Self || o.Owner != "b" || o.Role != status.RoleStandby || len(o.Members) != 2 || o.Members[0].Name != "b" || !o.Members[0].Owns {
			t.Errorf("explained as %+v", o)
		}
		if m.steering.fleet.View().Owned(addr("198.51.100.1")) != nil {
			t.Error("what nobody serves is explained")
		}
	})
}

func TestL2Doc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine, "192.0.2.200")
		foreign, other := l2.MAC{2, 9, 9, 9, 9, 9}, l2.MAC{2, 0, 0, 0, 0, 2}
		m.answerer.status = l2.Status{
			Interfaces: []l2.Interface{{Name: "eth0", Index: 3, MAC: l2.MAC{2, 0, 0, 0, 0, 1}, Carrier: true}, {Name: "eth1", Index: 4}},
			VIPs: []l2.VIP{
				{Addr: netip.MustParseAddr(mine), Interface: "eth0", State: l2.Answered, Since: m.answerer.claimed[netip.MustParseAddr(mine)].Add(time.Second), Other: foreign, OtherSeen: time.Now()},
				{Addr: netip.MustParseAddr("192.0.2.200"), Interface: "eth0", State: l2.Contested, Other: other, Member: "b"},
				{Addr: netip.MustParseAddr("192.0.2.200"), Interface: "eth1", State: l2.Idle},
				{Addr: netip.MustParseAddr("192.0.2.201"), Interface: "eth0", State: l2.Answered, Other: other, Member: "b", Overruled: true},
			},
		}
		m.receive(t)
		doc := m.steering.fleet.L2()
		if len(doc.Interfaces) != 2 || doc.Interfaces[0].Answered != 2 || doc.Interfaces[0].Contested != 1 || doc.Interfaces[1].Idle != 1 || doc.Interfaces[1].Error != "no carrier" {
			t.Errorf("interfaces: %+v", doc.Interfaces)
		}
		if len(doc.Contested) != 1 || doc.Contested[0].Member != "b" || len(doc.Duplicates) != 1 || doc.Duplicates[0].By != foreign.String() {
			t.Errorf("contested %+v, duplicates %+v", doc.Contested, doc.Duplicates)
		}
		if len(doc.Overruled) != 1 || doc.Overruled[0].Member != "b" {
			t.Errorf("overruled %+v", doc.Overruled)
		}
		if d := cmp.Diff([]time.Duration{time.Second}, m.took); d != "" {
			t.Errorf("takeovers (-want +got):\n%s", d)
		}
		var notes []lb.Note
		for _, n := range m.steering.fleet.View().Notes(time.Now()) {
			if n.Reason == lb.DuplicateAddress {
				notes = append(notes, n)
			}
		}
		if len(notes) != 2 || notes[0].Service != static("web0") || !strings.Contains(notes[0].Text, foreign.String()) || !strings.Contains(notes[1].Text, "proxy ARP") {
			t.Errorf("notes: %v", notes)
		}
		if d := cmp.Diff([]string{"02:00:00:00:00:02 b"}, m.answerer.peers); d != "" {
			t.Errorf("whose MACs (-want +got):\n%s", d)
		}
	})
}

func TestFleetMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine, theirs)
		m.answerer.status.Interfaces = []l2.Interface{{Name: "eth0", Carrier: true}}
		m.gossip.status.Counters = cluster.Counters{Refused: 7}
		m.receive(t)
		s := status.Status{Fleet: m.steering.fleet.View().Status(time.Now()), L2: m.steering.fleet.L2()}
		var names []string
		for sample := range only(t, fleetSample(m, s)) {
			name, _, _ := strings.Cut(sample, "{")
			names = append(names, name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		for _, want := range []string{
			"weir_fleet_members", "weir_fleet_fit", "weir_fleet_stable", "weir_fleet_owned_vips", "weir_fleet_moves_total", "weir_fleet_refused_total",
			"weir_fleet_isolated", "weir_fleet_source_differs", "weir_l2_vips", "weir_l2_requests_answered_total", "weir_l2_conflicts_total",
		} {
			if !slices.Contains(names, want) {
				t.Errorf("no %s among %v", want, names)
			}
		}
	})
}

// A count of what has not happened yet is a zero, and not absent: it can be reported when it does.
func TestFleetMetricsHaveEveryState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine)
		series := map[string]int{}
		for sample := range only(t, fleetSample(m, status.Status{Fleet: m.steering.fleet.View().Status(time.Now())})) {
			name, _, _ := strings.Cut(sample, "{")
			series[name]++
		}
		for name, want := range map[string]int{
			"weir_fleet_members": len(status.MemberStates), "weir_fleet_moves_total": int(owner.Starting), "weir_fleet_source_differs": len(m.message(t).Sources),
		} {
			if series[name] != want || want == 0 {
				t.Errorf("%d series of %s, want %d", series[name], name, want)
			}
		}
	})
}

// fleetSample returns the sample of a member for metrics.
func fleetSample(m *member, s status.Status) metrics.Sample {
	n := m.steering.fleet.Numbers()
	out := metrics.Sample{Status: s, Fleet: n.Numbers}
	if n.Gossip != nil {
		now := n.Gossip.Status()
		out.Gossip = &now
	}
	if n.Answerer != nil {
		now := n.Answerer.Status()
		out.L2 = &now
	}
	return out
}

// A dead member has nothing, whatever its last message was.
func TestDeadMembersOwnNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine, theirs)
		b, w := stablePeer("b"), serving(netip.MustParseAddr(mine), netip.MustParseAddr(theirs))
		w.VIPs[netip.MustParseAddr(theirs)] |= message.Owns
		m.gossip.report(t, b, w)
		m.receive(t)
		if x := m.steering.fleet.Members(time.Now()).Members[1]; x.Serves != 2 || x.Owns != 1 {
			t.Errorf("alive: %+v", x)
		}
		b.Life = cluster.Dead
		m.gossip.report(t, b, w)
		m.receive(t)
		if x := m.steering.fleet.Members(time.Now()).Members[1]; x.Serves != 0 || x.Owns != 0 {
			t.Errorf("dead: %+v", x)
		}
	})
}

// A request is no message: what has not arrived is not hidden by it.
func TestMembersDocReceivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine)
		m.gossip.report(t, stablePeer("c"), serving())
		m.gossip.status.Counters.Refused = 7
		if doc := m.steering.fleet.Members(time.Now()); doc.Counters.Refused != 7 || len(doc.Members) != 2 {
			t.Errorf("it shows %+v", doc)
		}
	})
}

// A box that has released gateways reports that wherever it is asked.
func TestIsolationIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+"placement = \"single\"\n"+onWire+"[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n", mine)
		m.link(t, "eth1", "1")
		m.receive(t)
		if g := m.steering.fleet.View().Status(time.Now()); g.Isolated {
			t.Errorf("before: %+v", g)
		}
		m.link(t, "eth0", "0")
		b := stablePeer("b")
		b.Life = cluster.Dead
		m.gossip.report(t, b, serving())
		m.receive(t)
		m.live(t, publishEvery)
		const letGo = "no client can reach this box: it has released the gateways and masquerade sources"
		reason := "eth0 has no carrier; " + letGo
		if g := m.steering.fleet.View().Status(time.Now()); !g.Isolated || g.Reason != reason {
			t.Errorf("at a glance: %+v", g)
		}
		if said := m.gossip.last(); said.Unfit != reason {
			t.Errorf("it says %+v", said)
		}
		if x := m.steering.fleet.View().Owned(netip.MustParseAddr("10.2.0.254")); x == nil || x.Reason != letGo {
			t.Errorf("the gateway is explained as %+v", x)
		}
	})
}
