package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/lb"
)

// vipBox is a box with a connection to VIPs, or a fault.
type vipBox struct {
	fault error
	dial  func(ctx context.Context, to string) (net.Conn, error)
}

func (b vipBox) Dial(ctx context.Context, network, address string, at lb.CheckTarget) (net.Conn, error) {
	return b.dial(ctx, network+" "+address+" at "+at.Service.Name+" "+at.Backend.String())
}

func (b vipBox) Fault(context.Context, lb.CheckTarget) error { return b.fault }

// TestVIPReasons distinguishes a server without the VIP from one that is down.
func TestVIPReasons(t *testing.T) {
	t.Parallel()
	accept := func(context.Context) (net.Conn, error) { c, _ := net.Pipe(); return c, nil }
	hang := func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	refuse := func(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	unreachable := func(context.Context) (net.Conn, error) { return nil, syscall.EHOSTUNREACH }
	missing := func(context.Context) (net.Conn, error) { return nil, lb.ErrNoCheckServer }
	type dial func(context.Context) (net.Conn, error)
	for _, tt := range []struct {
		name     string
		own, vip dial
		fault    error
		want     string
	}{
		{"has it", hang, accept, nil, ""},
		{"lacks it", accept, hang, nil, "the server does not have VIP 192.0.2.10: no answer from it within 1s, and one from 10.0.0.1:80"},
		{"lacks it, and nothing listens", refuse, hang, nil, "the server does not have VIP 192.0.2.10"},
		{"is down", hang, hang, nil, "connect 192.0.2.10:80: no answer within 1s"},
		{"is unreachable", unreachable, hang, nil, "connect 192.0.2.10:80: no answer within 1s"},
		{"has it, and nothing listens", accept, refuse, nil, "connect 192.0.2.10:80: connection refused"},
		{"is answered, and this box drops that", accept, hang, fmt.Errorf("rp_filter is 1: %w", lb.ErrRepliesDropped), "rp_filter is 1"},
		{"is not in the kernel", accept, missing, nil, lb.ErrNoCheckServer.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				ask := askVIPs([]netip.Addr{netip.MustParseAddr("2001:db8::10"), netip.MustParseAddr("192.0.2.10")}, askTCP,
					vipBox{tt.fault, func(ctx context.Context, to string) (net.Conn, error) {
						asked = append(asked, to)
						return tt.vip(ctx)
					}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				own := func(ctx context.Context, _, _ string) (net.Conn, error) { return tt.own(ctx) }
				err := ask(ctx, own, target{"10.0.0.1:80", time.Second, lb.ServiceID{Name: "web"}})
				if got := problem(err); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
					t.Errorf("reason %q, want %q", got, tt.want)
				}
				if len(asked) != 1 || asked[0] != "tcp 192.0.2.10:80 at web 10.0.0.1" {
					t.Errorf("asked %q", asked)
				}
				if localFault(err, time.Second, time.Second) != (errors.Is(err, lb.ErrNoCheckServer) || errors.Is(err, lb.ErrRepliesDropped)) {
					t.Errorf("is %v a fault of this box?", err)
				}
			})
		})
	}
}

// TestDroppedRepliesAreNoResult shows that a backend keeps its state while this box drops the replies,
// with one warning; without answers at the own address too, with datagrams only.
func TestDroppedRepliesAreNoResult(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		check Check
		own   bool // the own address answers
		want  string
	}{
		{"tcp", tcpCheck(), true, "up"},
		{"tcp, and the server is down", tcpCheck(), false, "down"},
		{"udp", Check{Kind: UDP, Send: []byte("?"), Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}, false, "up"},
		{"dns", Check{Kind: DNS, DNSName: "example.org", DNSType: "A", Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}, false, "up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				silent := func(ctx context.Context, network string) (net.Conn, error) {
					if network == "udp" {
						c, other := net.Pipe()
						go func() { _, _ = io.Copy(io.Discard, other) }()
						return c, nil
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				fault := fmt.Errorf("rp_filter is 1 on back: %w", lb.ErrRepliesDropped)
				c := New(Options{
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
						if tt.own {
							return nil, syscall.ECONNREFUSED
						}
						return silent(ctx, network)
					},
					VIPs: vipBox{fault, func(ctx context.Context, to string) (net.Conn, error) { return silent(ctx, to[:3]) }},
				})
				tt.check.VIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10")}
				g := group(web, tt.check, 2)
				g.Serves = func(lb.PortKey, netip.AddrPort) bool { return true }
				c.Set([]Group{g})
				running(t, c)
				after(10 * time.Second)
				down := c.Health()[web].Down
				if got := map[bool]string{true: "up", false: "down"}[len(down) == 0]; got != tt.want {
					t.Errorf("the backends are %s, want %s", got, tt.want)
				}
				if n := strings.Count(log.String(), "checks without a result"); n != map[string]int{"up": 1, "down": 0}[tt.want] {
					t.Errorf("%d warnings:\n%s", n, &log)
				}
			})
		})
	}
}

