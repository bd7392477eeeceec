package load

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

func prefixesOf(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func rangesOf(t *testing.T, texts ...string) (out []ipam.Range) {
	t.Helper()
	for _, s := range texts {
		r, err := ipam.ParseRange(s)
		must(t, err)
		out = append(out, r)
	}
	return out
}

// routers is a machine with the passwords of routers.
var routers = memory{"/etc/weir/secrets/tor1": "s3cret word\r\n", "/etc/weir/secrets/open": "public s3cret"}

const providerText = `
[addresses]
lease_cluster = "prod"
lease_namespace = "net"
load_balancer_class = "example.com/lb"
default_class = false
ip_mode = "proxy"
retention = "1h"

[[kubernetes]]
name = "prod"
load_balancer_ranges = ["198.18.0.0/24"]

[[kubernetes]]
name = "test"
node_name = "n"
external_ip_ranges = ["198.19.0.0/24"]
service_cidrs = ["10.96.0.0/16"]

[[pool]]
name = "public"
addresses = ["192.0.2.0/24", "2001:db8::10-2001:db8::1f", "198.51.100.0-198.51.100.31"]
priority = 1
auto_assign = false
avoid_first_last = true
clusters = ["prod"]
namespaces = ["shop"]
labels = { tier = "gold", "example.com/team" = "" }
sharing_namespaces = ["shop", "mail"]
peers = ["tor1"]
communities = ["ours", "no-export", "64500:7:8"]
local_pref = 0
med = 0
prepend = 3
aggregation_length = 28
aggregation_length_v6 = 124

[[pool]]
name = "quiet"
addresses = ["203.0.113.0/25", "203.0.113.128/25"]
allow_sharing = false
announce = false

[[reservation]]
cluster = "prod"
namespace = "shop"
service = "web"
addresses = ["192.0.2.80", "2001:db8::18"]

[bgp]
asn = 64500
router_id = "10.0.0.9"
listen_port = 1179
listen_addresses = ["10.0.0.9", "::1"]
next_hop = "10.0.0.9"
graceful_restart = "0s"
reannounce_delay = "1s"
min_announced = "25%"
drain_delay = "3s"

[bgp.communities]
ours = "64500:100"
all = "64500:1:0"

[[bgp.peer]]
name = "tor1"
address = "10.0.0.1"
asn = 4200000000
local_asn = 64501
port = 1179
source_address = "10.0.0.9"
ttl_security = 1
password_file = "secrets/tor1"
hold_time = "10s"
connect_retry = "2s"
bfd = true
bfd_interval = "100ms"
bfd_multiplier = 5
families = ["ipv4"]
next_hop_v6 = "fd00::9"
standby = "prepend"
max_prefixes = 1

[[bgp.peer]]
name = "leaves"
range = "fd00:1::/64"
asn = 0

[[bgp.peer]]
name = "inner"
address = "fe80::1%eth0"
asn = 64500
passive = true
standby = "local_pref"
keepalive = "2s"

[[bgp.advertise]]
vips = ["ExternalIP", "ClusterIP"]
clusters = ["test"]
namespaces = ["kube-system"]
services = ["dns", "kube-system/dns"]
labels = { dns = "yes" }
peers = ["inner", "tor1"]
communities = ["all"]

[[bgp.advertise]]
pools = ["public"]
labels = { tier = "gold" }
announce = false
`

func TestProviderWithEverything(t *testing.T) {
	c := parseOn(t, routers, providerText)
	public := ipam.Pool{
		Name: "public", Ranges: rangesOf(t, "192.0.2.0/24", "2001:db8::10-2001:db8::1f", "198.51.100.0-198.51.100.31"), Priority: 1, AvoidFirstLast: true,
		Clusters: []string{"prod"}, Namespaces: []string{"shop"}, Labels: map[string]string{"tier": "gold", "example.com/team": ""},
		Sharing: ipam.Sharing{Namespaces: []string{"shop", "mail"}},
	}
	quiet := ipam.Pool{
		Name: "quiet", Ranges: rangesOf(t, "203.0.113.0/25", "203.0.113.128/25"), Priority: 100, AutoAssign: true, Sharing: ipam.Sharing{Off: true},
	}
	addresses := k8ssync.ProviderConfig{
		LeaseCluster: "prod", Namespace: "net", Class: "example.com/lb", IPMode: k8ssync.ModeProxy,
		IPAM: ipam.Config{
			Pools: []ipam.Pool{public, quiet}, Retention: time.Hour,
			Reservations: []ipam.Reservation{{
				Service: lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"},
				Addrs:   []netip.Addr{netip.MustParseAddr("192.0.2.80"), netip.MustParseAddr("2001:db8::18")},
			}},
		},
	}
	if diff := compare(addresses, c.Addresses); diff != "" {
		t.Errorf("addresses -want +got:\n%s", diff)
	}
	if err := c.Addresses.IPAM.Check(); err != nil {
		t.Error(err)
	}
	for i, want := range []struct {
		provided k8ssync.Provided
		labels   []string
	}{
		{k8ssync.Provided{Class: "example.com/lb", Ranges: slices.Concat(public.Ranges, quiet.Ranges)}, []string{"example.com/team", "tier"}},
		{k8ssync.Provided{Class: "example.com/lb", Ranges: quiet.Ranges}, []string{"dns", "tier"}},
	} {
		if diff := compare(want.provided, c.Clusters[i].Provided); diff != "" {
			t.Errorf("provided to %s -want +got:\n%s", c.Clusters[i].Name, diff)
		}
		if !slices.Equal(c.Clusters[i].Labels, want.labels) {
			t.Errorf("labels of %s: %q, want %q", c.Clusters[i].Name, c.Clusters[i].Labels, want.labels)
		}
	}
	checkSpeaker(t, c.BGP)
	checkPolicy(t, c.BGP)
}

func checkSpeaker(t *testing.T, b *config.BGP) {
	t.Helper()
	addr := netip.MustParseAddr
	want := bgp.Config{
		ASN: 64500, RouterID: addr("10.0.0.9"), ListenPort: 1179, ListenAddrs: []netip.Addr{addr("10.0.0.9"), addr("::1")},
		NextHops: bgp.NextHops{IPv4: addr("10.0.0.9")},
		Peers: []bgp.Peer{
			{
				Name: "tor1", Address: addr("10.0.0.1"), ASN: 4200000000, LocalASN: 64501, Port: 1179, Source: addr("10.0.0.9"), TTLSecurity: 1,
				Password: "s3cret word", Hold: 10 * time.Second, Keepalive: 3 * time.Second, ConnectRetry: 2 * time.Second,
				BFD:      bgp.BFD{Enabled: true, Interval: 100 * time.Millisecond, Multiplier: 5},
				Families: advertise.Families{IPv4: true}, MaxPrefixes: 1, NextHops: bgp.NextHops{IPv6: addr("fd00::9")},
			},
			{
				Name: "leaves", Range: netip.MustParsePrefix("fd00:1::/64"),
				Hold: 9 * time.Second, Keepalive: 3 * time.Second, ConnectRetry: 5 * time.Second,
				Families: advertise.Families{IPv4: true, IPv6: true}, MaxPrefixes: bgp.DefaultMaxPrefixes,
			},
			{
				Name: "inner", Address: addr("fe80::1%eth0"), ASN: 64500, Port: 179, Passive: true,
				Hold: 9 * time.Second, Keepalive: 2 * time.Second, ConnectRetry: 5 * time.Second,
				Families: advertise.Families{IPv4: true, IPv6: true}, MaxPrefixes: bgp.DefaultMaxPrefixes,
			},
		},
	}
	if diff := compare(want, b.Speaker); diff != "" {
		t.Errorf("speaker -want +got:\n%s", diff)
	}
	side := b.RouterSide("frr", "tor1")
	announced := prefixesOf("10.96.0.0/16", "192.0.2.0/24", "198.19.0.0/24", "198.51.100.0/27", "2001:db8::10/124")
	if side.Vendor != "frr" || side.Peer != "tor1" || side.PasswordFile != "/etc/weir/secrets/tor1" || !side.Aggregates || !slices.Equal(side.Prefixes, announced) {
		t.Errorf("router's side: %s %s %s %t %s", side.Vendor, side.Peer, side.PasswordFile, side.Aggregates, side.Prefixes)
	}
}

func checkPolicy(t *testing.T, b *config.BGP) {
	t.Helper()
	ofPublic := advertise.Match{Pools: []string{"public"}}
	want := advertise.Policy{
		ReannounceDelay: time.Second, MinAnnounced: 0.25,
		Peers: []advertise.Peer{
			{Name: "tor1", Families: advertise.Families{IPv4: true}, Standby: advertise.Handicap{Prepend: 3}},
			{Name: "leaves", Families: advertise.Families{IPv4: true, IPv6: true}, Standby: advertise.Handicap{MED: 100}},
			{Name: "inner", Families: advertise.Families{IPv4: true, IPv6: true}, Standby: advertise.Handicap{LocalPref: 50}},
		},
		Pools: map[string][]netip.Prefix{
			"public": prefixesOf("192.0.2.0/24", "2001:db8::10/124", "198.51.100.0/27"),
			"quiet":  prefixesOf("203.0.113.0/25", "203.0.113.128/25"),
		},
		Rules: []advertise.Rule{
			{
				Name: "advertise 1", Peers: []string{"inner", "tor1"}, LargeCommunities: []advertise.LargeCommunity{{ASN: 64500, Data1: 1}},
				Match: advertise.Match{
					Kinds: []advertise.Kind{advertise.ExternalIP, advertise.ClusterIP}, Sources: []string{"test"}, Namespaces: []string{"kube-system"},
					Services: []string{"dns", "kube-system/dns"}, Labels: map[string]string{"dns": "yes"},
				},
			},
			{
				Name: "advertise 2", Refuse: true,
				Match: advertise.Match{Kinds: []advertise.Kind{advertise.LoadBalancer, advertise.Static}, Pools: []string{"public"}, Labels: map[string]string{"tier": "gold"}},
			},
			{
				Name: "pool public", Match: ofPublic, Peers: []string{"tor1"},
				Communities: []advertise.Community{64500<<16 | 100, advertise.NoExport}, LargeCommunities: []advertise.LargeCommunity{{ASN: 64500, Data1: 7, Data2: 8}},
				LocalPref: advertise.MetricOf(0), MED: advertise.MetricOf(0), Prepend: 3, Aggregate4: 28, Aggregate6: 124,
			},
			{Name: "pool public", Match: ofPublic, Refuse: true}, // to all other peers
			{Name: "pool quiet", Match: advertise.Match{Pools: []string{"quiet"}}, Refuse: true},
		},
	}
	if diff := compare(want, b.Policy); diff != "" {
		t.Errorf("policy -want +got:\n%s", diff)
	}
	if b.DrainDelay != 3*time.Second {
		t.Errorf("drain delay %s", b.DrainDelay)
	}
}

// odd are values at the edges of what may be written, by type.
var odd = map[schema.Type][]string{
	schema.Bool:     {`true`, `false`},
	schema.Integer:  {`0`, `1`, `2`, `8`, `24`, `255`, `23456`, `65535`, `4294967295`},
	schema.Duration: {`"0s"`, `"10ms"`, `"1s"`, `"1500ms"`, `"3s"`, `"4s"`, `"1m"`, `"4095s"`, `"65535s"`},
	schema.Percent:  {`"0%"`, `"100%"`},
	schema.Text: {
		`""`, `"a"`, `"10.0.0.1"`, `"0.0.0.0"`, `"127.0.0.1"`, `"255.255.255.255"`, `"::"`, `"::1"`, `"fd00::1"`, `"fe80::1"`, `"fe80::1%eth0"`,
		`"::ffff:10.0.0.1"`, `"10.0.0.0/8"`, `"0.0.0.0/0"`, `"fd00::/8"`, `"prod"`, `"static"`,
	},
	schema.Texts: {
		`[]`, `["240.0.0.1"]`, `["10.0.0.1"]`, `["::"]`, `["fe80::1%eth0"]`, `["::fffe:0:0/95"]`, `["10.7.0.0-10.7.0.0"]`, `["fd00::/16"]`,
		`["198.51.100.80/32", "10.6.0.1"]`, `["0.0.0.0/8"]`, `["239.255.255.255-240.0.0.1"]`, `["prod"]`, `["public"]`, `["tor1"]`, `["*"]`,
	},
	schema.Map: {`{}`, `{ a = "" }`, `{ a = "1:1" }`, `{ a = "1:1:1", b = "no-export" }`},
}

// TestValidConfigurationIsValidToAllReaders shows that the speaker and the allocator take what
// is let pass of each key.
func TestValidConfigurationIsValidToAllReaders(t *testing.T) {
	valid := 0
	for _, k := range Schema().Keys() {
		table, name := source.Split(k.Path)
		for _, value := range odd[k.Type] {
			text := document(table, name+" = "+value)
			if name == "range" { // it replaces the address
				before, peer, _ := strings.Cut(text, "[[bgp.peer]]")
				text = before + "[[bgp.peer]]" + strings.Replace(peer, "address = \"10.0.0.1\"\n", "", 1)
			}
			if name != "router_id" {
				text = strings.Replace(text, "asn = 64500\n", "asn = 64500\nrouter_id = \"10.0.0.9\"\n", 1)
			}
			if c, err := Parse("weir.toml", []byte(text), memory{"fleet.key": clusterKey}); err == nil {
				valid++
				checkParts(t, c)
				if t.Failed() {
					t.Fatalf("%s = %s", k.Path, value)
				}
			}
		}
	}
	if valid < 300 {
		t.Errorf("only %d configurations are valid", valid)
	}
}
