package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// serveSight has a host answer every request with its name and the client address that it sees, as in the
// quick starts.
func serveSight(t testing.TB, m *lab.Machine) {
	t.Helper()
	l, err := m.Listen("tcp", ":8080")
	must(t, err)
	t.Cleanup(props.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		if addr, err := netip.ParseAddr(from); err == nil {
			from = addr.Unmap().String()
		}
		_, _ = fmt.Fprintf(w, "%s sees %s\n", m.Name(), from)
	})))
}

// awaitTyping waits for the systemd of a box, and has the package in the folder of who types there.
func (q *quickstart) awaitTyping(t testing.TB, boxes ...string) {
	t.Helper()
	for _, name := range boxes {
		box := q.Box(name)
		must(t, box.AwaitSystemd(t.Context()))
		box.Must(t, "cp", lab.Package(t, ""), "/root/")
	}
}

// TestQuickStartEdge is a box with static services.
func TestQuickStartEdge(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	plan := lab.Site{
		Hosts: []lab.Host{{Name: "client", Nets: lab.Nets{"eth0": "10.1.0.100/24"}}},
		Boxes: []lab.Box{{Name: "box", Systemd: true, Nets: lab.Nets{"eth0": "10.1.0.5/24", "eth1": "10.2.0.5/24"}}},
	}
	for i, name := range webs {
		plan.Hosts = append(plan.Hosts, lab.Host{Name: name, Nets: lab.Nets{"eth1": fmt.Sprintf("10.2.0.%d/24", 11+i)}})
	}
	q := &quickstart{Lab: lab.Start(t, plan), file: "quickstart-edge.md"}
	for _, name := range webs {
		serveSight(t, q.Host(name))
	}
	q.awaitTyping(t, "box")
	q.typeAll(t)
}
