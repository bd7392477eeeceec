package status

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"weir/cmd/weir/internal/status/traffic"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

var healthy = Status{
	State: OK, Version: "1.2.3", PID: 812, Started: ago(50 * time.Hour),
	Config: Config{File: "/etc/weir/weir.toml", Loaded: ago(90 * time.Minute)},
	Kernel: Kernel{
		Release: "6.1.0-31-amd64", Mode: "ipvs", Rules: "iptables-nft", Services: 2, VirtualServers: 4, RealServers: 12, VIPs: 3,
		SetMembers: 11, LastSync: ago(3 * time.Second), LastAudit: ago(7 * time.Second),
	},
	Backend:  Backends{Up: 12},
	Clusters: []Cluster{}, Guarded: []GuardedSource{}, Notes: []Note{}, Drains: []Drain{},
}

func withIPTables() Status {
	s := healthy
	s.Kernel.IPTablesReason = "support for random numbers (numgen) in nf_tables is missing: boot Linux 5.6 or later"
	return s
}

func degraded() Status {
	s := healthy
	s.State = Degraded
	s.Problems = []Problem{{ProblemNotes, "1 note"}, {ProblemBackends, "1 of 12 backends down"}}
	s.Kernel.Drift = 4
	s.Backend = Backends{Up: 11, Down: 1, Draining: 10}
	s.Notes = []Note{{Service: "static/web", Reason: "foreign", Text: "192.0.2.10:80/tcp is a virtual server that weir did not make"}}
	for range 10 {
		s.Drains = append(s.Drains, Drain{"192.0.2.10:80/tcp", "10.2.0.13:8080", now.Add(20 * time.Second)})
	}
	return s
}

var services = Services{Frontends: []Frontend{
	{
		Service: "static/web", Address: "192.0.2.10", Port: 80, Protocol: "tcp", Scheduler: "rr",
		Servers: []Server{
			{Address: "10.2.0.11:8080", Forward: "Masq", Weight: 1, Active: 3, Inactive: 12345, Health: "up"},
			{Address: "10.2.0.12:8080", Forward: "Masq", Health: "down", Error: "connection refused"},
			{Address: "10.2.0.13:8080", Forward: "Masq", Active: 1, Draining: true},
		},
	},
	{
		Service: "static/web", Address: "2001:db8:2::10", Port: 80, Protocol: "tcp", Scheduler: "mh mh-fallback,mh-port", Affinity: 10800,
		Servers: []Server{{Address: "[2001:db8:ffff:ffff:ffff:ffff:ffff:11]:8080", Forward: "Masq", Weight: 65535, Health: "unknown"}},
	},
	{Address: "203.0.113.1", Port: 53, Protocol: "udp", Scheduler: "wlc", Servers: []Server{}},
	{Service: "static/signal", Address: "192.0.2.11", Port: 2905, Protocol: "sctp", Scheduler: "wrr", Servers: []Server{
		{Address: "10.2.0.11:2905", Forward: "Masq", Weight: 100},
	}},
}}

var conns = Conns{More: true, Conns: []Conn{
	{Protocol: "tcp", Client: "10.1.0.2:41234", Frontend: "192.0.2.10:80", Backend: "10.2.0.11:8080", State: "ESTABLISHED", Expires: 899},
	{Protocol: "udp", Client: "[fd01::2]:5000", Frontend: "[2001:db8:2::10]:53", Backend: "[fd02::11]:53", State: "UDP", Expires: 5},
}}

// checkTable compares the table of a document, which may begin on the second line of want.
func checkTable(t *testing.T, doc Tabler, want string) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, doc, "table", now); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.TrimPrefix(want, "\n"), b.String()); d != "" {
		t.Errorf("table (-want +got):\n%s\nwhole:\n%s", d, b.String())
	}
}

