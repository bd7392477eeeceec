package load

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"

	"weir/lb"
)

const hashedService = "[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [\"80\"]\nbackends = [\"10.2.0.1\"]\nscheduler = \"mh\"\nsource_address = \"keep\"\n"

func TestFleetSync(t *testing.T) {
	c := parseWith(t, keyFiles, oneFleet+"[fleet.sync]\ninterface = \"eth2\"\n")
	group := netip.MustParseAddrPort("224.0.0.81:8848")
	id := c.Fleet.Sync.ID
	if again := parseWith(t, keyFiles, oneFleet+"[fleet.sync]\ninterface = \"eth2\"\n").Fleet.Sync.ID; id == 0 || id != again {
		t.Errorf("box1 has the ids %d and %d", id, again)
	}
	want := []lb.SyncDaemon{
		{Role: lb.SyncMaster, Interface: "eth2", SyncID: id, Group: group, TTL: 1, MaxLen: 1452},
		{Role: lb.SyncBackup, Interface: "eth2", Group: group, TTL: 1, MaxLen: 1452},
	}
	if got := c.Base().Sync; !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	has := func(c *config.Config, s lb.Sysctl) bool { return slices.Contains(c.Base().Sysctls, s) }
	refresh := lb.Sysctl{Name: "net.ipv4.vs.sync_refresh_period", Value: "10"}
	without := parseWith(t, keyFiles, oneFleet)
	if !has(c, refresh) || has(without, refresh) || len(without.Base().Sync) > 0 {
		t.Error("sync_refresh_period is for [fleet.sync], and for nothing else")
	}
}

func TestSloppyTCP(t *testing.T) {
	for _, sloppy := range []string{"true", "false"} {
		c := parseWith(t, keyFiles, "[kernel]\nsloppy_tcp = "+sloppy+"\n")
		for _, name := range []string{"net.ipv4.vs.sloppy_tcp", "net.netfilter.nf_conntrack_tcp_loose", "net.netfilter.nf_conntrack_tcp_be_liberal"} {
			if got := slices.Contains(c.Base().Sysctls, lb.Sysctl{Name: name, Value: "1"}); got != (sloppy == "true") {
				t.Errorf("sloppy_tcp = %s: %s is set: %v", sloppy, name, got)
			}
		}
	}
}

func TestSloppyTCPIsLeftToTheManagerOfSysctls(t *testing.T) {
	c := parseWith(t, keyFiles, "[kernel]\nsloppy_tcp = true\nmanage_sysctls = false\n")
	told := slices.ContainsFunc(c.Warnings, func(p source.Problem) bool { return strings.Contains(p.String(), "net.ipv4.vs.sloppy_tcp") })
	if !c.Kernel.SloppyTCP || !told || len(c.Base().Sysctls) > 0 {
		t.Errorf("sloppy %v, told %v, sysctls %v", c.Kernel.SloppyTCP, told, c.Base().Sysctls)
	}
}

func TestMasqueradeSource(t *testing.T) {
	c := parseWith(t, keyFiles, "[kernel]\nmasquerade_source = [\"2001:db8::250\", \"10.0.0.250\"]\n"+oneFleet)
	want := []netip.Addr{netip.MustParseAddr("10.0.0.250"), netip.MustParseAddr("2001:db8::250")}
	if !slices.Equal(c.Kernel.MasqueradeSource, want) || !slices.Equal(c.Base().Sources, want) {
		t.Errorf("got %v and %v, want %v", c.Kernel.MasqueradeSource, c.Base().Sources, want)
	}
	if !c.Fleet.Rules.SingleOwner {
		t.Error("it has another owner than the VIPs")
	}
}

// Routers must let it in, too.
func TestMasqueradeSourceIsAnnounced(t *testing.T) {
	routers := "mode = \"active-standby\"\n[bgp]\nasn = 64500\n[[bgp.peer]]\nname = \"tor1\"\naddress = \"10.0.0.1\"\nasn = 64501\n"
	host := netip.MustParsePrefix("10.0.0.250/32")
	for rule, want := range map[string]bool{"": true, "[[bgp.advertise]]\nvips = [\"static\"]\n": true, "[[bgp.advertise]]\nvips = [\"ClusterIP\"]\n": false} {
		c := parseWith(t, keyFiles, "[kernel]\nmasquerade_source = [\"10.0.0.250\"]\n"+oneFleet+routers+rule)
		if got := slices.Contains(c.BGP.Announced, host); got != want {
			t.Errorf("with %q announced is %v", rule, c.BGP.Announced)
		}
	}
}

