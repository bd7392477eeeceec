package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/linux"
)

func TestRoutesComeAfterTheKernelAndGoBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1", "10.1.0.2"`))
		b.turn(t)
		got := h.diary.read()
		served := slices.Index(got, "add real server 10.1.0.2:80 of 192.0.2.1:80/tcp weight 1")
		address := slices.Index(got, "add address 192.0.2.1")
		announced := slices.Index(got, "announce 192.0.2.1/32")
		if served < 0 || address < 0 || announced < max(served, address) || got[len(got)-1] != "begin with 1 prefixes" {
			t.Errorf("on the way up:\n%s", strings.Join(got, "\n"))
		}
		b.say(t, oneRouter+web(`"10.1.0.2"`))
		b.turn(t)
		checkDiary(t, "one of two backends is gone", h, "delete real server 10.1.0.1:80 of 192.0.2.1:80/tcp weight 1")

		begin := time.Now()
		b.say(t, oneRouter)
		b.turn(t)
		got = h.diary.read()
		if got[0] != "withdraw 192.0.2.1/32" || !slices.Contains(got[1:], "delete address 192.0.2.1") {
			t.Errorf("on the way down:\n%s", strings.Join(got, "\n"))
		}
		if waited := time.Since(begin); waited != leaveWait {
			t.Errorf("routers had %s", waited)
		}
	})
}

func TestNobodyWaitsForRoutersThatAreNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.turn(t)
		h.up = false
		begin := time.Now()
		b.say(t, oneRouter)
		b.turn(t)
		if got := h.diary.read(); !slices.Contains(got, "withdraw 192.0.2.1/32") || time.Since(begin) != 0 {
			t.Errorf("after %s:\n%s", time.Since(begin), strings.Join(got, "\n"))
		}
	})
}

func TestARouteReturnsWhenItsBackendsHaveLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.turn(t)
		h.diary.read()
		b.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): down("10.1.0.1:80")})
		b.turn(t)
		checkDiary(t, "the backend is down", h, "withdraw 192.0.2.1/32", "change real server 10.1.0.1:80 of 192.0.2.1:80/tcp weight 0")
		b.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): {}})
		b.turn(t)
		checkDiary(t, "it is back", h, "change real server 10.1.0.1:80 of 192.0.2.1:80/tcp weight 1")
		if next := b.announcer.next(); next != time.Now().Add(5*time.Second) {
			t.Errorf("the loop wakes in %s", time.Until(next))
		}
		if x, _ := b.announcer.adv.Explain(vipA); x.Reason != bgp.HeldDown {
			t.Errorf("meanwhile it is %s", x.Reason)
		}
		time.Sleep(5 * time.Second)
		b.turn(t)
		checkDiary(t, "it has lasted", h, "announce 192.0.2.1/32")
	})
}

func TestADrainAsksThenWithdrawsAndSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.turn(t)
		h.diary.read()
		dir := t.TempDir()
		b.drainer.move(dir)
		if b.drainer.set(b.drainer.drained.with(time.Now(), vipA)); b.drainer.err != nil {
			t.Fatal(b.drainer.err)
		}
		b.turn(t)
		checkDiary(t, "drained", h, "announce 192.0.2.1/32 shutting")
		if doc := b.drainedNow(); doc.VIPs[0].Stage != "shutting" || doc.Done() {
			t.Errorf("it says %+v", doc)
		}
		time.Sleep(time.Until(b.drainer.due))
		b.turn(t)
		checkDiary(t, "after drain_delay", h, "withdraw 192.0.2.1/32")
		if doc := b.drainedNow(); doc.VIPs[0].Stage != "withdrawn" || !doc.Done() {
			t.Errorf("it says %+v", doc)
		}

		h2 := &herald{diary: &diary{}, up: true}
		b.announcer = newAnnouncer(b.log, h2, b.cfg.BGP, time.Now())
		b.drainer = newDrainer(dir, b.log)
		b.rec = lb.NewReconciler(&lb.Fake{}, b.options(), config.Source)
		b.rec.Update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
		b.turn(t)
		checkDiary(t, "after a restart", h2, "begin with 0 prefixes")
		b.drainer.drained, _ = b.drainer.drained.without(vipA)
		b.turn(t)
		checkDiary(t, "undrained", h2, "announce 192.0.2.1/32")
	})
}

