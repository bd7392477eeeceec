package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// The announcements on the site of edgeSite: their senders and receivers.
const (
	routerASN = 65000
	boxASN    = 65001
)

// edge is that site.
type edge struct {
	*lab.Lab
	router           *lab.Router
	boxes            []*site
	client1, client2 *lab.Machine
	webs             []*webServer
}

// newEdge boots the site with so many boxes; the router has a session configured for
// each, and weir runs nowhere.
func newEdge(t *testing.T, boxes int, more ...lab.Host) *edge {
	t.Helper()
	lab.Routers.Require(t)
	return openEdge(t, edgeSite(boxes, more...), boxes)
}

// openEdge is newEdge with a site that is not quite edgeSite's.
func openEdge(t *testing.T, plan lab.Site, boxes int) *edge {
	t.Helper()
	all := openBoxes(t, plan)
	l := all[0].Lab
	e := &edge{Lab: l, boxes: all, client1: l.Host("client1"), client2: l.Host("client2")}
	for i := range webs {
		e.webs = append(e.webs, serveHTTP(t, l.Host(webs[i]), 8080))
	}
	nowhere(t, l.Host("router"))
	e.router = l.Router(t, "router", lab.BIRD, birdOf(boxes, "bfd on;"))
	return e
}

// nowhere has a router answer every packet to a VIP without a route, at once. Left to
// itself the kernel answers one a second.
func nowhere(t testing.TB, router *lab.Machine) {
	t.Helper()
	router.Must(t, "sh", "-ec", `
sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0
ip link add nowhere type veth peer name beyond
ip link set beyond up
ip link set nowhere up
for net in 192.0.2.0/24 198.51.100.0/24 2001:db8::/32; do ip route add $net dev nowhere; done
iptables -A FORWARD -o nowhere -j REJECT --reject-with icmp-net-unreachable
ip6tables -A FORWARD -o nowhere -j REJECT --reject-with icmp6-no-route`)
}

// birdOf is the router: it takes what boxes announce, all of it into its kernel, with
// several next hops where several boxes announce the same. How it finds out that a
// box is gone is for how to define, in the configuration of a neighbour.
//
// The router waits for connections, as in what weir bgp router-config prints: where both ends connect at the
// same time, BIRD takes the second connection for a graceful restart and drops the routes of the first.
func birdOf(boxes int, how string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
router id 10.0.0.1;
protocol device { scan time 1; }
protocol bfd { interface "front*" { interval 300 ms; multiplier 3; }; }
protocol kernel { ipv4 { export where source = RTS_BGP; }; merge paths on; }
protocol kernel { ipv6 { export where source = RTS_BGP; }; merge paths on; }
filter heard { if (65535, 0) ~ bgp_community then bgp_local_pref = 0; accept; }
template bgp box {
	local as %d; passive on; error wait time 1, 2;
	ipv4 { import filter heard; export none; };
	ipv6 { import filter heard; export none; };
}
`, routerASN)
	for n := 1; n <= boxes; n++ {
		fmt.Fprintf(&b, "protocol bgp box%d from box { neighbor %s as %d; %s }\n", n, boxAddr(n), boxASN, how)
	}
	return b.String()
}

// auditedEdge has audits as frequent as a test is patient.
const auditedEdge = "[kernel]\nsync_period = \"2s\"\n"

// peering is the configuration of a box, 1 or 2, that announces to the router; bgp
// and peer are more lines of [bgp] and of the peer.
func peering(box int, bgp, peer string) string {
	return auditedEdge + fmt.Sprintf(`
[bgp]
asn = %d
%s
[[bgp.peer]]
name = "router"
address = %q
asn = %d
connect_retry = "2s"
%s
`, boxASN, bgp, routerAddr(box), routerASN, peer)
}

// rarely leaves out the audits in stories that wait for none: with rules of iptables each one starts programs.
func rarely(peering string) string {
	return strings.Replace(peering, auditedEdge, "[kernel]\nsync_period = \"5m\"\n", 1)
}

const withBFD = "bfd = true"

// run starts weir on all boxes with the same services, and waits until the router has
// the routes of all.
func (e *edge) run(t testing.TB, bgp, peer, services string, vips ...string) {
	t.Helper()
	for i, s := range e.boxes {
		s.run(t, peering(i+1, bgp, peer)+services)
	}
	e.awaitRoutes(t, vips, e.all()...)
}

// all are the numbers of all boxes.
func (e *edge) all() []int {
	var out []int
	for i := range e.boxes {
		out = append(out, i+1)
	}
	return out
}

// routeWait is how long a route may take that has been or is about to be announced.
const routeWait = 45 * time.Second

// awaitRoutes waits until the router's kernel sends packets for VIPs to these boxes
// and no others; to none if there are no boxes.
func (e *edge) awaitRoutes(t testing.TB, vips []string, boxes ...int) time.Duration {
	t.Helper()
	return eventually(t, routeWait, func() error {
		for _, vip := range vips {
			if err := e.routed(t.Context(), vip, boxes...); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *edge) routed(ctx context.Context, vip string, boxes ...int) error {
	addr := netip.MustParseAddr(vip)
	route, err := e.Host("router").KernelRoute(ctx, netip.PrefixFrom(addr, addr.BitLen()).String())
	if err != nil {
		return err
	}
	var want []netip.Addr
	for _, n := range boxes {
		next := boxAddr(n)
		if addr.Is6() {
			next = boxAddr6(n)
		}
		want = append(want, netip.MustParseAddr(next))
	}
	if !slices.Equal(route.Via, want) {
		return fmt.Errorf("the router sends packets for %s to %v, want %v", vip, route.Via, want)
	}
	return nil
}

// connected waits until the sessions of boxes are up, with BFD if they have it.
func (e *edge) connected(t testing.TB, bfd bool, boxes ...int) {
	t.Helper()
	eventually(t, routeWait, func() error {
		for _, box := range boxes {
			n, err := e.router.Neighbour(t.Context(), boxAddr(box))
			if err != nil {
				return err
			}
			if !n.Established() || bfd && n.BFD != "up" {
				return fmt.Errorf("the session with box%d: %+v", box, n)
			}
		}
		return nil
	})
}