func TestTables(t *testing.T) {
	for _, tt := range []struct {
		name string
		doc  Tabler
		want string
	}{
		{"status ok", healthy, `
weir is ok: 2 services on 3 VIPs

Version:   1.2.3, pid 812, up 2d
Config:    /etc/weir/weir.toml, loaded 1h ago
Kernel:    6.1.0-31-amd64, mode ipvs, rules in iptables-nft
Objects:   4 virtual servers, 12 real servers, 11 set members
Backends:  12 up, 0 down, 0 unknown, 0 draining
Synced:    3s ago, audited 7s ago, 0 drift repairs since the start
`},
		{"status without nftables", withIPTables(), `
weir is ok: 2 services on 3 VIPs

Version:   1.2.3, pid 812, up 2d
Config:    /etc/weir/weir.toml, loaded 1h ago
Kernel:    6.1.0-31-amd64, mode ipvs, rules in iptables-nft
Rules:     in iptables and ipset, not in nftables: support for random numbers (numgen) in nf_tables is missing: boot Linux 5.6 or later
Objects:   4 virtual servers, 12 real servers, 11 set members
Backends:  12 up, 0 down, 0 unknown, 0 draining
Synced:    3s ago, audited 7s ago, 0 drift repairs since the start
`},
		{"status with notes and drains", degraded(), `
weir is degraded: 1 note; 1 of 12 backends down

Version:   1.2.3, pid 812, up 2d
Config:    /etc/weir/weir.toml, loaded 1h ago
Kernel:    6.1.0-31-amd64, mode ipvs, rules in iptables-nft
Objects:   4 virtual servers, 12 real servers, 11 set members
Backends:  11 up, 1 down, 0 unknown, 10 draining
Synced:    3s ago, audited 7s ago, 4 drift repairs since the start

Notes (1):
  static/web  foreign  192.0.2.10:80/tcp is a virtual server that weir did not make

Draining (10):
` + strings.Repeat("  10.2.0.13:8080 of 192.0.2.10:80/tcp, at most 20s\n", 10)},
		{"services", services, `
Prot LocalAddress:Port                            Scheduler Flags                          Service
  -> RemoteAddress:Port                           Forward Weight ActiveConn  InActConn     Health
TCP  192.0.2.10:80                                rr                                       static/web
  -> 10.2.0.11:8080                               Masq         1          3      12345     up
  -> 10.2.0.12:8080                               Masq         0          0          0     down (connection refused)
  -> 10.2.0.13:8080                               Masq         0          1          0     draining
TCP  [2001:db8:2::10]:80                          mh mh-fallback,mh-port persistent 10800  static/web
  -> [2001:db8:ffff:ffff:ffff:ffff:ffff:11]:8080  Masq     65535          0          0     unknown
UDP  203.0.113.1:53                               wlc
SCTP 192.0.2.11:2905                              wrr                                      static/signal
  -> 10.2.0.11:2905                               Masq       100          0          0
`},
		{"no services", Services{Frontends: []Frontend{}}, `
Prot LocalAddress:Port   Scheduler Flags                       Service
  -> RemoteAddress:Port  Forward Weight ActiveConn  InActConn  Health
`},
		{"connections", conns, `
pro  expire  state        source          virtual              destination
TCP  14:59   ESTABLISHED  10.1.0.2:41234  192.0.2.10:80        10.2.0.11:8080
UDP  00:05   UDP          [fd01::2]:5000  [2001:db8:2::10]:53  [fd02::11]:53
(the first 2; --limit shows more)
`},
	} {
		t.Run(tt.name, func(t *testing.T) { checkTable(t, tt.doc, tt.want) })
	}
}

