package status

import (
	"testing"
	"time"
)

const (
	digestA = "3f2a91bc0d4e5f60"
	digestB = "91bc3f2a5f600d4e"
)

func members() Members {
	m := Members{
		Fleet: "edge", Self: "box1", Mode: "active-standby", Placement: "spread",
		Members: []Member{
			{
				Name: "box1", Address: "10.0.0.5:7946", Self: true, Since: ago(3 * time.Hour), Life: "alive", ElectionState: "stable", FitSince: ago(3 * time.Hour),
				Drain: "serving", Weight: 100, Version: "1.2.3", Digest: digestA, Serves: 12, Owns: 7,
			},
			{Name: "box2", Address: "10.0.0.6:7946", Since: ago(2 * time.Minute), Life: "alive", ElectionState: "unfit", Reason: "BGP: no session is up", Drain: "serving", Weight: 100, Version: "1.2.3", Digest: digestB, Serves: 12},
			{Name: "box3", Address: "10.0.0.7:7946", Since: ago(4 * time.Second), Life: "dead", ElectionState: "absent", Reason: "it answers nobody", Drain: "draining", Weight: 50, Version: "1.2.2", Digest: digestA},
			{Name: "box4", Since: ago(time.Second), Life: "alive", ElectionState: "stable", Drain: "serving", Weight: 1},
		},
		Differing: []Differing{
			{Source: "static", Since: ago(5 * time.Minute), Digests: map[string]string{"box1": digestA, "box2": digestB, "box4": digestA}},
			{Source: "[fleet]", Since: ago(4 * time.Minute), Digests: map[string]string{"box1": digestA, "box2": digestB}},
			{Source: "prod", Since: ago(time.Minute), Digests: map[string]string{"box1": digestA, "box2": ""}},
		},
		VIPs:             map[VIPRole]int{RoleOwner: 7, RoleStandby: 5, RoleNothing: 1},
		Owned:            7,
		UnreachableNames: map[string]string{"box9:7946": "no such host"},
		HealthScore:      5, Insecure: true,
		Counters: MemberCounters{Joins: 3, Deaths: 1, Conflicts: 2, Refused: 17, Replayed: 6, Dropped: 1, Moves: 4},
	}
	m.Judge()
	return m
}

