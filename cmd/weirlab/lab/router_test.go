package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// Three routers on one network, each a neighbour of the others: 10.1.0.11 is BIRD, .12 FRR and .13 GoBGP.
// Each announces 192.0.2.N/32 and 2001:db8::N/128 with communities, and all announce 192.0.2.100/32.
const (
	birdTriangle = `
router id 10.1.0.11;
protocol device { scan time 1; }
protocol bfd { interface "front" { interval 300 ms; multiplier 5; }; }
protocol kernel { ipv4 { export where source = RTS_BGP; }; merge paths on; }
protocol kernel { ipv6 { export where source = RTS_BGP; }; merge paths on; }
filter marked { bgp_community.add((65001,7)); bgp_community.add((65535,0)); bgp_large_community.add((65001,1,2)); accept; }
filter told { if source != RTS_STATIC then reject; bgp_med = 17; accept; }
protocol static { ipv4 { import filter marked; }; route 192.0.2.11/32 blackhole; }
protocol static { ipv6 { import filter marked; }; route 2001:db8::11/128 blackhole; }
template bgp triangle { local as 65001; connect delay time 1; connect retry time 1; error wait time 1, 2;
	ipv4 { import all; export filter told; next hop self; }; ipv6 { import all; export filter told; next hop self; }; }
protocol bgp frr from triangle { neighbor 10.1.0.12 as 65002; bfd on; }
protocol bgp gobgp from triangle { neighbor 10.1.0.13 as 65003; }
protocol bgp nobody from triangle { neighbor 10.1.0.77 as 65077; }
`
	frrTriangle = `
router bgp 65002
 bgp router-id 10.1.0.12
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp bestpath as-path multipath-relax
 timers bgp 3 9
 neighbor 10.1.0.11 remote-as 65001
 neighbor 10.1.0.11 timers connect 1
 neighbor 10.1.0.11 bfd 5 300 300
 neighbor 10.1.0.13 remote-as 65003
 neighbor 10.1.0.13 timers connect 1
 address-family ipv4 unicast
  network 192.0.2.12/32 route-map marked
  network 192.0.2.100/32
 exit-address-family
 address-family ipv6 unicast
  neighbor 10.1.0.11 activate
  neighbor 10.1.0.13 activate
  network 2001:db8::12/128 route-map marked
 exit-address-family
exit
route-map marked permit 10
 set community 65002:7 graceful-shutdown
 set large-community 65002:1:2
 set metric 17
exit
`
	gobgpTriangle = `
[global.config]
as = 65003
router-id = "10.1.0.13"
`
	gobgpNeighbours = `
[[neighbors]]
[neighbors.config]
neighbor-address = "%s"
peer-as = %d
[neighbors.timers.config]
connect-retry = 1
idle-hold-time-after-reset = 1
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv4-unicast"
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv6-unicast"
`
)

// TestRouters shows that each router announces alike what it receives from the others.
func TestRouters(t *testing.T) {
	lab.Routers.Require(t)
	var hosts []lab.Host
	for i, kind := range lab.RouterKinds {
		hosts = append(hosts, lab.Host{
			Name: strings.ToLower(kind.String()), Forward: true,
			Nets: lab.Nets{"front": fmt.Sprintf("10.1.0.%d/24 fd01::%d/64", 11+i, 11+i)},
		})
	}
	site := lab.Start(t, lab.Site{Hosts: hosts})
	begin := time.Now()
	routers := []*lab.Router{
		site.Router(t, "bird", lab.BIRD, birdTriangle),
		site.Router(t, "frr", lab.FRR, frrTriangle),
		site.Router(t, "gobgp", lab.GoBGP, gobgpTriangle+
			fmt.Sprintf(gobgpNeighbours, "10.1.0.11", 65001)+fmt.Sprintf(gobgpNeighbours, "10.1.0.12", 65002)),
	}
	t.Logf("three routers started in %v", time.Since(begin).Round(time.Millisecond))
	for _, rib := range []string{
		"192.0.2.13/32 community 65003:7,65535:0 large-community 65003:1:2 med 17", "192.0.2.100/32 origin igp",
		"-a ipv6 2001:db8::13/128 nexthop fd01::13 community 65003:7,65535:0 large-community 65003:1:2 med 17",
	} {
		site.Host("gobgp").Must(t, append([]string{"gobgp", "global", "rib", "add"}, strings.Fields(rib)...)...)
	}
	for _, r := range routers {
		t.Run(r.Kind().String(), func(t *testing.T) { hearsOthers(t, r) })
	}
	t.Logf("all sessions after %v", time.Since(begin).Round(time.Millisecond))
	t.Run("BFD", func(t *testing.T) { hasBFD(t, routers) })
	t.Run("several next hops", func(t *testing.T) { hasTwoNextHops(t, routers[0]) })
	t.Run("a neighbour that is not there", func(t *testing.T) { tellsTrouble(t, routers[0]) })
	t.Run("another configuration", func(t *testing.T) { reconfigures(t, routers) })
	for i, r := range routers {
		t.Run(r.Kind().String()+" ends and comes back", func(t *testing.T) { comesBack(t, r, routers[(i+1)%3]) })
	}
}

// addressOf is a router's in the triangle.
func addressOf(r *lab.Router, v6 bool) netip.Addr {
	n := 11 + slices.Index(lab.RouterKinds, r.Kind())
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd01::%d", n))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", n))
}

// until waits until f returns nil.
func until(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	lab.Must(t, traffic.Eventually(t.Context(), patience, f))
}

