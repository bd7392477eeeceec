package load

import (
	"errors"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/source"
)

// TestKeysThatContradictEachOther has one problem each.
func TestKeysThatContradictEachOther(t *testing.T) {
	web := serviceText("web", "192.0.2.1")
	for _, tt := range []struct{ text, want string }{
		{"[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\nroute_source = [\"10.0.0.5\", \"2001:db8::1\"]\n" + web,
			`kernel.route_source: "2001:db8::1" has no effect: no range of route_pools is IPv6; remove it`},
		{"[bgp]\nasn = 64500\n[[bgp.peer]]\nname = \"tor1\"\nasn = 64501\naddress = \"10.0.0.1\"\nsource_address = \"10.0.0.1\"\n" + web,
			`bgp.peer.tor1.source_address: "10.0.0.1" is the address of the peer itself; use an address of the box`},
		{"[kernel]\nsysctls = [\"net.ipv4.conf.all.accept_local=0\"]\n" + web + "forward = \"direct\"\n[service.check]\ntype = \"tcp\"\naddress = \"vip\"\n",
			`kernel.sysctls: weir sets net.ipv4.conf.all.accept_local to "1", for checks of VIPs; remove it`},
		{"[kernel]\nmode = \"netfilter\"\n" + oneFleet + "placement = \"single\"\n[fleet.sync]\ninterface = \"eth2\"\n[l2]\ninterfaces = [\"eth0\"]\n" + web,
			`warning: fleet.sync.interface: has no effect: the sync needs IPVS, and kernel.mode is "netfilter"; use another mode there, or remove [fleet.sync]`},
		{web + "source_ranges = [\"2001:db8::/32\"]\n",
			`warning: service.web.source_ranges: there are IPv4 VIPs but no IPv4 range, so they refuse all clients; add one of that family, or remove these VIPs`},
	} {
		c, err := Parse("weir.toml", []byte(tt.text), keyFiles)
		problems := &source.Errors{}
		if !errors.As(err, &problems) {
			problems.Problems = c.Warnings
		}
		if len(problems.Problems) != 1 || !strings.HasSuffix(problems.Error(), tt.want) {
			t.Errorf("got %v, want %s", problems, tt.want)
		}
	}
}

// TestEqualListenAddresses have one listener, and a reload that only writes them in another way needs no restart.
func TestEqualListenAddresses(t *testing.T) {
	d := parse(t, "[daemon]\nhealth_listen = \"[::ffff:127.0.0.1]:09090\"\nmetrics_listen = \"127.0.0.1:9090\"\npage_listen = \"[0:0::1]:9090\"\n").Daemon
	if d.HealthListen != "127.0.0.1:9090" || d.MetricsListen != d.HealthListen || d.PageListen != "[::1]:9090" {
		t.Errorf("%q, %q, %q", d.HealthListen, d.MetricsListen, d.PageListen)
	}
}
