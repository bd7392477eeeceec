package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/cmd/weirlab/lab"
)

// routeWatch receives the changes of the routes from the router's kernel.
type routeWatch struct {
	stop chan struct{}

	mu     sync.Mutex
	events []routeEvent
}

// routeEvent is one change. There are more of them than changes of what the route
// is: an IPv6 route with two next hops goes in two steps.
type routeEvent struct {
	at   time.Time
	to   netip.Prefix
	here bool // there is such a route now
}

// watchRoutes receives all changes from now on.
func watchRoutes(t testing.TB, router *lab.Machine) *routeWatch {
	t.Helper()
	w := &routeWatch{stop: make(chan struct{})}
	updates := make(chan netlink.RouteUpdate, 1024)
	must(t, router.Do(func() error { return netlink.RouteSubscribe(updates, w.stop) }))
	go func() {
		for u := range updates {
			if u.Dst == nil {
				continue
			}
			addr, _ := netip.AddrFromSlice(u.Dst.IP)
			bits, _ := u.Dst.Mask.Size()
			w.mu.Lock()
			w.events = append(w.events, routeEvent{time.Now(), netip.PrefixFrom(addr.Unmap(), bits), u.Type == syscall.RTM_NEWROUTE})
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() { close(w.stop) })
	return w
}

// of gives the changes of the route to a VIP since an instant.
func (w *routeWatch) of(vip string, since time.Time) []routeEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []routeEvent
	for _, e := range w.events {
		if e.to.Addr().String() == vip && e.to.IsSingleIP() && !e.at.Before(since) {
			out = append(out, e)
		}
	}
	return out
}

// first waits for the first change of that kind since an instant, and returns its time.
func (w *routeWatch) first(t testing.TB, vip string, here bool, since time.Time) (at time.Time) {
	t.Helper()
	eventually(t, routeWait, func() error {
		for _, e := range w.of(vip, since) {
			if e.here == here {
				at = e.at
				return nil
			}
		}
		return fmt.Errorf("the router's route to %s has not changed so: %v", vip, w.of(vip, since))
	})
	return at
}

// flaps counts how often a route went since an instant.
func (w *routeWatch) flaps(vip string, since time.Time) (n int) {
	for _, e := range w.of(vip, since) {
		if !e.here {
			n++
		}
	}
	return n
}

// dialAs dials from one of a client's addresses.
func dialAs(from *lab.Machine, addr string) func(ctx context.Context, network, to string) (net.Conn, error) {
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		return from.DialFrom(ctx, network, &net.TCPAddr{IP: net.ParseIP(addr)}, to)
	}
}
