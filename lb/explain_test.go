package lb

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files of Explain")

// Explain returns the fate of a packet, for every client and frontend of
// random boxes, while drains run and Ops fail.
func TestLawExplainIsRight(t *testing.T) {
	seeds(t, 25, func(t *testing.T, g *gen) {
		k := g.kernel()
		r := NewReconciler(k, g.options(), "static")
		detectors := Detectors{ClusterCIDRs: k.ClusterCIDRs, MasqueradeAll: k.MasqueradeAll}
		if g.chance(30) {
			k.Fail = func(Op) error {
				if g.chance(10) {
					return context.DeadlineExceeded
				}
				return nil
			}
		}
		var services []Service
		for now := testNow; now.Before(testNow.Add(time.Minute)); now = now.Add(20 * time.Second) {
			services = append(g.services(), services...)
			r.Update(put(services[:min(len(services), 4)]...))
			r.SetHealth(g.health(services), true)
			mustSync(t, r, now)
			g.busy(k)
			for _, f := range k.allFrontends(services) {
				for _, client := range clients {
					if client.Is4() != f.Addr.Is4() {
						continue
					}
					e := r.Explain(Query{Frontend: f, Client: client, Detectors: detectors})
					got := Outcome{Fate: e.Fate, Masqueraded: e.Source == SourceMasqueraded, Loops: e.Source == SourceEither}
					for _, c := range e.Candidates {
						if c.State == InUse && e.Fate == Served {
							got.Backends = append(got.Backends, c.Addr)
							if c.Forward != "" {
								got.Direct = append(got.Direct, c.Addr)
							}
						}
					}
					met := k.Connect(client, f)
					if n := len(met.Direct); n > 0 && n < len(met.Backends) { // SourceEither has more meanings
						met.Loops, met.Masqueraded = met.Loops || met.Masqueraded, false
					}
					if d := cmp.Diff(met, got, exact); d != "" {
						t.Fatalf("%s to %s (-met +explained):\n%s\n%s", client, f, d, e)
					}
					if e.Fate != Served && e.Reason == "" || e.Fate == Served && e.Reason != "" || len(e.Steps) == 0 {
						t.Fatalf("reason %q in\n%s", e.Reason, e)
					}
				}
			}
		}
	})
}

// shop is a node with a bit of everything, with an answer of Explain of each kind.
func shop(t *testing.T) *story {
	s := newStory(t)
	s.Configure(Options{
		Base: base, Drain: time.Minute, Exclude: []netip.Prefix{netip.MustParsePrefix("192.0.2.200/32")},
		NodePortNets: []netip.Prefix{netip.MustParsePrefix("10.9.9.0/24")},
	})
	s.k.ClusterCIDRs = pods
	s.k.HostAddrs = map[netip.Addr]string{
		netip.MustParseAddr("10.9.9.1"): "eth0", netip.MustParseAddr("172.16.0.1"): "docker0",
	}
	near, far := netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.1.1:8080")
	down, six := netip.MustParseAddrPort("10.0.0.3:8080"), netip.MustParseAddrPort("[fd00::1]:8080")
	svc := Service{
		ID: ServiceID{"prod", "shop", "web"}, Scheduler: Scheduler{Name: "wrr"}, Affinity: 3 * time.Hour, Created: testNow,
		VIPs: []VIP{
			{Addr: vip, Local: true},
			{Addr: netip.MustParseAddr("10.96.0.10"), Kind: ClusterIP},
			{Addr: unspecified(IPv4), Kind: NodePort, Local: true},
		},
		Ports: []Port{{Proto: TCP, Port: 80, NodePort: 30080, Backends: []Backend{
			{Addr: near, Weight: 1, Scope: Both}, {Addr: far, Weight: 1}, {Addr: down, Weight: 1, Scope: Both}, {Addr: six, Weight: 1},
		}}},
		Restricted: true, SourceRanges: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.0/24")},
	}
	remote := Service{
		ID: ServiceID{"prod", "shop", "remote"}, Scheduler: Scheduler{Name: "rr"}, Created: testNow,
		VIPs:  []VIP{{Addr: netip.MustParseAddr("192.0.2.2"), Local: true}, {Addr: netip.MustParseAddr("192.0.2.200")}},
		Ports: []Port{{Proto: TCP, Port: 80, Backends: []Backend{{Addr: far, Weight: 1}}}, {Proto: UDP, Port: 53}},
	}
	rival := Service{
		ID: ServiceID{"test", "shop", "web"}, Scheduler: Scheduler{Name: "rr"}, Created: testNow.Add(time.Hour),
		VIPs: []VIP{{Addr: vip}}, Ports: svc.Ports,
	}
	s.Update(Update{Source: "prod", Put: []Service{svc, remote}})
	s.Update(Update{Source: "test", Put: []Service{rival}})
	s.Update(put())
	s.SetHealth(map[ServiceID]Health{svc.ID: {Down: map[netip.AddrPort]bool{down: true}}}, true)
	mustSync(t, s.Reconciler, s.now)
	return s
}