func TestFleetTables(t *testing.T) {
	fleet := healthy
	fleet.Fleet = &Fleet{
		Name: "edge", Mode: "active-active", Self: "box1", State: MemberUnfit, Reason: "eth1 has no carrier",
		Members: map[MemberState]int{MemberUnfit: 2, MemberServing: 3, MemberDead: 1, MemberLeft: 1}, VIPs: map[VIPRole]int{RoleOut: 12, RoleOwner: 3}, Owned: 1, Insecure: true,
	}
	fleet.L2 = &L2{Interfaces: []L2Interface{{Name: "eth0", MAC: "52:54:00:00:00:01", Answered: 7, Probing: 1, Contested: 2}, {Name: "eth1", Idle: 10, Error: "no carrier"}}}
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

MEMBER  ADDRESS        STATE    SINCE  VERSION  DIGEST    DRAIN     WEIGHT  SERVES  OWNS  REASON
box1 *  10.0.0.5:7946  serving  3h     1.2.3    3f2a91bc  -         100     12      7     -
box2    10.0.0.6:7946  unfit    2m     1.2.3    91bc3f2a  -         100     12      0     BGP: no session is up
box3    10.0.0.7:7946  dead     4s     1.2.2    3f2a91bc  draining  50      -       -     it answers nobody
box4    -              standby  1s     -        -         -         1       0       0     -

This box, marked *, owns 7 VIPs, is standby for 5, can't serve 1.
THERE IS NO KEY: any host that can send this box a datagram is a member (fleet.keys)
Can't be joined: box9:7946: no such host
The services of the configuration differ since 5m: 3f2a91bc on box1, box4; 91bc3f2a on box2
The rules of [fleet] and [l2] differ since 4m: 3f2a91bc on box1; 91bc3f2a on box2
The Services of cluster prod differ since 1m: 3f2a91bc on box1; nothing on box2
Messages that no key here decrypts, or of another fleet: 17
States of members that were older than the known ones, recorded by a host or late: 6
Messages of a second box with the name of a member, ignored: 2
This box detects dead members late, 5 of 7: it is overloaded, or loses many packets
`},
		{"no fleet", Members{}, "\nthis box is in no fleet: the configuration has no [fleet]\n"},
		{"no part", Members{Fleet: "edge", Mode: "active-active", Placement: "single", Error: "listen on [::]:7946: address already in use"}, `
Fleet edge, active-active, one owner of all VIPs

MEMBER  ADDRESS  STATE  SINCE  VERSION  DIGEST  DRAIN  WEIGHT  SERVES  OWNS  REASON

This box, marked *, serves 0 VIPs, owns 0.
This box is not in the fleet: listen on [::]:7946: address already in use
`},
		{"status", fleet, `
weir is degraded: 4 problems
  this box is unfit: eth1 has no carrier
  other members that are unfit: 1 (weir members)
  other members that are dead: 1 (weir members)
  no ARP and NDP on eth1: no carrier

Version:   1.2.3, pid 812, up 2d
Config:    /etc/weir/weir.toml, loaded 1h ago
Kernel:    6.1.0-31-amd64, mode ipvs, rules in iptables-nft
Objects:   4 virtual servers, 12 real servers, 11 set members
Backends:  12 up, 0 down, 0 unknown, 0 draining
Synced:    3s ago, audited 7s ago, 0 drift repairs since the start
Fleet:     edge, active-active: 3 serving, 2 unfit, 1 dead, 1 left; this box is unfit, serves 3 VIPs, owns 1, leaves 12 to others; WITHOUT A KEY
L2:        eth0 7 answered, 1 probing, 2 contested; eth1 0 answered, 10 idle (no carrier)
`},
		{"services", standby, `
Prot LocalAddress:Port   Scheduler Flags                       Service
  -> RemoteAddress:Port  Forward Weight ActiveConn  InActConn  Health
TCP  192.0.2.10:80       mh                                    static/web (standby, box2 owns it)
UDP  192.0.2.11:53       rr                                    static/dns
TCP  192.0.2.12:80       rr                                    prod/shop/web (ExternalIP, no owner)
`},
	} {
		t.Run(tt.name, func(t *testing.T) { checkTable(t, tt.doc, tt.want) })
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
		{"serves with all others", Member{Life: "alive", ElectionState: "stable", Drain: "serving"}, "active-active", MemberServing, true},
		{"owns nothing", Member{Life: "alive", ElectionState: "stable", Drain: "serving"}, "active-standby", MemberStandby, true},
		{"answers for nothing", Member{Life: "alive", ElectionState: "stable", Drain: "serving"}, ModeL2, MemberStandby, true},
		{"owns something", Member{Life: "alive", ElectionState: "stable", Drain: "serving", Owns: 1}, "active-standby", MemberServing, true},
		{"came back", Member{Life: "alive", ElectionState: "fresh"}, "active-active", MemberFresh, true},
		{"unfit", Member{Life: "alive", ElectionState: "unfit"}, "active-active", MemberUnfit, false},
		{"drains", Member{Life: "alive", ElectionState: "draining", Drain: "draining"}, "active-active", MemberDraining, true},
		{"is drained", Member{Life: "alive", ElectionState: "draining", Drain: "drained"}, "active-active", MemberDrained, true},
		{"does not answer", Member{Life: "alive", ElectionState: "stable", Suspect: true}, "active-active", MemberSuspect, false},
		{"its daemon is gone", Member{Life: "dead", ElectionState: "stable", DaemonDown: true, Suspect: true}, "active-active", MemberDaemonDown, false},
		{"died while it drained", Member{Life: "dead", ElectionState: "absent", Drain: "draining"}, "active-active", MemberDead, false},
		{"left", Member{Life: "left", ElectionState: "absent", Drain: "drained"}, "active-active", MemberLeft, true},
	} {
		m := Members{Fleet: "edge", Mode: tt.mode, Members: []Member{tt.m}}
		m.Judge()
		if got := m.Members[0].State; got != tt.want || m.OK() != tt.well {
			t.Errorf("one that %s is %s, all is well: %t; want %s, %t", tt.name, got, m.OK(), tt.want, tt.well)
		}
	}
	for _, m := range []Members{{Error: "x"}, {UnreachableNames: map[string]string{"box9": "x"}}, {Differing: []Differing{{Source: "static"}}}} {
		if m.OK() {
			t.Errorf("%+v is well", m)
		}
	}
}