func TestTakeoverProblems(t *testing.T) {
	sync := oneFleet + "[fleet.sync]\n"
	for _, tt := range []struct{ name, toml, want string }{
		{"two of a family", "[kernel]\nmasquerade_source = [\"10.0.0.1\", \"10.0.0.2\"]\n", "are of the same family"},
		{"another family", "[kernel]\nfamilies = [\"ipv4\"]\nmasquerade_source = [\"2001:db8::1\"]\n", "not in families"},
		{"loopback", "[kernel]\nmasquerade_source = [\"127.0.0.1\"]\n", "127.0.0.1"},
		{"several owners", "[kernel]\nmasquerade_source = [\"10.0.0.1\"]\n" + oneFleet + "placement = \"spread\"\n", `use placement = "single"`},
		{"routers lead to all", "[kernel]\nmasquerade_source = [\"10.0.0.250\"]\n" + oneFleet + "[bgp]\nasn = 64500\n[[bgp.peer]]\nname = \"tor1\"\naddress = \"10.0.0.1\"\nasn = 64501\n", `use mode = "active-standby"`},
		{"a VIP", "[kernel]\nmasquerade_source = [\"192.0.2.1\"]\n" + hashedService, "is a VIP of"},
		{"a sysctl twice", "[kernel]\nsloppy_tcp = true\nsysctls = [\"net.ipv4.vs.sloppy_tcp=1\"]\n", "weir sets net.ipv4.vs.sloppy_tcp itself"},
		{"another value for sync", "[kernel]\nsysctls = [\"net.ipv4.vs.sync_threshold=3 50\"]\n" + sync + "interface = \"eth2\"\n", `weir sets net.ipv4.vs.sync_threshold to "0 0", for [fleet.sync]; remove it`},
		{"no interface", sync, "interface"},
		{"no such interface", sync + "interface = \"lo\"\n", "is not an interface"},
		{"the device", sync + "interface = \"kube-ipvs0\"\n", "which is not connected to any host"},
		{"id 0", sync + "interface = \"eth2\"\nid = 0\n", "1"},
		{"no multicast", sync + "interface = \"eth2\"\ngroup = \"10.0.0.1:8848\"\n", "is not a multicast address"},
		{"multicast of IPv4 as IPv6", sync + "interface = \"eth2\"\ngroup = \"[::ffff:224.0.0.81]:8848\"\n", "is not a multicast address"},
		{"a zone", sync + "interface = \"eth2\"\ngroup = \"[ff02::81%eth2]:8848\"\n", "is not a multicast address"},
		{"no port", sync + "interface = \"eth2\"\ngroup = \"224.0.0.81\"\n", "is not a multicast address"},
	} {
		_, err := Parse("weir.toml", []byte(tt.toml), keyFiles)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A box that preempts VIPs before it has received their connections cuts them.
func TestPreemptDelayBeforeConnectionsAreKnown(t *testing.T) {
	for back, want := range map[string]bool{"19s": true, "20s": false, "never": false} {
		c := parseWith(t, keyFiles, oneFleet+"preempt_delay = \""+back+"\"\n[fleet.sync]\ninterface = \"eth2\"\n")
		got := slices.ContainsFunc(c.Warnings, func(p source.Problem) bool { return strings.Contains(p.String(), "too short for [fleet.sync]") })
		if got != want {
			t.Errorf("preempt_delay = %s: warned %t, want %t", back, got, want)
		}
	}
}

// A box with mh in a fleet gets a warning about what is missing.
func TestTakeoverNote(t *testing.T) {
	for _, tt := range []struct {
		toml string
		want bool
	}{
		{oneFleet + hashedService, true},
		{hashedService, false},
		{"[kernel]\nsloppy_tcp = true\n" + oneFleet + hashedService, false},
		{oneFleet + "[fleet.sync]\ninterface = \"eth2\"\n" + hashedService, false},
		{oneFleet + strings.Replace(hashedService, "mh", "rr", 1), false},
	} {
		c := parseWith(t, keyFiles, tt.toml)
		got := slices.ContainsFunc(c.Warnings, func(p source.Problem) bool { return strings.Contains(p.String(), "sloppy_tcp") })
		if got != tt.want {
			t.Errorf("told %v, want %v:\n%s", got, tt.want, tt.toml)
		}
	}
}

// TestSyncOfMixedFamilies has the kernel refuse either of the two.
func TestSyncOfMixedFamilies(t *testing.T) {
	t.Parallel()
	mixed := "[[service]]\nname = \"web\"\nvips = [\"2001:db8::10\"]\nports = [80]\nforward = \"tunnel\"\nbackends = [\"10.0.0.1\"]\n"
	if c := parseWith(t, keyFiles, oneFleet+mixed); len(c.Services) != 1 {
		t.Errorf("without sync: %+v", c.Services)
	}
	_, err := Parse("weir.toml", []byte(oneFleet+"[fleet.sync]\ninterface = \"eth2\"\n"+mixed), keyFiles)
	if want := `service.web.vips: "2001:db8::10" has backends of the other family, and the kernel does not sync connections of mixed families`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("with sync: %v", err)
	}
}
