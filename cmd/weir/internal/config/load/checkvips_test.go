package load

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weir/lb"
)

// TestChecksOfVIPs shows the consequences of address = "vip": the VIPs in the check, virtual servers
// for checks, and the kernel parameter.
func TestChecksOfVIPs(t *testing.T) {
	t.Parallel()
	const text = `[[service]]
name = "web"
vips = ["192.0.2.10", "2001:db8::10"]
ports = [80]
forward = "direct"
backends = ["10.0.0.1", "fd00::1"]
[service.check]
type = "http"
address = "vip"
`
	c := parse(t, text)
	want := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}
	if got := c.Checks[0].Check.VIPs; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("VIPs %v, want %v", got, want)
	}
	if !c.Services[0].CheckVIPs {
		t.Error("no virtual servers for checks")
	}
	parameter := func(text string) bool {
		for _, s := range parse(t, text).Base().Sysctls {
			if s == lb.OwnSourceSysctl() {
				return true
			}
		}
		return false
	}
	if !parameter(text) || parameter(strings.NewReplacer(`"192.0.2.10", `, "", `"10.0.0.1", `, "").Replace(text)) || parameter(strings.Replace(text, `address = "vip"`, "", 1)) || parameter("[kernel]\nmanage_sysctls = false\n"+text) {
		t.Error("accept_local does not follow the key")
	}
}

// TestConntrackIsForMasquerading shows when conntrack knows the connections of IPVS.
func TestConntrackIsForMasquerading(t *testing.T) {
	t.Parallel()
	const direct = "[[service]]\nname = \"a\"\nvips = [\"192.0.2.10\"]\nports = [80]\nforward = \"direct\"\nbackends = [\"10.0.0.1\"]\n"
	const nat = "[[service]]\nname = \"b\"\nvips = [\"192.0.2.11\"]\nports = [80]\nbackends = [\"10.0.0.1\"]\n"
	for _, tt := range []struct {
		name, text string
		want       bool
	}{
		{"no service", "", true},
		{"direct routing", direct, false},
		{"tunnels", strings.Replace(direct, "direct", "tunnel", 1), false},
		{"NAT", nat, true},
		{"both", direct + nat, true},
		{"checks of VIPs", direct + "[service.check]\ntype = \"tcp\"\naddress = \"vip\"\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := parse(t, tt.text).Base().Sysctls
			if on, off := slices.Contains(list, lb.ConntrackSysctl(true)), slices.Contains(list, lb.ConntrackSysctl(false)); on != tt.want || off == on {
				t.Errorf("conntrack is on: %t, off: %t", on, off)
			}
		})
	}
}