// What scripts read: JSON and YAML have the same content, and lists are never null.
func TestJSONAndYAMLAgree(t *testing.T) {
	for _, tt := range []struct {
		name string
		doc  Tabler
	}{{"status", degraded()}, {"services", services}, {"connections", conns},
		{"pools", pools}, {"drained", drainedBox}} {
		t.Run(tt.name, func(t *testing.T) {
			var j, y bytes.Buffer
			if err := Write(&j, tt.doc, "json", now); err != nil {
				t.Fatal(err)
			}
			if err := Write(&y, tt.doc, "yaml", now); err != nil {
				t.Fatal(err)
			}
			back, err := yaml.YAMLToJSON(y.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if err := json.Unmarshal(j.Bytes(), &a); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(back, &b); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(a, b); d != "" {
				t.Errorf("json and yaml differ (-json +yaml):\n%s", d)
			}
			if strings.Contains(j.String(), "null") {
				t.Errorf("a null:\n%s", j.String())
			}
		})
	}
}

// The field names are a promise to scripts.
func TestJSONFieldNames(t *testing.T) {
	var b bytes.Buffer
	doc := Services{Frontends: []Frontend{services.Frontends[0]}}
	doc.Frontends[0].Servers = doc.Frontends[0].Servers[1:2]
	doc.Frontends[0].Traffic = &traffic.Counters{Connections: 1, PacketsIn: 2, PacketsOut: 3, BytesIn: 4, BytesOut: 5}
	if err := Write(&b, doc, "json", now); err != nil {
		t.Fatal(err)
	}
	const want = `{
  "frontends": [
    {
      "service": "static/web",
      "address": "192.0.2.10",
      "port": 80,
      "protocol": "tcp",
      "scheduler": "rr",
      "servers": [
        {
          "address": "10.2.0.12:8080",
          "forward": "Masq",
          "weight": 0,
          "active": 0,
          "inactive": 0,
          "health": "down",
          "error": "connection refused"
        }
      ],
      "traffic": {
        "connections": 1,
        "packets_in": 2,
        "packets_out": 3,
        "bytes_in": 4,
        "bytes_out": 5
      }
    }
  ]
}
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("json (-want +got):\n%s", d)
	}
}

func TestUnknownFormatIsAnError(t *testing.T) {
	if err := Write(&bytes.Buffer{}, healthy, "xml", now); err == nil {
		t.Error("xml was written")
	}
}

func TestNotesThatNeedALookComeFirst(t *testing.T) {
	var s Status
	const n = 8
	for range n {
		s.Notes = append(s.Notes, Note{Service: "prod/shop/web", Reason: "no-local", Text: "x", Informational: true})
	}
	s.Notes = append(s.Notes, Note{Service: "static/web", Reason: "conflict", Text: "y"})
	var b bytes.Buffer
	l := noteList(s.Notes)
	l.shown = n
	l.write(&b)
	want := "\nNotes (9, 8 of them informational):\n  static/web  conflict  y\n" +
		strings.Repeat("  prod/shop/web  no-local  x\n", n-1) + "  and 1 more: weir status -o json\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Whatever is wrong, a status fits one screen.
func TestAStatusFitsOneScreen(t *testing.T) {
	t.Parallel()
	s := degraded()
	s.Problems = nil
	s.BGP = &BGP{ASN: 64500, Withheld: map[string]int{"no-backend": 3, "drained": 1}}
	s.Fleet = &Fleet{Name: "edge", Mode: "active-active", State: MemberServing, Members: map[MemberState]int{MemberServing: 3, MemberDead: 17}}
	for i := range 20 {
		name := strings.Repeat("c", 8) + string(rune('a'+i))
		s.Clusters = append(s.Clusters, Cluster{Name: name, State: Unreachable, Since: ago(time.Hour), LastContact: ago(time.Hour), Kinds: []string{"LoadBalancer", "ExternalIP"}, Error: "connection refused"})
		s.BGP.Down = append(s.BGP.Down, DownPeer{Name: "tor" + name, Since: ago(time.Hour), Reason: "hold timer expired"})
		s.Notes = append(s.Notes, Note{Service: "prod/shop/" + name, Reason: "conflict", Text: strings.Repeat("192.0.2.1:80/tcp is another's ", 4)})
	}
	s.Judge(now)
	var b bytes.Buffer
	screen := Screen{Width: 80, Lines: 23}
	OnScreen{s, screen}.Table(&b, now)
	rows := 0
	for line := range strings.Lines(b.String()) {
		rows += screen.rows(strings.TrimSuffix(line, "\n"))
	}
	if rows > screen.Lines {
		t.Errorf("%d rows:\n%s", rows, b.String())
	}
	var all bytes.Buffer
	s.Table(&all, now)
	if strings.Contains(all.String(), " more: ") || strings.Count(all.String(), "  conflict  ") != 20 {
		t.Errorf("a pipe does not get everything:\n%s", all.String())
	}
	for _, part := range []string{"weir is degraded: 43 problems\n  cluster cccccccca is unreachable", "Clusters (20)", "Notes (21)", "Draining (10)", "BGP:", "Fleet:"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %q in\n%s", part, b.String())
		}
	}
	t.Log("\n" + b.String())
}

// TestManyNotesFitATerminalAtOnce has a limit against a cost that grows with the square of the notes.
func TestManyNotesFitATerminalAtOnce(t *testing.T) {
	t.Parallel()
	s := Status{Notes: slices.Repeat([]Note{{Service: "prod/a/b", Reason: "conflict", Text: "192.0.2.1:80 belongs to prod/a/a"}}, 50_000)}
	begin := time.Now()
	OnScreen{s, Screen{Width: 80, Lines: 23}}.Table(io.Discard, now)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestTextsFromOutsideMakeNoLines shows that a tenant, a backend or a router can't write lines of weir.
func TestTextsFromOutsideMakeNoLines(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"\n", "\f"} {
		evil := "x" + c + "weir:ok"
		for name, doc := range map[string]Tabler{
			"notes":    Status{Notes: []Note{{Service: "prod/a/b", Text: evil}}},
			"problems": Status{State: Degraded, Problems: []Problem{{Text: evil}, {Text: strings.Repeat("long ", 20)}}},
			"summary":  Status{State: Degraded, Problems: []Problem{{Text: evil}}},
			"health":   Health{Backends: []CheckedBackend{{State: "down", Error: evil}}},
			"pending":  Pools{Pools: []Pool{{}}, Pending: []Pending{{Text: evil}}},
			"events":   Events{Events: []Event{{Attrs: []Attr{{Key: "error", Value: evil}}}}},
		} {
			var out strings.Builder
			if err := Write(&out, doc, "table", now); err != nil || strings.Contains(out.String(), "\nweir:ok") {
				t.Errorf("%s with %q: %v\n%s", name, c, err, out.String())
			}
		}
	}
}

func TestALongPassShowsItsProgress(t *testing.T) {
	s := Status{State: OK, Kernel: Kernel{Programming: ProgrammingOf(120_000, 650_000)}}
	if want := "; programming the kernel: 120000 of 650000 operations (18 %)"; !strings.HasSuffix(s.Line(), want) {
		t.Errorf("%q does not end with %q", s.Line(), want)
	}
	if s.Kernel.Programming = ProgrammingOf(0, 0); strings.Contains(s.Line(), "programming") {
		t.Errorf("%q names a pass without operations", s.Line())
	}
}
