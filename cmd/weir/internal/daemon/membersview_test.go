package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/status"
	"weir/l2"
	"weir/lb"
)

func TestWhatIsToldOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := rivals()
		m := grown(t, inFleet+onWire, mine, theirs)
		addr := netip.MustParseAddr
		b := settledMember("b")
		held := able(addr(mine), addr(theirs))
		held.vips[addr(theirs)] |= partHolds
		m.rumor.says(t, b, held)
		for _, x := range []struct {
			name string
			make func(*cluster.Member)
		}{
			{"c", func(c *cluster.Member) { c.State = cluster.State{Unfit: "eth1 has no carrier"} }},
			{"d", func(d *cluster.Member) { d.State.Settled = false }},
			{"e", func(e *cluster.Member) { e.Suspect = true }},
			{"f", func(f *cluster.Member) { f.Suspect, f.Away, f.AwaySince = true, true, time.Now() }},
			{"g", func(g *cluster.Member) { g.Life = cluster.Dead }},
			{"h", func(h *cluster.Member) { h.Life = cluster.Left }},
			{"i", func(i *cluster.Member) { i.State.Drain = cluster.Drained }},
			{"j", func(j *cluster.Member) { j.State, j.Unread = cluster.State{}, "of a later version" }},
		} {
			c := settledMember(x.name)
			x.make(&c)
			m.rumor.says(t, c, able())
		}
		m.rumor.status.Unjoined = map[string]string{"10.9.0.2": "it is there by now", "10.9.0.77": "refused"}
		m.hear(t)
		doc := m.fleet.doc(time.Now())
		got := map[string]string{}
		for _, x := range doc.Members {
			got[x.Name] = strings.TrimSuffix(string(x.State)+": "+x.Why, ": ")
		}
		want := map[string]string{
			"a": "serving", "b": "serving", "c": "unfit: eth1 has no carrier", "d": "fresh", "e": "suspect: it does not answer this box",
			"f": "away: its weir is gone and its kernel forwards on; it counts as before for 10s", "g": "dead: it answers nobody",
			"h": "left: it said good-bye", "i": "drained", "j": "unfit: what it says can't be read: of a later version",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("members (-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]string{"10.9.0.77": "refused"}, doc.Unjoined); d != "" {
			t.Errorf("unjoined (-want +got):\n%s", d)
		}
		me := doc.Members[0]
		if !me.Self || me.Serves != 2 || me.Holds != 1 || me.FitSince.IsZero() || me.Digest == "" || doc.Self != "a" || !doc.Insecure {
			t.Errorf("this box: %+v of %+v", me, doc)
		}
		if d := cmp.Diff(map[status.VIPRole]int{status.RoleOwner: 1, status.RoleStandby: 1}, doc.VIPs); d != "" {
			t.Errorf("VIPs (-want +got):\n%s", d)
		}
		if g := m.fleet.glance(time.Now()); g.State != status.MemberServing || g.Members[status.MemberUnfit] != 2 || g.Members[status.MemberServing] != 2 {
			t.Errorf("at a glance: %+v", g)
		}
		o := m.fleet.owned(addr(theirs))
		if o == nil || o.Me || o.Owner != "b" || o.Role != status.RoleStandby || len(o.Members) != 2 || o.Members[0].Name != "b" || !o.Members[0].Holds {
			t.Errorf("explained as %+v", o)
		}
		if m.fleet.owned(addr("198.51.100.1")) != nil {
			t.Error("what nobody serves is explained")
		}
	})
}

func TestWhatIsToldOfTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine, "192.0.2.200")
		var took []time.Duration
		m.fleet.answer.took = func(d time.Duration) { took = append(took, d) }
		m.fleet.answer.since[netip.MustParseAddr(mine)] = time.Now()
		stranger, fellow := l2.MAC{2, 9, 9, 9, 9, 9}, l2.MAC{2, 0, 0, 0, 0, 2}
		m.mouth.status = l2.Status{
			Interfaces: []l2.Interface{{Name: "eth0", Index: 3, MAC: l2.MAC{2, 0, 0, 0, 0, 1}, Carrier: true}, {Name: "eth1", Index: 4}},
			VIPs: []l2.VIP{
				{Addr: netip.MustParseAddr(mine), Interface: "eth0", State: l2.Held, Since: time.Now().Add(time.Second), Other: stranger, Heard: time.Now()},
				{Addr: netip.MustParseAddr("192.0.2.200"), Interface: "eth0", State: l2.Contested, Other: fellow, Fellow: "b"},
				{Addr: netip.MustParseAddr("192.0.2.200"), Interface: "eth1", State: l2.Idle},
			},
		}
		m.hear(t)
		doc := m.fleet.answer.doc
		if len(doc.Interfaces) != 2 || doc.Interfaces[0].Held != 1 || doc.Interfaces[0].Contested != 1 || doc.Interfaces[1].Idle != 1 || doc.Interfaces[1].Error != "no carrier" {
			t.Errorf("interfaces: %+v", doc.Interfaces)
		}
		if len(doc.Contested) != 1 || doc.Contested[0].Member != "b" || len(doc.Duplicates) != 1 || doc.Duplicates[0].By != stranger.String() {
			t.Errorf("contested %+v, duplicates %+v", doc.Contested, doc.Duplicates)
		}
		if d := cmp.Diff([]time.Duration{time.Second}, took); d != "" {
			t.Errorf("takeovers (-want +got):\n%s", d)
		}
		var notes []lb.Note
		for _, n := range m.fleet.notes(time.Now()) {
			if n.Reason == lb.DuplicateAddress {
				notes = append(notes, n)
			}
		}
		if len(notes) != 1 || notes[0].Service != static("web0") || !strings.Contains(notes[0].Text, stranger.String()) {
			t.Errorf("notes: %v", notes)
		}
		if d := cmp.Diff([]string{"02:00:00:00:00:02 b"}, m.mouth.fellows); d != "" {
			t.Errorf("whose MACs (-want +got):\n%s", d)
		}
	})
}

func TestWhatIsMeasuredOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := rivals()
		m := grown(t, inFleet+onWire, mine, theirs)
		m.mouth.status.Interfaces = []l2.Interface{{Name: "eth0", Carrier: true}}
		m.rumor.status.Counters = cluster.Counters{Refused: 7}
		m.hear(t)
		s := status.Status{Fleet: m.fleet.glance(time.Now()), L2: m.fleet.answer.doc}
		m.published.Store(&view{numbers: m.fleet.numbers()})
		out := make(chan prometheus.Metric, 1000)
		collector{m.box}.sharing(out, s)
		close(out)
		var names []string
		for x := range out {
			name, _, _ := strings.Cut(strings.TrimPrefix(x.Desc().String(), `Desc{fqName: "`), `"`)
			names = append(names, name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		for _, want := range []string{
			"weir_fleet_members", "weir_fleet_fit", "weir_fleet_settled", "weir_fleet_owned_vips", "weir_fleet_moves_total", "weir_fleet_refused_total",
			"weir_fleet_cut_off", "weir_fleet_digest_differs", "weir_l2_vips", "weir_l2_requests_answered_total", "weir_l2_conflicts_total",
		} {
			if !slices.Contains(names, want) {
				t.Errorf("no %s among %v", want, names)
			}
		}
	})
}

// What has not happened yet is a zero, and not nothing: it can be told when it does.
func TestEveryStateIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine)
		m.published.Store(&view{numbers: m.fleet.numbers()})
		out := make(chan prometheus.Metric, 1000)
		collector{m.box}.sharing(out, status.Status{Fleet: m.fleet.glance(time.Now())})
		close(out)
		series := map[*prometheus.Desc]int{}
		for x := range out {
			series[x.Desc()]++
		}
		for desc, want := range map[*prometheus.Desc]int{
			descMembers: len(status.MemberStates), descMoves: int(owner.Starting), descDiffers: len(m.fleet.say.word.sources),
		} {
			if series[desc] != want || want == 0 {
				t.Errorf("%d series of %s, want %d", series[desc], desc, want)
			}
		}
	})
}

// Who is dead has nothing, whatever it said last.
func TestTheDeadOwnNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := rivals()
		m := grown(t, inFleet+onWire, mine, theirs)
		b, w := settledMember("b"), able(netip.MustParseAddr(mine), netip.MustParseAddr(theirs))
		w.vips[netip.MustParseAddr(theirs)] |= partHolds
		m.rumor.says(t, b, w)
		m.hear(t)
		if x := m.fleet.doc(time.Now()).Members[1]; x.Serves != 2 || x.Holds != 1 {
			t.Errorf("alive: %+v", x)
		}
		b.Life = cluster.Dead
		m.rumor.says(t, b, w)
		m.hear(t)
		if x := m.fleet.doc(time.Now()).Members[1]; x.Serves != 0 || x.Holds != 0 {
			t.Errorf("dead: %+v", x)
		}
	})
}

// To ask is not to hear: what has not been heard is not hidden by it.
func TestWhoAsksForMembersHearsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine)
		m.rumor.says(t, settledMember("c"), able())
		m.rumor.status.Counters.Refused = 7
		m.fleet.recount()
		if doc := m.fleet.doc(time.Now()); doc.Counters.Refused != 7 || len(doc.Members) != 2 {
			t.Errorf("it shows %+v", doc)
		}
	})
}

// A box that has let go of gateways says so wherever it is asked.
func TestACutOffBoxSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+"owners = \"one\"\n"+onWire+"[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n", mine)
		m.link(t, "eth1", "1")
		m.hear(t)
		if g := m.fleet.glance(time.Now()); g.CutOff {
			t.Errorf("before: %+v", g)
		}
		m.link(t, "eth0", "0")
		b := settledMember("b")
		b.Life = cluster.Dead
		m.rumor.says(t, b, able())
		m.hear(t)
		m.live(t, sayEvery)
		why := "eth0 has no carrier; " + m.fleet.letGo()
		if g := m.fleet.glance(time.Now()); !g.CutOff || g.Why != why {
			t.Errorf("at a glance: %+v", g)
		}
		if said := m.rumor.last(); said.Unfit != why {
			t.Errorf("it says %+v", said)
		}
		if x := m.fleet.owned(netip.MustParseAddr("10.2.0.254")); x == nil || x.Why != m.fleet.letGo() {
			t.Errorf("the gateway is explained as %+v", x)
		}
	})
}

// A part of the fleet that panics or fails begins anew, and one that is not wanted ends.
func TestPartsBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParts(slog.New(slog.DiscardHandler))
		var begun atomic.Int32
		p.keep("odd", true, func(ctx context.Context) error {
			switch begun.Add(1) {
			case 1:
				panic("out of order")
			case 2:
				return errors.New("no socket")
			}
			<-ctx.Done()
			return nil
		})
		p.keep("odd", true, func(context.Context) error { t.Error("it runs twice"); return nil })
		time.Sleep(10 * panicPause)
		if n := begun.Load(); n != 3 {
			t.Errorf("it has begun %d times", n)
		}
		news := make(chan struct{}, 1)
		p.forward("odd", news)
		news <- struct{}{}
		synctest.Wait()
		select {
		case <-p.signal:
		default:
			t.Error("its news are not heard")
		}
		p.keep("odd", false, nil)
		p.stop()
	})
}
