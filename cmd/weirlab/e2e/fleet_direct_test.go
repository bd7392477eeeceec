package e2e

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

const directServers = 10

// directBoxes are three in make test, and five in make soak.
var directBoxes = sized(3, 5)

// direct is the site of a fleet behind a router, with so many servers that have the VIPs and reply to
// clients through the router:
//
//	client1 --\             /-- front1 -- box1 --\
//	           lan -- router        ...           back -- web1 ... web10
//	client2 --/          |  \-- frontN -- boxN --/  |
//	                     \-- 10.2.0.254 ------------/
func direct() lab.Site {
	p := edgeSite(directBoxes)
	router := &p.Hosts[len(p.Hosts)-1]
	router.Nets["back"] = "10.2.0.254/24 fd02::fe/64"
	p.Hosts = slices.DeleteFunc(p.Hosts, func(h lab.Host) bool { return slices.Contains(webs, h.Name) })
	for i := range directServers {
		p.Hosts = append(p.Hosts, lab.Host{
			Name: directServer(i), Nets: lab.Nets{"back": fmt.Sprintf("10.2.0.%d/24 fd02::%d/64", 11+i, 11+i)},
			Routes: []string{"default via 10.2.0.254", "default via fd02::fe"},
		})
	}
	return p
}

func directServer(i int) string { return fmt.Sprintf("web%d", 1+i) }

// directFleet are boxes that forward directly, and the connections through them.
type directFleet struct {
	*edge
	kernel, fleet string // more of these tables
	down          map[int]bool
	open          traffic.Holds
	table         *tabwriter.Writer
}

// config serves with the first servers.
func (f *directFleet) config(box, servers int) string {
	var backends []string
	for i := range servers {
		backends = append(backends, fmt.Sprintf("%q, %q", fmt.Sprintf("10.2.0.%d", 11+i), fmt.Sprintf("fd02::%d", 11+i)))
	}
	join := make([]string, directBoxes)
	for i := range join {
		join[i] = fmt.Sprintf("%q", fmt.Sprintf("10.2.0.%d", 1+i))
	}
	return strings.Replace(peering(box, shortDrain, withBFD), auditedEdge, auditedEdge+f.kernel, 1) + fmt.Sprintf(`
[fleet]
name = "direct"
member = "box%d"
bind = "10.2.0.%d"
join = [%s]
preempt_delay = "0s"
insecure_without_key = true
%s
[[service]]
name = "shop"
vips = [%q, %q]
ports = [%d]
forward = "direct"
scheduler = "mh"
drain_timeout = "1h"
backends = [%s]
`, box, box, strings.Join(join, ", "), f.fleet, vip4, vip6, answering, strings.Join(backends, ", "))
}

// awaitBoxes waits until the router sends to all boxes that are up, but to none of these.
func (f *directFleet) awaitBoxes(t *testing.T, without ...int) {
	t.Helper()
	f.awaitRoutes(t, bothVIPs, slices.DeleteFunc(f.all(), func(n int) bool { return f.down[n] || slices.Contains(without, n) })...)
}

func (f *directFleet) cut(t *testing.T, box int) {
	t.Helper()
	f.boxes[box-1].box.PowerCut()
	f.down[box] = true
	f.awaitBoxes(t)
}

func (f *directFleet) join(t *testing.T, box, servers int) {
	t.Helper()
	s := f.boxes[box-1]
	must(t, s.box.Boot(t.Context()))
	s.tracksMany(t)
	s.run(t, f.config(box, servers))
	delete(f.down, box)
	f.awaitBoxes(t)
}

// serve has all boxes serve with the first servers.
func (f *directFleet) serve(t *testing.T, servers int) {
	t.Helper()
	for _, box := range f.all() {
		if !f.down[box] {
			f.boxes[box-1].reload(t, f.config(box, servers))
		}
	}
}

