package kube

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weirlab/goroutines"
	"weir/lb"
)

// TestNoGoroutineOfAHealthPortOutlivesIt opens and closes ports many times, with clients that ask, and clients that send
// half a request. Goroutines inherit the label of the test, so those of other tests do not count.
func TestNoGoroutineOfAHealthPortOutlivesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goroutines.Label(t)
		base := goroutines.Count(t)
		var last *goroutines.Listener
		h := NewHealthPorts(slog.New(slog.DiscardHandler), func() bool { return true })
		h.Listen = func(netip.AddrPort) (net.Listener, error) { last = goroutines.Listen(); return last, nil }
		checks := map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}
		for range 50 {
			h.Set(1, checks, nodeAddrs, time.Now())
			for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HT", ""} {
				last.Dial(request)
			}
			h.Set(2, nil, nodeAddrs, time.Now())
		}
		time.Sleep(probeTimeout + time.Second) // synctest skips it
		synctest.Wait()
		if n := goroutines.Count(t); n != base {
			t.Errorf("%d goroutines after 50 ports have come and gone, %d before", n, base)
		}
		h.Set(3, checks, nodeAddrs, time.Now())
		last.Dial("")
		h.Close()
		synctest.Wait()
		if n := goroutines.Count(t); n != base {
			t.Errorf("%d goroutines after Close, %d before", n, base)
		}
	})
}
