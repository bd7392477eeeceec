package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/linux"
)

// herald is a speaker of a test. It writes down what it is told, in the diary that the
// kernel writes to, too.
type herald struct {
	diary *diary
	mu    sync.Mutex
	now   map[netip.Prefix][]bgp.Path
	cfg   bgp.Config
	up    bool  // there is a router
	fail  error // of Configure

	// peers and routes are what Status says, if they are set.
	peers  []bgp.PeerStatus
	routes []bgp.RouteStatus
}

// diary is what happened, in turn.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// read gives what was written since the last time.
func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.lines
	d.lines = nil
	return out
}

func (h *herald) Configure(_ context.Context, cfg bgp.Config) error {
	if h.fail != nil {
		return h.fail
	}
	h.cfg = cfg
	h.diary.write("begin with %d prefixes", len(h.now))
	return nil
}

func (h *herald) Set(changes map[netip.Prefix][]bgp.Path) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil {
		h.now = map[netip.Prefix][]bgp.Path{}
	}
	var lines []string
	for p, paths := range changes {
		if len(paths) == 0 {
			delete(h.now, p)
			lines = append(lines, "withdraw "+p.String())
			continue
		}
		h.now[p] = paths
		line := "announce " + p.String()
		if slices.Contains(paths[0].Communities, bgp.GracefulShutdown) {
			line += " shutting"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	h.diary.write("%s", strings.Join(lines, ", "))
	return nil
}

func (h *herald) Settled(context.Context) error { return nil }

func (h *herald) Status() bgp.Status {
	s := bgp.Status{ASN: h.cfg.ASN, RouterID: h.cfg.RouterID, Peers: h.peers, Routes: h.routes}
	if h.up && h.peers == nil {
		s.Peers = []bgp.PeerStatus{{Name: "tor1", State: bgp.Established}, {Name: "tor2", State: bgp.Idle}}
	}
	return s
}

func (h *herald) Close() error { h.diary.write("close"); return nil }

func (h *herald) Leave(context.Context) error { h.diary.write("leave"); return nil }

const oneRouter = `
[bgp]
asn = 64500
router_id = "10.0.0.5"
hold_down = "5s"
floor = "0%"
drain_delay = "10s"
[[bgp.peer]]
name = "tor1"
address = "10.0.0.1"
asn = 64501
`

// heraldBox is a box whose kernel is a Fake and whose speaker is a herald; both write
// to one diary.
func heraldBox(t *testing.T, toml string) (*box, *herald, *lb.Fake) {
	t.Helper()
	d := &diary{}
	kernel := &lb.Fake{After: func(op lb.Op) {
		switch o := op.Object.(type) {
		case lb.VirtualServer, lb.RealServer, lb.Unreachable:
			d.write("%s", op)
		case lb.Address:
			d.write("%s %s", op.Verb, o)
		}
	}}
	b := &box{log: slog.New(slog.DiscardHandler), cfg: parse(t, toml), ready: true, started: time.Now()}
	b.metrics = newMetrics(b)
	h := &herald{diary: d, up: true}
	b.told.Store(&told{})
	b.announcer = newAnnouncer(b.log, h, b.cfg.BGP, t.TempDir(), time.Now())
	b.rec = lb.NewReconciler(kernel, b.options(), config.Source)
	b.rec.Update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
	return b, h, kernel
}

// options are without what only a real kernel has.
func (b *box) options() lb.Options {
	out := b.lbOptions(b.cfg, node{})
	out.Base.Sysctls = nil
	return out
}

// turn is a pass without what is for the real kernel.
func (b *box) turn(t *testing.T) {
	t.Helper()
	b.again = false
	_, err := b.rec.Sync(t.Context(), time.Now())
	b.announce(t.Context(), err, time.Now())
}

// say makes the static services those of a configuration.
func (b *box) say(t *testing.T, toml string) {
	t.Helper()
	before := b.cfg.Services
	b.cfg = parse(t, toml)
	u := lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true}
	for _, s := range before {
		if !slices.ContainsFunc(b.cfg.Services, func(x lb.Service) bool { return x.ID == s.ID }) {
			u.Delete = append(u.Delete, s.ID)
		}
	}
	b.rec.Update(u)
}

func web(backends string) string {
	return "[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [80]\ndrain = \"0s\"\nbackends = [" + backends + "]\n"
}

func checkDiary(t *testing.T, what string, h *herald, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.diary.read()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

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
		a := b.announcer
		a.drained = a.drained.with(time.Now(), vipA)
		if err := a.drained.save(a.stateDir); err != nil {
			t.Fatal(err)
		}
		b.turn(t)
		checkDiary(t, "drained", h, "announce 192.0.2.1/32 shutting")
		if doc := a.drains(); doc.VIPs[0].Stage != "shutting" || doc.Done() {
			t.Errorf("it says %+v", doc)
		}
		time.Sleep(time.Until(a.next()))
		b.turn(t)
		checkDiary(t, "after drain_delay", h, "withdraw 192.0.2.1/32")
		if doc := a.drains(); doc.VIPs[0].Stage != "withdrawn" || !doc.Done() {
			t.Errorf("it says %+v", doc)
		}

		h2 := &herald{diary: &diary{}, up: true}
		b.announcer = newAnnouncer(b.log, h2, b.cfg.BGP, a.stateDir, time.Now())
		b.rec = lb.NewReconciler(&lb.Fake{}, b.options(), config.Source)
		b.rec.Update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
		b.turn(t)
		checkDiary(t, "after a restart", h2, "begin with 0 prefixes")
		b.announcer.drained, _ = b.announcer.drained.without(vipA)
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
