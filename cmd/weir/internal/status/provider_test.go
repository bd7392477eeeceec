package status

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func number(v uint32) *uint32 { return &v }

var neighbors = Neighbors{
	ASN: 64500, RouterID: "10.0.0.5", Listen: []string{"0.0.0.0:179", "[::]:179"},
	Neighbors: []Neighbor{
		{
			Name: "tor1", Address: "10.0.0.1", ASN: 64501, LocalASN: 64500, Local: "10.0.0.5:179", State: Established, Since: ago(26*time.Hour + 3*time.Minute),
			Down: "hold timer expired", DownAt: ago(27 * time.Hour), Families: []string{"IPv4", "IPv6"}, MaxPrefixes: 10, Advertised: 12, Flaps: 1,
			Hold: 9, Keepalive: 3, BFD: &BFD{"up", 0.9}, GracefulRestart: GracefulRestart{true, 120, true}, Authentication: "md5",
			MessagesSent: MessageCounts{12, 300, 0, 313}, MessagesGot: MessageCounts{2, 300, 1, 304},
		},
		{Name: "tor2", Address: "fe80::1%eth0", ASN: 4200000000, State: "Active", Since: ago(62 * time.Second), Down: "connection refused", Families: []string{"IPv6"}, MaxPrefixes: 10},
		{Name: "leaves", Range: "10.9.0.0/24", State: "Idle", Families: []string{"IPv4"}, MaxPrefixes: 10},
		{Name: "leaves", Range: "10.9.0.0/24", Address: "10.9.0.7", ASN: 64507, State: Established, Since: ago(3 * time.Second), Received: 3, MaxPrefixes: 10, Families: []string{"IPv4"}},
	},
}

var routes = Routes{
	ASN: 64500,
	Routes: []Route{
		{
			Prefix: "192.0.2.0/28", VIPs: []VIPRoute{
				{"192.0.2.1", "announced", []string{"prod/shop/web"}}, {"192.0.2.2", "announced", []string{"prod/shop/web"}},
				{"192.0.2.3", "draining", []string{"static/b"}}, {"192.0.2.4", "announced", []string{"static/c"}}, {"192.0.2.5", "announced", []string{"static/d"}},
			},
			LocalPref: number(0), MED: number(20), Communities: []string{"graceful-shutdown", "64500:100"}, LargeCommunities: []string{"64500:1:2"},
			Peers:      []string{"tor1", "tor2"},
			Advertised: []Advertised{{"tor1", "10.0.0.1", "10.0.0.5", []uint32{64500, 64500}}},
		},
		{
			Prefix: "2001:db8::1/128", VIPs: []VIPRoute{{"2001:db8::1", "announced", []string{"static/web"}}}, Communities: []string{}, LargeCommunities: []string{},
			Peers: []string{"leaves", "tor1"},
			Advertised: []Advertised{
				{"leaves", "10.9.0.7", "fd00::5", []uint32{64500}}, {"leaves", "10.9.0.8", "fd00::6", []uint32{64500}}, {"tor1", "10.0.0.1", "fd00::5", []uint32{64500}},
			},
		},
	},
	Withheld: []WithheldVIP{
		{"192.0.2.7", "no-backend", TextOf("no-backend"), ago(5 * time.Minute), time.Time{}, []string{"static/db"}},
		{"192.0.2.8", "held-down", TextOf("held-down"), ago(time.Second), now.Add(4 * time.Second), []string{"static/flap"}},
		{"198.51.100.1", "no-rule", TextOf("no-rule"), time.Time{}, time.Time{}, []string{}},
	},
}

