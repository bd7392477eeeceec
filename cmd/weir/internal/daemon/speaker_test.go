package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// tower is a router on loopback: another Speaker, which counts what it hears.
type tower struct {
	*bgp.Speaker
	port int
}

var (
	boxEnd    = netip.MustParseAddr("127.0.0.1")
	routerEnd = netip.MustParseAddr("127.0.0.2")
)

func newTower(t *testing.T) *tower {
	t.Helper()
	w := &tower{bgp.New(slog.New(slog.DiscardHandler)), freePort(t, routerEnd)}
	t.Cleanup(func() { _ = w.Close() })
	err := w.Configure(t.Context(), bgp.Config{
		ASN: 64501, RouterID: routerEnd, ListenPort: w.port, ListenAddrs: []netip.Addr{routerEnd}, GracefulRestart: time.Minute,
		Peers: []bgp.Peer{{Name: "box", Address: boxEnd, ASN: 64500, Passive: true, MaxPrefixes: 100, Hold: 9 * time.Second, Keepalive: 3 * time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func freePort(t *testing.T, at netip.Addr) int {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// hears waits until the router has so many prefixes.
func (w *tower) hears(t *testing.T, what string, n int) {
	t.Helper()
	var s bgp.Status
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s = w.Status(); len(s.Peers) == 1 && s.Peers[0].State == bgp.Established && s.Peers[0].Prefixes == n {
			return
		}
	}
	t.Fatalf("%s: the router has not heard %d prefixes: %+v", what, n, s)
}

// The whole way, with real sessions: what the kernel serves is what a router has.
func TestARouterHearsWhatTheKernelServes(t *testing.T) {
	t.Parallel()
	router := newTower(t)
	toml := fmt.Sprintf(`
[bgp]
asn = 64500
router_id = "10.0.0.5"
listen_port = 0
hold_down = "0s"
floor = "0%%"
drain_delay = "0s"
[[bgp.peer]]
name = "tor1"
address = %q
source_address = %q
port = %d
asn = 64501
connect_retry = "2s"
`, routerEnd, boxEnd, router.port)
	b := &box{log: slog.New(slog.DiscardHandler), cfg: parse(t, toml+web(`"10.1.0.1"`)), ready: true}
	b.metrics = newMetrics(b)
	speaker := bgp.New(b.log)
	b.announcer = newAnnouncer(b.log, speaker, b.cfg.BGP, t.TempDir(), time.Now())
	b.rec = lb.NewReconciler(&lb.Fake{}, b.options(), config.Source)
	b.rec.Update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
	b.turn(t)
	router.hears(t, "a service", 1)

	b.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): down("10.1.0.1:80")})
	b.turn(t)
	router.hears(t, "without a backend", 0)
	b.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): {}})
	b.turn(t)
	router.hears(t, "with it again", 1)

	b.announcer.drained = b.announcer.drained.with(time.Now(), vipA)
	b.turn(t)
	router.hears(t, "drained", 0)
	b.announcer.drained = drained{}
	b.turn(t)
	router.hears(t, "undrained", 1)

	b.say(t, toml)
	b.turn(t)
	router.hears(t, "without services", 0)
	b.say(t, toml+web(`"10.1.0.1"`))
	b.turn(t)
	router.hears(t, "with them again", 1)

	b.announcer.close(true)
	for end := time.Now().Add(30 * time.Second); router.Status().Peers[0].State == bgp.Established; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the session has not ended: %+v", router.Status().Peers)
		}
	}
}

// A port that another speaker has makes the box degraded, and nothing else; once it is
// free it is taken.
func TestAPortThatIsTakenIsSaidAndTakenLater(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", netip.AddrPortFrom(boxEnd, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	toml := fmt.Sprintf(`
[bgp]
asn = 64500
router_id = "10.0.0.5"
listen_port = %d
listen_addresses = [%q]
[[bgp.peer]]
name = "tor1"
range = "127.0.9.0/24"
asn = 64501
`, l.Addr().(*net.TCPAddr).Port, boxEnd)
	b := &box{log: slog.New(slog.DiscardHandler), cfg: parse(t, toml+web(`"10.1.0.1"`)), ready: true}
	b.metrics = newMetrics(b)
	b.told.Store(&told{})
	b.announcer = newAnnouncer(b.log, bgp.New(b.log), b.cfg.BGP, t.TempDir(), time.Now())
	t.Cleanup(func() { b.announcer.close(false) })
	b.rec = lb.NewReconciler(&lb.Fake{}, b.options(), config.Source)
	b.rec.Update(lb.Update{Source: config.Source, Put: b.cfg.Services, Synced: true})
	b.turn(t)
	b.show()
	await := func(what string, problem bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); (b.neighbors().Problem != "") != problem; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, b.neighbors())
			}
		}
	}
	await("the port is taken", true)
	if got := b.rec.Route(vipA); len(got.Serves) != 1 {
		t.Errorf("nobody is served: %+v", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	await("it is free", false)
}
