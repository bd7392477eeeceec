package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

// probed is a healthPorts whose ports are others in truth: those of tests that
// run beside each other are not to be the same.
type probed struct {
	*healthPorts
	healthy atomic.Bool
	refuse  error
	addrs   map[uint16]string
	opened  []netip.AddrPort
}

// home is where node ports are served in tests.
var home = []netip.Addr{netip.MustParseAddr("10.1.0.1")}

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
	p.healthPorts = newHealthPorts(slog.New(slog.DiscardHandler), p.healthy.Load)
	p.listen = func(at netip.AddrPort) (net.Listener, error) {
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
	t.Cleanup(p.closeAll)
	return p
}

// ask gives status, weight and body; "" when nobody listens.
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

func shop(name string) lb.ServiceID {
	return lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}
}

func TestHealthPortAnswersAsKubeProxyDoes(t *testing.T) {
	t.Parallel()
	p := newProbed(t)
	const form = `%d application/json nosniff %d {"service":{"namespace":"shop","name":"web"},"localEndpoints":%d,"serviceProxyHealthy":%v}`
	for _, tt := range []struct {
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
		p.set(map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: tt.endpoints}}, home, time.Now())
		want := fmt.Sprintf(form, tt.status, tt.endpoints, tt.endpoints, tt.healthy)
		for _, path := range []string{"/", "/healthz", "/any/other"} {
			if d := cmp.Diff(want, p.ask(t, 30000, path)); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, path, d)
			}
		}
	}
	if p.ok.Load() != 3 || p.bad.Load() != 6 {
		t.Errorf("counted %d and %d", p.ok.Load(), p.bad.Load())
	}
	p.set(nil, home, time.Now())
	if got := p.ask(t, 30000, "/"); got != "" {
		t.Errorf("after the Service has gone: %s", got)
	}
}

func TestAHealthPortThatCantBeOpenedIsNotedAndRetried(t *testing.T) {
	t.Parallel()
	p, now := newProbed(t), time.Now()
	checks := map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}
	p.refuse = fmt.Errorf("address already in use")
	p.set(checks, home, now)
	want := []lb.Note{{Service: shop("web"), Reason: lb.HealthPort, Text: "healthCheckNodePort 30000 can't be opened: address already in use"}}
	if d := cmp.Diff(want, p.Notes()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	if got := p.retry(); !got.Equal(now.Add(portRetry)) {
		t.Errorf("tried again in %s", got.Sub(now))
	}
	p.refuse = nil
	p.set(checks, home, now.Add(portRetry/2))
	if len(p.Notes()) != 1 {
		t.Error("it was tried again too early, or the note is gone")
	}
	p.set(checks, home, now.Add(portRetry))
	if len(p.Notes()) != 0 || !p.retry().IsZero() || p.ask(t, 30000, "/") == "" {
		t.Errorf("it is not open: %v", p.Notes())
	}
}

func TestHealthPortsAreWhereNodePortsAre(t *testing.T) {
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
		p.set(checks, step.addrs, now)
		if got := fmt.Sprint(p.opened); got != step.opened || len(p.ports[30000].listeners) != step.open || len(p.Notes()) != step.notes {
			t.Errorf("on %v: opened %s, %d are open, notes %v", step.addrs, got, len(p.ports[30000].listeners), p.Notes())
		}
		if got := p.open()[30000]; got != (step.open > 0) || !p.retry().IsZero() {
			t.Errorf("on %v: open %v, tried again at %s", step.addrs, got, p.retry())
		}
	}
}

func TestOneNumberOfTwoClustersIsTheFirstOnes(t *testing.T) {
	t.Parallel()
	p := newProbed(t)
	a, b := shop("web"), shop("web")
	b.Source = "stage"
	p.set(map[lb.ServiceID]lb.HealthCheck{b: {Port: 30000}, a: {Port: 30000, Endpoints: 7}}, home, time.Now())
	if got := p.ask(t, 30000, "/"); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	want := []lb.Note{{Service: b, Reason: lb.HealthPort, Text: "healthCheckNodePort 30000 belongs to prod/shop/web"}}
	if d := cmp.Diff(want, p.Notes()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

func TestProbesAreBounded(t *testing.T) {
	t.Parallel()
	p := newProbed(t)
	p.set(map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}}, home, time.Now())
	// Connections that ask nothing take the places; one more is closed.
	for range maxProbes {
		c, err := net.Dial("tcp", p.addrs[30000])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	extra, err := net.Dial("tcp", p.addrs[30000])
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close() //nolint:errcheck // it is closed already
	_ = extra.SetReadDeadline(time.Now().Add(probeTimeout / 2))
	if _, err := extra.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("one more than %d connections: %v", maxProbes, err)
	}
}