func TestADrainWhoseClockIsWrongEnds(t *testing.T) {
	t.Parallel()
	delay := 10 * time.Second
	for _, tt := range []struct {
		name  string
		since time.Duration // before now
		stage bgp.Stage
		next  time.Duration
	}{
		{"just now", 0, bgp.Shutting, delay},
		{"for a while", 4 * time.Second, bgp.Shutting, 6 * time.Second},
		{"long enough", delay, bgp.Drained, 0},
		{"in the future", -time.Hour, bgp.Drained, 0},
	} {
		stages, next := drained{}.with(drainTime.Add(-tt.since), vipA).stages(drainTime, delay)
		if got := stages.VIPs[vipA]; got != tt.stage || stages.All != bgp.NotDrained {
			t.Errorf("%s: stage %d", tt.name, got)
		}
		if got := next; tt.next == 0 && !got.IsZero() || tt.next != 0 && got != drainTime.Add(tt.next) {
			t.Errorf("%s: next %s", tt.name, got)
		}
	}
}

func TestASpeakerThatCantBeginIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		h.fail = errors.New("port 179 is taken")
		b.turn(t)
		if got := h.diary.read(); !slices.Contains(got, "announce 192.0.2.1/32") {
			t.Errorf("balancing has not begun:\n%s", strings.Join(got, "\n"))
		}
		if s := b.announcer.speaking(); s.problem != "port 179 is taken" || b.announcer.next() != time.Now().Add(announceRetry) {
			t.Errorf("problem %q, again in %s", s.problem, time.Until(b.announcer.next()))
		}
		h.fail = nil
		time.Sleep(announceRetry)
		b.turn(t)
		checkDiary(t, "the port is free", h, "begin with 1 prefixes")
		if s := b.announcer.speaking(); s.problem != "" || !b.announcer.next().IsZero() {
			t.Errorf("problem %q, again at %s", s.problem, b.announcer.next())
		}
	})
}

func TestRoutersHearNothingBeforeTheBoxIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.ready = false
		b.turn(t)
		if got := h.diary.read(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "begin") }) {
			t.Errorf("it begins:\n%s", strings.Join(got, "\n"))
		}
		b.ready = true
		b.turn(t)
		checkDiary(t, "ready", h, "begin with 1 prefixes")
	})
}

const aggregating = "[[bgp.advertise]]\naggregate = 24\n[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\n"

func TestAnAggregateWaitsForItsUnreachableRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rule = aggregating
		b, h, _ := heraldBox(t, oneRouter+rule+web(`"10.1.0.1"`))
		b.turn(t)
		if got := h.diary.read(); slices.Contains(got, "announce 192.0.2.0/24") || !b.again {
			t.Errorf("before there is an unreachable route:\n%s", strings.Join(got, "\n"))
		}
		b.turn(t)
		checkDiary(t, "with it", h, "add unreachable route 192.0.2.0/24", "announce 192.0.2.0/24", "begin with 1 prefixes")
		b.say(t, oneRouter+rule)
		b.turn(t)
		if got := h.diary.read(); got[0] != "withdraw 192.0.2.0/24" || slices.Contains(got, "delete unreachable route 192.0.2.0/24") {
			t.Errorf("on the way down:\n%s", strings.Join(got, "\n"))
		}
		b.turn(t)
		checkDiary(t, "then", h, "delete unreachable route 192.0.2.0/24")
	})
}