func hearsOthers(t *testing.T, r *lab.Router) {
	for i, kind := range lab.RouterKinds {
		if kind == r.Kind() {
			continue
		}
		from := netip.AddrFrom4([4]byte{10, 1, 0, byte(11 + i)})
		until(t, func(ctx context.Context) error {
			n, err := r.Neighbour(ctx, from.String())
			if err == nil && (!n.Established() || n.ASN != uint32(65001+i) || n.Accepted < 2) {
				err = fmt.Errorf("%v of %v: %+v", kind, r.Kind(), n)
			}
			return err
		})
		for _, prefix := range []string{fmt.Sprintf("192.0.2.%d/32", 11+i), fmt.Sprintf("2001:db8::%d/128", 11+i)} {
			asn := uint32(65001 + i)
			want := lab.Path{
				Prefix: netip.MustParsePrefix(prefix), From: from, Best: true, ASPath: []uint32{asn}, LocalPref: 100, MED: 17,
				Communities: []string{fmt.Sprintf("%d:7", asn), "65535:0"}, LargeCommunities: []string{fmt.Sprintf("%d:1:2", asn)},
			}
			if r.Kind() == lab.FRR {
				want.LocalPref = 0 // what it makes of 65535:0, as RFC 8326 wants
			}
			until(t, func(ctx context.Context) error { return hasPath(ctx, r, want) })
		}
	}
}

// hasPath wants one path among those to its prefix, with its attributes and without in the table.
func hasPath(ctx context.Context, r *lab.Router, want lab.Path) error {
	paths, err := r.PathsTo(ctx, want.Prefix.String())
	all, err2 := r.Paths(ctx)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	ofNeighbour := func(p lab.Path) bool { return p.Prefix == want.Prefix && p.From == want.From }
	i, j := slices.IndexFunc(paths, ofNeighbour), slices.IndexFunc(all, ofNeighbour)
	if i < 0 || j < 0 {
		return fmt.Errorf("%v has no path to %v from %v in %+v and %+v", r.Kind(), want.Prefix, want.From, paths, all)
	}
	got := paths[i]
	want.NextHop = got.NextHop
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%v has\n%+v, want\n%+v", r.Kind(), got, want)
	}
	brief := lab.Path{Prefix: want.Prefix, From: want.From, Best: true, NextHop: got.NextHop}
	if !got.NextHop.IsValid() || fmt.Sprint(all[j]) != fmt.Sprint(brief) {
		return fmt.Errorf("%v has in its table\n%+v, want\n%+v", r.Kind(), all[j], brief)
	}
	return nil
}

func hasBFD(t *testing.T, routers []*lab.Router) {
	for i, r := range routers[:2] {
		other := addressOf(routers[1-i], false)
		until(t, func(ctx context.Context) error {
			n, err := r.Neighbour(ctx, other.String())
			if err == nil && n.BFD != "up" {
				err = fmt.Errorf("%v: BFD of %+v", r.Kind(), n)
			}
			return err
		})
	}
}

// hasTwoNextHops wants the route that two others announce in the kernel with both.
func hasTwoNextHops(t *testing.T, r *lab.Router) {
	until(t, func(ctx context.Context) error {
		route, err := r.Machine().KernelRoute(ctx, "192.0.2.100/32")
		if err == nil && fmt.Sprint(route.Via) != "[10.1.0.12 10.1.0.13]" {
			err = fmt.Errorf("the kernel of %v has %+v", r.Kind(), route)
		}
		return err
	})
}

func tellsTrouble(t *testing.T, r *lab.Router) {
	until(t, func(ctx context.Context) error {
		n, err := r.Neighbour(ctx, "10.1.0.77")
		if err == nil && (n.Established() || !strings.Contains(n.Error, "No route to host")) {
			err = fmt.Errorf("neighbour that is not there: %+v", n)
		}
		return err
	})
}

// reconfigures gives every router one neighbour less, and the routers refuse nonsense.
func reconfigures(t *testing.T, routers []*lab.Router) {
	without := []string{
		strings.Replace(birdTriangle, "protocol bgp nobody", "protocol bgp somebody", 1),
		"router bgp 65002\n neighbor 10.1.0.78 remote-as 65078\n",
		gobgpTriangle + fmt.Sprintf(gobgpNeighbours, "10.1.0.11", 65001) + fmt.Sprintf(gobgpNeighbours, "10.1.0.12", 65002) +
			fmt.Sprintf(gobgpNeighbours, "10.1.0.78", 65078),
	}
	for i, r := range routers {
		if err := r.Reconfigure(within(t), without[i]); err != nil {
			t.Error(err)
		}
		until(t, func(ctx context.Context) error {
			all, err := r.Neighbours(ctx)
			up := 0
			for _, n := range all {
				if n.Established() {
					up++
				}
			}
			if err == nil && (up != 2 || len(all) != 3) {
				err = fmt.Errorf("%v after a new configuration: %+v", r.Kind(), all)
			}
			return err
		})
		if r.Kind() == lab.GoBGP {
			continue // has no BFD state
		}
		if err := r.Reconfigure(within(t), "frobnicate\n"); err == nil {
			t.Errorf("%v takes nonsense for its configuration", r.Kind())
		}
		if err := r.Reconfigure(within(t), without[i]); err != nil {
			t.Error(err)
		}
	}
}

// comesBack ends a router in two ways, and sees its session at another.
func comesBack(t *testing.T, r, other *lab.Router) {
	is := func(up bool) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			n, err := other.Neighbour(ctx, addressOf(r, false).String())
			if err == nil && n.Established() != up {
				err = fmt.Errorf("%v sees %+v", other.Kind(), n)
			}
			return err
		}
	}
	for _, end := range []func(context.Context) error{r.Stop, r.Kill} {
		begin := time.Now()
		lab.Must(t, end(within(t)))
		until(t, is(false))
		gone := time.Since(begin)
		lab.Must(t, r.Start(within(t)))
		until(t, is(true))
		t.Logf("seen to be gone after %v, back after %v", gone.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	}
}
