package load

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/health"
)

const twoServices = `
[[service]]
name = "a"
vips = ["192.0.2.1"]
ports = ["80:8080"]
backends = ["10.0.0.1", "10.0.0.2"]
[service.check]
type = "tcp"
[[service]]
name = "b"
vips = ["192.0.2.2"]
ports = [80]
backends = ["10.0.0.3"]
[service.check]
type = "tcp"
`

func static(name string) lb.ServiceID { return lb.ServiceID{Source: config.Source, Name: name} }

func down(addr string) lb.Health {
	return lb.Health{Down: map[netip.AddrPort]bool{netip.MustParseAddrPort(addr): true}}
}

var addrs = cmp.Comparer(func(x, y netip.AddrPort) bool { return x == y })

func TestChangedBackendsKeepTheirHealthDuringAReload(t *testing.T) {
	t.Parallel()
	running := parse(t, twoServices)
	next := parse(t, `
[[service]]
name = "a"
vips = ["192.0.2.1"]
ports = ["80:9090"]
backends = ["10.0.0.1", "10.0.0.2"]
[service.check]
type = "tcp"
[[service]]
name = "b"
vips = ["192.0.2.2"]
ports = [80]
backends = ["10.0.0.3"]
[service.check]
type = "http"
[[service]]
name = "c"
vips = ["192.0.2.3"]
ports = [80]
backends = ["10.0.0.3"]
[service.check]
type = "tcp"
`)
	had := map[lb.ServiceID]lb.Health{static("a"): down("10.0.0.2:8080"), static("b"): {}}
	now := map[lb.ServiceID]lb.Health{static("a"): down("10.0.0.1:9090"), static("b"): down("10.0.0.3:80"), static("c"): {}}
	want := map[lb.ServiceID]lb.Health{static("a"): down("10.0.0.2:8080"), static("b"): down("10.0.0.3:80")}
	if diff := cmp.Diff(want, config.HealthDuring(running, next, had, now), addrs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestBackendsThatTheKernelServesWithGoOn(t *testing.T) {
	t.Parallel()
	front := lb.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP}
	var have lb.Table
	for _, rs := range []lb.RealServer{
		{Frontend: front, Addr: netip.MustParseAddrPort("10.0.0.1:8080"), Weight: 3},
		{Frontend: front, Addr: netip.MustParseAddrPort("10.0.0.2:8080")}, // as one that drains or is down
		{Frontend: front, Addr: netip.MustParseAddrPort("10.0.0.3:80"), Weight: 1},
	} {
		have.Put(rs)
	}
	c := health.New(health.Options{})
	c.Set(parse(t, twoServices).ChecksWith(&have))
	want := map[lb.ServiceID]lb.Health{static("a"): down("10.0.0.2:8080"), static("b"): down("10.0.0.3:80")}
	if diff := cmp.Diff(want, c.Health(), addrs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRestartKeepsBackendsOfAMark shows that backends of a firewall mark with checks of VIPs, for which
// nothing waits, keep their weight until the first result.
func TestRestartKeepsBackendsOfAMark(t *testing.T) {
	t.Parallel()
	c := parse(t, `
[[service]]
name = "a"
fwmark = 7
vips = ["192.0.2.1", "2001:db8::1"]
forward = "direct"
backends = ["10.0.0.1", "10.0.0.2", "fd00::1"]
[service.check]
type = "tcp"
port = 80
address = "vip"
`)
	var have lb.Table
	have.Put(lb.RealServer{Frontend: lb.GivenFrontend(lb.IPv4, 7), Addr: netip.MustParseAddrPort("10.0.0.1:0"), Weight: 1})
	have.Put(lb.RealServer{Frontend: lb.GivenFrontend(lb.IPv4, 7), Addr: netip.MustParseAddrPort("10.0.0.2:0")})
	have.Put(lb.RealServer{Frontend: lb.GivenFrontend(lb.IPv6, 7), Addr: netip.MustParseAddrPort("[fd00::1]:0"), Weight: 1})
	checks := health.New(health.Options{})
	checks.Set(c.ChecksWith(&have))
	want := map[lb.ServiceID]lb.Health{static("a"): down("10.0.0.2:0")}
	if diff := cmp.Diff(want, checks.Health(), addrs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