// TestVIPsAreAskedSideBySide shows that no VIP takes the time of another, nor hides that a later one is missing.
func TestVIPsAreAskedSideBySide(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context) (net.Conn, error) {
		select {
		case <-time.After(700 * time.Millisecond):
			c, _ := net.Pipe()
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	answer := func(context.Context) (net.Conn, error) { c, _ := net.Pipe(); return c, nil }
	hang := func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	refuse := func(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	type dial func(context.Context) (net.Conn, error)
	for _, tt := range []struct {
		name   string
		count  int
		first  dial
		others dial
		want   string
		took   time.Duration
	}{
		{"a slow server", 20, slow, slow, "", 700 * time.Millisecond},
		{"one slow, the others missing", 3, slow, hang, "does not have VIP 192.0.2.1: no answer from it within 1s", time.Second},
		{"one missing", 3, hang, answer, "does not have VIP 192.0.2.0: no answer from it within 1s", time.Second},
		{"one refused ends the others", 3, refuse, hang, "connect 192.0.2.0:80: connection refused", 0},
		{"more than at once", 3 * vipsAtOnce, answer, answer, "", 0},
		{"more than at once, and all missing", 2 * vipsAtOnce, hang, hang, "does not have VIP 192.0.2.0: no answer from it within 500ms", time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var vips []netip.Addr
				for i := range tt.count {
					vips = append(vips, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
				}
				var now, most atomic.Int32
				ask := askVIPs(vips, askTCP, vipBox{nil, func(ctx context.Context, to string) (net.Conn, error) {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					if strings.HasPrefix(to, "tcp 192.0.2.0:") {
						return tt.first(ctx)
					}
					return tt.others(ctx)
				}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin := time.Now()
				own := func(ctx context.Context, _, _ string) (net.Conn, error) { return answer(ctx) }
				got := problem(ask(ctx, own, target{"10.0.0.1:80", time.Second, lb.ServiceID{Name: "web"}}))
				if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
					t.Errorf("reason %q, want %q", got, tt.want)
				}
				if took := time.Since(begin); took != tt.took || most.Load() > vipsAtOnce {
					t.Errorf("it took %s, want %s, with %d side by side", took, tt.took, most.Load())
				}
			})
		})
	}
}

// TestReadyDoesNotAwaitVIPs shows that the first Sync is not delayed by checks that need it.
func TestReadyDoesNotAwaitVIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inKernel atomic.Bool
		c := New(Options{VIPs: vipBox{nil, func(context.Context, string) (net.Conn, error) {
			if !inKernel.Load() {
				return nil, lb.ErrNoCheckServer
			}
			conn, _ := net.Pipe()
			return conn, nil
		}}})
		check := tcpCheck()
		check.VIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10")}
		c.Set([]Group{group(web, check, 2)})
		running(t, c)
		if err := c.Ready(t.Context()); err != nil || c.Patience() != 0 {
			t.Errorf("Ready: %v, patience %s", err, c.Patience())
		}
		after(3 * time.Second)
		if b := c.Backends()[0]; b.State != "unknown" || !strings.Contains(b.Error, lb.ErrNoCheckServer.Error()) {
			t.Errorf("before the virtual server: %+v", b)
		}
		inKernel.Store(true)
		after(2 * time.Second)
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: {}})
	})
}
