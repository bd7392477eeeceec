package fleet

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bgp"
	"weir/cluster"
	"weir/cluster/l2"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

func TestIsolation(t *testing.T) {
	at := time.Unix(1000, 0)
	l2Only := &config.L2{Interfaces: []string{"eth0", "eth1"}, Static: true}
	gateways := &config.L2{Interfaces: []string{"eth0"}}
	unheard := fitness{box: Box{Routers: []string{"tor"}}, asked: since{at.Add(-time.Hour)}}
	heard := unheard
	heard.links.SessionUp = true
	for _, tc := range []struct {
		name   string
		l2     *config.L2
		facts  fitness
		others []cluster.Life
		waits  time.Duration // before it is asked a second time
		want   bool
	}{
		{name: "all is well", l2: l2Only},
		{name: "one cable left", l2: l2Only, facts: fitness{links: Links{DownNames: []string{"eth0", "back"}}}},
		{name: "no cable left", l2: l2Only, facts: fitness{links: Links{DownNames: []string{"eth0", "eth1"}}}, want: true},
		{name: "nothing to answer", facts: fitness{links: Links{DownNames: []string{"eth0"}}}},
		{name: "no client sends anything", l2: l2Only, facts: fitness{links: Links{Idle: true}}, others: []cluster.Life{cluster.Dead}},
		{name: "alone and unheard", l2: gateways, facts: unheard, others: []cluster.Life{cluster.Dead}, waits: routerPatience, want: true},
		{name: "not for long", l2: gateways, facts: unheard, others: []cluster.Life{cluster.Dead}, waits: routerPatience - 1},
		{name: "a router hears it", l2: gateways, facts: heard, others: []cluster.Life{cluster.Dead}, waits: routerPatience},
		{name: "others are there: the router restarts", l2: gateways, facts: unheard, others: []cluster.Life{cluster.Dead, cluster.Alive}, waits: routerPatience},
		{name: "there never were others", l2: gateways, facts: unheard, waits: routerPatience},
		{name: "neighbours may ask for VIPs too", l2: l2Only, facts: unheard, others: []cluster.Life{cluster.Dead}, waits: routerPatience, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := &config.Config{Fleet: &config.Fleet{}, L2: tc.l2}
			set, others := settingsOf(cfg, "a", "v1"), members{byName: map[string]*member{}}
			for i, life := range tc.others {
				others.byName[string(rune('a'+i))] = &member{Member: cluster.Member{Life: life}}
			}
			var x isolation
			x.follow(&set, &tc.facts, &others, "", at)
			if tc.waits > 0 {
				if x.is() {
					t.Error("it is isolated at once")
				}
				x.follow(&set, &tc.facts, &others, "", at.Add(tc.waits))
			}
			got, next := x.is(), x.next
			if got != tc.want {
				t.Errorf("isolated: %t, want %t", got, tc.want)
			}
			if waits := tc.waits == routerPatience-1; !next.Equal(at.Add(routerPatience)) && waits || !next.IsZero() && !waits {
				t.Errorf("to be asked again at %s", next)
			}
		})
	}
}

