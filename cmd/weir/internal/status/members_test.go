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

	"weir/lb"
)

const (
	digestA = "3f2a91bc0d4e5f60"
	digestB = "91bc3f2a5f600d4e"
)

func members() Members {
	m := Members{
		Fleet: "edge", Self: "box1", Mode: "active-standby", Owners: "spread",
		Members: []Member{
			{
				Name: "box1", Address: "10.0.0.5:7946", Self: true, Since: ago(3 * time.Hour), Life: "alive", Standing: "settled", FitSince: ago(3 * time.Hour),
				Drain: "serving", Weight: 100, Version: "1.2.3", Digest: digestA, Serves: 12, Holds: 7,
			},
			{Name: "box2", Address: "10.0.0.6:7946", Since: ago(2 * time.Minute), Life: "alive", Standing: "unfit", Why: "BGP: no session is up", Drain: "serving", Weight: 100, Version: "1.2.3", Digest: digestB, Serves: 12},
			{Name: "box3", Address: "10.0.0.7:7946", Since: ago(4 * time.Second), Life: "dead", Standing: "absent", Why: "it answers nobody", Drain: "draining", Weight: 50, Version: "1.2.2", Digest: digestA},
			{Name: "box4", Since: ago(time.Second), Life: "alive", Standing: "settled", Drain: "serving", Weight: 1},
		},
		Differing: []Differing{
			{Source: "static", Since: ago(5 * time.Minute), Digests: map[string]string{"box1": digestA, "box2": digestB, "box4": digestA}},
			{Source: "[cluster]", Since: ago(4 * time.Minute), Digests: map[string]string{"box1": digestA, "box2": digestB}},
			{Source: "prod", Since: ago(time.Minute), Digests: map[string]string{"box1": digestA, "box2": ""}},
		},
		VIPs:     map[VIPRole]int{RoleOwner: 7, RoleStandby: 5, RoleNothing: 1},
		Owned:    7,
		Unjoined: map[string]string{"box9:7946": "no such host"},
		Strain:   5, Insecure: true,
		Counters: MemberCounters{Joins: 3, Deaths: 1, Conflicts: 2, Refused: 17, Dropped: 1, Moves: 4},
	}
	m.Judge()
	return m
}