func TestHostRoutesStayUntilTheirAggregateIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const route = "[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\n"
		b, h, _ := heraldBox(t, oneRouter+route+web(`"10.1.0.1"`))
		b.turn(t)
		b.turn(t)
		h.diary.read()
		b.announcer.configure(t.Context(), parse(t, oneRouter+aggregating+web(`"10.1.0.1"`)).BGP, time.Now())
		b.turn(t)
		if got := h.diary.read(); slices.Contains(got, "withdraw 192.0.2.1/32") {
			t.Errorf("nothing leads there any more:\n%s", strings.Join(got, "\n"))
		}
		b.turn(t)
		checkDiary(t, "then the one in place of the other", h, "add unreachable route 192.0.2.0/24", "announce 192.0.2.0/24, withdraw 192.0.2.1/32")
	})
}

// While host routes wait for their aggregate, another VIP goes: its route alone leaves.
func TestALeavingRouteTakesNoOtherWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const route = "[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\n"
		other := "[[service]]\nname = \"api\"\nvips = [\"2001:db8::9\"]\nports = [80]\ndrain = \"0s\"\nbackends = [\"2001:db8:1::9\"]\n"
		b, h, _ := heraldBox(t, oneRouter+route+web(`"10.1.0.1"`)+other)
		b.turn(t)
		b.turn(t)
		h.diary.read()
		next := oneRouter + aggregating + web(`"10.1.0.1"`)
		b.announcer.configure(t.Context(), parse(t, next).BGP, time.Now())
		b.say(t, next)
		b.turn(t)
		if got := h.diary.read(); got[1] != "withdraw 2001:db8::9/128" || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "withdraw 192.0.2.1/32") }) {
			t.Errorf("nothing leads to 192.0.2.1 any more:\n%s", strings.Join(got, "\n"))
		}
		b.turn(t)
		if got := h.diary.read(); !slices.Contains(got, "announce 192.0.2.0/24, withdraw 192.0.2.1/32") {
			t.Errorf("then the aggregate in its place:\n%s", strings.Join(got, "\n"))
		}
	})
}

// A reload that takes away a VIP and its rule withdraws first, too.
func TestAReloadOfRulesAndServicesWithdrawsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.turn(t)
		b.turn(t)
		h.diary.read()
		next := oneRouter + "[[bgp.advertise]]\nannounce = false\n"
		b.announcer.configure(t.Context(), parse(t, next).BGP, time.Now())
		b.say(t, next)
		begin := time.Now()
		b.turn(t)
		if got := h.diary.read(); len(got) < 3 || got[1] != "withdraw 192.0.2.1/32" {
			t.Errorf("the kernel ceases to serve first:\n%s", strings.Join(got, "\n"))
		}
		if took := time.Since(begin); took != leaveWait {
			t.Errorf("routers had %v to take it in, want %v", took, leaveWait)
		}
	})
}

func TestARestartKeepsWhatIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const toml = oneRouter + aggregating
		b, _, kernel := heraldBox(t, toml+web(`"10.1.0.1"`))
		b.turn(t)
		b.turn(t)
		b2, h2, _ := heraldBox(t, toml+web(`"10.1.0.1"`))
		b2.rec = lb.NewReconciler(kernel, b2.options(), config.Source)
		b2.rec.Update(lb.Update{Source: config.Source, Put: b2.cfg.Services, Synced: true})
		b2.keepUnreachable(t.Context())
		kernel.After = func(op lb.Op) { t.Errorf("a restart does %s", op) }
		b2.turn(t)
		checkDiary(t, "restarted", h2, "announce 192.0.2.0/24", "begin with 1 prefixes")
	})
}

func TestAKernelWithoutIPVSHasNoRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.turn(t)
		h.diary.read()
		b.audits.err = errors.New("no memory")
		b.announce(t.Context(), b.audits.err, time.Now())
		checkDiary(t, "it can't be read", h)
		b.audits.err = fmt.Errorf("list virtual servers: %w", linux.ErrNoIPVS)
		b.announce(t.Context(), b.audits.err, time.Now())
		checkDiary(t, "it has none", h, "withdraw 192.0.2.1/32")
		b.audits.err = nil
		b.turn(t)
		checkDiary(t, "it has it again", h, "announce 192.0.2.1/32")
	})
}

func TestAReloadOfPeersAndRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		b.turn(t)
		h.diary.read()
		cfg := parse(t, oneRouter+"[[bgp.peer]]\nname = \"tor2\"\naddress = \"10.0.0.2\"\nasn = 64501\n[[bgp.advertise]]\npeers = [\"tor2\"]\ncommunities = [\"no-export\"]\n"+web(`"10.1.0.1"`))
		b.announcer.configure(t.Context(), cfg.BGP, time.Now())
		b.turn(t)
		checkDiary(t, "another peer", h, "begin with 1 prefixes", "announce 192.0.2.1/32")
		want := []bgp.Path{{Communities: []bgp.Community{bgp.NoExport}, Peers: []string{"tor2"}}}
		if diff := cmp.Diff(want, h.now[netip.MustParsePrefix("192.0.2.1/32")]); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestAReloadTakesTheDrainToAnotherFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := heraldBox(t, oneRouter)
		dir := t.TempDir()
		b.drainer.drained = b.drainer.drained.with(time.Now(), vipA)
		b.drainer.move(dir)
		if d, err := loadDrained(dir); err != nil || !d.equal(b.drainer.drained) {
			t.Errorf("%v, %v", d, err)
		}
	})
}

func TestAKernelThatCantBeReadBackAnnouncesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, kernel := heraldBox(t, oneRouter+web(`"10.1.0.1"`))
		blind := &blind{Fake: kernel}
		b.rec = lb.NewReconciler(blind, b.options(), config.Source)
		b.rec.Update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
		blind.err = errors.New("no memory")
		b.turn(t)
		if got := h.diary.read(); slices.Contains(got, "announce 192.0.2.1/32") || b.announcer.next() != time.Now().Add(announceRetry) {
			t.Errorf("again in %s:\n%s", time.Until(b.announcer.next()), strings.Join(got, "\n"))
		}
		blind.err = nil
		time.Sleep(announceRetry)
		b.turn(t)
		checkDiary(t, "it can be read again", h, "announce 192.0.2.1/32")
	})
}

// blind is a kernel whose single virtual servers can't be read while err is set.
type blind struct {
	*lb.Fake
	err error
}

func (k *blind) Observe(ctx context.Context, only ...lb.Frontend) (lb.Observation, error) {
	if k.err != nil && len(only) > 0 {
		return lb.Observation{}, k.err
	}
	return k.Fake.Observe(ctx, only...)
}

func TestHowItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter)
		b.turn(t)
		h.diary.read()
		begin := time.Now()
		b.announcer.close(false)
		checkDiary(t, "kept", h, "close")
		if time.Since(begin) != 0 {
			t.Errorf("it waits %s", time.Since(begin))
		}
		b.announcer.close(true)
		checkDiary(t, "cleaned up", h, "leave")
		if time.Since(begin) != leaveWait {
			t.Errorf("routers have %s", time.Since(begin))
		}
	})
}

func TestTheRouterIDIsTheAddressTowardsAPeer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		peers []bgp.Peer
		want  string
	}{
		{"its address", []bgp.Peer{{Address: vipB}, {Address: netip.MustParseAddr("127.0.0.9")}}, "127.0.0.1"},
		{"its range", []bgp.Peer{{Range: netip.MustParsePrefix("127.0.9.0/24")}}, "127.0.0.1"},
		{"the source", []bgp.Peer{{Address: vipA, Source: netip.MustParseAddr("192.0.2.77")}}, "192.0.2.77"},
	} {
		if got, err := ownAddress(tt.peers); err != nil || got.String() != tt.want {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if _, err := ownAddress([]bgp.Peer{{Address: vipB}}); err == nil || !strings.Contains(err.Error(), "write router_id") {
		t.Errorf("without IPv4: %v", err)
	}
}