// places returns the boxes that have an entry of each client's connection.
func (f *directFleet) places(t *testing.T) map[string][]int {
	t.Helper()
	out := map[string][]int{}
	for _, box := range f.all() {
		if f.down[box] {
			continue
		}
		for line := range strings.Lines(f.boxes[box-1].box.Must(t, "ipvsadm", "-Lnc")) {
			if fields := strings.Fields(line); len(fields) > 4 && fields[0] == "TCP" {
				out[fields[3]] = append(out[fields[3]], box)
			}
		}
	}
	return out
}

// client is the address of a connection in ipvsadm.
func clientOf(h *traffic.Held) string {
	a := h.Local.(*net.TCPAddr).AddrPort()
	return at(a.Addr().Unmap().String(), int(a.Port()))
}

// event lets something happen to the fleet under the connections, adds a row to the table, and returns the
// connections that moved, which have an entry on a box that had none, and those that were cut.
func (f *directFleet) event(t *testing.T, name string, do func()) (moved, cut traffic.Holds) {
	t.Helper()
	before := f.places(t)
	do()
	r := survivors(t, f.open, time.Now())
	after := f.places(t)
	var alive traffic.Holds
	for _, h := range f.open {
		had := before[clientOf(h)]
		if slices.ContainsFunc(after[clientOf(h)], func(n int) bool { return !slices.Contains(had, n) }) {
			moved = append(moved, h)
		}
		if h.Err() != nil {
			cut = append(cut, h)
			continue
		}
		alive = append(alive, h)
	}
	f.row(name, r, len(moved))
	if r.Cut != len(cut) {
		t.Errorf("%s: %d connections are silent", name, r.Cut-len(cut))
	}
	f.open = alive
	return moved, cut
}

func (f *directFleet) row(name string, r traffic.Report, moved int) {
	fmt.Fprintf(f.table, "%s\t%d\t%d\t%d\t%s\n", name, r.Held, moved, r.Cut, traffic.Round(r.Gap))
}

// title begins the rows of a configuration.
func (f *directFleet) title(name string) {
	fmt.Fprintf(f.table, "%s\tconnections\tmoved\tcut\tlongest gap\n", name)
}

// unhurt is an event that cuts nothing.
func (f *directFleet) unhurt(t *testing.T, name string, do func()) {
	t.Helper()
	if _, cut := f.event(t, name, do); len(cut) > 0 {
		t.Errorf("%s: %d connections were cut", name, len(cut))
	}
}

// servers lets all boxes serve with the first servers, one after the other: meanwhile their tables differ. A connection
// that the router moves then, because a session of BFD is lost on a busy machine, may be cut.
func (f *directFleet) servers(t *testing.T, name string, servers int) {
	t.Helper()
	if moved, cut := f.event(t, name, func() { f.serve(t, servers) }); len(cut) > len(moved) {
		t.Errorf("%s: %d connections were cut, and the router moved %d", name, len(cut), len(moved))
	}
}

// TestDirectFleet has directBoxes forward to ten servers that reply to the clients themselves. The router spreads
// connections by their ports, and moves many to other boxes when the number of boxes changes. With equal tables of mh
// any box forwards any packet to the same server. In make soak keepalived then does so on the same boxes.
func TestDirectFleet(t *testing.T) {
	t.Parallel()
	f := &directFleet{edge: openDirect(t), down: map[int]bool{}}
	var table strings.Builder
	f.table = tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	variants := []struct{ name, fleet string }{
		{"mh, sloppy_tcp", ""},
		{"and connection sync", "[fleet.sync]\ninterface = \"back\"\n"},
	}[:sized(1, 2)]
	for _, with := range variants {
		f.kernel, f.fleet = "sloppy_tcp = true\n", with.fleet
		f.title("WEIR, " + with.name)
		for _, box := range f.all() {
			f.boxes[box-1].run(t, f.config(box, directServers))
		}
		f.live(t, with.fleet != "")
		f.open.Release()
		for _, s := range f.boxes {
			s.cleanSlate(t)
		}
	}
	for _, with := range variants[:sized(0, len(variants))] {
		f.title("KEEPALIVED, " + with.name)
		f.besideKeepalived(t, with.fleet != "")
	}
	_ = f.table.Flush()
	t.Logf("%d boxes, direct routing, %d servers:\n%s", directBoxes, directServers, table.String())
}

