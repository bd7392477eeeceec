package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// shipped is a fleet of two boxes with a configuration as it is shipped.
type shipped struct {
	*lab.Lab
	boxes []*site
	vips  []string
}

func startShipped(t *testing.T, config string, plan lab.Site, vips ...string) *shipped {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "configs", config))
	must(t, err)
	toml := string(text)
	if !soaking() { // the only other word: a box takes over as soon as it is fit
		toml = preemptDelay.ReplaceAllString(toml, "")
		toml = strings.Replace(toml, "[fleet]\n", "[fleet]\npreempt_delay = \"2s\"\n", 1)
	}
	f := &shipped{boxes: openBoxes(t, plan), vips: vips}
	f.Lab = f.boxes[0].Lab
	for _, h := range plan.Hosts {
		if slices.Contains(webs, h.Name) {
			serveSeen(t, f.Host(h.Name), 443)
		}
	}
	key := newKey()
	for _, s := range f.boxes {
		s.key(t, "credentials/fleet.key", key)
		s.run(t, toml)
	}
	return f
}

var preemptDelay = regexp.MustCompile(`(?m)^preempt_delay = .*\n`)

// owner waits until both boxes have been fit for long enough, and one of them owns so
// much, the other one nothing.
func (f *shipped) owner(t *testing.T, all int) (owner int) {
	t.Helper()
	for _, s := range f.boxes {
		eventually(t, 5*time.Minute, func() error {
			return eitherOf(s.are(t, "box1 serving", "box2 standby"), s.are(t, "box1 standby", "box2 serving"))
		})
	}
	eventually(t, time.Minute, func() error {
		first := f.boxes[0].owned(t)
		second := f.boxes[1].owned(t)
		if owner = 0; second > 0 {
			owner = 1
		}
		if first+second != all || first*second != 0 {
			return fmt.Errorf("they own %d and %d, want all %d on one box", first, second, all)
		}
		return nil
	})
	return owner
}

// eitherOf is nil if one of two errors is.
func eitherOf(a, b error) error {
	if a == nil {
		return nil
	}
	return b
}

// loss is how an owner is lost, and how many connections at most may be lost by it.
type loss struct {
	name string
	most int
	of   func(t *testing.T, box *lab.Machine)
}

var (
	powerCut = loss{"power cut of the owner", 0, func(_ *testing.T, box *lab.Machine) { box.PowerCut() }}
	// The box is there yet, and answers servers for a second or two.
	noRouters = loss{"cable to routers and members pulled", 3, func(t *testing.T, box *lab.Machine) { box.Must(t, "ip", "link", "set", "eth0", "down") }}
)

// lose loses a box under connections of clients, which must live on.
func (f *shipped) lose(t *testing.T, config string, owner int, how loss, open traffic.Holds, clients ...string) {
	t.Helper()
	s := f.boxes[owner]
	t.Logf("\n%s\n%s", s.box.Must(t, s.weir, "members"), s.box.Must(t, s.weir, "explain", at(f.vips[0], 443)))
	how.of(t, s.box)
	gap := eventually(t, 30*time.Second, func() error {
		for _, client := range clients {
			for _, vip := range f.vips {
				conn, err := f.Host(client).DialContext(within(t, time.Second), "tcp", at(vip, 443))
				if err != nil {
					return err
				}
				_ = conn.Close()
			}
		}
		return nil
	})
	r := survivors(t, open, time.Now())
	figure(t, config+" as shipped: "+how.name+", until new connections of all", gap)
	figure(t, fmt.Sprintf("%s as shipped: %s, of %d connections live on, with a pause of", config, how.name, len(open)), fmt.Sprintf("%d, %s", r.Held-r.Cut, traffic.Round(r.Gap)))
	if r.Cut > how.most {
		t.Errorf("connections: %s, want at most %d cut", r, how.most)
	}
}

// TestShippedFleetWithoutBGP has two boxes do what configs/fleet-l2.toml promises, with
// that very file: one owns all, and when it loses its power the other one takes over the
// VIPs, the gateway of the backends, and the connections of both.
func TestShippedFleetWithoutBGP(t *testing.T) {
	t.Parallel()
	f := startShipped(t, "fleet-l2.toml", office(), "10.1.0.80", "fd00:1::80")
	owner := f.owner(t, 4) // two VIPs, two gateways
	var open traffic.Holds
	for _, vip := range f.vips {
		open = append(open, carrySeen(t, f.Host("client"), at(vip, 443), 50, "")...)
	}
	f.lose(t, "fleet-l2.toml", owner, powerCut, open, "client")
	if owns := f.boxes[1-owner].owned(t); owns != 4 {
		t.Errorf("the other box owns %d, want 4", owns)
	}
}