// A network of clients is split, that of backends is not: there both sides ask for the
// gateway, and the one must have it to which clients come.
func TestIsolationByIdleUplinks(t *testing.T) {
	at := time.Unix(1000, 0)
	gateway := netip.MustParseAddr("10.2.0.254")
	set := settings{
		fleet: &config.Fleet{}, l2: &config.L2{Interfaces: []string{"eth0"}}, uplinks: []string{"eth0"},
		floating: map[netip.Addr][]string{gateway: {"back"}},
	}
	split := members{byName: map[string]*member{"b": {Member: cluster.Member{Life: cluster.Dead}}, "c": {Member: cluster.Member{Life: cluster.Alive}}}}
	joined := members{byName: map[string]*member{"b": {Member: cluster.Member{Life: cluster.Alive}}, "c": {Member: cluster.Member{Life: cluster.Dead}}}}
	var x isolation
	check := func(name string, others *members, idle, want bool, vips ...l2.VIP) {
		t.Helper()
		c := claims{status: l2.Status{VIPs: vips}}
		x.follow(&set, &fitness{links: Links{Idle: idle}}, others, c.requester(set.floating, others.silent, at), at)
		if x.is() != want {
			t.Errorf("%s: isolated %t (%s), want %t", name, x.is(), x.reason, want)
		}
	}
	held := l2.VIP{Addr: gateway, State: l2.Answered}
	asked, long, vip := held, held, held
	asked.Requested, asked.Requester = at.Add(-time.Second), "b"
	long.Requested, long.Requester = at.Add(-probedLately), "b"
	vip.Addr, vip.Requested, vip.Requester = netip.MustParseAddr("192.0.2.10"), at, "b"
	check("nobody asks", &split, true, false, held)
	check("somebody asks for a VIP", &split, true, false, held, vip)
	check("clients come here", &split, false, false, asked)
	check("somebody did", &split, true, false, long)
	check("a member asks that answers: it is handing over", &joined, true, false, asked)
	check("a silent one asks, and no client comes", &split, true, true, asked)
	check("the other has it", &split, true, true)
	check("a client comes", &split, false, false)
	check("and goes", &split, true, false, held)
	check("the silent one asks again", &split, true, true, asked)
	check("the other has it again", &split, true, true)
	check("the network is joined", &joined, true, false)
	check("and split, and nobody asks", &split, true, false, held)
}

func TestUplinks(t *testing.T) {
	gateways := []config.Gateway{{Interface: "back"}}
	routers := &config.BGP{}
	routers.Speaker.Peers = make([]bgp.Peer, 1)
	for _, tc := range []struct {
		name  string
		fleet *config.Fleet
		l2    *config.L2
		bgp   *config.BGP
		want  []string
	}{
		{"alone", nil, &config.L2{Interfaces: []string{"front"}}, nil, nil},
		{"nothing is answered for", &config.Fleet{Interfaces: []string{"front"}}, nil, nil, nil},
		{"clients are neighbours", &config.Fleet{}, &config.L2{Interfaces: []string{"front"}, Gateways: gateways}, nil, []string{"front"}},
		{"on two networks", &config.Fleet{Interfaces: []string{"side"}}, &config.L2{Interfaces: []string{"front"}, Gateways: gateways}, nil, []string{"front", "side"}},
		{"routers are, before a gateway", &config.Fleet{Interfaces: []string{"front"}}, &config.L2{Interfaces: []string{"back"}, Gateways: gateways}, routers, []string{"front"}},
		{"routers are", &config.Fleet{Interfaces: []string{"front"}}, &config.L2{Interfaces: []string{"back"}}, routers, []string{"front"}},
		{"nobody knows where routers are", &config.Fleet{}, &config.L2{Interfaces: []string{"back"}}, routers, []string{"back"}},
		{"on one network with backends", &config.Fleet{}, &config.L2{Interfaces: []string{"back"}, Gateways: gateways}, nil, []string{"back"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Uplinks(&config.Config{Fleet: tc.fleet, L2: tc.l2, BGP: tc.bgp}); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// The box of the shipped file without its cable to the routers releases the addresses that backends
// answer to, although it has the one to the backends.
func TestShippedBoxWithoutItsRoutersIsIsolated(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../configs/fleet-edge.toml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := load.Parse("weir.toml", []byte(strings.Replace(string(text), `keys = ["credential:fleet.key"]`, "insecure_without_key = true\nmember = \"a\"", 1)), source.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	set := settingsOf(cfg, "a", "v1")
	var x isolation
	x.follow(&set, &fitness{links: Links{DownNames: []string{"eth0"}}}, &members{}, "", time.Now())
	if !x.is() {
		t.Errorf("it is not, with its uplinks %v", set.uplinks)
	}
	if cfg.L2.Wants(netip.MustParseAddr("192.0.2.10"), []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Namespace: "", Name: "shop"}}}) {
		t.Error("servers are answered for VIPs")
	}
}
