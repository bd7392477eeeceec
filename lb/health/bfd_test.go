package health

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/lb"
	"weir/lb/health/bfd"
)

// bfdCheck is a check with quick intervals and a free port.
func bfdCheck(t *testing.T) Check {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer c.Close()
	return Check{Kind: BFD, Port: uint16(c.LocalAddr().(*net.UDPAddr).Port), Interval: time.Minute, Timeout: 10 * time.Second, Rise: 1, Fall: 1,
		BFD: bfd.Peer{TTL: 255, Config: bfd.Config{MinTx: 50 * time.Millisecond, MinRx: 50 * time.Millisecond, IdleTx: time.Second, Multiplier: 20}}}
}

// bfdGroup has one backend.
func bfdGroup(name, backend string, c Check) Group {
	return Group{Service: lb.ServiceID{Source: "static", Name: name}, Check: c, Quorum: 1,
		Ports: []lb.Port{{Port: 80, Proto: lb.TCP, Backends: []lb.Backend{{Addr: netip.MustParseAddrPort(backend), Weight: 1}}}}}
}

// partner has the backend answer until stop.
func partner(t *testing.T, c Check, backend, box string) (stop func()) {
	t.Helper()
	p := c.BFD
	p.Source, p.Address = netip.MustParseAddr(backend), netip.AddrPortFrom(netip.MustParseAddr(box), c.Port)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bfd.Run(ctx, p, func(bfd.Status) {})
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// waitFor waits until all backends have a state.
func waitFor(t *testing.T, c *Checker, state, reason string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		bad := ""
		c.Each(func(b Backend) {
			if b.State != state || !strings.Contains(b.Error, reason) {
				bad = b.State + ": " + b.Error
			}
		})
		if bad == "" {
			return
		}
		select {
		case <-c.Changed():
		case <-limit:
			t.Fatalf("a backend is %s; want %s: %s", bad, state, reason)
		}
	}
}

// TestBFDSessionIsTheState has two Services with one session. The interval of the check is a minute, so
// that only the session changes the state.
func TestBFDSessionIsTheState(t *testing.T) {
	t.Parallel()
	check := bfdCheck(t)
	check.BFD.Source = netip.MustParseAddr("127.0.0.71")
	c := New(Options{})
	c.Set([]Group{bfdGroup("one", "127.0.0.72:80", check), bfdGroup("two", "127.0.0.72:443", check)})
	running(t, c)
	stop := partner(t, check, "127.0.0.72", "127.0.0.71")
	waitFor(t, c, "up", "")
	stop()
	waitFor(t, c, "down", "BFD session down: the peer has ended the session (AdminDown)")
	partner(t, check, "127.0.0.72", "127.0.0.71")
	waitFor(t, c, "up", "")
	if n := len(c.by.bfd.all); n != 1 {
		t.Errorf("%d sessions with one address", n)
	}
	c.Set(nil)
	if n := len(c.by.bfd.all); n != 0 {
		t.Errorf("%d sessions without a check", n)
	}
}

// TestNewBFDSessionHasTime has a backend that serves already, as after a restart of weir: it stays until
// the session has had its time.
func TestNewBFDSessionHasTime(t *testing.T) {
	t.Parallel()
	check := bfdCheck(t)
	check.BFD.Source = netip.MustParseAddr("127.0.0.81")
	check.Timeout = 2 * time.Second
	g := bfdGroup("web", "127.0.0.82:80", check)
	g.Serves = func(lb.PortKey, netip.AddrPort) bool { return true }
	c := New(Options{})
	c.Set([]Group{g})
	begun := time.Now()
	running(t, c)
	wantHealth(t, c, allUp(g.Service))
	must(t, c.Ready(t.Context()))
	if took := time.Since(begun); took < check.Timeout {
		t.Errorf("judged after %s", took)
	}
	waitFor(t, c, "down", "connection refused")
}

// TestBFDSessionWithoutSockets has a session that this box can't open, for lack of the source address:
// its backend keeps its state, as with all checks.
func TestBFDSessionWithoutSockets(t *testing.T) {
	t.Parallel()
	check := bfdCheck(t)
	check.BFD.Source = netip.MustParseAddr("198.51.100.7")
	check.Timeout = time.Second
	g := bfdGroup("web", "127.0.0.83:80", check)
	g.Serves = func(lb.PortKey, netip.AddrPort) bool { return true }
	c := New(Options{})
	c.Set([]Group{g})
	running(t, c)
	for c.Stats().Void == 0 && c.Stats().Checks == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	wantHealth(t, c, allUp(g.Service))
	waitFor(t, c, "unknown", "cannot assign requested address")
}

