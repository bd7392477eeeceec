package health

import (
	"context"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

func TestSetLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := start(t, w, Options{})
		g := group(web, tcpCheck(), 2)
		c.Set([]Group{g})
		after(500 * time.Millisecond)
		w.set(backend(0), syscall.ECONNREFUSED)
		after(2 * time.Second) // two failures
		before := c.Backends()
		// Reloads in the middle of a streak, with another Service besides and
		// another quorum, move neither the streak nor the schedule.
		g.Quorum = 2
		for range 10 {
			c.Set([]Group{group(dns, tcpCheck(), 1), g})
			after(10 * time.Millisecond)
		}
		if diff := cmp.Diff(before, c.Backends()[1:], addrs); diff != "" {
			t.Errorf("backends (-before +after):\n%s", diff)
		}
		after(600 * time.Millisecond) // the third
		want := isDown(0)
		want.Lost = lost80
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: want, dns: want})
		calls := w.callsTo(backend(1))
		if diff := cmp.Diff([]time.Duration{spread, time.Second + spread, 2*time.Second + spread, 3*time.Second + spread}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestChangedCheckKeepsStateUntilItHasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(backend(1), syscall.ECONNREFUSED)
		elsewhere := netip.AddrPortFrom(backend(0).Addr(), 9000)
		w.set(elsewhere, errHang)
		c := start(t, w, Options{})
		c.Set([]Group{group(web, tcpCheck(), 2)})
		after(100 * time.Millisecond)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(1)})

		check := tcpCheck()
		check.Port = 9000
		c.Set([]Group{group(web, check, 2)})
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(1)})
		if err := c.Ready(context.Background()); err != nil {
			t.Errorf("Ready: %v", err)
		}
		after(2400 * time.Millisecond) // two timeouts, but three passed at :9000 of the other
		wantHealth(t, c, allUp(web))
		after(200 * time.Millisecond)
		want := isDown(0)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: want})
		if got, want := c.Backends()[0].Error, "connect 10.0.0.1:9000: no answer within 500ms"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	})
}

func TestNewPortOfKnownBackendIsUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := start(t, w, Options{})
		check := tcpCheck()
		check.Port = 9000
		g := group(web, check, 1)
		c.Set([]Group{g})
		after(100 * time.Millisecond)
		// One more port with the same backend, and a backend asked at the same place.
		g.Ports = append(g.Ports, lb.Port{Port: 443, Proto: lb.TCP, Backends: []lb.Backend{
			{Addr: backend(0), Weight: 1},
			{Addr: netip.AddrPortFrom(backend(0).Addr(), 8443), Weight: 1},
		}})
		c.Set([]Group{g})
		wantHealth(t, c, allUp(web))
		after(time.Second)
		if got := len(w.callsTo(netip.AddrPortFrom(backend(0).Addr(), 9000))); got != 2 {
			t.Errorf("asked %d times in 1.1 s, want 2", got)
		}
	})
}

func TestRemovedBackendsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(backend(0), errHang)
		c := start(t, w, Options{})
		c.Set([]Group{group(web, tcpCheck(), 1)})
		after(100 * time.Millisecond) // a check is under way
		c.Set(nil)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{})
		after(10 * time.Second)
		if got := len(w.callsTo(backend(0))); got != 1 {
			t.Errorf("asked %d times, want 1", got)
		}
		if got := c.Stats(); got.Targets != 0 || got.Asking != 0 || got.Checks != 1 {
			t.Errorf("stats %+v, want no target, and one check in the totals", got)
		}
		c.Set([]Group{group(web, tcpCheck(), 1)})
		if got := c.Backends()[0].State; got != "unknown" {
			t.Errorf("state %s of a backend that came back, want unknown", got)
		}
	})
}

func TestInvalidCheckMakesBackendsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := start(t, w, Options{})
		c.Set([]Group{group(web, Check{Kind: "telnet"}, 1)})
		after(time.Minute)
		want := isDown(0)
		want.Lost = lost80
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: want})
		if got := c.Backends()[0].Error; !strings.Contains(got, `unknown check "telnet"; use tcp`) {
			t.Errorf("error %q has no reason", got)
		}
		if got := len(w.callsTo(backend(0))); got != 0 {
			t.Errorf("asked %d times", got)
		}
		if got := c.Stats().Checks; got > 61 {
			t.Errorf("%d checks in a minute: it spins", got)
		}
	})
}
