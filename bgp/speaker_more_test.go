package bgp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"weir/bgp/advertise"
)

// hosts are n prefixes.
func hosts(n int) []netip.Prefix {
	out := make([]netip.Prefix, n)
	for i := range out {
		a := netip.AddrFrom4([4]byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)})
		out[i] = netip.PrefixFrom(a, 32)
	}
	return out
}

func TestManyRoutesComeAndGo(t *testing.T) {
	parallel(t)
	const n = 5000
	r := newRouter(t, routerASN)
	b := newBox(t, r.peer("r", netip.Addr{}))
	b.cfg.Peers[0].Source = b.addr
	r.expect(b.addr, boxASN, nil)
	b.configure(nil)
	b.established("r")
	all, none := map[netip.Prefix][]advertise.Path{}, map[netip.Prefix][]advertise.Path{}
	for _, p := range hosts(n) {
		all[p], none[p] = to("r"), nil
	}
	start := time.Now()
	b.set(all)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Set took %s", took)
	}
	counted := func(want int) {
		t.Helper()
		eventually(t, func() string {
			if got := r.count(); got != want {
				return fmt.Sprintf("the router has %d routes, want %d", got, want)
			}
			return ""
		})
	}
	counted(n)
	t.Logf("%d routes at the router after %s", n, time.Since(start))
	if got := b.status("r").Advertised; got != n {
		t.Errorf("Status counts %d", got)
	}
	start = time.Now()
	b.set(none)
	counted(0)
	t.Logf("and gone after %s", time.Since(start))
}

func (r *router) count() int {
	table, err := r.gobgp.GetTable(context.Background(), &api.GetTableRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: familyIPv4})
	if err != nil {
		r.t.Error(err)
		return -1
	}
	return int(table.NumPath)
}

// newGracefulRouter returns a router that keeps the routes of a box at an address while that restarts. The test is
// skipped under the race detector, and make test runs it without.
func newGracefulRouter(t *testing.T) (*router, netip.Addr) {
	t.Helper()
	if oneAtATime {
		t.Skip("GoBGP starts again beside another one, which is a race of its own")
	}
	parallel(t)
	r := newRouter(t, routerASN)
	addr := loopback()
	r.expect(addr, boxASN, func(p *api.Peer) {
		p.GracefulRestart = &api.GracefulRestart{Enabled: true, RestartTime: 120}
		for _, f := range p.AfiSafis {
			f.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
		}
	})
	return r, addr
}