// TestBFDSessionHasItsTimeOnce has checks of a session that began a while ago: they wait for the rest of
// its time only.
func TestBFDSessionHasItsTimeOnce(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort("192.0.2.9:3784")
	x := &session{status: noStatus, news: make(chan struct{})}
	s := &sessions{all: map[netip.AddrPort]*session{at: x}, changed: func(netip.AddrPort) {}}
	const timeout = time.Minute
	ask := func() (took time.Duration, err error) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		err = s.ask(ctx, nil, target{address: at.String(), timeout: timeout})
		return time.Since(begun), err
	}
	x.began = time.Now().Add(-timeout + 100*time.Millisecond)
	if took, err := ask(); err == nil || lacksMeans(err) || took > timeout/2 {
		t.Errorf("a check in the last 100ms: %v after %s", err, took)
	}
	x.began = time.Now()
	s.store(x, bfd.Status{Err: syscall.EMFILE})
	if took, err := ask(); !lacksMeans(err) || took > timeout/2 {
		t.Errorf("a box without files: %v after %s", err, took)
	}
	x.began = time.Time{}
	s.store(x, noStatus)
	if time.Since(x.began) > timeout/2 {
		t.Error("the fault of this box has used up the time of the session")
	}
	s.store(x, bfd.Status{Up: true})
	s.store(x, noStatus)
	if took, err := ask(); err == nil || took > timeout/2 {
		t.Errorf("a session that has been up: %v after %s", err, took)
	}
}

// TestReplacedBFDSession has a session that begins during a check: the check has no result.
func TestReplacedBFDSession(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort("192.0.2.9:3784")
	s := &sessions{all: map[netip.AddrPort]*session{at: {status: noStatus, began: time.Now().Add(time.Minute), news: make(chan struct{})}}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.ask(ctx, nil, target{address: at.String(), timeout: 10 * time.Millisecond}); !lacksMeans(err) {
		t.Errorf("got %v", err)
	}
}

// TestBFDRunsAgain has a Checker that runs twice: sessions begin again, and keep no state.
func TestBFDRunsAgain(t *testing.T) {
	t.Parallel()
	check := bfdCheck(t)
	check.BFD.Source = netip.MustParseAddr("127.0.0.91")
	partner(t, check, "127.0.0.92", "127.0.0.91")
	c := New(Options{})
	c.Set([]Group{bfdGroup("web", "127.0.0.92:80", check)})
	stop := running(t, c)
	waitFor(t, c, "up", "")
	stop()
	for at, x := range c.by.bfd.all {
		if x.status.Up || x.wasUp || x.stop != nil {
			t.Errorf("the session with %s has the state of the last run: %+v", at, x)
		}
	}
	running(t, c)
	waitFor(t, c, "up", "")
}

// TestRecheckDuringACheck has a session that changes while its state is read.
func TestRecheckDuringACheck(t *testing.T) {
	t.Parallel()
	check := bfdCheck(t)
	c := New(Options{})
	c.Set([]Group{bfdGroup("web", "127.0.0.99:80", check)})
	now := time.Now().Add(time.Second)
	jobs, _ := c.table.take(nil, 10, now)
	c.table.recheck(jobs[0].probe.key.addr, now)
	c.table.finish(answer{probe: jobs[0].probe, ended: now}, now.Add(time.Minute))
	if again, _ := c.table.take(nil, 10, now); len(again) != 1 {
		t.Error("the change during the check is not read")
	}
}

// TestRecheckKeepsTheOrder has many targets, and changes of some sessions. Each probe knows its place.
func TestRecheckKeepsTheOrder(t *testing.T) {
	t.Parallel()
	check := bfdCheck(t)
	c := New(Options{})
	groups := []Group{group(web, tcpCheck(), 50)}
	for i := range 50 {
		groups = append(groups, bfdGroup(fmt.Sprint("a", i), backend(i).String(), check), bfdGroup(fmt.Sprint("b", i), backend(i).String(), check))
	}
	c.Set(groups)
	now := time.Now().Add(time.Minute)
	jobs, _ := c.table.take(nil, 200, now)
	for i, j := range jobs {
		c.table.finish(answer{probe: j.probe, ended: now}, now.Add(time.Duration(i*37%150+1)*time.Second))
	}
	for _, i := range []int{3, 14, 15, 48} {
		c.table.recheck(netip.AddrPortFrom(backend(i).Addr(), check.Port), now)
	}
	for i, p := range c.table.due {
		if p.place != i {
			t.Fatalf("the probe at %d has place %d", i, p.place)
		}
	}
	jobs, _ = c.table.take(nil, 200, now)
	if len(jobs) != 8 {
		t.Errorf("%d checks are due; want those of two Services for each of 4 addresses", len(jobs))
	}
	last := now
	for range 142 {
		next, _ := c.table.take(nil, len(jobs)+1, now.Add(time.Hour))
		if len(next) != 1 || next[0].probe.due.Before(last) {
			t.Fatalf("the checks are out of order: %v", next)
		}
		last = next[0].probe.due
		c.table.asking--
	}
}