func frontend(t *testing.T, text string) Frontend {
	t.Helper()
	at, proto, _ := strings.Cut(text, "/")
	p, err := ParseProtocol(proto)
	must(t, err)
	a := netip.MustParseAddrPort(at)
	return Frontend{Addr: a.Addr(), Port: a.Port(), Proto: p}
}

// The words are part of what operators see: go test ./lb -run Golden -update
// updates them.
func TestExplainGolden(t *testing.T) {
	s := shop(t)
	for _, tt := range goldenQueries {
		t.Run(tt.name, func(t *testing.T) {
			got := s.Explain(tt.query(t)).String()
			golden(t, tt.name, got)
		})
	}
}

var goldenQueries = []goldenQuery{
	{"outside", "192.0.2.1:80/tcp", "203.0.113.7"},
	{"anybody", "192.0.2.1:80/tcp", ""},
	{"pod", "192.0.2.1:80/tcp", "198.51.100.7"},
	{"node", "192.0.2.1:80/tcp", "10.9.9.1"},
	{"out_of_range", "192.0.2.1:80/tcp", "8.8.8.8"},
	{"itself", "10.96.0.10:80/tcp", "10.0.1.1"},
	{"cluster_ip", "10.96.0.10:80/tcp", "198.51.100.7"},
	{"node_port", "10.9.9.1:30080/tcp", "203.0.113.7"},
	{"node_port_elsewhere", "172.16.0.1:30080/tcp", "203.0.113.7"},
	{"node_port_loopback", "127.0.0.1:30080/tcp", "127.0.0.1"},
	{"no_local", "192.0.2.2:80/tcp", "203.0.113.7"},
	{"no_backends", "192.0.2.2:53/udp", "203.0.113.7"},
	{"other_port", "192.0.2.1:443/tcp", "203.0.113.7"},
	{"other_protocol", "192.0.2.1:80/udp", "203.0.113.7"},
	{"excluded", "192.0.2.200:80/tcp", "203.0.113.7"},
	{"nowhere", "192.0.2.9:80/tcp", "203.0.113.7"},
}

type goldenQuery struct{ name, to, from string }

func (g goldenQuery) query(t *testing.T) Query {
	q := Query{Frontend: frontend(t, g.to), Detectors: Detectors{ClusterCIDRs: pods}}
	if g.from != "" {
		q.Client = netip.MustParseAddr(g.from)
	}
	return q
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "explain", name+".txt")
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Where virtual servers are rules the packet goes another way, to the same end.
func TestExplainGoldenWithoutIPVS(t *testing.T) {
	s := shop(t)
	names := Names{Prefix: "LB", Chain: func(f Frontend) string { return "LB-SVC-" + f.String() }}
	for _, tt := range goldenQueries {
		t.Run(tt.name, func(t *testing.T) {
			q := tt.query(t)
			want := s.Explain(q)
			q.Names = names
			got := s.Explain(q)
			golden(t, "rules_"+tt.name, got.String())
			if strings.Contains(got.String(), ". ipvs") {
				t.Errorf("there is no IPVS:\n%s", got)
			}
			want.Steps, got.Steps = nil, nil
			if d := cmp.Diff(want, got, exact); d != "" {
				t.Errorf("(-IPVS +rules):\n%s", d)
			}
		})
	}
}

