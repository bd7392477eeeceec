package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

// probed is a HealthPorts with other ports in truth: those of tests that
// run beside each other must differ.
type probed struct {
	*HealthPorts
	healthy atomic.Bool
	refuse  error
	addrs   map[uint16]string
	opened  []netip.AddrPort
}

// nodeAddrs is the address of node ports in tests.
var nodeAddrs = []netip.Addr{netip.MustParseAddr("10.1.0.1")}

// posing makes the listener of one port look as if it were another.
type posing struct {
	net.Listener
	port uint16
}

func (p posing) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	return posingConn{c, p.port}, err
}

type posingConn struct {
	net.Conn
	port uint16
}

func (c posingConn) LocalAddr() net.Addr { return &net.TCPAddr{Port: int(c.port)} }

func newProbed(t *testing.T) *probed {
	p := &probed{addrs: map[uint16]string{}}
	p.healthy.Store(true)
	p.HealthPorts = NewHealthPorts(slog.New(slog.DiscardHandler), p.healthy.Load)
	p.Listen = func(at netip.AddrPort) (net.Listener, error) {
		if p.refuse != nil {
			return nil, p.refuse
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p.addrs[at.Port()] = l.Addr().String()
		p.opened = append(p.opened, at)
		return posing{l, at.Port()}, nil
	}
	t.Cleanup(p.Close)
	return p
}

// ask gives status, weight and body; "" when the port is closed.
func (p *probed) ask(t *testing.T, port uint16, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + p.addrs[port] + path)
	if err != nil {
		return "" // the URL is that of a port that was open
	}
	defer resp.Body.Close() //nolint:errcheck // read whole
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	h := resp.Header
	return fmt.Sprintf("%d %s %s %s %s", resp.StatusCode, h.Get("Content-Type"), h.Get("X-Content-Type-Options"),
		h.Get("X-Load-Balancing-Endpoint-Weight"), strings.TrimSpace(string(body)))
}

func TestHealthPortAnswersAsKubeProxyDoes(t *testing.T) {
	t.Parallel()
	p := newProbed(t)
	const form = `%d application/json nosniff %d {"service":{"namespace":"shop","name":"web"},"localEndpoints":%d,"serviceProxyHealthy":%v}`
	for i, tt := range []struct {
		name      string
		endpoints int
		healthy   bool
		status    int
	}{
		{"endpoints", 2, true, 200},
		{"none", 0, true, 503},
		{"the box is not well", 2, false, 503},
	} {
		p.healthy.Store(tt.healthy)
		p.Set(uint64(i), map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: tt.endpoints}}, nodeAddrs, time.Now())
		want := fmt.Sprintf(form, tt.status, tt.endpoints, tt.endpoints, tt.healthy)
		for _, path := range []string{"/", "/healthz", "/any/other"} {
			if d := cmp.Diff(want, p.ask(t, 30000, path)); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, path, d)
			}
		}
	}
	if ok, unavailable := p.Answered(); ok != 3 || unavailable != 6 {
		t.Errorf("counted %d and %d", ok, unavailable)
	}
	p.Set(9, nil, nodeAddrs, time.Now())
	if got := p.ask(t, 30000, "/"); got != "" {
		t.Errorf("after the Service has gone: %s", got)
	}
}

func TestAFailedHealthPortHasANoteAndIsRetried(t *testing.T) {
	t.Parallel()
	p, now := newProbed(t), time.Now()
	checks := map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}
	p.refuse = fmt.Errorf("address already in use")
	p.Set(1, checks, nodeAddrs, now)
	want := []lb.Note{{Service: shop("web"), Reason: lb.HealthPort, Text: "healthCheckNodePort 30000 can't be opened: address already in use"}}
	if d := cmp.Diff(want, p.Notes()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	if got := p.Retry(); !got.Equal(now.Add(portRetry)) {
		t.Errorf("tried again in %s", got.Sub(now))
	}
	p.refuse = nil
	p.Set(1, checks, nodeAddrs, now.Add(portRetry/2))
	if len(p.Notes()) != 1 {
		t.Error("it was tried again too early, or the note is gone")
	}
	p.Set(1, checks, nodeAddrs, now.Add(portRetry))
	if len(p.Notes()) != 0 || !p.Retry().IsZero() || p.ask(t, 30000, "/") == "" {
		t.Errorf("it is not open: %v", p.Notes())
	}
}

