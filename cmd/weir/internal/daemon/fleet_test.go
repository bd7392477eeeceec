package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp/advertise"
	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

func TestClaimsWaitForTheOtherMembers(t *testing.T) {
	for _, tt := range []struct {
		name            string
		answers, others bool
		wait            time.Duration
	}{
		{"nobody answers", false, false, fleet.JoinWindow},
		{"all answer", true, false, 0},
		{"some answer", true, true, fleet.JoinWindow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				vip, _ := ownVIPs()
				m := newMember(t, inFleet+onWire+services(vip))
				m.pass(t)
				m.check(t, "at first", "announce "+vip+"/32") // without effect: sessions have not begun
				if said := m.gossip.last(); said.Unfit == "" || said.Stable {
					t.Errorf("it says %+v", said)
				}
				m.gossip.others = tt.others
				if tt.answers {
					m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(vip)))
				}
				if tt.wait > 0 {
					m.receive(t)
					m.check(t, "as long as others may answer")
				}
				if next := m.steering.fleet.Next(); !next.Equal(time.Now().Add(fleet.JoinWindow)) {
					t.Errorf("it wakes in %s", time.Until(next))
				}
				time.Sleep(tt.wait)
				m.receive(t)
				if tt.answers { // the other one is stable, and keeps the VIP until this box is
					m.check(t, "with another one", "announce "+vip+"/32 standby", "begin with 1 prefixes")
					time.Sleep(30 * time.Second)
					m.receive(t)
					m.check(t, "settled", "claim "+vip, "announce "+vip+"/32")
					return
				}
				m.check(t, "alone", "claim "+vip, "begin with 1 prefixes")
				if said := m.gossip.last(); said.Unfit != "" || !said.Stable || said.FitSince == 0 {
					t.Errorf("it says %+v", said)
				}
			})
		})
	}
}

// stableMember returns a stable box beside "b", which serves the same VIPs.
func stableMember(t *testing.T, toml string, vips ...string) *member {
	t.Helper()
	m := newMember(t, toml+services(vips...))
	m.pass(t)
	var all []netip.Addr
	for _, v := range vips {
		all = append(all, netip.MustParseAddr(v))
	}
	m.gossip.report(t, stablePeer("b"), serving(all...))
	m.receive(t)
	time.Sleep(31 * time.Second)
	m.receive(t)
	m.announced()
	return m
}

func TestDeadMembersAreReplacedAfterRestartGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, theirs := ownVIPs()
		m := stableMember(t, inFleet+onWire, theirs)
		b := stablePeer("b")
		serving := serving(netip.MustParseAddr(theirs))

		b.Suspect = true
		m.gossip.report(t, b, serving)
		m.receive(t)
		m.check(t, "b may be dead", "claim with doubt "+theirs)
		b.Suspect = false
		m.gossip.report(t, b, serving)
		m.receive(t)
		m.check(t, "it is not", "release "+theirs)

		b.Suspect, b.ProcessDown, b.ProcessDownSince = true, true, time.Now()
		m.gossip.report(t, b, serving)
		m.receive(t)
		b.Life = cluster.Dead
		m.gossip.report(t, b, serving)
		m.receive(t)
		m.check(t, "only its weir is gone")
		if next := m.steering.fleet.Next(); !next.Equal(b.ProcessDownSince.Add(10 * time.Second)) {
			t.Errorf("it wakes in %s", time.Until(next))
		}
		time.Sleep(10 * time.Second)
		m.pass(t)
		m.check(t, "for too long", "claim "+theirs, "announce "+theirs+"/32")

		m.gossip.report(t, stablePeer("b"), serving)
		m.receive(t)
		m.check(t, "it is back", "release "+theirs, "announce "+theirs+"/32 standby")
		if m.answerer.bursts == 0 {
			t.Error("neighbors are not told again when somebody comes")
		}

		b.ProcessDown, b.Suspect = false, false
		m.gossip.report(t, b, serving)
		m.receive(t)
		m.check(t, "its box is dead", "claim "+theirs, "announce "+theirs+"/32")
		if got := m.steering.fleet.Members(time.Now()).Counters.Moves; got != 3 {
			t.Errorf("%d moves are counted", got)
		}
	})
}

func TestUnfitBoxYieldsToFitMembersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire+"", mine)
		m.link(t, "eth0", "0")
		m.receive(t)
		m.live(t, publishEvery)
		if said := m.gossip.last(); said.Unfit != "eth0 has no carrier" || said.Stable {
			t.Errorf("it says %+v", said)
		}
		m.check(t, "the others have not heard of it yet")
		m.live(t, owner.ActDelay)
		m.check(t, "they have", "release "+mine, "withdraw "+mine+"/32")
		if x, _ := m.steering.announcer.Advertiser().Explain(netip.MustParseAddr(mine)); x.Reason != advertise.ServedElsewhere {
			t.Errorf("routers: %s", x.Reason)
		}

		b := stablePeer("b")
		b.Life = cluster.Dead
		m.gossip.report(t, b, serving(netip.MustParseAddr(mine)))
		m.receive(t)
		m.check(t, "nobody else is left", "claim "+mine, "announce "+mine+"/32")

		m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(mine)))
		m.receive(t)
		m.announced()
		m.link(t, "eth0", "1")
		m.receive(t)
		m.check(t, "fit again, but not for long", "announce "+mine+"/32 standby")
		time.Sleep(30 * time.Second)
		m.pass(t)
		m.check(t, "for long enough", "claim "+mine, "announce "+mine+"/32")
	})
}

func TestClaimsFollowTheKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := newMember(t, inFleet+onWire+services(mine))
		time.Sleep(fleet.JoinWindow)
		m.pass(t)
		time.Sleep(fleet.JoinWindow)
		m.pass(t)
		got := m.speaker.history.read()
		served := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "add real server") })
		if claimed := slices.Index(got, "claim "+mine); served < 0 || claimed < served {
			t.Errorf("on the way up:\n%s", strings.Join(got, "\n"))
		}
		m.reload(t, oneRouter+inFleet+onWire)
		m.pass(t)
		got = m.speaker.history.read()
		if got[0] != "release "+mine || got[1] != "withdraw "+mine+"/32" || !strings.HasPrefix(got[2], "delete ") {
			t.Errorf("on the way down:\n%s", strings.Join(got, "\n"))
		}
	})
}

func TestVIPWithoutBackendWaitsForReannounceDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine)
		web := static("web0")
		m.target.rec.SetHealth(map[lb.ServiceID]lb.Health{web: down("10.1.0.1:80")}, true)
		m.pass(t)
		m.check(t, "the backend is down", "release "+mine, "withdraw "+mine+"/32")
		m.target.rec.SetHealth(map[lb.ServiceID]lb.Health{web: {}}, true)
		m.pass(t)
		m.check(t, "it is back", "claim "+mine)
		time.Sleep(5 * time.Second)
		m.pass(t)
		m.check(t, "it has lasted", "announce "+mine+"/32")
	})
}

func TestARestartMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		folder := t.TempDir()
		m := newMember(t, inFleet+onWire+services(mine))
		must(t, saveTrace(folder, 0))
		m.fleetOf(t, folder)
		m.passes.progress.ready = false
		m.pass(t)
		if m.gossip.runs != 0 || len(m.gossip.said) != 0 {
			t.Errorf("it says %+v before it is ready", m.gossip.said)
		}
		m.passes.progress.ready = true
		m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(mine)))
		m.pass(t)
		synctest.Wait()
		if said := m.gossip.last(); !said.Stable || said.Unfit != "" || m.gossip.runs != 1 {
			t.Errorf("it says %+v", said)
		}
		w, err := message.Parse(m.gossip.word)
		if err != nil || w.VIPs[netip.MustParseAddr(mine)]&message.Serves == 0 {
			t.Errorf("it serves %+v, %v", w, err)
		}
		m.receive(t)
		m.check(t, "it is the owner as before", "announce "+mine+"/32", "claim "+mine, "begin with 1 prefixes")
	})
}

// A box that comes back with its cable out is not what it was.
func TestUnfitAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		folder := t.TempDir()
		m := newMember(t, inFleet+onWire+services(mine))
		must(t, saveTrace(folder, 0))
		m.fleetOf(t, folder)
		m.link(t, "eth0", "0")
		m.pass(t)
		if said := m.gossip.last(); said.Stable || said.Unfit != "eth0 has no carrier" {
			t.Errorf("it says %+v", said)
		}
	})
}

// A box that comes back when others have taken over begins at once, and reports that it is
// stable when it can serve: they release their VIPs only then.
func TestStableIsPublishedWhenTheBoxServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		folder := t.TempDir()
		m := newMember(t, inFleet+onWire+services(mine))
		must(t, saveTrace(folder, 20*time.Second))
		m.fleetOf(t, folder)
		m.passes.progress.ready = false
		m.pass(t)
		synctest.Wait()
		if said := m.gossip.last(); m.gossip.runs != 1 || said.Stable || said.Unfit == "" {
			t.Errorf("before it is ready it says %+v, in %d runs", said, m.gossip.runs)
		}
		m.passes.progress.ready = true
		m.pass(t)
		if said := m.gossip.last(); said.Stable || said.Unfit == "" {
			t.Errorf("before it knows who is there it says %+v", said)
		}
		m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(mine)))
		m.receive(t)
		m.live(t, publishEvery)
		if said := m.gossip.last(); !said.Stable || said.Unfit != "" {
			t.Errorf("it says %+v", said)
		}
		m.check(t, "it is the owner again, and at once", "announce "+mine+"/32", "claim "+mine, "begin with 1 prefixes")
	})
}

// Where all announce alike no box takes anything over.
func TestActiveActiveCountsNoMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := ownVIPs()
		m := stableMember(t, strings.Replace(inFleet, "active-standby", "active-active", 1), mine, theirs)
		b := stablePeer("b")
		b.Life = cluster.Dead
		m.gossip.report(t, b, serving())
		m.receive(t)
		m.check(t, "b is dead")
		if n := m.steering.fleet.Members(time.Now()).Counters.Moves; n != 0 {
			t.Errorf("%d moves are counted", n)
		}
	})
}

func TestDrainMovesVIPsThatOthersServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine, "192.0.2.200")
		m.gossip.report(t, stablePeer("b"), serving(netip.MustParseAddr(mine)))
		m.receive(t)
		m.announced()
		m.steering.drains.Move(t.TempDir())
		m.steering.drains.Replace(m.steering.drains.Set().With(time.Now()))
		m.live(t, publishEvery)
		if said := m.gossip.last(); said.Drain != cluster.Draining {
			t.Errorf("it says %+v", said)
		}
		m.live(t, 12*time.Second) // drain_delay is 10 s
		got := strings.Join(m.announced(), "\n")
		if !strings.Contains(got, "release "+mine) || !strings.Contains(got, "withdraw "+mine+"/32") {
			t.Errorf("what b can serve:\n%s", got)
		}
		if strings.Contains(got, "release 192.0.2.200") || strings.Contains(got, "withdraw 192.0.2.200/32") {
			t.Errorf("what nobody else can serve:\n%s", got)
		}
		if said := m.gossip.last(); said.Drain == cluster.Serving {
			t.Errorf("it says %+v", said)
		}
	})
}

func TestMessagesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine)
		before := len(m.gossip.said)
		for range 100 { // a backend that comes and goes, for 2 s
			for _, h := range []lb.Health{down("10.1.0.1:80"), {}} {
				m.target.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web0"): h}, true)
				m.pass(t)
				time.Sleep(10 * time.Millisecond)
			}
		}
		if n := len(m.gossip.said) - before; n < 5 || n > 12 {
			t.Errorf("%d times in 2 s", n)
		}
		before = len(m.gossip.said)
		for range 100 { // Services that change, for 2 s
			m.sources.update(lb.Update{Source: config.Source, Put: m.target.cfg.Services}, m.target.rec.Update)
			m.steering.steer(t.Context(), nil, time.Time{}, time.Now())
			time.Sleep(20 * time.Millisecond)
		}
		if n := len(m.gossip.said) - before; n > 3 {
			t.Errorf("digests alone: %d times in 2 s", n)
		}
	})
}

func TestWithoutAFleetTheBoxOwnsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := ownVIPs()
		m := newMember(t, onWire+"[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n"+services(mine, theirs))
		m.pass(t)
		got := strings.Join(m.announced(), "\n")
		for _, want := range []string{"claim " + mine, "claim " + theirs, "claim 10.2.0.254 on [eth1]"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if doc := m.steering.fleet.View().Owned(netip.MustParseAddr(mine)); doc == nil || !doc.Self {
			t.Errorf("explained as %+v", doc)
		}
	})
}

func TestDifferencesBetweenMembersAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine)
		w := serving(netip.MustParseAddr(mine))
		w.Sources = map[string]cluster.Digest{}
		for name, d := range m.message(t).Sources {
			w.Sources[name] = d
		}
		reasons := func() (out []lb.Reason) {
			for _, n := range m.steering.fleet.View().Notes(time.Now()) {
				if n.Reason != lb.FleetOpen {
					out = append(out, n.Reason)
				}
			}
			return out
		}
		m.gossip.report(t, stablePeer("b"), w)
		m.receive(t)
		time.Sleep(time.Minute)
		m.receive(t)
		if got := reasons(); got != nil {
			t.Errorf("alike: %v", got)
		}
		w.Sources[config.Source] = "0123456789abcdef"
		m.gossip.report(t, stablePeer("b"), w)
		m.receive(t)
		if got := reasons(); got != nil {
			t.Errorf("at once: %v", got)
		}
		if next := m.steering.fleet.Next(); !next.Equal(time.Now().Add(fleet.DifferAfter)) {
			t.Errorf("it wakes in %s", time.Until(next))
		}
		time.Sleep(fleet.DifferAfter)
		m.receive(t)
		if diff := cmp.Diff([]lb.Reason{lb.FleetDiffers}, reasons()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if doc := m.steering.fleet.Members(time.Now()); len(doc.Differing) != 1 || doc.Differing[0].Source != config.Source {
			t.Errorf("it shows %+v", doc.Differing)
		}
		w.Sources[config.Source] = m.message(t).Sources[config.Source]
		w.Orders = map[string]string{"192.0.2.1:80/tcp": "aa"}
		m.orders = map[lb.Frontend]uint64{{Addr: vipA, Port: 80, Proto: lb.TCP}: 1}
		m.steering.fleet.Receive(lb.Update{Source: config.Source})
		m.gossip.report(t, stablePeer("b"), w)
		m.receive(t)
		time.Sleep(fleet.DifferAfter + publishDigestsEvery)
		m.receive(t)
		time.Sleep(fleet.DifferAfter)
		m.receive(t)
		if diff := cmp.Diff([]lb.Reason{lb.OrderDiffers}, reasons()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
