package health

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

func TestUnknownBackendsAreDownAndNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		c.Set([]Group{group(web, tcpCheck(), 2)})
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(0, 1)})
		if got := c.Backends()[0].State; got != "unknown" {
			t.Errorf("state %q, want unknown", got)
		}
	})
}

func TestBackendsThatServeGoOnUntilTheirFirstResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(backend(1), errHang)
		w.set(backend(2), errHang)
		c := New(Options{Dial: w.dial})
		g := group(web, tcpCheck(), 3)
		g.Serves = func(port lb.PortKey, be netip.AddrPort) bool { return port == port80 && be != backend(2) }
		c.Set([]Group{g})
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(2)})
		c.Set([]Group{g}) // again, before any result
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(2)})
		running(t, c)
		after(700 * time.Millisecond)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(1, 2)})
		c.Set([]Group{g}) // the kernel serves a backend that is down
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(1, 2)})
	})
}

func TestPatienceGrowsWithTheNumberOfTargets(t *testing.T) {
	few, many := patienceWith(t, 600), patienceWith(t, 6000)
	if many < few+2*time.Second {
		t.Errorf("patience is %s with 600 targets and %s with 6000", few, many)
	}
}

// patienceWith returns the patience with n targets without an answer, and checks that they
// take as long.
func patienceWith(t *testing.T, n int) (patience time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := New(Options{Dial: w.dial, Concurrency: 1000})
		g := group(web, tcpCheck(), 0)
		for i := range n {
			a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
			g.Ports[0].Backends = append(g.Ports[0].Backends, lb.Backend{Addr: a, Weight: 1})
			w.set(a, errHang)
		}
		if got := c.Patience(); got != 0 {
			t.Errorf("patience of nothing is %s", got)
		}
		c.Set([]Group{g})
		patience = c.Patience()
		running(t, c)
		began := time.Now()
		must(t, c.Ready(context.Background()))
		if took := time.Since(began); took > patience || patience > took+2*time.Second {
			t.Errorf("%d targets: ready after %s with a patience of %s", n, took, patience)
		}
		if got := c.Patience(); got != 0 {
			t.Errorf("patience when all is known is %s", got)
		}
	})
	return patience
}

func TestStatesOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := start(t, w, Options{})
		c.Set([]Group{group(web, tcpCheck(), 2)})
		after(300 * time.Millisecond)
		wantHealth(t, c, allUp(web))

		w.set(backend(1), syscall.ECONNREFUSED) // checks at 1, 2 and 3 s fail
		after(2900*time.Millisecond - 300*time.Millisecond)
		wantHealth(t, c, allUp(web))
		after(200 * time.Millisecond)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(1)})
		got := c.Backends()[1]
		want := Backend{
			Service: web, Port: port80, Backend: backend(1), State: "down",
			Since: w.began.Add(3*time.Second + spread), Error: "connect 10.0.0.2:80: connection refused",
			Checked: w.began.Add(3*time.Second + spread), Checks: 4, Failures: 3, Flaps: 1,
		}
		if diff := cmp.Diff(want, got, addrs); diff != "" {
			t.Errorf("backend (-want +got):\n%s", diff)
		}

		w.set(backend(1), nil) // 4 and 5 s pass
		after(time.Second)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(1)})
		after(time.Second)
		wantHealth(t, c, allUp(web))
		c.Set([]Group{group(web, tcpCheck(), 2)})
		if got := c.Backends()[1]; got.Flaps != 2 || got.Checks != 6 {
			t.Errorf("%d flaps and %d checks after a reload, want 2 and 6", got.Flaps, got.Checks)
		}
	})
}

func TestQuorumIsLostAndComesBackWithHysteresis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 4 {
			w.set(backend(i), syscall.ECONNREFUSED)
		}
		w.set(backend(3), errHang) // no result before 500 ms
		c := start(t, w, Options{})
		check := tcpCheck()
		check.Rise = 1
		g := group(web, check, 4)
		g.Quorum, g.Hysteresis = 2, 1
		c.Set([]Group{g})

		after(400 * time.Millisecond)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(0, 1, 2, 3)})
		after(200 * time.Millisecond)
		lost := isDown(0, 1, 2, 3)
		lost.Lost = lost80
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: lost})

		w.set(backend(0), nil)
		w.set(backend(1), nil)
		after(time.Second)
		delete(lost.Down, backend(0))
		delete(lost.Down, backend(1))
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: lost})
		w.set(backend(2), nil)
		after(time.Second)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(3)})
	})
}

func TestEachFamilyHasItsOwnQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		six := netip.MustParseAddrPort("[2001:db8::1]:80")
		w.set(backend(0), syscall.ECONNREFUSED)
		c := start(t, w, Options{})
		g := group(web, tcpCheck(), 1)
		g.Ports[0].Backends = append(g.Ports[0].Backends, lb.Backend{Addr: six, Weight: 1})
		c.Set([]Group{g})
		after(100 * time.Millisecond)
		want := isDown(0)
		want.Lost = lost80 // and not for IPv6
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: want})
	})
}

func TestBackendsWithoutWeightAreAskedButDontCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(backend(0), syscall.ECONNREFUSED)
		c := start(t, w, Options{})
		g := group(web, tcpCheck(), 2)
		g.Ports[0].Backends[1].Weight = 0
		c.Set([]Group{g})
		after(100 * time.Millisecond)
		want := isDown(0)
		want.Lost = lost80
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: want})
	})
}

func TestReadyIsOfTheLatestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(backend(0), errHang)
		c := New(Options{Dial: w.dial})
		if err := c.Ready(context.Background()); err != nil {
			t.Errorf("Ready of nothing: %v", err)
		}
		c.Set([]Group{group(web, tcpCheck(), 1)})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ready before Run: %v, want %v", err, context.DeadlineExceeded)
		}
		began := time.Now()
		running(t, c)
		waited := make(chan time.Duration)
		go func() {
			if err := c.Ready(context.Background()); err != nil {
				t.Errorf("Ready: %v", err)
			}
			waited <- time.Since(began)
		}()
		after(400 * time.Millisecond)
		other := netip.MustParseAddrPort("10.9.9.9:80")
		g := group(dns, tcpCheck(), 1)
		g.Ports[0].Backends[0].Addr = other
		w.set(other, errHang)
		c.Set([]Group{group(web, tcpCheck(), 1), g})
		if got, want := <-waited, 900*time.Millisecond; got != want {
			t.Errorf("ready after %s, want %s", got, want)
		}
	})
}

func TestChangedReportsStatesAndSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := New(Options{Dial: w.dial})
		changed := func(when string, want bool) {
			t.Helper()
			got := false
			select {
			case <-c.Changed():
				got = true
			default:
			}
			if got != want {
				t.Errorf("changed %s: %t, want %t", when, got, want)
			}
		}
		changed("before anything", false)
		c.Set([]Group{group(web, tcpCheck(), 1)})
		changed("with Set", true)
		running(t, c)
		after(time.Millisecond)
		changed("with the first state", true)
		after(time.Minute)
		changed("in steady state", false)
		w.set(backend(0), syscall.ECONNREFUSED)
		after(time.Minute)
		changed("with another state", true)
	})
}

func TestLogsTransitionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := newWorld()
		c := start(t, w, Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))})
		c.Set([]Group{group(web, tcpCheck(), 1)})
		after(time.Hour)
		w.set(backend(0), syscall.ECONNREFUSED)
		after(time.Hour)
		want := `level=DEBUG msg="backend up" service=static/web port=80/tcp backend=10.0.0.1:80 reason="check passed"
level=INFO msg="backend down" service=static/web port=80/tcp backend=10.0.0.1:80 reason="connect 10.0.0.1:80: connection refused"
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestFirstResultsOfThousandsComeQuicklyButSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := start(t, w, Options{Concurrency: 4096})
		check := tcpCheck()
		check.Timeout = 3 * time.Second
		for i := range 2000 {
			w.set(backend(i), errHang)
		}
		c.Set([]Group{group(web, check, 2000)})
		must(t, c.Ready(context.Background()))
		if took := time.Since(w.began); took > check.Timeout+time.Second {
			t.Errorf("ready after %s, want at most 4s", took)
		}
		inOne := map[time.Duration]int{}
		for i := range 2000 {
			at := w.callsTo(backend(i))[0].Truncate(time.Millisecond)
			if inOne[at]++; inOne[at] > 10 {
				t.Fatalf("more than 10 first checks in the millisecond at %s", at)
			}
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := start(t, w, Options{Concurrency: 10})
		for i := range 100 {
			w.set(backend(i), errHang)
		}
		c.Set([]Group{group(web, tcpCheck(), 100)})
		must(t, c.Ready(context.Background()))
		if got := w.mostAtOnce(); got != 10 {
			t.Errorf("%d at once, want 10", got)
		}
		if got, want := time.Since(w.began).Round(10*time.Millisecond), 5*time.Second; got != want {
			t.Errorf("ready after %s, want %s", got, want)
		}
		if got := c.Stats().Behind; got < 4*time.Second {
			t.Errorf("behind by %s, want more than 4s", got)
		}
	})
}

func TestJitterStaysWithinItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := start(t, w, Options{})
		check := tcpCheck()
		check.Jitter = 0.2
		c.Set([]Group{group(web, check, 1)})
		after(5 * time.Minute)
		calls := w.callsTo(backend(0))
		seen := map[time.Duration]bool{}
		for i := 1; i < len(calls); i++ {
			wait := calls[i] - calls[i-1]
			seen[wait] = true
			if wait < 800*time.Millisecond || wait > 1200*time.Millisecond {
				t.Errorf("waited %s, want 800ms to 1.2s", wait)
			}
		}
		if len(seen) < 100 {
			t.Errorf("%d different waits in 5 minutes, want more", len(seen))
		}
	})
}

func TestSlowChecksDontOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(backend(0), errHang)
		c := start(t, w, Options{})
		check := tcpCheck()
		check.Timeout = 3 * time.Second
		c.Set([]Group{group(web, check, 1)})
		after(10 * time.Second)
		if diff := cmp.Diff([]time.Duration{0, 3e9, 6e9, 9e9}, w.callsTo(backend(0))); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if got := w.mostAtOnce(); got != 1 {
			t.Errorf("%d at once, want 1", got)
		}
	})
}

func TestFaultOfThisBoxIsNoResult(t *testing.T) {
	tests := []struct {
		name string
		dial func(w *world) Dial
		want string
	}{
		{"no file left", func(w *world) Dial {
			w.set(backend(0), syscall.EMFILE)
			return w.dial
		}, "connect 10.0.0.1:80: too many open files"},
		{"no port left", func(w *world) Dial {
			w.set(backend(0), syscall.EADDRNOTAVAIL)
			return w.dial
		}, "connect 10.0.0.1:80: cannot assign requested address"},
		{"stalled", func(*world) Dial {
			return func(ctx context.Context, _, _ string) (net.Conn, error) {
				time.Sleep(2 * time.Second) // four times the timeout
				return nil, ctx.Err()
			}
		}, "the check took 2s: connect 10.0.0.1:80: no answer within 500ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				w := newWorld()
				dial := w.dial
				c := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					w.mu.Lock()
					d := dial
					w.mu.Unlock()
					return d(ctx, network, address)
				}})
				running(t, c)
				c.Set([]Group{group(web, tcpCheck(), 1)})
				after(100 * time.Millisecond)
				broken := tt.dial(w)
				w.mu.Lock()
				dial = broken
				w.mu.Unlock()
				after(time.Minute)
				wantHealth(t, c, allUp(web))
				got := c.Stats()
				if got.Checks != 1 || got.Void < 20 {
					t.Errorf("stats %+v, want 1 check and many void ones", got)
				}
				if got := c.Backends()[0]; got.Error != tt.want || !got.Void {
					t.Errorf("error %q, void %v, want %q, true", got.Error, got.Void, tt.want)
				}
				if n := strings.Count(log.String(), "checks without a result"); n != 1 {
					t.Errorf("%d warnings, want 1:\n%s", n, log.String())
				}
				w.mu.Lock()
				dial = w.dial
				w.broken = map[string]error{}
				w.mu.Unlock()
				after(3 * time.Second)
				if c.Backends()[0].Void {
					t.Error("a check with a result is void")
				}
			})
		})
	}
}
