package lab

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestBIRDsRoutesAreRead(t *testing.T) {
	t.Parallel()
	got, err := parseBirdRoutes(`BIRD 2.0.12 ready.
Table master4:
192.0.2.100/32       blackhole [static1 16:16:05.084] * (200)
	Type: static univ
                     unicast [frr 16:16:07.755] (100) [AS65002i]
	via 10.1.0.3 on front
	Type: BGP univ
	BGP.origin: IGP
	BGP.as_path: 65002 65002
	BGP.next_hop: 10.1.0.3
	BGP.med: 17
	BGP.local_pref: 200
	BGP.community: (1,2) (65535,0)
	BGP.large_community: (1, 2, 3)

Table master6:
2001:db8::2/128      unicast [frr 16:16:07.755 from 10.1.0.3] * (100) [AS65002i]
	via fd01::3 on front
`)
	Must(t, err)
	want := []Path{
		{
			Prefix: netip.MustParsePrefix("192.0.2.100/32"), // which the router's own route before it has
			From:   netip.MustParseAddr("10.1.0.3"), NextHop: netip.MustParseAddr("10.1.0.3"), ASPath: []uint32{65002, 65002},
			LocalPref: 200, MED: 17, Communities: []string{"1:2", "65535:0"}, LargeCommunities: []string{"1:2:3"},
		},
		{
			Prefix: netip.MustParsePrefix("2001:db8::2/128"), From: netip.MustParseAddr("10.1.0.3"),
			NextHop: netip.MustParseAddr("fd01::3"), Best: true,
		},
	}
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFRRsNeighboursAreRead(t *testing.T) {
	t.Parallel()
	var answer map[string]json.RawMessage
	err := json.Unmarshal([]byte(`{
		"10.1.0.1": {"remoteAs": 64500, "bgpState": "Established", "lastResetDueTo": "Peer closed the session",
			"addressFamilyInfo": {"ipv4Unicast": {"acceptedPrefixCounter": 2}, "ipv6Unicast": {"acceptedPrefixCounter": 1}},
			"peerBfdInfo": {"status": "Up"}},
		"bgpNoSuchNeighbor": true}`), &answer)
	Must(t, err)
	got, err := parseFRRNeighbours(answer)
	Must(t, err)
	want := []Neighbour{{
		Addr: netip.MustParseAddr("10.1.0.1"), ASN: 64500, State: "established", BFD: "up", Accepted: 3, Error: "Peer closed the session",
	}}
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestKernelRoutesAreRead(t *testing.T) {
	t.Parallel()
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	for _, tc := range []struct {
		name, text string
		v6         bool
		want       []Route
	}{
		{"two next hops", `[{"type":"unicast","dst":"192.0.2.1","protocol":"bird","metric":32,"flags":[],
			"nexthops":[{"gateway":"10.1.0.2","dev":"front","weight":1},{"gateway":"10.1.0.1","dev":"front","weight":1}]}]`, false,
			[]Route{{To: prefix("192.0.2.1/32"), Via: []netip.Addr{addr("10.1.0.1"), addr("10.1.0.2")}, Protocol: "bird", Type: "unicast", Metric: 32}}},
		{"a line for each, and the default", `[{"type":"unicast","dst":"2001:db8::1","gateway":"fd01::2","protocol":"bgp","metric":20},
			{"type":"unicast","dst":"2001:db8::1","gateway":"fd01::1","protocol":"bgp","metric":20},
			{"type":"unicast","dst":"default","gateway":"fd01::9","protocol":"boot","metric":1024}]`, true,
			[]Route{
				{To: prefix("::/0"), Via: []netip.Addr{addr("fd01::9")}, Protocol: "boot", Type: "unicast", Metric: 1024},
				{To: prefix("2001:db8::1/128"), Via: []netip.Addr{addr("fd01::1"), addr("fd01::2")}, Protocol: "bgp", Type: "unicast", Metric: 20},
			}},
		{"an IPv6 next hop, and a network of a card", `[{"type":"unicast","dst":"192.0.2.1","via":{"family":"inet6","host":"fd01::1"},"protocol":"bird"},
			{"type":"unicast","dst":"10.1.0.0/24","dev":"front","protocol":"kernel"}]`, false,
			[]Route{
				{To: prefix("10.1.0.0/24"), Protocol: "kernel", Type: "unicast"},
				{To: prefix("192.0.2.1/32"), Via: []netip.Addr{addr("fd01::1")}, Protocol: "bird", Type: "unicast"},
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseRoutes(tc.text, tc.v6)
			Must(t, err)
			if diff := cmp.Diff(tc.want, got, byValue); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