func TestGracefulRestartKeepsTheRoutes(t *testing.T) {
	r, addr := newGracefulRouter(t)
	start := func(changes map[netip.Prefix][]advertise.Path) *box {
		b := newBoxAt(t, addr, r.peer("r", addr))
		b.set(changes)
		b.configure(func(c *Config) { c.GracefulRestart = 120 * time.Second })
		return b
	}
	line := "%s/32 med 0 origin 0 path [65001] via " + addr.String()
	b := start(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r"), prefix("192.0.2.2/32"): to("r")})
	r.has(fmt.Sprintf(line, "192.0.2.1"), fmt.Sprintf(line, "192.0.2.2"))
	eventually(t, func() string {
		if s := b.status("r"); !s.Restart.Kept {
			return fmt.Sprintf("%+v", s.Restart)
		}
		return ""
	})

	missed := make(chan string, 1)
	watching, stop := context.WithCancel(t.Context())
	go func() { // from before the box goes until after it is back
		defer close(missed)
		for watching.Err() == nil {
			if routes := strings.Join(r.routes(), "\n"); !strings.Contains(routes, "192.0.2.1/32") {
				missed <- routes
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b = start(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r"), prefix("192.0.2.3/32"): to("r")})
	r.has(fmt.Sprintf(line, "192.0.2.1"), fmt.Sprintf(line, "192.0.2.3"))
	stop()
	if routes, lost := <-missed; lost {
		t.Errorf("the router lost the route for a moment, it had:\n%s", routes)
	}
}

func TestCloseEndsEveryGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	r, b := newRaw(t), newBox(t)
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
	b.configure(func(c *Config) {
		c.ListenPort, c.ListenAddrs = freePort(t, b.addr), []netip.Addr{b.addr}
		c.Peers = []Peer{r.peer("r", b.addr)}
	})
	r.establish(capIPv4, capAS4)
	b.established("r")
	b.configure(func(c *Config) { c.ASN = 65007 }) // a new GoBGP
	r.establish(capIPv4, capAS4)
	b.established("r")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, func() string {
		stacks := make([]byte, 1<<16)
		stacks = stacks[:runtime.Stack(stacks, true)]
		// GoBGP leaves the pump of a queue behind if a session ends with something in it.
		left := runtime.NumGoroutine() - strings.Count(string(stacks), "InfiniteChannel).infiniteBuffer(")
		if left > before {
			return fmt.Sprintf("%d goroutines, %d before:\n%s", left, before, stacks)
		}
		return ""
	})
	if err := b.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

func TestAPortThatIsTakenIsAProblemAndNoMore(t *testing.T) {
	parallel(t)
	for name, free := range map[string][]netip.Addr{"at all addresses": nil, "at one of two": {loopback()}} {
		t.Run(name, func(t *testing.T) { testTakenPort(t, free) })
	}
}

// testTakenPort has a port that another program takes at one address, and that is free at the others.
func testTakenPort(t *testing.T, free []netip.Addr) {
	r, late, b := newRaw(t), newRaw(t), newBox(t)
	port := freePort(t, b.addr)
	at := netip.AddrPortFrom(b.addr, uint16(port)).String()
	taken, err := net.Listen("tcp", at)
	must(t, err)
	defer taken.Close()
	b.configure(func(c *Config) {
		c.ListenPort, c.ListenAddrs = port, append(free, b.addr)
		c.Peers = []Peer{r.peer("r", b.addr), late.peer("late", netip.Addr{})}
		c.Peers[1].Passive = true
	})
	r.establish(capIPv4, capAS4)
	b.established("r")
	if s := b.Status(); !strings.Contains(s.Problem, "another program does") || len(s.Listen) != len(free) {
		t.Errorf("problem %q, listening on %v", s.Problem, s.Listen)
	}
	taken.Close()
	r.establish(capIPv4, capAS4) // GoBGP is another one now
	eventually(t, func() string {
		if s := b.Status(); s.Problem != "" || len(s.Listen) != len(free)+1 {
			return fmt.Sprintf("problem %q, listening on %v", s.Problem, s.Listen)
		}
		return ""
	})
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: late.addr.AsSlice()}}
	late.conn, err = d.Dial("tcp", at)
	must(t, err)
	late.send(open, openBody(routerASN, 90, capIPv4, capAS4))
	late.send(keepalive, nil)
	b.established("r", "late")
}

// With GoBGP stuck, only callers that ask to wait do so.
func TestGoBGPBlocksNoCaller(t *testing.T) {
	parallel(t)
	s := newSpeaker(quietLog()) // without a worker
	s.working = time.Now().Add(-time.Hour)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range hosts(100) {
			if err := s.Set(map[netip.Prefix][]advertise.Path{p: to("r")}); err != nil {
				t.Error(err)
			}
		}
		if got := s.Status().Problem; !strings.Contains(got, "GoBGP has not answered for 1h0m0s") {
			t.Errorf("problem %q", got)
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Set or Status waits for GoBGP")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Settled: %v", err)
	}
	if n := len(s.orders.dirty); n != 100 {
		t.Errorf("%d prefixes wait, want 100", n)
	}
}

func TestNoPasswordIsEverPrinted(t *testing.T) {
	parallel(t)
	const password = "hunter2-hunter2"
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := newRouter(t, routerASN)
	p := r.peer("r", netip.Addr{})
	p.Password = password
	cfg := Config{ASN: boxASN, RouterID: loopback(), Peers: []Peer{p}}
	log.Info("config", "cfg", cfg, "peer", p, "password", p.Password)
	fmt.Fprintf(&out, "%v %+v %#v %s %q %d %x", cfg, cfg, cfg, p.Password, p.Password, p.Password, p.Password)
	s := New(log)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, s.Configure(ctx, cfg))
	eventually(t, func() string {
		if s.Status().Peers[0].Down == "" {
			return "no attempt to connect"
		}
		return ""
	})
	status := fmt.Sprintf("%+v", s.Status())
	if err := s.Close(); err != nil { // ends all logging
		t.Error(err)
	}
	out.WriteString(status)
	if strings.Contains(out.String(), password) || strings.Contains(out.String(), fmt.Sprintf("%x", password)) {
		t.Errorf("the password is in:\n%s", out.String())
	}
}