func TestFleetTables(t *testing.T) {
	fleet := healthy
	fleet.Fleet = &Fleet{
		Name: "edge", Mode: "active-active", Self: "box1", State: MemberUnfit, Why: "eth1 has no carrier",
		Members: map[MemberState]int{MemberUnfit: 2, MemberServing: 3, MemberDead: 1, MemberLeft: 1}, VIPs: map[VIPRole]int{RoleOut: 12, RoleOwner: 3}, Owned: 1, Insecure: true,
	}
	fleet.L2 = &L2{Interfaces: []L2Interface{{Name: "eth0", MAC: "52:54:00:00:00:01", Held: 7, Probing: 1, Contested: 2}, {Name: "eth1", Idle: 10, Error: "no carrier"}}}
	fleet.Judge(now)
	standby := Services{Frontends: []Frontend{
		{Service: "static/web", Address: "192.0.2.10", Port: 80, Protocol: "tcp", Scheduler: "mh", Owner: "box2", Role: RoleStandby},
		{Service: "static/dns", Address: "192.0.2.11", Port: 53, Protocol: "udp", Scheduler: "rr", Owner: "box1", Role: RoleOwner},
		{Service: "prod/shop/web", Kind: "ExternalIP", Address: "192.0.2.12", Port: 80, Protocol: "tcp", Scheduler: "rr", Role: RoleNothing},
	}}
	for _, tt := range []struct {
		name string
		doc  Tabler
		want string
	}{
		{"members", members(), `
Fleet edge, active-standby, VIPs spread over the members

MEMBER  ADDRESS        STATE    SINCE  VERSION  DIGEST    DRAIN     WEIGHT  SERVES  OWNS  WHY
box1 *  10.0.0.5:7946  serving  3h     1.2.3    3f2a91bc  -         100     12      7     -
box2    10.0.0.6:7946  unfit    2m     1.2.3    91bc3f2a  -         100     12      0     BGP: no session is up
box3    10.0.0.7:7946  dead     4s     1.2.2    3f2a91bc  draining  50      -       -     it answers nobody
box4    -              standby  1s     -        -         -         1       0       0     -

This box, marked *, owns 7 VIPs, stands by for 5, can't serve 1.
THERE IS NO KEY: whoever can send this box a datagram is a member (cluster.keys)
Can't be joined: box9:7946: no such host
The services of the configuration differ since 5m: 3f2a91bc on box1, box4; 91bc3f2a on box2
The rules of [cluster] and [l2] differ since 4m: 3f2a91bc on box1; 91bc3f2a on box2
What is known of cluster prod differs since 1m: 3f2a91bc on box1; nothing on box2
Messages that no key here decrypts, or of another fleet: 17
Messages of a second box with the name of a member, which is not heard: 2
This box is late with its part, 5 of 7: it is overloaded, or loses many packets
`},
		{"no fleet", Members{}, "\nthis box is in no fleet: the configuration has no [cluster]\n"},
		{"no part", Members{Fleet: "edge", Mode: "active-active", Owners: "one", Error: "listen on [::]:7946: address already in use"}, `
Fleet edge, active-active, one owner of all VIPs

MEMBER  ADDRESS  STATE  SINCE  VERSION  DIGEST  DRAIN  WEIGHT  SERVES  OWNS  WHY

This box, marked *, serves 0 VIPs, owns 0.
This box takes no part: listen on [::]:7946: address already in use
`},
		{"status", fleet, `
weir is degraded: 4 things need a look
  this box is unfit: eth1 has no carrier
  other members that are unfit: 1 (weir members)
  other members that are dead: 1 (weir members)
  nothing is answered on eth1: no carrier

Version:   1.2.3, pid 812, up 2d
Config:    /etc/weir/weir.toml, loaded 1h ago
Kernel:    6.1.0-31-amd64, mode ipvs, iptables nft
Holds:     4 virtual servers, 12 real servers, 11 set members
Backends:  12 up, 0 down, 0 unknown, 0 draining
Synced:    3s ago, audited 7s ago, 0 drifted objects put right since the start
Fleet:     edge, active-active: 3 serving, 2 unfit, 1 dead, 1 left; this box is unfit, serves 3 VIPs, owns 1, leaves 12 to others; WITHOUT A KEY
L2:        eth0 7 held, 1 probing, 2 contested; eth1 0 held, 10 idle (no carrier)
`},
		{"services", standby, `
Prot LocalAddress:Port   Scheduler Flags                       Service
  -> RemoteAddress:Port  Forward Weight ActiveConn  InActConn  Health
TCP  192.0.2.10:80       mh                                    static/web (standby, box2 owns it)
UDP  192.0.2.11:53       rr                                    static/dns
TCP  192.0.2.12:80       rr                                    prod/shop/web (ExternalIP, nobody owns it)
`},
		{"owned by another", Explanation{Why: "x", Owned: &Owned{
			Owner: "box2", Role: RoleStandby, Why: "weight and address decide",
			Members: []OwnedBy{{"box2", "settled", true, false}, {"box1", "settled", false, false}, {"box3", "draining", false, true}},
		}}, `
not served: x

owner: box2; this box: standby: weight and address decide
  can serve it: box2 (settled, has it), box1 (settled), box3 (draining, drained there)
`},
		{"announced by all", Explanation{Why: "x", Owned: &Owned{Owner: "box2", Role: RoleOwner, Why: "every fit member announces it"}}, `
not served: x

owner: box2: every fit member announces it
`},
		{"owned by this box", Explanation{Why: "x", Owned: &Owned{
			Owner: "box1", Me: true, Role: RoleOwner, Why: "no other member can serve it",
			Held: []Held{
				{"eth0", "held", ago(time.Hour), ""}, {"eth1", "contested", ago(3 * time.Second), "a stranger (52:54:00:00:00:02)"}, {"eth2", "idle", time.Time{}, ""},
				{"eth3", "held", ago(time.Second), "box2 (52:54:00:00:00:03)"},
			},
		}}, `
not served: x

owner: this box, box1: no other member can serve it
  on eth0: held (this box answers for it) since 1h
  on eth1: contested (somebody else answers for it) since 3s; that is a stranger (52:54:00:00:00:02)
  on eth2: idle (no carrier)
  on eth3: held (this box answers for it) since 1s; within the last minute box2 (52:54:00:00:00:03) did, too
`},
		{"ports", Explanation{Ports: []ExplainedPort{
			{Frontend: "192.0.2.1:80/tcp", Service: "static/web", Fate: "served", Survival: &lb.Survival{Survives: true, Needs: []lb.SurvivalReason{lb.NeedsClient}}},
			{Frontend: "192.0.2.1:53/udp", Service: "static/dns", Fate: "refused", Why: "no backend", Survival: &lb.Survival{Because: []lb.SurvivalReason{lb.DiesScheduler, lb.DiesSource}}},
		}}, `
192.0.2.1:80/tcp  static/web  served; connections outlive this box
192.0.2.1:53/udp  static/dns  refused: no backend; connections end with this box: scheduler, source

more of one: weir explain 192.0.2.1:80
`},
		{"nobody's", Explanation{Why: "x", Owned: &Owned{Role: RoleNothing, Why: "no usable backend"}}, `
not served: x

owner: nobody; this box: nothing: no usable backend
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

func TestStatesOfMembers(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    Member
		mode string
		want MemberState
		well bool
	}{
		{"serves with all others", Member{Life: "alive", Standing: "settled", Drain: "serving"}, "active-active", MemberServing, true},
		{"owns nothing", Member{Life: "alive", Standing: "settled", Drain: "serving"}, "active-standby", MemberStandby, true},
		{"answers for nothing", Member{Life: "alive", Standing: "settled", Drain: "serving"}, ModeL2, MemberStandby, true},
		{"owns something", Member{Life: "alive", Standing: "settled", Drain: "serving", Holds: 1}, "active-standby", MemberServing, true},
		{"came back", Member{Life: "alive", Standing: "fresh"}, "active-active", MemberFresh, true},
		{"unfit", Member{Life: "alive", Standing: "unfit"}, "active-active", MemberUnfit, false},
		{"drains", Member{Life: "alive", Standing: "draining", Drain: "draining"}, "active-active", MemberDraining, true},
		{"is drained", Member{Life: "alive", Standing: "draining", Drain: "drained"}, "active-active", MemberDrained, true},
		{"does not answer", Member{Life: "alive", Standing: "settled", Suspect: true}, "active-active", MemberSuspect, false},
		{"its daemon is gone", Member{Life: "dead", Standing: "settled", Away: true, Suspect: true}, "active-active", MemberAway, false},
		{"died while it drained", Member{Life: "dead", Standing: "absent", Drain: "draining"}, "active-active", MemberDead, false},
		{"left", Member{Life: "left", Standing: "absent", Drain: "drained"}, "active-active", MemberLeft, true},
	} {
		m := Members{Fleet: "edge", Mode: tt.mode, Members: []Member{tt.m}}
		m.Judge()
		if got := m.Members[0].State; got != tt.want || m.Well() != tt.well {
			t.Errorf("one that %s is %s, all is well: %t; want %s, %t", tt.name, got, m.Well(), tt.want, tt.well)
		}
	}
	for _, m := range []Members{{Error: "x"}, {Unjoined: map[string]string{"box9": "x"}}, {Differing: []Differing{{Source: "static"}}}} {
		if m.Well() {
			t.Errorf("%+v is well", m)
		}
	}
}

// The field names are a promise to scripts; testdata has it.
func TestFleetJSON(t *testing.T) {
	all := members()
	all.Members, all.Differing, all.Error = all.Members[:1], all.Differing[:1], "x"
	all.Members[0].Suspect, all.Members[0].Away, all.Members[0].Why = true, true, "x"
	for name, doc := range map[string]any{
		"members": all,
		"fleet": Fleet{
			Name: "edge", Mode: "active-active", Self: "box1", State: MemberUnfit, Why: "eth1 has no carrier", Members: map[MemberState]int{MemberServing: 3},
			VIPs: map[VIPRole]int{RoleOut: 12}, Owned: 1, Differing: all.Differing, Unjoined: all.Unjoined, Error: "x", Insecure: true,
		},
		"l2": L2{
			Interfaces: []L2Interface{{"eth0", "52:54:00:00:00:01", "no carrier", 7, 1, 2, 3}},
			Contested:  []Contested{{"192.0.2.10", "eth0", "52:54:00:00:00:02", "box2", ago(time.Second)}},
			Duplicates: []Contested{{"192.0.2.11", "eth0", "52:54:00:00:00:03", "", ago(time.Second)}},
		},
		"owned": Owned{
			Owner: "box1", Me: true, Role: RoleOwner, Why: "x", Members: []OwnedBy{{"box1", "settled", true, true}},
			Held: []Held{{"eth0", "held", ago(time.Hour), "52:54:00:00:00:02"}},
		},
	} {
		got, err := json.MarshalIndent(doc, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".json")
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
			t.Errorf("%s (-want +got):\n%s\nwhole:\n%s", name, d, got)
		}
	}
}