func TestHealthPortsUseTheAddressesOfNodePorts(t *testing.T) {
	t.Parallel()
	p, now := newProbed(t), time.Now()
	checks := map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}
	old, young := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")
	for _, step := range []struct {
		addrs  []netip.Addr
		opened string // so far
		open   int
		notes  int
	}{
		{nil, "[]", 0, 1},
		{[]netip.Addr{old}, "[10.1.0.1:30000]", 1, 0},
		{[]netip.Addr{old, young}, "[10.1.0.1:30000 [fd00::1]:30000]", 2, 0},
		{[]netip.Addr{young}, "[10.1.0.1:30000 [fd00::1]:30000]", 1, 0},
		{nil, "[10.1.0.1:30000 [fd00::1]:30000]", 0, 1},
	} {
		p.Set(1, checks, step.addrs, now)
		if got := fmt.Sprint(p.opened); got != step.opened || len(p.ports[30000].listeners) != step.open || len(p.Notes()) != step.notes {
			t.Errorf("on %v: opened %s, %d are open, notes %v", step.addrs, got, len(p.ports[30000].listeners), p.Notes())
		}
		if got := p.Open()[30000]; got != (step.open > 0) || !p.Retry().IsZero() {
			t.Errorf("on %v: open %v, tried again at %s", step.addrs, got, p.Retry())
		}
	}
}

func TestTheFirstServiceOwnsADuplicatePort(t *testing.T) {
	t.Parallel()
	p := newProbed(t)
	a, b := shop("web"), shop("web")
	b.Source = "stage"
	p.Set(1, map[lb.ServiceID]lb.HealthCheck{b: {Port: 30000}, a: {Port: 30000, Endpoints: 7}}, nodeAddrs, time.Now())
	if got := p.ask(t, 30000, "/"); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	want := []lb.Note{{Service: b, Reason: lb.HealthPort, Text: "healthCheckNodePort 30000 belongs to prod/shop/web"}}
	if d := cmp.Diff(want, p.Notes()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

// stuck is a listener with an Accept that returns a while after Close.
type stuck struct{ closed, release chan struct{} }

func (l stuck) Accept() (net.Conn, error) { <-l.closed; <-l.release; return nil, net.ErrClosed }
func (l stuck) Close() error              { close(l.closed); return nil }
func (l stuck) Addr() net.Addr            { return &net.TCPAddr{} }

func TestCloseWaitsForTheGoroutinesOfPorts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := stuck{make(chan struct{}), make(chan struct{})}
		h := NewHealthPorts(slog.New(slog.DiscardHandler), func() bool { return true })
		h.Listen = func(netip.AddrPort) (net.Listener, error) { return l, nil }
		h.Set(1, map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}, nodeAddrs, time.Now())
		synctest.Wait()
		var closed atomic.Bool
		go func() { h.Close(); closed.Store(true) }()
		if synctest.Wait(); closed.Load() {
			t.Error("Close has not waited")
		}
		close(l.release)
		if synctest.Wait(); !closed.Load() {
			t.Error("Close waits for ever")
		}
	})
}

// Idle connections, however many, keep no load balancer from an answer.
func TestProbesAreBounded(t *testing.T) {
	t.Parallel()
	p := newProbed(t)
	p.server.ReadTimeout = time.Hour
	p.Set(1, map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}, nodeAddrs, time.Now())
	for range 2 * maxProbes {
		c, err := net.Dial("tcp", p.addrs[30000])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	if got := p.ask(t, 30000, "/"); !strings.HasPrefix(got, "200 ") && !strings.HasPrefix(got, "503 ") {
		t.Errorf("after %d idle connections: %q", 2*maxProbes, got)
	}
}

