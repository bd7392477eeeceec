package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// What becomes of established connections when the box that has them is gone, and
// routers and backends send to another one: two boxes, of which one has its power cut
// under a hundred connections of each service.

// survivor is a way to serve, and what is expected of it.
type survivor struct {
	name string
	vip  string
	// service is the text of the service, beside its address and backends.
	service string
	// port is that of a server which gives back what clients send, or of one that speaks
	// first.
	port int
	// least and most are how many of a hundred connections must live on.
	least, most int
}

// With what all members have in [kernel] and beside it.
var survivals = []struct {
	name   string
	kernel string
	sync   bool
	ways   []survivor
}{
	{"nothing asked for", "", false, []survivor{
		{"rr, masqueraded", "192.0.2.1", `scheduler = "rr"`, answering, 0, 0},
		{"mh, source kept", "192.0.2.4", `scheduler = "mh"` + "\n" + `source_address = "keep"`, answering, 0, 0},
	}},
	{"sloppy_tcp, masquerade_source", "sloppy_tcp = true\nmasquerade_source = [\"192.0.2.250\", \"2001:db8:2::250\"]\n", false, []survivor{
		{"rr, source kept", "192.0.2.3", `scheduler = "rr"` + "\n" + `source_address = "keep"`, answering, 1, 80}, // who meets its backend by chance
		{"mh, source kept", "192.0.2.4", `scheduler = "mh"` + "\n" + `source_address = "keep"`, answering, 100, 100},
		{"mh, source kept, the server alone speaks", "192.0.2.4", `scheduler = "mh"` + "\n" + `source_address = "keep"`, speaking, 100, 100},
		{"mh, source kept, IPv6", "2001:db8:2::4", `scheduler = "mh"` + "\n" + `source_address = "keep"`, answering, 100, 100},
		{"mh, masqueraded with the shared source", "192.0.2.2", `scheduler = "mh"`, answering, 100, 100},
	}},
	{"[fleet.sync], masquerade_source", "masquerade_source = [\"192.0.2.250\", \"2001:db8:2::250\"]\n", true, []survivor{
		{"rr, source kept", "192.0.2.3", `scheduler = "rr"` + "\n" + `source_address = "keep"`, answering, 100, 100},
		{"rr, source kept, the server alone speaks", "192.0.2.3", `scheduler = "rr"` + "\n" + `source_address = "keep"`, speaking, 100, 100},
		{"rr, masqueraded with the shared source, IPv6", "2001:db8:2::1", `scheduler = "rr"`, answering, 100, 100},
		{"rr, masqueraded with the shared source", "192.0.2.1", `scheduler = "rr"`, answering, 100, 100},
	}},
}

