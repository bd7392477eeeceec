package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"weir/bgp/advertise"
)

// A panic of the code that drives GoBGP ends neither the process nor a route. One of a poll does not even end the session. After
// one of a change, which GoBGP may have half of, routers with graceful restart keep the routes.
func TestRoutesOutliveAPanic(t *testing.T) {
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
	s := newSpeaker(quietLog())
	e := newEngine(quietLog(), s.sessions)
	var due, half atomic.Bool
	addresses := e.next.interfaces
	e.next.interfaces = func() [][]netip.Addr {
		if due.CompareAndSwap(true, false) {
			e.panics.changing = half.Load()
			panic("failpoint")
		}
		return addresses()
	}
	go s.run(e)
	b := &box{Speaker: s, t: t, addr: addr, cfg: Config{ASN: boxASN, RouterID: addr, Peers: []Peer{r.peer("r", addr)}}}
	t.Cleanup(func() { _ = b.Close() })
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
	b.configure(func(c *Config) { c.GracefulRestart = 120 * time.Second })
	line := "%s/32 med 0 origin 0 path [65001] via " + addr.String()
	r.has(fmt.Sprintf(line, "192.0.2.1"))
	eventually(t, func() string {
		if s := b.status("r"); !s.Restart.Kept {
			return fmt.Sprintf("%+v", s.Restart)
		}
		return ""
	})

	missed := make(chan string, 1)
	watching, stop := context.WithCancel(t.Context())
	go func() {
		defer close(missed)
		for watching.Err() == nil {
			if routes := strings.Join(r.routes(), "\n"); !strings.Contains(routes, "192.0.2.1/32") {
				missed <- routes
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	panics := func() {
		due.Store(true)
		eventually(t, func() string {
			if p := b.Status().Problem; p != "panic: failpoint" {
				return fmt.Sprintf("the problem is %q", p)
			}
			return ""
		})
		eventually(t, func() string { return b.Status().Problem })
		b.established("r")
	}
	since := b.status("r").Since
	panics()
	if now := b.status("r").Since; now != since {
		t.Errorf("after a panic of a poll the session is of %v, and was of %v", now, since)
	}
	half.Store(true)
	panics()
	if now := b.status("r").Since; now == since {
		t.Error("after a panic of a change the session is the same")
	}
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.2/32"): to("r")})
	r.has(fmt.Sprintf(line, "192.0.2.1"), fmt.Sprintf(line, "192.0.2.2"))
	stop()
	if routes, lost := <-missed; lost {
		t.Errorf("the router lost the route for a moment, it had:\n%s", routes)
	}
}

func TestPausesAfterPanicsGrow(t *testing.T) {
	t.Parallel()
	var p panics
	now := time.Now()
	var got []time.Duration
	for range 8 {
		got = append(got, p.pause(now))
		now = p.until
	}
	now = now.Add(2 * maxPanicPause)
	got = append(got, p.pause(now))
	want := "[1s 2s 4s 8s 16s 32s 1m0s 1m0s 1s]"
	if fmt.Sprint(got) != want {
		t.Errorf("pauses %v, want %s", got, want)
	}
}