func TestExplainHowRulesChoose(t *testing.T) {
	for _, tt := range []struct {
		scheduler string
		affinity  uint32
		n         int
		want      string
	}{
		{"rr", 0, 2, "chooses one of 2 backends at random"},
		{"wrr", 0, 3, "chooses one of 3 backends at random, by weight"},
		{"lc", 60, 2, "chooses one of 2 backends at random, by weight; the one that the client had within 60 s, if it had any"},
		{"fo", 0, 2, "chooses one of 2 backends, that of the highest weight"},
		{"wrr", 60, 1, "chooses one of 1 backend"},
	} {
		if got := (VirtualServer{Scheduler: Scheduler{Name: tt.scheduler}, Affinity: tt.affinity}).atRandom(tt.n); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

func TestExplainShowsRefusedObjects(t *testing.T) {
	s := newStory(t)
	s.sets()
	s.k.Put(VirtualServer{Frontend: Frontend{Addr: vip, Port: 81, Proto: TCP}, Scheduler: Scheduler{Name: "wlc"}})
	s.k.Fail = func(op Op) error {
		if rs, ok := op.Object.(RealServer); ok && rs.Addr == be2 {
			return errors.New("no buffer space")
		}
		return nil
	}
	svc := web(be1, be2)
	svc.Ports = append(svc.Ports, Port{Proto: TCP, Port: 81, Backends: svc.Ports[0].Backends})
	s.Update(put(svc))
	mustSync(t, s.Reconciler, s.now)
	e := s.Explain(Query{Frontend: front, Client: clients[0]})
	want := []Candidate{{Addr: be1, State: InUse, Weight: 1}, {Addr: be2, State: Out, Weight: 1, Reason: "the kernel would not take it: no buffer space"}}
	if e.Fate != Served || !slices.Equal(e.Candidates, want) {
		t.Errorf("candidates %v, want %v", e.Candidates, want)
	}
	e = s.Explain(Query{Frontend: Frontend{Addr: vip, Port: 81, Proto: TCP}, Client: clients[0]})
	if e.Fate != Foreign || len(e.Claims) != 1 || e.Claims[0].Wins || e.Reason != "is a virtual server that weir did not make" {
		t.Errorf("a foreign frontend:\n%s", e)
	}
}

func TestExplainClientThatReachesItself(t *testing.T) {
	all := Detectors{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, tt := range []struct {
		name     string
		backends []netip.AddrPort
		d        Detectors
		source   SourceAddr
		step     string // the last one
	}{
		{"alone", []netip.AddrPort{be1}, all, SourceMasqueraded, "masqueraded: the client gets itself, and could not answer its own address"},
		{"one of two", []netip.AddrPort{be1, be2}, all, SourceEither, "if the client gets itself, it sees an address of this box"},
		{"another", []netip.AddrPort{be2}, all, SourceKept, "chooses one of 1 backend"},
		{"alone, and maybe by an interface of pods", []netip.AddrPort{be1}, Detectors{Interfaces: true}, SourceMasqueraded, "masqueraded: the client gets itself, and could not answer its own address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory(t)
			s.Configure(Options{Base: base})
			svc := web(tt.backends...)
			svc.VIPs[0].Kind = ClusterIP
			s.Update(put(svc))
			mustSync(t, s.Reconciler, s.now)
			e := s.Explain(Query{Frontend: front, Client: be1.Addr(), Detectors: tt.d})
			if got := e.Steps[len(e.Steps)-1].Result; e.Source != tt.source || got != tt.step {
				t.Errorf("source %s, want %s; the last step %q, want %q\n%s", e.Source, tt.source, got, tt.step, e)
			}
		})
	}
}

func TestExplainByInterface(t *testing.T) {
	s := shop(t)
	q := Query{Frontend: frontend(t, "10.96.0.10:80/tcp"), Client: clients[0], Detectors: Detectors{Interfaces: true}}
	if e := s.Explain(q); e.Source != SourceEither || e.Fate != Served {
		t.Errorf("an address does not tell who comes in by a bridge:\n%s", e)
	}
	q.Frontend = front
	if e := s.Explain(q); e.Source != SourceKept || !strings.Contains(e.String(), "pod interface may get all") {
		t.Errorf("of a traffic policy of Local:\n%s", e)
	}
}

// The source is kept on the way to a direct backend.
func TestExplainClientThatReachesItselfBesideADirectBackend(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base})
	svc := web(be1, be2)
	svc.VIPs[0].Kind = ClusterIP
	svc.Ports[0].Backends[0].Addr = netip.AddrPortFrom(be1.Addr(), front.Port) // direct routing keeps the port
	svc.Ports[0].Backends[1].Addr = netip.AddrPortFrom(be2.Addr(), front.Port)
	svc.Ports[0].Backends[1].Forward = DirectRouting
	s.Update(put(svc))
	mustSync(t, s.Reconciler, s.now)
	e := s.Explain(Query{Frontend: front, Client: be1.Addr(), Detectors: Detectors{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}})
	if e.Source != SourceEither || !strings.Contains(e.String(), "if the client gets itself, it sees an address of this box") {
		t.Errorf("%s", e)
	}
}

