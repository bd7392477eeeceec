package query

import (
	"fmt"
	"net/netip"
	"testing"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
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

func parse(t *testing.T, toml string) *config.Config {
	t.Helper()
	cfg, err := load.Parse("weir.toml", []byte(toml), source.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func static(name string) lb.ServiceID { return lb.ServiceID{Source: config.Source, Name: name} }

// served returns a Service with its own VIP.
func served(n int) lb.Service {
	return lb.Service{
		Scheduler: lb.Scheduler{Name: "rr"},
		ID:        lb.ServiceID{Source: "prod", Namespace: "shop", Name: fmt.Sprint("s", n)},
		VIPs:      []lb.VIP{{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})}},
		Ports:     []lb.Port{{Proto: lb.TCP, Port: 80, Backends: []lb.Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}}}},
	}
}
