package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

func TestABoxThatBeginsClaimsNothingUntilItKnowsWhoIsThere(t *testing.T) {
	for _, tt := range []struct {
		name            string
		answers, others bool
		wait            time.Duration
	}{
		{"nobody answers", false, false, joinWindow},
		{"all answer", true, false, 0},
		{"some answer", true, true, joinWindow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				vip, _ := rivals()
				m := newMember(t, inFleet+onWire+services(vip))
				m.turn(t)
				m.check(t, "at first", "announce "+vip+"/32") // to nobody: sessions have not begun
				if said := m.rumor.last(); said.Unfit == "" || said.Settled {
					t.Errorf("it says %+v", said)
				}
				m.rumor.others = tt.others
				if tt.answers {
					m.rumor.says(t, settledMember("b"), able(netip.MustParseAddr(vip)))
				}
				if tt.wait > 0 {
					m.hear(t)
					m.check(t, "as long as others may answer")
				}
				if next := m.fleet.next(); !next.Equal(time.Now().Add(joinWindow)) {
					t.Errorf("it wakes in %s", time.Until(next))
				}
				time.Sleep(tt.wait)
				m.hear(t)
				if tt.answers { // the other one is settled, and keeps the VIP until this box is
					m.check(t, "with another one", "announce "+vip+"/32 standby", "begin with 1 prefixes")
					time.Sleep(30 * time.Second)
					m.hear(t)
					m.check(t, "settled", "claim "+vip, "announce "+vip+"/32")
					return
				}
				m.check(t, "alone", "claim "+vip, "begin with 1 prefixes")
				if said := m.rumor.last(); said.Unfit != "" || !said.Settled || said.FitSince == 0 {
					t.Errorf("it says %+v", said)
				}
			})
		})
	}
}

// grown is a box that is settled beside "b", which can serve the same VIPs.
func grown(t *testing.T, toml string, vips ...string) *member {
	t.Helper()
	m := newMember(t, toml+services(vips...))
	m.turn(t)
	var all []netip.Addr
	for _, v := range vips {
		all = append(all, netip.MustParseAddr(v))
	}
	m.rumor.says(t, settledMember("b"), able(all...))
	m.hear(t)
	time.Sleep(31 * time.Second)
	m.hear(t)
	m.told()
	return m
}

func TestWhoDiesIsReplacedAndWhoIsAwayIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, theirs := rivals()
		m := grown(t, inFleet+onWire, theirs)
		b := settledMember("b")
		serving := able(netip.MustParseAddr(theirs))

		b.Suspect = true
		m.rumor.says(t, b, serving)
		m.hear(t)
		m.check(t, "b may be dead", "claim with doubt "+theirs)
		b.Suspect = false
		m.rumor.says(t, b, serving)
		m.hear(t)
		m.check(t, "it is not", "release "+theirs)

		b.Suspect, b.Away, b.AwaySince = true, true, time.Now()
		m.rumor.says(t, b, serving)
		m.hear(t)
		b.Life = cluster.Dead
		m.rumor.says(t, b, serving)
		m.hear(t)
		m.check(t, "only its weir is gone")
		if next := m.fleet.next(); !next.Equal(b.AwaySince.Add(10 * time.Second)) {
			t.Errorf("it wakes in %s", time.Until(next))
		}
		time.Sleep(10 * time.Second)
		m.turn(t)
		m.check(t, "for too long", "claim "+theirs, "announce "+theirs+"/32")

		m.rumor.says(t, settledMember("b"), serving)
		m.hear(t)
		m.check(t, "it is back", "release "+theirs, "announce "+theirs+"/32 standby")
		if m.mouth.bursts == 0 {
			t.Error("neighbors are not told again when somebody comes")
		}

		b.Away, b.Suspect = false, false
		m.rumor.says(t, b, serving)
		m.hear(t)
		m.check(t, "its box is dead", "claim "+theirs, "announce "+theirs+"/32")
		if got := m.fleet.moved(); got != 3 {
			t.Errorf("%d moves are counted", got)
		}
	})
}

func TestAnUnfitBoxLeavesVIPsToFitOnesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire+"", mine)
		m.link(t, "eth0", "0")
		m.hear(t)
		m.live(t, sayEvery)
		if said := m.rumor.last(); said.Unfit != "eth0 has no carrier" || said.Settled {
			t.Errorf("it says %+v", said)
		}
		m.check(t, "the others have not heard of it yet")
		m.live(t, owner.HeardAfter)
		m.check(t, "they have", "release "+mine, "withdraw "+mine+"/32")
		if x, _ := m.announcer.adv.Explain(netip.MustParseAddr(mine)); x.Reason != bgp.ServedElsewhere {
			t.Errorf("routers: %s", x.Reason)
		}

		b := settledMember("b")
		b.Life = cluster.Dead
		m.rumor.says(t, b, able(netip.MustParseAddr(mine)))
		m.hear(t)
		m.check(t, "nobody else is left", "claim "+mine, "announce "+mine+"/32")

		m.rumor.says(t, settledMember("b"), able(netip.MustParseAddr(mine)))
		m.hear(t)
		m.told()
		m.link(t, "eth0", "1")
		m.hear(t)
		m.check(t, "fit again, but not for long", "announce "+mine+"/32 standby")
		time.Sleep(30 * time.Second)
		m.turn(t)
		m.check(t, "for long enough", "claim "+mine, "announce "+mine+"/32")
	})
}

