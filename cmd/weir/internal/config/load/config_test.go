package load

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	fleet "weir/cluster"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
	"weir/lb/health"
)

func compare(a, b any) string {
	return cmp.Diff(a, b, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}, fleet.Key{}), cmpopts.EquateEmpty())
}

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	return parseWith(t, noFiles{}, text)
}

func addrPorts(texts ...string) []lb.Backend {
	var out []lb.Backend
	for _, s := range texts {
		out = append(out, lb.Backend{Addr: netip.MustParseAddrPort(s), Weight: 1})
	}
	return out
}

// TestEmptyFileIsDefaults repeats the defaults, so that a change of
// one is always intended.
func TestEmptyFileIsDefaults(t *testing.T) {
	got := parse(t, "")
	want := &config.Config{
		Files: []string{"weir.toml"},
		Kernel: config.Kernel{
			Mode: config.ModeAuto, DetectLocal: config.ClusterCIDR, NamePrefix: "KUBE", Device: "kube-ipvs0",
			Rules: config.RulesAuto, IPTables: config.IPTablesAuto,
			Families:      []lb.Family{lb.IPv4, lb.IPv6},
			MasqueradeBit: 14, Ping: true, ManageSysctls: true, DecapsulateMTU: 1500,
			SyncPeriod: 10 * time.Second, MinSyncPeriod: 50 * time.Millisecond,
		},
		Defaults: config.Defaults{Scheduler: lb.Scheduler{Name: "rr"}, Drain: 30 * time.Second},
		Daemon: config.Daemon{
			Socket: "/run/weir/weir.sock", HealthListen: "127.0.0.1:10266", MetricsListen: "127.0.0.1:10266", PageListen: "127.0.0.1:10266", MetricsBackends: true,
			LogLevel: slog.LevelInfo, LogFormat: config.LogText, OnStop: config.StopDrains, StopTimeout: time.Minute, StateDir: "/var/lib/weir",
		},
		Addresses: k8ssync.ProviderConfig{Namespace: "weir-system", Class: "weir/lb", DefaultClass: true, IPAM: ipam.Config{Retention: 10 * time.Minute}},
		Warnings:  []source.Problem{{Severity: source.Warning, File: "weir.toml", Key: "service", Text: "there are no services", Suggestion: "add a [[service]] or a [[kubernetes]]"}},
	}
	if diff := compare(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if mark := got.Kernel.Mark(); mark != 0x4000 {
		t.Errorf("mark %#x", mark)
	}
	base := lb.Base{Device: "kube-ipvs0", Families: got.Kernel.Families, Sysctls: lb.Sysctls(got.Kernel.Families)}
	if diff := compare(base, got.Kernel.Base()); diff != "" {
		t.Errorf("base -want +got:\n%s", diff)
	}
}

const fullService = `
[defaults]
scheduler = "mh"
[[service]]
name = "web"
type = "ClusterIP"
vips = ["192.0.2.10", "2001:db8::10"]
ports = [80, "443:8443", "53/udp"]
source_address = "keep"
source_ranges = ["203.0.113.0/24", "::/0"]
affinity_timeout = "1m"
drain_timeout = "0s"
when_down = "fallback"
fallback = ["10.0.0.9:8080", "[fd00::9]:8080"]
quorum = 2
hysteresis = 1
backends = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"]
[service.check]
type = "http"
port = 8080
interval = "5s"
timeout = "500ms"
jitter = "25%"
rise = 1
fall = 4
path = "/healthz?full=1"
host = "example.com:8080"
status = [200, "300-399"]
body = "ok"
`

func TestServiceAndItsCheck(t *testing.T) {
	c := parse(t, fullService)
	want := lb.Service{
		ID: lb.ServiceID{Source: config.Source, Name: "web"},
		VIPs: []lb.VIP{
			{Addr: netip.MustParseAddr("192.0.2.10"), Kind: lb.ClusterIP},
			{Addr: netip.MustParseAddr("2001:db8::10"), Kind: lb.ClusterIP},
		},
		Ports: []lb.Port{
			{Proto: lb.TCP, Port: 80, Backends: addrPorts("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "[fd00::1]:80")},
			{Proto: lb.TCP, Port: 443, Backends: addrPorts("10.0.0.1:8443", "10.0.0.2:8443", "10.0.0.3:8443", "[fd00::1]:8443")},
			{Proto: lb.UDP, Port: 53, Backends: addrPorts("10.0.0.1:53", "10.0.0.2:53", "10.0.0.3:53", "[fd00::1]:53")},
		},
		Scheduler: lb.Scheduler{Name: "mh", Flags: lb.Fallback | lb.WithPort},
		Affinity:  time.Minute, Keep: true, Restricted: true, Ranges: lb.RangesEverywhere,
		SourceRanges: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("::/0")},
		WhenDown:     lb.UseFallback,
		Fallback:     []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:8080"), netip.MustParseAddrPort("[fd00::9]:8080")},
	}
	if diff := compare([]lb.Service{want}, c.Services); diff != "" {
		t.Errorf("services -want +got:\n%s", diff)
	}
	group := health.Group{
		Service: want.ID, Ports: want.Ports, Quorum: 2, Hysteresis: 1,
		Check: health.Check{
			Kind: health.HTTP, Port: 8080, Interval: 5 * time.Second, Jitter: 0.25, Timeout: 500 * time.Millisecond,
			Rise: 1, Fall: 4, Path: "/healthz?full=1", Host: "example.com:8080",
			Status: []health.StatusRange{{From: 200, To: 200}, {From: 300, To: 399}}, Body: "ok",
		},
	}
	if diff := compare([]health.Group{group}, c.Checks); diff != "" {
		t.Errorf("checks -want +got:\n%s", diff)
	}
}

func TestBackendPorts(t *testing.T) {
	service := "[[service]]\nname = \"a\"\nvips = [\"192.0.2.10\", \"2001:db8::10\"]\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"of the service", `ports = [80]` + "\n" + `backends = ["10.0.0.1", "fd00::1"]`, []string{"10.0.0.1:80", "[fd00::1]:80"}},
		{"mapped", `ports = ["80:8080/tcp"]` + "\n" + `backends = ["10.0.0.1", "fd00::1"]`, []string{"10.0.0.1:8080", "[fd00::1]:8080"}},
		{"its own", `ports = ["80:8080"]` + "\n" + `backends = ["10.0.0.1:9", "10.0.0.1", "[fd00::1]:9"]`,
			[]string{"10.0.0.1:9", "10.0.0.1:8080", "[fd00::1]:9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, service+tt.text).Services[0].Ports[0].Backends
			if diff := compare(addrPorts(tt.want...), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSchedulerFlags(t *testing.T) {
	const both = lb.Fallback | lb.WithPort
	for _, tt := range []struct {
		name, defaults, service string
		want                    lb.Scheduler
	}{
		{"nothing said", "", "", lb.Scheduler{Name: "rr"}},
		{"mh has both", "", `scheduler = "mh"`, lb.Scheduler{Name: "mh", Flags: both}},
		{"unless it says no", "", "scheduler = \"mh\"\nscheduler_flags = []", lb.Scheduler{Name: "mh"}},
		{"sh has fallback", "", `scheduler = "sh"`, lb.Scheduler{Name: "sh", Flags: lb.Fallback}},
		{"unless it says so", "", "scheduler = \"sh\"\nscheduler_flags = [\"port\"]", lb.Scheduler{Name: "sh", Flags: lb.WithPort}},
		{"default", "scheduler = \"mh\"\nscheduler_flags = [\"port\"]", "", lb.Scheduler{Name: "mh", Flags: lb.WithPort}},
		{"same as default", "scheduler = \"sh\"\nscheduler_flags = [\"port\"]", `scheduler = "sh"`, lb.Scheduler{Name: "sh", Flags: lb.WithPort}},
		{"flags of another", "scheduler = \"mh\"\nscheduler_flags = [\"port\"]", `scheduler = "sh"`, lb.Scheduler{Name: "sh", Flags: lb.Fallback}},
		{"flags for the default", `scheduler = "mh"`, `scheduler_flags = ["fallback"]`, lb.Scheduler{Name: "mh", Flags: lb.Fallback}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parse(t, "[defaults]\n"+tt.defaults+"\n[[service]]\nname = \"a\"\nvips = [\"192.0.2.1\"]\nports = [1]\n"+tt.service)
			if got := c.Services[0].Scheduler; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDHDrainsOnlyWhenConfigured(t *testing.T) {
	const svc = "[[service]]\nname = \"a\"\nvips = [\"192.0.2.1\"]\nports = [1]\n"
	for _, tt := range []struct {
		name, toml string
		want       time.Duration
	}{
		{"rr drains", svc, 30 * time.Second},
		{"dh does not", svc + "scheduler = \"dh\"\n", 0},
		{"dh by default does not", "[defaults]\nscheduler = \"dh\"\ndrain_timeout = \"5s\"\n" + svc, 0},
		{"unless told to", svc + "scheduler = \"dh\"\ndrain_timeout = \"5s\"\n", 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.toml).Services[0].Drain; got != tt.want {
				t.Errorf("drain is %s, want %s", got, tt.want)
			}
		})
	}
}

func TestHashingWithoutFallbackIsWarnedOf(t *testing.T) {
	for _, tt := range []struct{ toml, want string }{
		{`scheduler = "dh"`, `weir.toml:5: warning: service.a.scheduler: "dh" sends a VIP's traffic to one backend, and refuses it while this backend has weight 0 or drains; use "sh" or "mh"`},
		{"scheduler = \"sh\"\nscheduler_flags = [\"port\"]", `weir.toml:6: warning: service.a.scheduler_flags: "sh" without "fallback" refuses the clients of a backend that is down or drains; add "fallback"`},
		{"scheduler = \"mh\"\nscheduler_flags = []", `weir.toml:6: warning: service.a.scheduler_flags: "mh" without "fallback" refuses the clients of a backend that is down or drains; add "fallback"`},
		{`scheduler = "sh"`, ""},
		{`scheduler = "mh"`, ""},
	} {
		t.Run(tt.toml, func(t *testing.T) {
			c := parse(t, "[[service]]\nname = \"a\"\nvips = [\"192.0.2.1\"]\nports = [1]\n"+tt.toml+"\nbackends = [\"10.0.0.1\"]\n")
			got := ""
			for _, w := range c.Warnings {
				got += w.String()
			}
			if got != tt.want {
				t.Errorf("warnings %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestPoolsHaveTheSourceOfTheirFamily(t *testing.T) {
	c := parse(t, `
[kernel]
vip_mode = "route"
route_pools = ["192.0.2.0/24", "2001:db8::/64", "198.51.100.0/24"]
route_source = ["10.0.0.1"]
`)
	src := netip.MustParseAddr("10.0.0.1")
	want := []lb.PoolRoute{
		{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Src: src},
		{Prefix: netip.MustParsePrefix("2001:db8::/64")},
		{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Src: src},
	}
	if diff := compare(want, c.Kernel.Pools); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDatagrams(t *testing.T) {
	c := parse(t, `
[[service]]
name = "dns"
vips = ["192.0.2.1"]
ports = ["53/udp"]
backends = ["10.0.0.1"]
[service.check]
type = "udp"
send = "hex:de ad BEEF"
expect = "hex"
`)
	check := c.Checks[0].Check
	if string(check.Send) != "\xde\xad\xbe\xef" || string(check.Expect) != "hex" {
		t.Errorf("send %q, expect %q", check.Send, check.Expect)
	}
}

const doubtful = `
[kernel]
sync_period = "1h"

[[service]]
name = "a"
vips = ["192.0.2.1", "2001:db8::1"]
ports = [80, "81/udp"]
source_address = "keep"
when_down = "fallback"
fallback = ["10.0.0.9:80"]
[[service.backend]]
address = "10.0.0.1"
weight = 0
[[service.backend]]
address = "fd00::7"
weight = 0
[service.check]
type = "tcp"

[[service]]
name = "b"
vips = ["192.0.2.2"]
ports = [80]
scheduler = "lc"
[[service.backend]]
address = "10.0.0.1"
[[service.backend]]
address = "10.0.0.2"
weight = 2
[[service.backend]]
address = "fd00::1"
weight = 0

[[service]]
name = "c"
vips = ["192.0.2.3"]
ports = [80]
`

const doubts = `
weir.toml:3: warning: kernel.sync_period: a wrong kernel state may persist for 1h; the default is "10s"
weir.toml:9: note: service.a.source_address: backends see the addresses of the clients; route their replies through this box
weir.toml:11: warning: service.a.fallback: there are IPv6 VIPs but no IPv6 fallback; add one of that family
weir.toml:12: warning: service.a.backend: all weights are 0, so no backend gets new connections; use a weight above 0 for one
weir.toml:19: warning: service.a.check.type: checks the backends over tcp, but 81/udp is not tcp; make sure that they answer there, or add port
weir.toml:26: warning: service.b.backend: the weights differ, but scheduler "lc" ignores weights; use "wrr" or "wlc"
weir.toml:32: warning: service.b.backend[3].address: "fd00::1" is never used: there is no IPv6 VIP; add one, or remove it
weir.toml:35: warning: service.c.backends: the service has no backends and refuses clients; add backends = ["10.0.0.1"]
`

func TestWarnings(t *testing.T) {
	c := parse(t, doubtful)
	got := (&source.Errors{Problems: c.Warnings}).Error()
	if diff := cmp.Diff(strings.TrimSpace(doubts), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if worst, ok := source.Worst(c.Warnings); !ok || worst != source.Warning {
		t.Errorf("worst %s, %t", worst, ok)
	}
}

// TestRestartNeeded changes every key that needs a restart by the schema.
func TestRestartNeeded(t *testing.T) {
	a := parse(t, "")
	b := parse(t, `
[kernel]
mode = "ipvs"
name_prefix = "WEIR"
device = "weir0"
rules = "nftables"
iptables = "nft"
families = ["ipv4"]
masquerade_bit = 15
ping = false
[defaults]
drain_timeout = "1s"
[daemon]
socket = "/run/w.sock"
health_listen = ""
metrics_listen = ""
page_listen = ""
log_format = "json"
log_level = "debug"
`)
	var want []string
	for _, k := range Schema().Keys() {
		if k.Restart {
			want = append(want, k.Path)
		}
	}
	if got := config.RestartNeeded(a, b); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := config.RestartNeeded(a, a); got != nil {
		t.Errorf("same configuration: %q", got)
	}
}

// large gives a configuration of n services with ten backends each.
func large(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[service]]\nname = \"s%d\"\nvips = [\"198.18.%d.%d\"]\nports = [\"80:8080\", 443]\nbackends = [\n", i, i/250, 1+i%250)
		for j := range 10 {
			fmt.Fprintf(&b, "\t\"10.%d.%d.%d\",\n", i/250, i%250, j+1)
		}
		b.WriteString("]\n[service.check]\ntype = \"tcp\"\n\n")
	}
	return b.String()
}

func BenchmarkParse(b *testing.B) {
	text := []byte(large(1000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse("weir.toml", text, noFiles{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAKeyThatNeedsARestartIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ toml, want string }{
		{"[daemon]\npage_listen = \"\"\nlog_format = \"json\"\n",
			"daemon.page_listen, daemon.log_format can't change while weir runs: systemctl restart weir, which loses no connection"},
		{"[kernel]\nname_prefix = \"X\"\n[daemon]\npage_listen = \"\"\n",
			"kernel.name_prefix, daemon.page_listen can't change while weir runs: a restart would leave the objects with the old ones behind. " +
				"Put the old file back, stop weir, run weir cleanup, which ends connections, and start weir with the new file"},
	} {
		if err := config.RefuseRestart(parse(t, ""), parse(t, tt.toml)); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	if err := config.RefuseRestart(parse(t, ""), parse(t, "[kernel]\nsync_period = \"1s\"\n")); err != nil {
		t.Errorf("sync_period: %v", err)
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A service takes nothing from the one before it.
func TestServicesAreReadApart(t *testing.T) {
	t.Parallel()
	const rich = `
[[service]]
name = "rich"
vips = ["192.0.2.1"]
ports = [80]
scheduler = "wrr"
affinity_timeout = "1m"
source_ranges = ["203.0.113.0/24"]
labels = { tier = "gold" }
when_down = "refuse"
quorum = 2
backend = [{ address = "10.0.0.1", weight = 7, max_connections = 10, min_connections = 5 }, { address = "10.0.0.2" }]
[service.check]
type = "http"
path = "/up"
host = "example.com"
status = [204]
body = "yes"
interval = "5s"
timeout = "4s"
`
	const plain = `
[[service]]
name = "plain"
vips = ["192.0.2.2"]
ports = [80]
backend = [{ address = "10.0.0.3" }]
[service.check]
type = "tcp"
`
	alone, after := parse(t, plain), parse(t, rich+plain)
	if diff := compare(alone.Services[0], after.Services[1]); diff != "" {
		t.Errorf("service (-alone +after another):\n%s", diff)
	}
	if diff := compare(alone.Checks[0], after.Checks[1]); diff != "" {
		t.Errorf("check (-alone +after another):\n%s", diff)
	}
}