// TestShippedFleetWithBGP is the same for configs/fleet-edge.toml, with two routers that
// have what `weir bgp router-config` prints. First the owner has its power cut. Then one is
// there, with its cable to the servers, when the other one takes over: it must not keep what
// they answer to.
func TestShippedFleetWithBGP(t *testing.T) {
	t.Parallel()
	lab.Routers.Require(t)
	f := startShipped(t, "fleet-edge.toml", uplinked(), "192.0.2.10", "192.0.2.11", "2001:db8:2::10")
	var routers []*lab.Router
	for _, name := range []string{"tor1", "tor2"} {
		side := f.boxes[0].box.Must(t, f.boxes[0].weir, "bgp", "router-config", "--vendor", "bird", "--peer", name)
		side = strings.ReplaceAll(side, "BOX-ADDRESS", "10.0.0.5")
		r, err := lab.StartRouter(within(t, time.Minute), f.Host(name), lab.BIRD, twice(lab.BIRD, side, "10.0.0.5", "10.0.0.6"))
		must(t, err)
		routers = append(routers, r)
	}
	for _, s := range f.boxes {
		s.box.Must(t, "sync")
	}
	owner := f.boxes[f.edgeLoses(t, routers, powerCut)]
	must(t, owner.box.Boot(t.Context()))
	owner.tracksMany(t)
	owner.start(t)
	f.edgeLoses(t, routers, noRouters)
}

// edgeLoses loses the owner, under connections from behind each router.
func (f *shipped) edgeLoses(t *testing.T, routers []*lab.Router, how loss) (owner int) {
	t.Helper()
	for _, r := range routers {
		eventually(t, sessionPatience, func() error { return (&router{Router: r}).hasSessions(t.Context(), 2) })
	}
	owner = f.owner(t, 5) // three VIPs, two shared sources
	best := fmt.Sprintf("10.0.0.%d", 5+owner)
	for i, r := range routers {
		eventually(t, time.Minute, func() error {
			if got := f.Host(fmt.Sprintf("tor%d", i+1)).Must(t, "ip", "route", "show", "192.0.2.10"); !strings.Contains(got, "via "+best+" ") {
				paths, _ := r.PathsTo(t.Context(), "192.0.2.10/32")
				return fmt.Errorf("tor%d sends to %q, want %s; it has %+v", i+1, got, best, paths)
			}
			return nil
		})
	}
	var open traffic.Holds
	for _, vip := range f.vips {
		shared := "10.2.0.250"
		if strings.Contains(vip, ":") {
			shared = "fd00:2::250"
		}
		for _, client := range []string{"client1", "client2"} {
			open = append(open, carrySeen(t, f.Host(client), at(vip, 443), 20, shared)...)
		}
	}
	f.lose(t, "fleet-edge.toml", owner, how, open, "client1", "client2")
	return owner
}

// serveSeen sends on each connection the client address that it sees, and gives back every byte.
func serveSeen(t *testing.T, m *lab.Machine, port int) {
	t.Helper()
	serveConns(t, m, port, func(c net.Conn) {
		if _, err := fmt.Fprintln(c, c.RemoteAddr()); err == nil {
			_, _ = io.Copy(c, c)
		}
	})
}

// carrySeen holds connections, each from a port that no other one has, and checks that backends
// see this port and an address; "" is the client's own. Two clients with one port would share it
// behind a masqueraded source, where the second one gets another port and does not survive
// (fleet.md, Limits).
func carrySeen(t *testing.T, from *lab.Machine, addr string, n int, want string) traffic.Holds {
	t.Helper()
	var all traffic.Holds
	t.Cleanup(func() { all.Release() })
	for range n {
		var h *traffic.Held
		eventually(t, 30*time.Second, func() (err error) { // a route is new to each hop
			h, err = traffic.Hold(t.Context(), dialOwnPort(from, ""), addr, traffic.HoldOptions{Beat: carriedBeat, Patience: carriedPatience})
			return err
		})
		all = append(all, h)
		own := h.Local.(*net.TCPAddr).AddrPort()
		expected := own
		if want != "" {
			expected = netip.AddrPortFrom(netip.MustParseAddr(want), own.Port())
		}
		if seen, bad := netip.ParseAddrPort(h.Server); bad != nil || seen != expected {
			t.Fatalf("a backend of %s sees %q, want %s (the client is %s)", addr, h.Server, expected, own)
		}
	}
	return all
}
