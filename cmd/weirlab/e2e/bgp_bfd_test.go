package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// foundDead: BFD detects on both sides within about a second that the other is gone. It ends with the box's
// power, so it is the last story of the site.
func (s *bgpSite) foundDead(t *testing.T) {
	both := s.routers[:2]
	toml := speaker() + s.router("bird").external("bfd = true") + s.router("frr").external("bfd = true") +
		s.router("gobgp").external() + service("web", "")
	s.peerWith(t, toml)
	have(t, s.routers, hosts(vip4, vip6)...)
	s.forwarding(t)
	s.watched(t, both)

	// A router with an unplugged cable. A session that BFD has just begun to watch may go
	// once more, for that reason and not for the cable.
	s.steady(t, "bird", 3*time.Second)
	bird, said := s.Host("bird"), len(s.daemon.Output())
	begin := time.Now()
	must(t, bird.Unplug("front"))
	var down string
	eventually(t, sessionPatience, func() error {
		n := s.neighbor(t, "bird")
		if n.State == "Established" {
			return fmt.Errorf("weir has not noticed that BIRD is unplugged: %+v", n)
		}
		down = n.Down
		return nil
	})
	figure(t, "BFD, 3 x 300 ms: weir knows of a router's pulled cable after", time.Since(begin))
	// The next attempt to connect fails within seconds and is the reason from then on. The log keeps the first one.
	ended := slices.ContainsFunc(linesWith(s.daemon.Output()[said:], "BGP session down"), func(line string) bool {
		return strings.Contains(line, "peer=bird ") && strings.Contains(line, "BFD")
	})
	if !strings.Contains(down, "BFD") && !ended {
		t.Errorf("weir says of bird, whose cable is pulled: %s", down)
	}
	must(t, bird.Plug("front"))
	begin = time.Now()
	s.established(t, s.router("bird"))
	have(t, both, hosts(vip4, vip6)...)
	figure(t, "  and when it is plugged in again, it has all routes after", time.Since(begin))
	s.forwarding(t)
	s.watched(t, both)

	// A box without power.
	s.box.Must(t, "sync")
	s.box.PowerCut()
	begin = time.Now()
	for _, r := range both {
		eventually(t, sessionPatience, func() error {
			route, err := r.Machine().KernelRoute(t.Context(), hosts(vip4)[0])
			if err == nil && route.To.IsValid() {
				err = fmt.Errorf("%s leads to a dead box: %+v", r.name, route)
			}
			return err
		})
		figure(t, "BFD, 3 x 300 ms: the box's power is cut, "+r.name+"'s kernel has no route after", time.Since(begin))
		if n, err := r.boxSession(t.Context()); err != nil || !strings.Contains(strings.ToUpper(n.Error), "BFD") {
			t.Errorf("%s says of the box, which has no power: %+v, %v", r.name, n, err)
		}
	}
	s.daemon = nil
	begin = time.Now()
	must(t, s.box.Boot(t.Context()))
	s.tracksMany(t)
	// weir starts before the link to the routers is up, with another route to them. BFD must not keep its address there.
	s.box.Must(t, "sh", "-ec", "sysctl -qw net.ipv6.conf.front.keep_addr_on_down=1; ip link set front down; ip route add default via 10.2.0.11")
	s.start(t)
	s.box.Must(t, "ip", "link", "set", "front", "up")
	for _, route := range bgpPlan().Boxes[0].Routes {
		s.box.Must(t, "sh", "-ec", "ip route replace "+route)
	}
	have(t, s.routers, hosts(vip4, vip6)...)
	s.watched(t, both)
	s.forwarding(t)
	for client, vip := range map[*lab.Machine]string{s.client1: vip4, s.client2: vip6} { // a session with new BFD may go once more
		s.reaches(t, client, vip)
	}
	figure(t, "power back: three routers have all routes, and clients are served, after", time.Since(begin))
}

// steady waits until a session has been the same, with BFD up, for a while.
func (s *bgpSite) steady(t *testing.T, name string, d time.Duration) {
	t.Helper()
	flaps, from := -1, time.Now()
	eventually(t, sessionPatience, func() error {
		n := s.neighbor(t, name)
		if n.State != "Established" || n.BFD == nil || !strings.EqualFold(n.BFD.State, "up") || n.Flaps != flaps {
			flaps, from = n.Flaps, time.Now()
		}
		if time.Since(from) < d {
			return fmt.Errorf("the session with %s is not steady: %+v", name, n)
		}
		return nil
	})
}

// watched waits until BFD is up on both sides.
func (s *bgpSite) watched(t *testing.T, routers []*router) {
	t.Helper()
	for _, r := range routers {
		eventually(t, sessionPatience, func() error {
			n, err := r.boxSession(t.Context())
			if err == nil && n.BFD != "up" {
				err = fmt.Errorf("%s says of the box: %+v", r.name, n)
			}
			return err
		})
		eventually(t, sessionPatience, func() error { // weir asks GoBGP once a second
			if n := s.neighbor(t, r.name); n.BFD == nil || !strings.EqualFold(n.BFD.State, "up") {
				return fmt.Errorf("weir says of %s: %+v", r.name, n)
			}
			return nil
		})
	}
}