func TestAClaimComesAfterTheKernelAndGoesBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := newMember(t, inFleet+onWire+services(mine))
		time.Sleep(joinWindow)
		m.turn(t)
		time.Sleep(joinWindow)
		m.turn(t)
		got := m.herald.diary.read()
		served := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "add real server") })
		if claimed := slices.Index(got, "claim "+mine); served < 0 || claimed < served {
			t.Errorf("on the way up:\n%s", strings.Join(got, "\n"))
		}
		m.say(t, oneRouter+inFleet+onWire)
		m.turn(t)
		got = m.herald.diary.read()
		if got[0] != "release "+mine || got[1] != "withdraw "+mine+"/32" || !strings.HasPrefix(got[2], "delete ") {
			t.Errorf("on the way down:\n%s", strings.Join(got, "\n"))
		}
	})
}

func TestABoxWithoutABackendLeavesTheVIPAndHoldsItDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine)
		web := static("web0")
		m.rec.SetHealth(map[lb.ServiceID]lb.Health{web: down("10.1.0.1:80")})
		m.turn(t)
		m.check(t, "the backend is down", "release "+mine, "withdraw "+mine+"/32")
		m.rec.SetHealth(map[lb.ServiceID]lb.Health{web: {}})
		m.turn(t)
		m.check(t, "it is back", "claim "+mine)
		time.Sleep(5 * time.Second)
		m.turn(t)
		m.check(t, "it has lasted", "announce "+mine+"/32")
	})
}

func TestARestartMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		folder := t.TempDir()
		m := newMember(t, inFleet+onWire+services(mine))
		if err := (trace{bootID(), uptime(), nil}).save(folder); err != nil {
			t.Fatal(err)
		}
		m.fleetOf(t, folder)
		m.ready = false
		m.turn(t)
		if m.rumor.runs != 0 || len(m.rumor.said) != 0 {
			t.Errorf("it says %+v before it is ready", m.rumor.said)
		}
		m.ready = true
		m.rumor.says(t, settledMember("b"), able(netip.MustParseAddr(mine)))
		m.turn(t)
		synctest.Wait()
		if said := m.rumor.last(); !said.Settled || said.Unfit != "" || m.rumor.runs != 1 {
			t.Errorf("it says %+v", said)
		}
		w, err := parseWord(m.rumor.word)
		if err != nil || w.vips[netip.MustParseAddr(mine)]&partServes == 0 {
			t.Errorf("it serves %+v, %v", w, err)
		}
		m.hear(t)
		m.check(t, "it is the owner as before", "announce "+mine+"/32", "claim "+mine, "begin with 1 prefixes")
	})
}

// Whoever comes back with its cable out is not what it was.
func TestARestartThatIsUnfitIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		folder := t.TempDir()
		m := newMember(t, inFleet+onWire+services(mine))
		if err := (trace{bootID(), uptime(), nil}).save(folder); err != nil {
			t.Fatal(err)
		}
		m.fleetOf(t, folder)
		m.link(t, "eth0", "0")
		m.turn(t)
		if said := m.rumor.last(); said.Settled || said.Unfit != "eth0 has no carrier" {
			t.Errorf("it says %+v", said)
		}
	})
}

// Whoever comes back when others have taken over begins at once, and says that it is
// settled when it can serve: they let go only then.
func TestARestartThatTookLongIsThereBeforeItSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		folder := t.TempDir()
		m := newMember(t, inFleet+onWire+services(mine))
		if err := (trace{bootID(), uptime() - 20*time.Second, nil}).save(folder); err != nil {
			t.Fatal(err)
		}
		m.fleetOf(t, folder)
		m.ready = false
		m.turn(t)
		synctest.Wait()
		if said := m.rumor.last(); m.rumor.runs != 1 || said.Settled || said.Unfit == "" {
			t.Errorf("before it is ready it says %+v, in %d runs", said, m.rumor.runs)
		}
		m.ready = true
		m.turn(t)
		if said := m.rumor.last(); said.Settled || said.Unfit == "" {
			t.Errorf("before it knows who is there it says %+v", said)
		}
		m.rumor.says(t, settledMember("b"), able(netip.MustParseAddr(mine)))
		m.hear(t)
		m.live(t, sayEvery)
		if said := m.rumor.last(); !said.Settled || said.Unfit != "" {
			t.Errorf("it says %+v", said)
		}
		m.check(t, "it is the owner again, and at once", "announce "+mine+"/32", "claim "+mine, "begin with 1 prefixes")
	})
}

