package status

import (
	"testing"
	"time"
)

var pools = Pools{
	Pools: []Pool{
		{Name: "public", Ranges: []string{"192.0.2.0/24"}, Priority: 1, AutoAssign: true, Size: 256, Used: 12, Retained: 1, Reserved: 2, Foreign: 1, Avoided: 2, Free: 238, OutsidePool: 1, Pending: map[string]int{}},
		{Name: "six", Ranges: []string{"2001:db8:1::/64", "2001:db8:2::1-2001:db8:2::9"}, Priority: 100, Size: 1<<64 + 9, Free: 1 << 64, Pending: map[string]int{}},
	},
	Addresses: []PoolAddress{
		{Address: "192.0.2.1", Pool: "public", Services: []string{"prod/shop/web", "prod/shop/udp"}, State: AddressUsed},
		{Address: "192.0.2.2", Pool: "public", Services: []string{"prod/shop/old"}, State: AddressRetained, Until: now.Add(7 * time.Minute)},
		{Address: "198.51.100.1", Services: []string{"prod/shop/api"}, State: AddressUsed, OutsidePool: "no pool has it any more"},
	},
	Pending: []Pending{{"prod/shop/db", "pool-exhausted", "pool internal is full; pool public has 238 free addresses, but is not for namespace shop"}},
	Writer:  Writer{Cluster: "prod", Holder: "box1_1a2b3c4d", Self: true, Since: ago(3 * time.Hour)},
	IgnoredNodes: []IgnoredNodes{
		{Cluster: "test", Count: 130, Addresses: []string{"192.0.2.7", "192.0.2.8", "192.0.2.9"}}, {Cluster: "trial", Count: 1, Addresses: []string{"192.0.2.7"}},
	},
}

var drainedBox = Drained{
	All: &DrainState{Shutting, ago(4 * time.Second), now.Add(6 * time.Second)},
	VIPs: []DrainedVIP{
		{Address: "192.0.2.1", DrainState: DrainState{Shutting, ago(4 * time.Second), now.Add(6 * time.Second)}, Connections: 17},
		{Address: "192.0.2.2", DrainState: DrainState{Withdrawn, ago(time.Hour), ago(59 * time.Minute)}},
	},
}

func TestProviderTables(t *testing.T) {
	provider := healthy
	provider.BGP = &BGP{
		ASN: 64500, Up: []string{"tor1"}, Down: []DownPeer{{"tor2", "Active", ago(62 * time.Second), "connection refused"}},
		Announced: 12, Standby: 5, MinAnnounced: 1, Withheld: map[string]int{"no-backend": 2, "reannounce-delay": 1},
	}
	provider.Addresses = &Addresses{Pools: 2, Used: 12, Retained: 1, Free: 238, Pending: map[string]int{"pool-exhausted": 1}, OutsidePool: 1, Writer: pools.Writer, IgnoredNodes: pools.IgnoredNodes[:1]}
	provider.Drained = &drainedBox
	provider.Judge(now)
	for _, tt := range []struct {
		name string
		doc  Tabler
		want string
	}{
		{"pools", pools, `
POOL    PRIORITY  SIZE  USED  RETAINED  RESERVED  FOREIGN  FREE  AUTO  ADDRESSES
public  1         256   12    1         2         1        238   yes   192.0.2.0/24
six     100       2^64  0     0         0         0        2^64  no    2001:db8:1::/64 2001:db8:2::1-2001:db8:2::9

Writer: this box, box1_1a2b3c4d; the claims are in cluster prod, since 3h

Outside pool (1), addresses retained:
  198.51.100.1 of prod/shop/api: no pool has it any more

Pending (1):
  prod/shop/db  pool-exhausted  pool internal is full; pool public has 238 free addresses, but is not for namespace shop

Ignored: addresses of Nodes in pools for other clusters, which count as free: 130 of cluster test (192.0.2.7, 192.0.2.8, 192.0.2.9, ...), 1 of cluster trial (192.0.2.7)
`},
		{"no pools", Pools{}, "\nno addresses are assigned: the configuration has no [[pool]]\n"},
		{"a pool", pools.Of("public"), `
ADDRESS    STATE            SERVICES
192.0.2.1  used             prod/shop/web, prod/shop/udp
192.0.2.2  retained for 7m  prod/shop/old
`},
		{"drained", drainedBox, `
the whole box is drained since 4s: lower preference, withdrawn in 6s
VIP        DRAINED  ROUTES                             CONNECTIONS
192.0.2.1  4s       lower preference, withdrawn in 6s  17
192.0.2.2  1h       withdrawn                          0
`},
		{"nothing drained", Drained{Error: "disk full"}, "\nproblem: disk full\nno VIP is drained\n"},
		{"status", provider, `
weir is degraded: 3 problems
  THE WHOLE BOX IS DRAINED since 4s (shutting): weir undrain --all
  BGP peer tor2 is down since 1m: connection refused
  1 VIP without a backend still announced: too many have lost theirs (bgp.min_announced)

Version:    1.2.3, pid 812, up 2d
Config:     /etc/weir/weir.toml, loaded 1h ago
Kernel:     6.1.0-31-amd64, mode ipvs, rules in iptables-nft
Objects:    4 virtual servers, 12 real servers, 11 set members
Backends:   12 up, 0 down, 0 unknown, 0 draining
Synced:     3s ago, audited 7s ago, 0 drift repairs since the start
BGP:        AS 64500, 1 of 2 peers up, 12 VIPs announced (5 on standby), 3 withheld (2 no-backend, 1 reannounce-delay)
Addresses:  2 pools, 12 used, 1 retained, 238 free; pending: 1 pool-exhausted; assigned by this box
Ignored:    addresses of Nodes in pools for other clusters, which count as free: 130 of cluster test (192.0.2.7, 192.0.2.8, 192.0.2.9, ...)
`},
	} {
		t.Run(tt.name, func(t *testing.T) { checkTable(t, tt.doc, tt.want) })
	}
}

func TestNumbersOfAddresses(t *testing.T) {
	for _, tt := range []struct {
		n    Amount
		want string
	}{{0, "0"}, {9_999_999, "9999999"}, {1 << 32, "2^32"}, {1<<32 + 1, "~2^32"}, {3 << 62, "~2^63"}, {1 << 64, "2^64"}} {
		if got := tt.n.String(); got != tt.want {
			t.Errorf("%f is %q, want %q", float64(tt.n), got, tt.want)
		}
	}
}

func TestADrainIsDone(t *testing.T) {
	gone, going := DrainState{Stage: Withdrawn}, DrainState{Stage: Shutting}
	for _, tt := range []struct {
		name string
		doc  Drained
		want bool
	}{
		{"nothing", Drained{}, true},
		{"asking", Drained{VIPs: []DrainedVIP{{Address: "192.0.2.1", DrainState: going, Connections: 0}}}, false},
		{"connections", Drained{VIPs: []DrainedVIP{{Address: "192.0.2.1", DrainState: gone, Connections: 0}, {Address: "192.0.2.2", DrainState: gone, Connections: 1}}}, false},
		{"all gone", Drained{VIPs: []DrainedVIP{{Address: "192.0.2.1", DrainState: gone, Connections: 0}}}, true},
		{"a box without VIPs that asks", Drained{All: &going}, false},
		{"a box without VIPs", Drained{All: &gone}, true},
	} {
		if got := tt.doc.Done(); got != tt.want {
			t.Errorf("%s: done is %v", tt.name, got)
		}
	}
}
