package routing

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

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
		{"192.0.2.8", "reannounce-delay", TextOf("reannounce-delay"), ago(time.Second), now.Add(4 * time.Second), []string{"static/flap"}},
		{"198.51.100.1", "no-rule", TextOf("no-rule"), time.Time{}, time.Time{}, []string{}},
	},
}

func TestTables(t *testing.T) {
	for _, tt := range []struct {
		name string
		doc  status.Tabler
		want string
	}{
		{"neighbors", neighbors, `
BGP router 10.0.0.5, AS 64500, listens on 0.0.0.0:179 and 1 more

Peer    Address       AS          Up/Down      State        Received  Advertised  Flaps  BFD  Reason
tor1    10.0.0.1      64501       1d 02:03:00  Established  0/10      12          1      up   was down 27h ago: hold timer expired
tor2    fe80::1%eth0  4200000000  00:01:02     Active       0/10      0           0      -    connection refused
leaves  10.9.0.0/24   any         never        waiting      0/10      0           0      -    
leaves  10.9.0.7      64507       00:00:03     Established  3/10      0           0      -    
`},
		{"a speaker that can't", Neighbors{ASN: 64500, RouterID: "10.0.0.5", Problem: "port 179 is taken"}, `
BGP router 10.0.0.5, AS 64500, listens nowhere
problem: port 179 is taken

Peer  Address  AS  Up/Down  State  Received  Advertised  Flaps  BFD  Reason
`},
		{"no BGP", Neighbors{}, "\n" + noBGP + "\n"},
		{"routes", routes, `
Network          Next Hop  LocPrf  MED  Path           Communities                            Advertised to  Services
192.0.2.0/28     10.0.0.5  0       20   64500 64500 i  graceful-shutdown 64500:100 64500:1:2  tor1 (tor2)    prod/shop/web static/b (draining) static/c and 1 more
2001:db8::1/128  several   -       -    64500 i        -                                      leaves×2 tor1  static/web

Withheld (3):
  192.0.2.7     no-backend since 5m      static/db    no port has a backend that takes new connections from outside
  192.0.2.8     reannounce-delay for 4s  static/flap  it has a backend again, but not for long enough (bgp.reannounce_delay)
  198.51.100.1  no-rule                  -            no [[bgp.advertise]] is for it
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := status.Write(&b, tt.doc, "table", now); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), b.String()); d != "" {
				t.Errorf("table (-want +got):\n%s\nwhole:\n%s", d, b.String())
			}
		})
	}
}

func TestSessionsThatAreUp(t *testing.T) {
	if neighbors.OK() {
		t.Error("tor2 is down")
	}
	up := neighbors
	up.Neighbors = []Neighbor{neighbors.Neighbors[0], neighbors.Neighbors[2], neighbors.Neighbors[3]}
	if !up.OK() {
		t.Error("a range that waits is nobody's session")
	}
	up.Problem = "port 179 is taken"
	if up.OK() {
		t.Error("with a problem all is well")
	}
}

func TestListsAreNeverNull(t *testing.T) {
	for _, doc := range []any{neighbors, routes} {
		if got, err := json.Marshal(doc); err != nil || bytes.Contains(got, []byte("null")) {
			t.Errorf("%s, %v", got, err)
		}
	}
}