// Where all announce alike nobody takes anything over.
func TestOwnersThatMakeNoDifferenceAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := rivals()
		m := grown(t, strings.Replace(inFleet, "active-standby", "active-active", 1), mine, theirs)
		b := settledMember("b")
		b.Life = cluster.Dead
		m.rumor.says(t, b, able())
		m.hear(t)
		m.check(t, "b is dead")
		if n := m.fleet.moved(); n != 0 {
			t.Errorf("%d moves are counted", n)
		}
	})
}

func TestADrainMovesWhatOthersCanServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine, "192.0.2.200")
		m.rumor.says(t, settledMember("b"), able(netip.MustParseAddr(mine)))
		m.hear(t)
		m.told()
		m.drainer.move(t.TempDir())
		m.drainer.set(m.drainer.drained.with(time.Now()))
		m.live(t, sayEvery)
		if said := m.rumor.last(); said.Drain != cluster.Draining {
			t.Errorf("it says %+v", said)
		}
		m.live(t, 12*time.Second) // drain_delay is 10 s
		got := strings.Join(m.told(), "\n")
		if !strings.Contains(got, "release "+mine) || !strings.Contains(got, "withdraw "+mine+"/32") {
			t.Errorf("what b can serve:\n%s", got)
		}
		if strings.Contains(got, "release 192.0.2.200") || strings.Contains(got, "withdraw 192.0.2.200/32") {
			t.Errorf("what nobody else can serve:\n%s", got)
		}
		if said := m.rumor.last(); said.Drain == cluster.Serving {
			t.Errorf("it says %+v", said)
		}
	})
}

func TestWhatIsSaidIsSaidSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine)
		before := len(m.rumor.said)
		for range 100 { // a backend that comes and goes, for 2 s
			for _, h := range []lb.Health{down("10.1.0.1:80"), {}} {
				m.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web0"): h})
				m.turn(t)
				time.Sleep(10 * time.Millisecond)
			}
		}
		if n := len(m.rumor.said) - before; n < 5 || n > 12 {
			t.Errorf("%d times in 2 s", n)
		}
		before = len(m.rumor.said)
		for range 100 { // Services that change, for 2 s
			m.update(lb.Update{Source: config.Source, Put: m.cfg.Services})
			m.lead(t.Context(), nil, time.Now())
			time.Sleep(20 * time.Millisecond)
		}
		if n := len(m.rumor.said) - before; n > 3 {
			t.Errorf("digests alone: %d times in 2 s", n)
		}
	})
}

func TestWithoutAFleetTheBoxOwnsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := rivals()
		m := newMember(t, onWire+"[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n"+services(mine, theirs))
		m.turn(t)
		got := strings.Join(m.told(), "\n")
		for _, want := range []string{"claim " + mine, "claim " + theirs, "claim 10.2.0.254 on [eth1]"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if doc := m.fleet.owned(netip.MustParseAddr(mine)); doc == nil || !doc.Me {
			t.Errorf("explained as %+v", doc)
		}
	})
}

func TestMembersThatHeardOtherThingsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet+onWire, mine)
		w := able(netip.MustParseAddr(mine))
		w.sources = map[string]cluster.Digest{}
		for name, d := range m.fleet.say.word.sources {
			w.sources[name] = d
		}
		reasons := func() (out []lb.Reason) {
			for _, n := range m.fleet.notes(time.Now()) {
				if n.Reason != lb.FleetOpen {
					out = append(out, n.Reason)
				}
			}
			return out
		}
		m.rumor.says(t, settledMember("b"), w)
		m.hear(t)
		time.Sleep(time.Minute)
		m.hear(t)
		if got := reasons(); got != nil {
			t.Errorf("alike: %v", got)
		}
		w.sources[config.Source] = "0123456789abcdef"
		m.rumor.says(t, settledMember("b"), w)
		m.hear(t)
		if got := reasons(); got != nil {
			t.Errorf("at once: %v", got)
		}
		if next := m.fleet.next(); !next.Equal(time.Now().Add(differAfter)) {
			t.Errorf("it wakes in %s", time.Until(next))
		}
		time.Sleep(differAfter)
		m.hear(t)
		if diff := cmp.Diff([]lb.Reason{lb.FleetDiffers}, reasons()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if doc := m.fleet.doc(time.Now()); len(doc.Differing) != 1 || doc.Differing[0].Source != config.Source {
			t.Errorf("it shows %+v", doc.Differing)
		}
		w.sources[config.Source] = m.fleet.say.word.sources[config.Source]
		w.orders = map[string]string{"192.0.2.1:80/tcp": "aa"}
		m.fleet.orders = func() map[lb.Frontend]uint64 {
			return map[lb.Frontend]uint64{{Addr: vipA, Port: 80, Proto: lb.TCP}: 1}
		}
		m.fleet.say.older = true
		m.rumor.says(t, settledMember("b"), w)
		m.hear(t)
		time.Sleep(differAfter + digestsEvery)
		m.hear(t)
		time.Sleep(differAfter)
		m.hear(t)
		if diff := cmp.Diff([]lb.Reason{lb.OrderDiffers}, reasons()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