var pools = Pools{
	Pools: []Pool{
		{Name: "public", Ranges: []string{"192.0.2.0/24"}, Priority: 1, AutoAssign: true, Size: 256, Used: 12, Held: 1, Reserved: 2, Taken: 1, Avoided: 2, Free: 238, Stranded: 1, Pending: map[string]int{}},
		{Name: "six", Ranges: []string{"2001:db8:1::/64", "2001:db8:2::1-2001:db8:2::9"}, Priority: 100, Size: 1<<64 + 9, Free: 1 << 64, Pending: map[string]int{}},
	},
	Addresses: []PoolAddress{
		{Address: "192.0.2.1", Pool: "public", Services: []string{"prod/shop/web", "prod/shop/udp"}, State: AddressUsed},
		{Address: "192.0.2.2", Pool: "public", Services: []string{"prod/shop/old"}, State: AddressHeld, Until: now.Add(7 * time.Minute)},
		{Address: "198.51.100.1", Services: []string{"prod/shop/api"}, State: AddressUsed, Stranded: "no pool has it any more"},
	},
	Pending: []Pending{{"prod/shop/db", "pool-exhausted", "pool internal is full; pool public has 238 free addresses, but is not for namespace shop"}},
	Writer:  Writer{Home: "prod", Holder: "box1_1a2b3c4d", Me: true, Since: ago(3 * time.Hour)},
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
		Announced: 12, Standby: 5, Kept: 1, Withheld: map[string]int{"no-backend": 2, "held-down": 1},
	}
	provider.Addresses = &Addresses{Pools: 2, Used: 12, Held: 1, Free: 238, Pending: map[string]int{"pool-exhausted": 1}, Stranded: 1, Writer: pools.Writer}
	provider.Drained = &drainedBox
	provider.Judge(now)
	explained := Explanation{
		Ports:   []ExplainedPort{{Frontend: "192.0.2.1:80/tcp", Service: "prod/shop/web", Fate: "served"}},
		Address: &Given{Pool: "public", Claim: "lease weir-system/weir-192.0.2.1 of cluster prod", State: AddressUsed, Services: []string{"prod/shop/web"}},
		Announced: &Announcement{State: "draining", Text: TextOf("draining"), Since: ago(4 * time.Second), Peers: []Hearing{
			{Peer: "tor1", State: "draining", Text: TextOf("draining"), Rule: "pool public", Prefix: "192.0.2.1/32", Up: true},
			{Peer: "tor2", State: "no-rule", Text: TextOf("no-rule")},
		}},
	}
	for _, tt := range []struct {
		name string
		doc  Tabler
		want string
	}{
		{"neighbors", neighbors, `
BGP router 10.0.0.5, AS 64500, listens on 0.0.0.0:179 and 1 more

Peer    Address       AS          Up/Down      State        Received  Advertised  Flaps  BFD  Why
tor1    10.0.0.1      64501       1d 02:03:00  Established  0/10      12          1      up   was down 27h ago: hold timer expired
tor2    fe80::1%eth0  4200000000  00:01:02     Active       0/10      0           0      -    connection refused
leaves  10.9.0.0/24   any         never        waiting      0/10      0           0      -    
leaves  10.9.0.7      64507       00:00:03     Established  3/10      0           0      -    
`},
		{"a speaker that can't", Neighbors{ASN: 64500, RouterID: "10.0.0.5", Problem: "port 179 is taken"}, `
BGP router 10.0.0.5, AS 64500, listens nowhere
problem: port 179 is taken

Peer  Address  AS  Up/Down  State  Received  Advertised  Flaps  BFD  Why
`},
		{"no BGP", Neighbors{}, "\n" + noBGP + "\n"},
		{"routes", routes, `
Network          Next Hop  LocPrf  MED  Path           Communities                            Advertised to  Services
192.0.2.0/28     10.0.0.5  0       20   64500 64500 i  graceful-shutdown 64500:100 64500:1:2  tor1 (tor2)    prod/shop/web static/b (draining) static/c and 1 more
2001:db8::1/128  several   -       -    64500 i        -                                      leaves×2 tor1  static/web

Withheld (3):
  192.0.2.7     no-backend since 5m  static/db    no port has a backend that takes new connections from outside
  192.0.2.8     held-down for 4s     static/flap  it has a backend again, but not for long enough (bgp.hold_down)
  198.51.100.1  no-rule              -            no [[bgp.advertise]] is for it
`},
		{"pools", pools, `
POOL    PRIORITY  SIZE  USED  HELD  RESERVED  TAKEN  FREE  AUTO  ADDRESSES
public  1         256   12    1     2         1      238   yes   192.0.2.0/24
six     100       2^64  0     0     0         0      2^64  no    2001:db8:1::/64 2001:db8:2::1-2001:db8:2::9

Writer: this box, box1_1a2b3c4d; the claims are in cluster prod, since 3h

Stranded (1), which keep their addresses:
  198.51.100.1 of prod/shop/api: no pool has it any more

Pending (1):
  prod/shop/db  pool-exhausted  pool internal is full; pool public has 238 free addresses, but is not for namespace shop
`},
		{"no pools", Pools{}, "\nno addresses are given: the configuration has no [[pool]]\n"},
		{"a pool", pools.Of("public"), `
ADDRESS    STATE        SERVICES
192.0.2.1  used         prod/shop/web, prod/shop/udp
192.0.2.2  held for 7m  prod/shop/old
`},
		{"drained", drainedBox, `
the whole box is drained since 4s: ask to prefer others, withdrawn in 6s
VIP        DRAINED  ROUTES                                 CONNECTIONS
192.0.2.1  4s       ask to prefer others, withdrawn in 6s  17
192.0.2.2  1h       withdrawn                              0
`},
		{"nothing drained", Drained{Error: "disk full"}, "\nproblem: disk full\nnothing is drained\n"},
		{"explained", explained, `
192.0.2.1:80/tcp  prod/shop/web  served

more of one: weir explain 192.0.2.1:80

address: pool public, used by prod/shop/web, claim lease weir-system/weir-192.0.2.1 of cluster prod
routes: draining since 4s: an operator drains it: peers are asked to prefer others
  to tor1: 192.0.2.1/32 draining: an operator drains it: peers are asked to prefer others (rule pool public)
  to tor2: no-rule: no [[bgp.advertise]] is for it
`},
		{"status", provider, `
weir is degraded: 3 things need a look
  THE WHOLE BOX IS DRAINED since 4s (shutting): weir undrain --all
  BGP peer tor2 is down since 1m: connection refused
  1 VIP without a backend announced nevertheless: too many have lost theirs (bgp.floor)

Version:    1.2.3, pid 812, up 2d
Config:     /etc/weir/weir.toml, loaded 1h ago
Kernel:     6.1.0-31-amd64, mode ipvs, iptables nft
Holds:      4 virtual servers, 12 real servers, 11 set members
Backends:   12 up, 0 down, 0 unknown, 0 draining
Synced:     3s ago, audited 7s ago, 0 drifted objects put right since the start
BGP:        AS 64500, 1 of 2 peers up, 12 VIPs announced (5 on standby), 3 withheld (1 held-down, 2 no-backend)
Addresses:  2 pools, 12 used, 1 held, 238 free; pending: 1 pool-exhausted; this box gives them
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Write(&b, tt.doc, "table", now); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), b.String()); d != "" {
				t.Errorf("table (-want +got):\n%s\nwhole:\n%s", d, b.String())
			}
		})
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

func TestWhoIsUp(t *testing.T) {
	if neighbors.Up() {
		t.Error("tor2 is down")
	}
	up := neighbors
	up.Neighbors = []Neighbor{neighbors.Neighbors[0], neighbors.Neighbors[2], neighbors.Neighbors[3]}
	if !up.Up() {
		t.Error("a range that waits is nobody's session")
	}
	up.Problem = "port 179 is taken"
	if up.Up() {
		t.Error("with a problem all is well")
	}
}

// The field names are a promise to scripts; testdata has it.
func TestProviderJSON(t *testing.T) {
	planned := PlannedRoutes{
		Announce: []PlannedRoute{{"192.0.2.1/32", []PlannedPath{{[]string{"tor1"}, []string{"64500:100", "med 5"}}}}},
		Change:   []PlannedRoute{}, Withdraw: []PlannedRoute{}, Stranded: []Stranded{{"prod/shop/api", "198.51.100.1", "no pool has it any more"}},
	}
	for name, doc := range map[string]any{
		"neighbors": Neighbors{ASN: 64500, RouterID: "10.0.0.5", Listen: neighbors.Listen, Problem: "port 179 is taken", Neighbors: neighbors.Neighbors[:1]},
		"routes":    Routes{ASN: 64500, Peer: "tor1", Routes: routes.Routes[:1], Withheld: routes.Withheld[1:2]},
		"pools":     Pools{Pools: pools.Pools[:1], Addresses: pools.Addresses[1:], Pending: pools.Pending, Writer: pools.Writer},
		"drained":   Drained{All: drainedBox.All, VIPs: drainedInFull, Stopping: true, Kept: 1, Error: "disk full"},
		"planned":   planned,
		"explained": Explanation{
			Address:   &Given{Pool: "public", Claim: "lease weir-system/weir-192.0.2.1 of cluster prod", State: AddressUsed, Services: []string{"prod/shop/web"}},
			Announced: &Announcement{State: "standby", Role: "standby", Peers: []Hearing{{Peer: "tor1", State: "standby", Rule: "default", Prefix: "192.0.2.1/32", Up: true}}},
		},
		"bgp": BGP{
			ASN: 64500, RouterID: "10.0.0.5", Up: []string{"tor1"}, Down: []DownPeer{{"tor2", "Active", ago(time.Minute), "connection refused"}},
			Problems: []string{"x"}, Announced: 12, Standby: 5, Kept: 1, Withheld: map[string]int{"no-backend": 2},
		},
		"addresses": Addresses{Pools: 2, Used: 12, Held: 1, Free: 238, Pending: map[string]int{"pool-exhausted": 1}, Stranded: 1, Writer: pools.Writer},
	} {
		got, err := json.MarshalIndent(doc, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
			t.Errorf("%s (-want +got):\n%s\nwhole:\n%s", name, d, got)
		}
	}
}
