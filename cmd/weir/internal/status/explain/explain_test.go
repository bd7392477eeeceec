package explain

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/lb"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func TestTables(t *testing.T) {
	explained := Answer{
		Ports:   []Port{{Frontend: "192.0.2.1:80/tcp", Service: "prod/shop/web", Fate: "served"}},
		Address: &Assigned{Pool: "public", Claim: "lease weir-system/weir-192.0.2.1 of cluster prod", State: status.AddressUsed, Services: []string{"prod/shop/web"}},
		Announced: &Announcement{State: "draining", Text: routing.TextOf("draining"), Since: ago(4 * time.Second), Peers: []PeerRoute{
			{Peer: "tor1", State: "draining", Text: routing.TextOf("draining"), Rule: "pool public", Prefix: "192.0.2.1/32", Up: true},
			{Peer: "tor2", State: "no-rule", Text: routing.TextOf("no-rule")},
		}},
	}
	for _, tt := range []struct {
		name string
		doc  Answer
		want string
	}{
		{"explained", explained, `
192.0.2.1:80/tcp  prod/shop/web  served

details: weir explain 192.0.2.1:80

kernel: mode ipvs, rules in nftables
address: pool public, used by prod/shop/web, claim lease weir-system/weir-192.0.2.1 of cluster prod
routes: draining since 4s: an operator drains it: routers prefer other boxes
  to tor1: 192.0.2.1/32 draining: an operator drains it: routers prefer other boxes (rule pool public)
  to tor2: no-rule: no [[bgp.advertise]] is for it
`},
		{"owned by another", Answer{Reason: "x", Owned: &Owned{
			Owner: "box2", Role: status.RoleStandby, Reason: "weight and address decide",
			Members: []OwnedBy{{"box2", "stable", true, false}, {"box1", "stable", false, false}, {"box3", "draining", false, true}},
		}}, `
not served: x

kernel: mode ipvs, rules in nftables
owner: box2; this box: standby: weight and address decide
  can serve it: box2 (stable, owns it), box1 (stable), box3 (draining, drained there)
`},
		{"announced by all", Answer{Reason: "x", Owned: &Owned{Owner: "box2", Role: status.RoleOwner, Reason: "every fit member announces it"}}, `
not served: x

kernel: mode ipvs, rules in nftables
owner: box2: every fit member announces it
`},
		{"owned by this box", Answer{Reason: "x", Owned: &Owned{
			Owner: "box1", Self: true, Role: status.RoleOwner, Reason: "no other member can serve it",
			Interfaces: []OwnedOn{
				{"eth0", "answered", ago(time.Hour), ""}, {"eth1", "contested", ago(3 * time.Second), "a foreign host (52:54:00:00:00:02)"}, {"eth2", "idle", time.Time{}, ""},
				{"eth3", "answered", ago(time.Second), "box2 (52:54:00:00:00:03)"},
			},
		}}, `
not served: x

kernel: mode ipvs, rules in nftables
owner: this box, box1: no other member can serve it
  on eth0: answered (this box answers for it) since 1h
  on eth1: contested (another host answers for it) since 3s; that is a foreign host (52:54:00:00:00:02)
  on eth2: idle (no carrier)
  on eth3: answered (this box answers for it) since 1s; within the last minute box2 (52:54:00:00:00:03) did too
`},
		{"ports", Answer{Ports: []Port{
			{Frontend: "192.0.2.1:80/tcp", Service: "static/web", Fate: "served", Survival: &lb.Survival{Survives: true, Needs: []lb.SurvivalReason{lb.NeedsClient}}},
			{Frontend: "192.0.2.1:53/udp", Service: "static/dns", Fate: "refused", Reason: "no backend", Survival: &lb.Survival{Because: []lb.SurvivalReason{lb.DiesScheduler, lb.DiesSource}}},
		}}, `
192.0.2.1:80/tcp  static/web  served; connections survive the loss of this box
192.0.2.1:53/udp  static/dns  refused: no backend; connections end with this box: scheduler, source

details: weir explain 192.0.2.1:80

kernel: mode ipvs, rules in nftables
`},
		{"nobody's", Answer{Reason: "x", Owned: &Owned{Role: status.RoleNothing, Reason: "no usable backend"}}, `
not served: x

kernel: mode ipvs, rules in nftables
owner: none; this box: nothing: no usable backend
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			tt.doc.Mode, tt.doc.Rules = "ipvs", "nftables"
			if err := status.Write(&b, tt.doc, "table", now); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), b.String()); d != "" {
				t.Errorf("table (-want +got):\n%s\nwhole:\n%s", d, b.String())
			}
		})
	}
}

func TestAnswersHaveTheirOldData(t *testing.T) {
	const all = `
cluster lab: has not answered yet
cluster shop: from its file of 2h ago
cluster stage: unreachable since 5m ago, last contact 6m ago
`
	clusters := []status.Cluster{
		{Name: "lab", State: status.Waiting, Since: ago(time.Minute)},
		{Name: "prod", State: status.Connected, Since: ago(3 * time.Hour), LastContact: ago(2 * time.Second)},
		{Name: "shop", State: status.Unreachable, Since: ago(10 * time.Second), LastContact: ago(2 * time.Hour), Stale: true},
		{Name: "stage", State: status.Unreachable, Since: ago(5 * time.Minute), LastContact: ago(6 * time.Minute)},
	}
	packet := func(services ...string) Answer {
		e := Answer{Packet: &lb.Explanation{}}
		for _, s := range services {
			e.Packet.Claims = append(e.Packet.Claims, lb.Claim{Service: s})
		}
		return e
	}
	for _, tt := range []struct {
		name string
		doc  Answer
		want string
	}{
		{"a cluster that is served from its file", packet("prod/a/b", "shop/a/b"), "\ncluster shop: from its file of 2h ago\n"},
		{"one that is connected", packet("prod/a/b", "static/b"), ""},
		{"nobody's: any may have it by now", packet(), all},
		{"a VIP", Answer{Ports: []Port{{Service: "stage/a/b"}}}, "\ncluster stage: unreachable since 5m ago, last contact 6m ago\n"},
		{"no VIP", Answer{Reason: "x"}, all},
	} {
		var b, bare bytes.Buffer
		tt.doc.Table(&bare, now)
		tt.doc.SetOldData(clusters)
		tt.doc.Table(&b, now)
		if d := cmp.Diff(bare.String()+tt.want, b.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