// A router that comes and goes all the time gets a few lines in the log, not all of it.
func TestAFlappingRouterDoesNotFloodTheLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := Peer{Name: "r", Address: loopback(), ASN: routerASN}
	b := &sessions{log: slog.New(slog.NewTextHandler(&out, nil)), changed: func() {}, sessions: map[netip.Addr]*session{}}
	b.configure([]Peer{r.WithDefaults(Config{ASN: boxASN})}, 0)
	at := time.Now()
	change := func(state packet.FSMState) {
		b.event(0, &apiutil.WatchEventMessage_PeerEvent{Peer: apiutil.Peer{State: apiutil.PeerState{
			NeighborAddress: r.Address, SessionState: state, DisconnectReason: api.PeerState_DISCONNECT_REASON_READ_FAILED,
		}}}, at)
	}
	for range 1000 {
		at = at.Add(10 * time.Millisecond)
		change(packet.BGP_FSM_ESTABLISHED)
		change(packet.BGP_FSM_IDLE)
	}
	if lines := strings.Count(out.String(), "\n"); lines != logLimit {
		t.Errorf("%d lines for 2000 changes in 10 seconds, want %d", lines, logLimit)
	}
	at = at.Add(2 * logPeriod)
	change(packet.BGP_FSM_ESTABLISHED)
	if !strings.Contains(out.String(), "suppressed=1994") {
		t.Errorf("what was left out is not told:\n%s", out.String())
	}
	if got := b.all(false)[0]; got.Flaps != 1000 || got.State != Established {
		t.Errorf("%+v", got)
	}
}

// Different paths never have one class.
func TestDifferentPathsHaveDifferentClasses(t *testing.T) {
	t.Parallel()
	base := advertise.Path{Peers: []string{"a"}}
	different := []func(*advertise.Path){
		func(*advertise.Path) {},
		func(p *advertise.Path) { p.Peers = []string{"a", "b"} },
		func(p *advertise.Path) { p.Peers = []string{`a"b`} },
		func(p *advertise.Path) { p.Peers = []string{`a""b`} },
		func(p *advertise.Path) { p.Prepend = 1 },
		func(p *advertise.Path) { p.MED = advertise.MetricOf(0) },
		func(p *advertise.Path) { p.LocalPref = advertise.MetricOf(0) },
		func(p *advertise.Path) { p.LocalPref = advertise.MetricOf(1) },
		func(p *advertise.Path) { p.Communities = []advertise.Community{1} },
		func(p *advertise.Path) { p.Communities = []advertise.Community{1, 2} },
		func(p *advertise.Path) { p.LargeCommunities = []advertise.LargeCommunity{{ASN: 1, Data1: 2, Data2: 3}} },
		func(p *advertise.Path) {
			p.LargeCommunities = []advertise.LargeCommunity{{ASN: 12, Data1: 3, Data2: 3}}
		},
	}
	seen := map[string]int{}
	for i, change := range different {
		p := base
		change(&p)
		for _, paths := range [][]advertise.Path{{p}, {p, {Peers: []string{"z"}}}} {
			for _, v6 := range []bool{false, true} {
				key := classKey(v6, paths)
				if other, ok := seen[key]; ok {
					t.Errorf("%d and %d are one class: %s", other, i, key)
				}
				seen[key] = i
			}
		}
	}
}

func TestSetRefusesWhatCannotBe(t *testing.T) {
	parallel(t)
	s := newSpeaker(quietLog())
	for name, changes := range map[string]map[netip.Prefix][]advertise.Path{
		"host bits":            {netip.MustParsePrefix("192.0.2.1/24"): to("r")},
		"no prefix":            {{}: to("r")},
		"a peer twice":         {prefix("192.0.2.1/32"): {{Peers: []string{"r"}}, {Peers: []string{"q", "r"}}}},
		"too much to prepend":  {prefix("192.0.2.1/32"): {{Peers: []string{"r"}, Prepend: 17}}},
		"IPv4 in IPv6's guise": {netip.MustParsePrefix("::ffff:192.0.2.1/128"): to("r")},
	} {
		changes[prefix("198.51.100.1/32")] = to("r")
		if err := s.Set(changes); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if len(s.orders.want) != 0 {
		t.Errorf("it took %v all the same", s.orders.want)
	}
}
