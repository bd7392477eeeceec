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

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/announce"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/lb"
	"weir/lb/linux"
)

var (
	vipA = netip.MustParseAddr("192.0.2.1")
	vipB = netip.MustParseAddr("2001:db8::1")
)

func TestRoutesComeAfterTheKernelAndGoBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1", "10.1.0.2"`))
		b.pass(t)
		got := h.history.read()
		served := slices.Index(got, "add real server 10.1.0.2:80 of 192.0.2.1:80/tcp weight 1")
		address := slices.Index(got, "add address 192.0.2.1")
		announced := slices.Index(got, "announce 192.0.2.1/32")
		if served < 0 || address < 0 || announced < max(served, address) || got[len(got)-1] != "begin with 1 prefixes" {
			t.Errorf("on the way up:\n%s", strings.Join(got, "\n"))
		}
		b.reload(t, oneRouter+web(`"10.1.0.2"`))
		b.pass(t)
		checkDiary(t, "one of two backends is gone", h, "delete real server 10.1.0.1:80 of 192.0.2.1:80/tcp weight 1")

		begin := time.Now()
		b.reload(t, oneRouter)
		b.pass(t)
		got = h.history.read()
		if got[0] != "withdraw 192.0.2.1/32" || !slices.Contains(got[1:], "delete address 192.0.2.1") {
			t.Errorf("on the way down:\n%s", strings.Join(got, "\n"))
		}
		if waited := time.Since(begin); waited != announce.LeaveWait {
			t.Errorf("routers had %s", waited)
		}
	})
}

func TestMissingRoutersDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.pass(t)
		h.up = false
		begin := time.Now()
		b.reload(t, oneRouter)
		b.pass(t)
		if got := h.history.read(); !slices.Contains(got, "withdraw 192.0.2.1/32") || time.Since(begin) != 0 {
			t.Errorf("after %s:\n%s", time.Since(begin), strings.Join(got, "\n"))
		}
	})
}

func TestARouteReturnsWhenItsBackendsHaveLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.pass(t)
		h.history.read()
		b.target.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): down("10.1.0.1:80")}, true)
		b.pass(t)
		checkDiary(t, "the backend is down", h, "withdraw 192.0.2.1/32", "change real server 10.1.0.1:80 of 192.0.2.1:80/tcp weight 0")
		b.target.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): {}}, true)
		b.pass(t)
		checkDiary(t, "it is back", h, "change real server 10.1.0.1:80 of 192.0.2.1:80/tcp weight 1")
		if next := b.steering.announcer.Next(); next != time.Now().Add(5*time.Second) {
			t.Errorf("the loop wakes in %s", time.Until(next))
		}
		if x, _ := b.steering.announcer.Advertiser().Explain(vipA); x.Reason != advertise.ReannounceDelay {
			t.Errorf("meanwhile it is %s", x.Reason)
		}
		time.Sleep(5 * time.Second)
		b.pass(t)
		checkDiary(t, "it has lasted", h, "announce 192.0.2.1/32")
	})
}

func TestADrainAsksThenWithdrawsAndSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.pass(t)
		h.history.read()
		dir := t.TempDir()
		b.steering.drains.Move(dir)
		if b.steering.drains.Replace(b.steering.drains.Set().With(time.Now(), vipA)); b.steering.drains.Err() != nil {
			t.Fatal(b.steering.drains.Err())
		}
		b.pass(t)
		checkDiary(t, "drained", h, "announce 192.0.2.1/32 shutting")
		if doc := b.steering.drains.Details(b.target.cfg, b.target.rec.Catalog()); doc.VIPs[0].Stage != "shutting" || doc.Done() {
			t.Errorf("it says %+v", doc)
		}
		time.Sleep(time.Until(b.steering.drains.Due()))
		b.pass(t)
		checkDiary(t, "after drain_delay", h, "withdraw 192.0.2.1/32")
		if doc := b.steering.drains.Details(b.target.cfg, b.target.rec.Catalog()); doc.VIPs[0].Stage != "withdrawn" || !doc.Done() {
			t.Errorf("it says %+v", doc)
		}

		h2 := &fakeSpeaker{history: &history{}, up: true}
		b.steering.announcer = b.announcerOf(h2)
		b.steering.drains = drain.New(dir, b.log)
		b.target.rec = lb.NewReconciler(&lb.Fake{}, b.options(), config.Source)
		b.target.rec.Update(lb.Update{Source: config.Source, Put: b.target.cfg.Services, Synced: true})
		b.pass(t)
		checkDiary(t, "after a restart", h2, "begin with 0 prefixes")
		set, _ := b.steering.drains.Set().Without(vipA)
		b.steering.drains.Replace(set)
		b.pass(t)
		checkDiary(t, "undrained", h2, "announce 192.0.2.1/32")
	})
}

func TestASpeakerThatCannotStartIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		h.fail = errors.New("port 179 is taken")
		b.pass(t)
		if got := h.history.read(); !slices.Contains(got, "announce 192.0.2.1/32") {
			t.Errorf("balancing has not begun:\n%s", strings.Join(got, "\n"))
		}
		b.steering.announcer.Publish()
		if s := b.steering.announcer.Reader().Neighbors(); s.Problem != "port 179 is taken" || b.steering.announcer.Next() != time.Now().Add(announce.Retry) {
			t.Errorf("problem %q, again in %s", s.Problem, time.Until(b.steering.announcer.Next()))
		}
		h.fail = nil
		time.Sleep(announce.Retry)
		b.pass(t)
		checkDiary(t, "the port is free", h, "begin with 1 prefixes")
		b.steering.announcer.Publish()
		if s := b.steering.announcer.Reader().Neighbors(); s.Problem != "" || !b.steering.announcer.Next().IsZero() {
			t.Errorf("problem %q, again at %s", s.Problem, b.steering.announcer.Next())
		}
	})
}

func TestRoutersGetNothingBeforeTheBoxIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.passes.progress.ready = false
		b.pass(t)
		if got := h.history.read(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "begin") }) {
			t.Errorf("it begins:\n%s", strings.Join(got, "\n"))
		}
		b.passes.progress.ready = true
		b.pass(t)
		checkDiary(t, "ready", h, "begin with 1 prefixes")
	})
}

const aggregating = "[[bgp.advertise]]\naggregation_length = 24\n[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\n"

func TestAnAggregateWaitsForItsUnreachableRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rule = aggregating
		b, h, _ := speakerBox(t, oneRouter+rule+web(`"10.1.0.1"`))
		b.pass(t)
		if got := h.history.read(); slices.Contains(got, "announce 192.0.2.0/24") || b.passes.derived.options == b.target.changes.options {
			t.Errorf("before there is an unreachable route:\n%s", strings.Join(got, "\n"))
		}
		b.pass(t)
		checkDiary(t, "with it", h, "add unreachable route 192.0.2.0/24", "announce 192.0.2.0/24", "begin with 1 prefixes")
		b.reload(t, oneRouter+rule)
		b.pass(t)
		if got := h.history.read(); got[0] != "withdraw 192.0.2.0/24" || slices.Contains(got, "delete unreachable route 192.0.2.0/24") {
			t.Errorf("on the way down:\n%s", strings.Join(got, "\n"))
		}
		b.pass(t)
		checkDiary(t, "then", h, "delete unreachable route 192.0.2.0/24")
	})
}

func TestHostRoutesStayUntilTheirAggregateIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const route = "[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\n"
		b, h, _ := speakerBox(t, oneRouter+route+web(`"10.1.0.1"`))
		b.pass(t)
		b.pass(t)
		h.history.read()
		b.steering.announcer.Configure(t.Context(), parse(t, oneRouter+aggregating+web(`"10.1.0.1"`)).BGP, time.Now())
		b.pass(t)
		if got := h.history.read(); slices.Contains(got, "withdraw 192.0.2.1/32") {
			t.Errorf("nothing leads there any more:\n%s", strings.Join(got, "\n"))
		}
		b.pass(t)
		checkDiary(t, "then the one in place of the other", h, "add unreachable route 192.0.2.0/24", "announce 192.0.2.0/24, withdraw 192.0.2.1/32")
	})
}

// While host routes wait for their aggregate, another VIP goes: only its route leaves.
func TestALeavingRouteTakesNoOtherWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const route = "[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\n"
		other := "[[service]]\nname = \"api\"\nvips = [\"2001:db8::9\"]\nports = [80]\ndrain_timeout = \"0s\"\nbackends = [\"2001:db8:1::9\"]\n"
		b, h, _ := speakerBox(t, oneRouter+route+web(`"10.1.0.1"`)+other)
		b.pass(t)
		b.pass(t)
		h.history.read()
		next := oneRouter + aggregating + web(`"10.1.0.1"`)
		b.steering.announcer.Configure(t.Context(), parse(t, next).BGP, time.Now())
		b.reload(t, next)
		b.pass(t)
		if got := h.history.read(); got[1] != "withdraw 2001:db8::9/128" || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "withdraw 192.0.2.1/32") }) {
			t.Errorf("nothing leads to 192.0.2.1 any more:\n%s", strings.Join(got, "\n"))
		}
		b.pass(t)
		if got := h.history.read(); !slices.Contains(got, "announce 192.0.2.0/24, withdraw 192.0.2.1/32") {
			t.Errorf("then the aggregate in its place:\n%s", strings.Join(got, "\n"))
		}
	})
}

// A reload that takes away a VIP and its rule withdraws first, too.
func TestAReloadOfRulesAndServicesWithdrawsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.pass(t)
		b.pass(t)
		h.history.read()
		next := oneRouter + "[[bgp.advertise]]\nannounce = false\n"
		b.steering.announcer.Configure(t.Context(), parse(t, next).BGP, time.Now())
		b.reload(t, next)
		begin := time.Now()
		b.pass(t)
		if got := h.history.read(); len(got) < 3 || got[1] != "withdraw 192.0.2.1/32" {
			t.Errorf("the kernel ceases to serve first:\n%s", strings.Join(got, "\n"))
		}
		if took := time.Since(begin); took != announce.LeaveWait {
			t.Errorf("routers had %v to take it in, want %v", took, announce.LeaveWait)
		}
	})
}

func TestARestartKeepsUnreachableRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const toml = oneRouter + aggregating
		b, _, kernel := speakerBox(t, toml+web(`"10.1.0.1"`))
		b.pass(t)
		b.pass(t)
		b2, h2, _ := speakerBox(t, toml+web(`"10.1.0.1"`))
		b2.target.rec = lb.NewReconciler(kernel, b2.options(), config.Source)
		b2.target.rec.Update(lb.Update{Source: config.Source, Put: b2.target.cfg.Services, Synced: true})
		b2.target.keepUnreachable(t.Context())
		kernel.After = func(op lb.Op) { t.Errorf("a restart does %s", op) }
		b2.pass(t)
		checkDiary(t, "restarted", h2, "announce 192.0.2.0/24", "begin with 1 prefixes")
	})
}

func TestAKernelWithoutIPVSHasNoRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.pass(t)
		h.history.read()
		b.passes.progress.audits.Err = errors.New("no memory")
		b.steering.announce(t.Context(), b.passes.progress.audits.Err, b.passes.progress.take(), time.Now())
		checkDiary(t, "it can't be read", h)
		b.passes.progress.audits.Err = fmt.Errorf("list virtual servers: %w", linux.ErrNoIPVS)
		b.steering.announce(t.Context(), b.passes.progress.audits.Err, b.passes.progress.take(), time.Now())
		checkDiary(t, "it has none", h, "withdraw 192.0.2.1/32")
		b.passes.progress.audits.Err = nil
		b.pass(t)
		checkDiary(t, "it has it again", h, "announce 192.0.2.1/32")
	})
}

func TestAReloadOfPeersAndRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.pass(t)
		h.history.read()
		cfg := parse(t, oneRouter+"[[bgp.peer]]\nname = \"tor2\"\naddress = \"10.0.0.2\"\nasn = 64501\n[[bgp.advertise]]\npeers = [\"tor2\"]\ncommunities = [\"no-export\"]\n"+web(`"10.1.0.1"`))
		b.steering.announcer.Configure(t.Context(), cfg.BGP, time.Now())
		b.pass(t)
		checkDiary(t, "another peer", h, "begin with 1 prefixes", "announce 192.0.2.1/32")
		want := []advertise.Path{{Communities: []advertise.Community{advertise.NoExport}, Peers: []string{"tor2"}}}
		if diff := cmp.Diff(want, h.now[netip.MustParsePrefix("192.0.2.1/32")]); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestAReloadTakesTheDrainToAnotherFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := speakerBox(t, oneRouter)
		dir := t.TempDir()
		b.steering.drains.Replace(b.steering.drains.Set().With(time.Now(), vipA))
		b.steering.drains.Move(dir)
		if d, err := drain.Load(dir); err != nil || !d.Equal(b.steering.drains.Set()) {
			t.Errorf("%v, %v", d, err)
		}
	})
}

func TestAKernelThatCantBeReadBackAnnouncesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, kernel := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		blind := &blind{Fake: kernel}
		b.target.rec = lb.NewReconciler(blind, b.options(), config.Source)
		b.target.rec.Update(lb.Update{Source: config.Source, Put: b.target.cfg.Services, Synced: true})
		blind.err = errors.New("no memory")
		b.pass(t)
		if got := h.history.read(); slices.Contains(got, "announce 192.0.2.1/32") || b.steering.announcer.Next() != time.Now().Add(announce.Retry) {
			t.Errorf("again in %s:\n%s", time.Until(b.steering.announcer.Next()), strings.Join(got, "\n"))
		}
		blind.err = nil
		time.Sleep(announce.Retry)
		b.pass(t)
		checkDiary(t, "it can be read again", h, "announce 192.0.2.1/32")
	})
}

// blind is a kernel that can't read single virtual servers while err is set.
type blind struct {
	*lb.Fake
	err error
}

func (k *blind) Observe(ctx context.Context, expected *lb.Table, only ...lb.Frontend) (lb.Observation, error) {
	if k.err != nil && len(only) > 0 {
		return lb.Observation{}, k.err
	}
	return k.Fake.Observe(ctx, expected, only...)
}

func TestHowItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter)
		b.pass(t)
		h.history.read()
		begin := time.Now()
		b.steering.announcer.Close(false)
		checkDiary(t, "kept", h, "close")
		if time.Since(begin) != 0 {
			t.Errorf("it waits %s", time.Since(begin))
		}
		b.steering.announcer.Close(true)
		checkDiary(t, "cleaned up", h, "leave")
		if time.Since(begin) != announce.LeaveWait {
			t.Errorf("routers have %s", time.Since(begin))
		}
	})
}
