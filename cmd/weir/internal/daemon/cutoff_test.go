package daemon

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bgp"
	"weir/cluster"
	"weir/cmd/weir/internal/config"
	"weir/l2"
	"weir/lb"
)

func TestCutOff(t *testing.T) {
	at := time.Unix(1000, 0)
	l2Only := &config.L2{Interfaces: []string{"eth0", "eth1"}, Static: true}
	gateways := &config.L2{Interfaces: []string{"eth0"}}
	unheard := facts{routers: []string{"tor"}, asked: at.Add(-time.Hour)}
	heard := unheard
	heard.heard = true
	for _, tc := range []struct {
		name   string
		l2     *config.L2
		facts  facts
		others []cluster.Life
		waits  time.Duration // before it is asked a second time
		want   bool
	}{
		{name: "all is well", l2: l2Only},
		{name: "one cable left", l2: l2Only, facts: facts{darkNames: []string{"eth0", "back"}}},
		{name: "no cable left", l2: l2Only, facts: facts{darkNames: []string{"eth0", "eth1"}}, want: true},
		{name: "nothing to answer", facts: facts{darkNames: []string{"eth0"}}},
		{name: "no client sends anything", l2: l2Only, facts: facts{quiet: true}, others: []cluster.Life{cluster.Dead}},
		{name: "alone and unheard", l2: gateways, facts: unheard, others: []cluster.Life{cluster.Dead}, waits: unheardPatience, want: true},
		{name: "not for long", l2: gateways, facts: unheard, others: []cluster.Life{cluster.Dead}, waits: unheardPatience - 1},
		{name: "a router hears it", l2: gateways, facts: heard, others: []cluster.Life{cluster.Dead}, waits: unheardPatience},
		{name: "others are there: the router restarts", l2: gateways, facts: unheard, others: []cluster.Life{cluster.Dead, cluster.Alive}, waits: unheardPatience},
		{name: "there never were others", l2: gateways, facts: unheard, waits: unheardPatience},
		{name: "neighbours may ask for VIPs too", l2: l2Only, facts: unheard, others: []cluster.Life{cluster.Dead}, waits: unheardPatience, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fleet{cfg: &config.Fleet{}, fellows: map[string]*fellow{}}
			f.answer.cfg, f.doors = tc.l2, doorsOf(&config.Config{Fleet: f.cfg, L2: tc.l2})
			f.routes = map[netip.Addr][]lb.Serving{netip.MustParseAddr("192.0.2.10"): {{Service: lb.ServiceID{Source: config.Source}}}}
			for i, life := range tc.others {
				f.fellows[string(rune('a'+i))] = &fellow{member: cluster.Member{Life: life}}
			}
			got, next := f.cutOff(tc.facts, at)
			if tc.waits > 0 {
				if got {
					t.Error("it is cut off at once")
				}
				got, next = f.cutOff(tc.facts, at.Add(tc.waits))
			}
			if got != tc.want {
				t.Errorf("cut off: %t, want %t", got, tc.want)
			}
			if waits := tc.waits == unheardPatience-1; !next.Equal(at.Add(unheardPatience)) && waits || !next.IsZero() && !waits {
				t.Errorf("to be asked again at %s", next)
			}
		})
	}
}

// A network of clients is split, that of backends is not: there both sides ask for the
// gateway, and the one must have it to which clients come.
func TestAGatewayIsWhereClientsAre(t *testing.T) {
	at := time.Unix(1000, 0)
	gateway := netip.MustParseAddr("10.2.0.254")
	f := &fleet{cfg: &config.Fleet{}, fellows: map[string]*fellow{}, extras: map[netip.Addr][]string{gateway: {"back"}}}
	f.answer.cfg = &config.L2{Interfaces: []string{"eth0"}}
	f.doors = []string{"eth0"}
	check := func(name string, quiet, want bool, vips ...l2.VIP) {
		t.Helper()
		f.answer.status.VIPs = vips
		if got, _ := f.cutOff(facts{quiet: quiet}, at); got != want {
			t.Errorf("%s: cut off %t, want %t", name, got, want)
		}
	}
	held := l2.VIP{Addr: gateway, State: l2.Held}
	asked, long, vip := held, held, held
	asked.Wanted, long.Wanted = at.Add(-time.Second), at.Add(-wantedLately)
	vip.Addr, vip.Wanted = netip.MustParseAddr("192.0.2.10"), at
	check("nobody asks", true, false, held)
	check("somebody asks for a VIP", true, false, held, vip)
	check("clients come here", false, false, asked)
	check("somebody did", true, false, long)
	check("somebody asks, and no client comes", true, true, asked)
	check("the other has it", true, true)
	check("a client comes", false, false)
	check("and goes", true, false, held)
}

func TestPacketsToVIPs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ip_vs_stats")
	for text, want := range map[string]uint64{
		"   Total Incoming Outgoing         Incoming         Outgoing\n   Conns  Packets  Packets            Bytes            Bytes\n" +
			"      1A       FF        0             12AB                0\n\n Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n": 255,
		"": 0, "a\nb\nc\n": 0, "a\nb\n1 x\n": 0,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, known := toVIPs(file); got != want || known != (want > 0) {
			t.Errorf("%q: %d, %t", text, got, known)
		}
	}
}

func TestQuietDoors(t *testing.T) {
	links := t.TempDir()
	count := func(name, packets string) {
		t.Helper()
		dir := filepath.Join(links, name, "statistics")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "rx_packets"), []byte(packets+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Unix(1000, 0)
	quiet := func(d *doors, after time.Duration, want bool) {
		t.Helper()
		if got := d.quiet(links, "/nowhere", at.Add(after)); got != want {
			t.Errorf("after %s: quiet %t, want %t", after, got, want)
		}
	}
	count("eth0", "7")
	count("eth1", "0")
	d := &doors{names: []string{"eth0", "eth1"}}
	quiet(d, 0, false)
	quiet(d, quietAfter-1, false)
	quiet(d, quietAfter, true)
	count("eth1", "1")
	quiet(d, quietAfter+1, false)
	quiet(d, 2*quietAfter+1, true)
	quiet(&doors{}, 0, false)
	gone := &doors{names: []string{"eth0", "none"}, since: at.Add(-time.Hour)}
	quiet(gone, time.Hour, false)
}

func TestDoors(t *testing.T) {
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
			if got := doorsOf(&config.Config{Fleet: tc.fleet, L2: tc.l2, BGP: tc.bgp}); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// The box of the shipped file whose cable to the routers is out lets go of what backends
// answer to, although it has the one to the backends.
func TestShippedBoxWithoutItsRoutersIsCutOff(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../configs/fleet-edge.toml")
	if err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, strings.Replace(string(text), `keys = ["credential:cluster.key"]`, "insecure_without_key = true\nmember = \"a\"", 1))
	f := &fleet{cfg: cfg.Fleet, fellows: map[string]*fellow{}, doors: doorsOf(cfg)}
	f.answer.cfg = cfg.L2
	dark := facts{darkNames: []string{"eth0"}, routers: namedRouters(cfg.BGP.Speaker.Peers)}
	if is, _ := f.cutOff(dark, time.Now()); !is {
		t.Errorf("it is not, with its doors at %v", f.doors)
	}
	if cfg.L2.Wants(netip.MustParseAddr("192.0.2.10"), []lb.Serving{{Service: static("shop")}}) {
		t.Error("servers are answered for VIPs")
	}
}
