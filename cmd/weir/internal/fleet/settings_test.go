package fleet

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
)

func TestFloatingAddresses(t *testing.T) {
	t.Parallel()
	cfg, err := load.Parse("weir.toml", []byte(`
[kernel]
masquerade_source = ["10.2.0.250"]
[l2]
interfaces = ["eth0"]
[[l2.gateway]]
address = "10.2.0.254"
interface = "eth1"
`), source.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr][]string{
		netip.MustParseAddr("10.2.0.250"): {"eth0", "eth1"}, // the backends that it talks to are behind eth1
		netip.MustParseAddr("10.2.0.254"): {"eth1"},
	}
	if d := cmp.Diff(want, floatingAddresses(cfg), cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	cfg.L2 = nil
	if got := floatingAddresses(cfg); len(got) > 0 {
		t.Errorf("without [l2]: %v", got)
	}
}

const (
	fleetTOML = `
[fleet]
name = "tests"
member = "a"
bind = "10.9.0.1:7946"
insecure_without_key = true
mode = "active-standby"
preempt_delay = "30s"
`
	l2TOML = `
[l2]
interfaces = ["eth0"]
`
)

func parse(t *testing.T, toml string) *config.Config {
	t.Helper()
	cfg, err := load.Parse("weir.toml", []byte(toml), source.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestDigestOfRules(t *testing.T) {
	t.Parallel()
	gateway := "[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n"
	one := "placement = \"single\"\n"
	base := digestOfRules(parse(t, fleetTOML+one+l2TOML+gateway))
	for _, tt := range []struct {
		name, toml string
		same       bool
	}{
		{"another member", strings.Replace(fleetTOML, `"a"`, `"b"`, 1) + one + l2TOML + gateway, true},
		{"another interface", fleetTOML + one + strings.Replace(l2TOML, "eth0", "ens3", 1) + strings.Replace(gateway, "eth1", "ens4", 1), true},
		{"another weight", fleetTOML + one + "weight = 7\n" + l2TOML + gateway, true},
		{"another mode", strings.Replace(fleetTOML, "active-standby", "active-active", 1) + one + l2TOML + gateway, false},
		{"spread", fleetTOML + l2TOML, false},
		{"holders stay", strings.Replace(fleetTOML, `"30s"`, `"never"`, 1) + one + l2TOML + gateway, false},
		{"another gateway", fleetTOML + one + l2TOML + strings.Replace(gateway, "254", "253", 1), false},
		{"other VIPs", fleetTOML + one + l2TOML + "vips = [\"static\"]\n" + gateway, false},
	} {
		if same := digestOfRules(parse(t, tt.toml)) == base; same != tt.same {
			t.Errorf("%s: alike %v, want %v", tt.name, same, tt.same)
		}
	}
	more, vips := strings.Replace(gateway, "254", "253", 1), "vips = [\"LoadBalancer\", \"ExternalIP\"]\n"
	a, b := parse(t, fleetTOML+l2TOML+vips+gateway+more), parse(t, fleetTOML+l2TOML+vips+more+gateway)
	a.L2.Pools = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.0/24")}
	b.L2.Pools = []netip.Prefix{a.L2.Pools[1], a.L2.Pools[0]}
	slices.Reverse(b.L2.Kinds)
	if digestOfRules(a) != digestOfRules(b) {
		t.Error("the order of VIPs, pools and gateways counts")
	}
}