// openDirect boots the site. The router hashes ports, too.
func openDirect(t *testing.T) *edge {
	t.Helper()
	lab.Routers.Require(t)
	lab.Keepalived.Require(t)
	boxes := openBoxes(t, direct())
	l := boxes[0].Lab
	e := &edge{Lab: l, boxes: boxes, client1: l.Host("client1"), client2: l.Host("client2")}
	recipe := e.boxes[0].box.Must(t, e.boxes[0].weir, "backend", "--print", vip4, vip6, besideVIP)
	for i := range directServers {
		m := l.Host(directServer(i))
		m.Must(t, "sh", "-ec", recipe)
		serveEcho(t, m, answering)
	}
	l.Host("router").Must(t, "sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1", "net.ipv6.fib_multipath_hash_policy=1")
	nowhere(t, l.Host("router"))
	e.router = l.Router(t, "router", lab.BIRD, birdOf(directBoxes, "bfd on;"))
	return e
}

// hold opens connections, and waits until all boxes know them if they are synced.
func (f *directFleet) hold(t *testing.T, synced bool, addrs ...string) (n int) {
	t.Helper()
	n = sized(200, 2000)
	o := traffic.HoldOptions{Beat: time.Duration(sized(800, 2000)) * time.Millisecond, Patience: carriedPatience + time.Duration(n)*time.Millisecond}
	var err error
	f.open, err = traffic.HoldMany(t.Context(), dialOwnPort(f.client1, ""), n, o, addrs...)
	t.Cleanup(func() { f.open.Release() })
	must(t, err)
	if met := f.open.By(); len(met) != directServers {
		t.Errorf("%d connections met %d servers, want all %d", n, len(met), directServers)
	}
	if synced {
		time.Sleep(3 * time.Second) // see hasConnectionsOf
	}
	return n
}

// live opens connections and lets everything happen to them.
func (f *directFleet) live(t *testing.T, synced bool) {
	t.Helper()
	f.awaitBoxes(t)
	n := f.hold(t, synced, at(vip4, answering), at(vip6, answering))
	if moved, cut := f.event(t, "one box dies", func() { f.cut(t, directBoxes) }); len(cut) > 0 || !synced && len(moved) < n/directBoxes/2 {
		t.Errorf("one box of %d dies: %d connections were cut, and %d of %d moved", directBoxes, len(cut), len(moved), n)
	}
	f.unhurt(t, "one joins", func() { f.join(t, directBoxes, directServers) })
	other := f.boxes[directBoxes-2]
	f.unhurt(t, "one drains", func() { other.box.Must(t, other.weir, "drain", "--all"); f.awaitBoxes(t, directBoxes-1) })
	f.unhurt(t, "it is undrained", func() { other.box.Must(t, other.weir, "undrain", "--all"); f.awaitBoxes(t) })
	f.servers(t, "a server is removed", directServers-1)
	moved, cut := f.event(t, "another box dies without that server", func() { f.cut(t, 2) })
	last := directServer(directServers - 1)
	due, free := len(moved.By()[last]), len(moved)-len(moved.By()[last])
	others := len(cut) - len(cut.By()[last])
	t.Logf("of the removed server %d connections moved, which the hash must cut, and %d were cut; of the other servers %d moved, and %d were cut (%.1f%%)",
		due, len(cut)-others, free, others, 100*float64(others)/float64(max(1, free)))
	if others > free/10 {
		t.Errorf("%d connections of servers that stay were cut, of %d that moved", others, free)
	}
	if synced && len(cut) > 0 {
		t.Errorf("%d connections were cut, though the kernels know each other's", len(cut))
	}
	f.servers(t, "the server is added", directServers)
	f.unhurt(t, "one joins", func() { f.join(t, 2, directServers) })
}
