package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/drain"
	"weir/lb"
)

// tower is a router on loopback: another Speaker, in a process of its own since GoBGP
// has variables that two of them in one would share. It prints what it has received.
type tower struct {
	port int
	says chan string // "Established, 3 prefixes"
}

var (
	boxEnd    = netip.MustParseAddr("127.0.0.1")
	routerEnd = netip.MustParseAddr("127.0.0.2")
)

// towerPort is the variable of the environment that makes this program a tower.
const towerPort = "WEIR_TEST_TOWER_PORT"

func TestMain(m *testing.M) {
	if port, err := strconv.Atoi(os.Getenv(towerPort)); err == nil {
		beTower(port)
		return
	}
	os.Exit(m.Run())
}

// beTower is a router until its standard input ends.
func beTower(port int) {
	ctx, stop := context.WithCancel(context.Background())
	go func() { defer stop(); _, _ = io.Copy(io.Discard, os.Stdin) }()
	s := bgp.New(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	err := s.Configure(ctx, bgp.Config{
		ASN: 64501, RouterID: routerEnd, ListenPort: port, ListenAddrs: []netip.Addr{routerEnd}, GracefulRestart: time.Minute,
		Peers: []bgp.Peer{{Name: "box", Address: boxEnd, ASN: 64500, Passive: true, MaxPrefixes: 100, Hold: 9 * time.Second, Keepalive: 3 * time.Second}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for said := ""; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if p := s.Status().Peers; len(p) == 1 {
			if now := fmt.Sprintf("%s, %d prefixes", p[0].State, p[0].Prefixes); now != said {
				fmt.Println(now)
				said = now
			}
		}
	}
	_ = s.Close()
}

func newTower(t *testing.T) *tower {
	t.Helper()
	w := &tower{freePort(t, routerEnd), make(chan string, 1000)}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", towerPort, w.port))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.says <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-read
		_ = cmd.Wait()
	})
	return w
}

func freePort(t *testing.T, at netip.Addr) int {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// receives waits until the router has a session and so many prefixes.
func (w *tower) receives(t *testing.T, what string, n int) {
	t.Helper()
	w.await(t, what, fmt.Sprintf("%s, %d prefixes", bgp.Established, n))
}

func (w *tower) await(t *testing.T, what, prefix string) {
	t.Helper()
	over := time.After(30 * time.Second)
	for {
		select {
		case said := <-w.says:
			if strings.HasPrefix(said, prefix) {
				return
			}
		case <-over:
			t.Fatalf("%s: the router does not say %q", what, prefix)
		}
	}
}

// The whole way, with real sessions: what the kernel serves is what a router has.
func TestARouterGetsTheServedRoutes(t *testing.T) { // not beside another Speaker
	router := newTower(t)
	toml := fmt.Sprintf(`
[bgp]
asn = 64500
router_id = "10.0.0.5"
listen_port = 0
reannounce_delay = "0s"
min_announced = "0%%"
drain_delay = "0s"
[[bgp.peer]]
name = "tor1"
address = %q
source_address = %q
port = %d
asn = 64501
connect_retry = "2s"
`, routerEnd, boxEnd, router.port)
	b := newTestBox(parse(t, toml+web(`"10.1.0.1"`)))
	b.passes.progress.ready = true
	speaker := bgp.New(b.log)
	b.steering.announcer = b.announcerOf(speaker)
	b.target.rec = lb.NewReconciler(&lb.Fake{}, b.options(), config.Source)
	b.target.rec.Update(lb.Update{Source: config.Source, Put: b.target.cfg.Services, Synced: true})
	b.pass(t)
	router.receives(t, "a service", 1)

	b.target.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): down("10.1.0.1:80")}, true)
	b.pass(t)
	router.receives(t, "without a backend", 0)
	b.target.rec.SetHealth(map[lb.ServiceID]lb.Health{static("web"): {}}, true)
	b.pass(t)
	router.receives(t, "with it again", 1)

	b.steering.drains.Replace(b.steering.drains.Set().With(time.Now(), vipA))
	b.pass(t)
	router.receives(t, "drained", 0)
	b.steering.drains.Replace(drain.Set{})
	b.pass(t)
	router.receives(t, "undrained", 1)

	b.reload(t, toml)
	b.pass(t)
	router.receives(t, "without services", 0)
	b.reload(t, toml+web(`"10.1.0.1"`))
	b.pass(t)
	router.receives(t, "with them again", 1)

	b.steering.announcer.Close(true)
	router.await(t, "the box has left", string(bgp.Active))
}

// A port that another speaker has makes the box degraded, and nothing else; once it is
// free it is taken.
func TestAUsedPortIsReportedAndRetried(t *testing.T) { // not beside another Speaker
	l, err := net.Listen("tcp", netip.AddrPortFrom(boxEnd, 0).String())
	must(t, err)
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
	b := newTestBox(parse(t, toml+web(`"10.1.0.1"`)))
	b.passes.progress.ready = true
	b.steering.announcer = b.announcerOf(bgp.New(b.log))
	t.Cleanup(func() { b.steering.announcer.Close(false) })
	b.target.rec = lb.NewReconciler(&lb.Fake{}, b.options(), config.Source)
	b.target.rec.Update(lb.Update{Source: config.Source, Put: b.target.cfg.Services, Synced: true})
	b.pass(t)
	b.show()
	await := func(what string, problem bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); (b.steering.announcer.Reader().Neighbors().Problem != "") != problem; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, b.steering.announcer.Reader().Neighbors())
			}
		}
	}
	await("the port is taken", true)
	if got := b.target.rec.Route(vipA); len(got.Serves) != 1 {
		t.Errorf("nobody is served: %+v", got)
	}
	must(t, l.Close())
	await("it is free", false)
}