// A pass that changes no Service does not compare each port. A port that fails is noted in the next pass.
func TestSetChecksPortsOnlyAfterAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failing := failed{make(chan struct{})}
		h := NewHealthPorts(slog.New(slog.DiscardHandler), func() bool { return true })
		h.Listen = func(netip.AddrPort) (net.Listener, error) { return failing, nil }
		checks := map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}
		set := func(version uint64, addrs []netip.Addr, want bool) {
			t.Helper()
			if got := h.Set(version, checks, addrs, time.Now()); got != want {
				t.Errorf("checked: %v, want %v", got, want)
			}
		}
		set(0, nodeAddrs, true)
		set(0, nodeAddrs, false)
		set(1, nodeAddrs, false) // another Service has changed
		checks[shop("web")] = lb.HealthCheck{Port: 30000, Endpoints: 2}
		if set(2, nodeAddrs, false); h.ports[30000].endpoints != 2 {
			t.Errorf("%d endpoints", h.ports[30000].endpoints)
		}
		checks[shop("web")] = lb.HealthCheck{Port: 30001, Endpoints: 2}
		set(3, nodeAddrs, true)
		checks[shop("web")] = lb.HealthCheck{Port: 30000, Endpoints: 2}
		set(1, nodeAddrs, true)
		set(1, nil, true)
		set(1, nodeAddrs, true)
		close(failing.broken)
		synctest.Wait()
		if got := h.Retry(); !got.Equal(time.Now().Add(portRetry)) {
			t.Errorf("tried again at %s", got)
		}
		if set(1, nodeAddrs, true); len(h.Notes()) != 1 || len(h.Open()) != 0 {
			t.Errorf("notes %v, open %v", h.Notes(), h.Open())
		}
		set(1, nodeAddrs, false)
		failing.broken = make(chan struct{})
		time.Sleep(portRetry)
		if set(1, nodeAddrs, true); len(h.Notes()) != 0 || !h.Retry().IsZero() || !h.Open()[30000] {
			t.Errorf("after the retry: notes %v, open %v", h.Notes(), h.Open())
		}
		set(1, nodeAddrs, false)
		close(failing.broken)
		h.Close()
	})
}

// failed is a listener that fails when broken is closed.
type failed struct{ broken chan struct{} }

func (l failed) Accept() (net.Conn, error) { <-l.broken; return nil, errors.New("broken") }
func (l failed) Close() error              { return nil }
func (l failed) Addr() net.Addr            { return &net.TCPAddr{} }

// BenchmarkSet is a pass that changes nothing, and passes that change another Service, endpoints and a port, with all ports
// of a cluster.
func BenchmarkSet(b *testing.B) {
	last := shop("s32767")
	for name, change := range map[string]func(version uint64) lb.HealthCheck{
		"idle":      nil,
		"other":     func(uint64) lb.HealthCheck { return lb.HealthCheck{Port: 32767} },
		"endpoints": func(v uint64) lb.HealthCheck { return lb.HealthCheck{Port: 32767, Endpoints: int(v % 2)} },
		"port":      func(v uint64) lb.HealthCheck { return lb.HealthCheck{Port: uint16(32767 + v%2)} },
	} {
		b.Run(name, func(b *testing.B) {
			checks := map[lb.ServiceID]lb.HealthCheck{}
			for port := uint16(30000); port <= 32767; port++ {
				checks[shop(fmt.Sprint("s", port))] = lb.HealthCheck{Port: port}
			}
			h := NewHealthPorts(slog.New(slog.DiscardHandler), func() bool { return true })
			h.Listen = func(netip.AddrPort) (net.Listener, error) {
				ctx, end := context.WithCancel(b.Context())
				return silent{ctx, end}, nil
			}
			version := uint64(0)
			for h.Set(version, checks, nodeAddrs, time.Time{}); b.Loop(); {
				if change != nil {
					version++
					checks[last] = change(version)
				}
				h.Set(version, checks, nodeAddrs, time.Time{})
			}
			b.StopTimer()
			h.Set(version+1, nil, nil, time.Time{})
			h.Close()
		})
	}
}

// silent is a listener without connections.
type silent struct {
	ctx context.Context
	end context.CancelFunc
}

func (l silent) Accept() (net.Conn, error) { <-l.ctx.Done(); return nil, net.ErrClosed }
func (l silent) Close() error              { l.end(); return nil }
func (l silent) Addr() net.Addr            { return &net.TCPAddr{} }