func TestConnectionsOutliveABox(t *testing.T) {
	t.Parallel()
	soakOnly(t, "TestShippedFleetWithBGP, TestShippedFleetWithoutBGP and TestDrillShort hold connections over a power cut in every run")
	e := newTakeover(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ALL MEMBERS HAVE\tSERVICE\tALIVE OF 100\tLONGEST PAUSE")
	for i, s := range survivals {
		loses, takes := i%2, 1-i%2
		for n := range e.boxes {
			e.serve(t, n, s.kernel, s.sync, s.ways)
		}
		e.moveTo(t, loses)
		var all []traffic.Holds
		for j, way := range s.ways {
			e.boxes[loses].predictsSurvival(t, way)
			all = append(all, carry(t, e.Host("client1"), way, clientAddrs(1, strings.Contains(way.vip, ":"))[j]))
		}
		if s.sync {
			e.boxes[takes].hasConnectionsOf(t, s.ways)
		}
		// Of talk, and of the messages between kernels: a message that is not full goes when it is two
		// seconds old (IPVS_SYNC_FLUSH_TIME in net/netfilter/ipvs/ip_vs_sync.c).
		time.Sleep(3 * time.Second)
		e.boxes[loses].box.PowerCut()
		e.running[loses] = false
		time.Sleep(300 * time.Millisecond) // until another host has noticed
		e.moveTo(t, takes)
		moved := time.Now()
		for j, way := range s.ways {
			r := survivors(t, all[j], moved)
			alive := r.Held - r.Cut
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", s.name, way.name, alive, traffic.Round(r.Gap))
			if alive < way.least || alive > way.most {
				t.Errorf("%s: %s: %d of 100 connections live on, want %d to %d: %s", s.name, way.name, alive, way.least, way.most, r)
			}
		}
		if i == len(survivals)-1 {
			break
		}
		must(t, e.boxes[loses].box.Boot(t.Context()))
	}
	_ = w.Flush()
	t.Logf("power cut of the box, routes moved after 0.3 s, on %v:\n%s", lab.UML, table.String())
}

// takeover is a router in front of two boxes, and backends that reply through one of
// them. The test itself moves the routes: what is shown is what kernels do.
type takeover struct {
	*lab.Lab
	boxes   []*site
	running []bool
}

func newTakeover(t *testing.T) *takeover {
	t.Helper()
	e := &takeover{boxes: openBoxes(t, edgeSite(2)), running: make([]bool, 2)}
	e.Lab = e.boxes[0].Lab
	l := e.Lab
	for _, name := range webs {
		serveEcho(t, l.Host(name), answering)
		serveTicks(t, l.Host(name), speaking)
	}
	return e
}

// serve has a box serve in some way.
func (e *takeover) serve(t *testing.T, n int, kernel string, sync bool, ways []survivor) {
	t.Helper()
	var toml strings.Builder
	fmt.Fprintf(&toml, "[kernel]\nsync_period = \"2s\"\nmin_sync_period = \"50ms\"\n%s", kernel)
	fmt.Fprintf(&toml, "[fleet]\nname = \"takeover\"\nmember = \"box%d\"\nbind = \"10.2.0.%d\"\njoin = [\"10.2.0.1\", \"10.2.0.2\"]\ninsecure_without_key = true\n", n+1, n+1)
	if sync {
		fmt.Fprintf(&toml, "[fleet.sync]\ninterface = \"back\"\n")
	}
	for i, way := range ways {
		backends := "10.2.0.1"
		if strings.Contains(way.vip, ":") {
			backends = "fd02::1"
		}
		fmt.Fprintf(&toml, "[[service]]\nname = \"way%d\"\nvips = [%q]\nports = [\"%d\"]\nbackends = [\"%[4]s1\", \"%[4]s2\", \"%[4]s3\"]\n%[5]s\n",
			i, way.vip, way.port, backends, way.service)
	}
	s := e.boxes[n]
	if e.running[n] {
		s.reload(t, toml.String())
		return
	}
	s.tracksMany(t)
	s.run(t, toml.String())
	e.running[n] = true
}

// moveTo has the router send VIPs to a box, and the backends send what goes elsewhere.
func (e *takeover) moveTo(t *testing.T, n int) {
	t.Helper()
	var all sync.WaitGroup
	move := func(host, what, via4, what6, via6 string) {
		all.Go(func() {
			script := fmt.Sprintf("ip route replace %s via %s && ip -6 route replace %s via %s", what, via4, what6, via6)
			if _, err := e.Host(host).Run(t.Context(), "sh", "-c", script); err != nil {
				t.Error(err)
			}
		})
	}
	move("router", "192.0.2.0/24", boxAddr(n+1), "2001:db8:2::/64", boxAddr6(n+1))
	for _, name := range webs {
		move(name, "default", fmt.Sprintf("10.2.0.%d", n+1), "default", fmt.Sprintf("fd02::%d", n+1))
	}
	all.Wait()
}

// hasConnectionsOf waits until the other box's kernel has sent this one's a hundred connections of
// each way: a message that is not full goes when it is two seconds old
// (IPVS_SYNC_FLUSH_TIME in net/netfilter/ipvs/ip_vs_sync.c).
func (s *site) hasConnectionsOf(t *testing.T, ways []survivor) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		table := s.box.Must(t, "ipvsadm", "-Lnc")
		for _, way := range ways {
			got := 0
			for _, line := range linesWith(table, at(way.vip, way.port)) {
				if strings.Contains(line, "ESTABLISHED") {
					got++
				}
			}
			if got < 100 {
				return fmt.Errorf("%s knows %d connections of %s, want 100:\n%s", s.box.Name(), got, way.name, table)
			}
		}
		return nil
	})
}

// predictsSurvival waits until weir explain, which has the state of the other box,
// reports the same that is expected here.
func (s *site) predictsSurvival(t *testing.T, way survivor) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		var doc struct {
			Packet struct {
				Survival *struct {
					Survives bool     `json:"survives"`
					Because  []string `json:"reasons"`
				} `json:"survival"`
			} `json:"packet"`
		}
		s.weirJSON(t, &doc, "explain", at(way.vip, way.port))
		said := doc.Packet.Survival
		if said == nil || said.Survives != (way.least == 100) || slices.Contains(said.Because, "single-box") {
			return fmt.Errorf("%s: weir explain says %+v", way.name, said)
		}
		return nil
	})
}

// carriedBeat is the time between an answer and the next byte, carriedPatience how long
// an answer may take, carriedKeepalive when a client that receives nothing asks.
const (
	carriedBeat      = 200 * time.Millisecond
	carriedPatience  = 15 * time.Second
	carriedKeepalive = 2 * time.Second

	answering = 7000 // the port of servers that give back every byte
	speaking  = 7001 // and of those that send one every beat
)

// serveTicks puts a TCP server on a host that sends the host's name in a line and then
// a byte every beat, and reads nothing.
func serveTicks(t *testing.T, m *lab.Machine, port int) {
	t.Helper()
	serveConns(t, m, port, func(c net.Conn) {
		for _, err := fmt.Fprintln(c, m.Name()); err == nil; _, err = c.Write([]byte{'.'}) {
			time.Sleep(carriedBeat)
		}
	})
}

// carry opens a hundred connections, from an address of the client that no other way
// has, and from ports that no earlier connection had: a backend could not distinguish two of
// them from one port behind a masqueraded source, nor two of a client to two VIPs.
func carry(t *testing.T, from *lab.Machine, way survivor, client string) traffic.Holds {
	t.Helper()
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		c, err := dialOwnPort(from, client)(ctx, network, to)
		if err == nil {
			err = c.(*net.TCPConn).SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: carriedKeepalive, Interval: carriedKeepalive})
		}
		return c, err
	}
	o := traffic.HoldOptions{Beat: carriedBeat, Patience: carriedPatience, Listen: way.port == speaking}
	all, err := traffic.HoldMany(t.Context(), dial, 100, o, at(way.vip, way.port))
	t.Cleanup(func() { all.Release() })
	must(t, err)
	return all
}

// survivors waits until each connection has been cut, or answered since the routes moved.
func survivors(t testing.TB, all traffic.Holds, moved time.Time) traffic.Report {
	return all.Report(t.Context(), moved.Add(2*carriedBeat), 2*carriedPatience)
}