// TestExplainNamesTheSource checks that masqueraded connections have the source that all boxes share, if
// one is configured, and that those of the box itself never have it.
func TestExplainNamesTheSource(t *testing.T) {
	s := newStory(t)
	s.Configure(Options{Base: base})
	svc := web(be1, be2)
	svc.VIPs[0].Kind = ClusterIP
	s.Update(put(svc))
	mustSync(t, s.Reconciler, s.now)
	shared := netip.MustParseAddr("10.2.0.250")
	all := Detectors{MasqueradeAll: true}
	for _, tt := range []struct {
		name    string
		client  netip.Addr
		sources []netip.Addr
		bears   netip.Addr
		text    string
	}{
		{"shared", clients[0], []netip.Addr{netip.MustParseAddr("2001:db8::1"), shared}, shared, "masqueraded: the backend sees 10.2.0.250"},
		{"of the other family", clients[0], []netip.Addr{netip.MustParseAddr("2001:db8::1")}, netip.Addr{}, "masqueraded as an address of this box"},
		{"none", clients[0], nil, netip.Addr{}, "masqueraded: the backend sees an address of this box"},
		{"it gets itself", be1.Addr(), []netip.Addr{shared}, shared, "if the client gets itself, it sees an address of this box"},
	} {
		e := s.Explain(Query{Frontend: front, Client: tt.client, Detectors: all, Sources: tt.sources})
		if e.MasqueradeSource != tt.bears || !strings.Contains(e.String(), tt.text) {
			t.Errorf("%s: it bears %s\n%s", tt.name, e.MasqueradeSource, e)
		}
		if shows := strings.Contains(e.String(), "masqueraded as 10.2.0.250"); shows != tt.bears.IsValid() {
			t.Errorf("%s:\n%s", tt.name, e)
		}
	}
}

func TestNotesNameAFrontendAsAWord(t *testing.T) {
	f := Frontend{Addr: netip.MustParseAddr("2.0.2.1"), Port: 80, Proto: TCP}
	for text, want := range map[string]bool{
		"2.0.2.1:80/tcp belongs to static/web":               true,
		"so no client may connect to 2.0.2.1:80/tcp":         true,
		"2.0.2.1:80/tcp: all marks are in use":               true,
		"192.0.2.1:80/tcp belongs to static/web":             false,
		"2.0.2.1:80/tcpx is no frontend, and 2.0.2.1:80 too": false,
	} {
		if got := names(text, f); got != want {
			t.Errorf("%q names %s: %t, want %t", text, f, got, want)
		}
	}
}
