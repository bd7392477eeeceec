package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weirlab/lab"
)

// The sites of these tests. Five have names: the plain one, and with clusters; a box among
// routers; a fleet behind a router; and the node of the conformance checks, which is beside
// them. The others are one of these with something more, or are drawn in a document that is
// tested.

// The site: two clients in front of a box, three web servers behind it.
//
//	client1 10.1.0.2 --\                       /-- web1 10.2.0.11
//	                    front -- box -- back ----- web2 10.2.0.12
//	client2 10.1.0.3 --/   .1          .1      \-- web3 10.2.0.13
//
// IPv6 is the same in fd01::/64 and fd02::/64. VIPs are routed to the box.
func plain(kernel lab.Kernel) lab.Site {
	s := lab.Site{Boxes: []lab.Box{{
		Name: "box", Kernel: kernel,
		Nets: lab.Nets{"front": "10.1.0.1/24 fd01::1/64", "back": "10.2.0.1/24 fd02::1/64"},
	}}}
	for i := range 2 {
		s.Hosts = append(s.Hosts, lab.Host{
			Name: fmt.Sprintf("client%d", i+1),
			Nets: lab.Nets{"front": fmt.Sprintf("10.1.0.%d/24 fd01::%d/64", i+2, i+2)},
			Routes: []string{
				"192.0.2.0/24 via 10.1.0.1", "198.51.100.0/24 via 10.1.0.1", "100.64.0.0/10 via 10.1.0.1",
				"10.2.0.0/24 via 10.1.0.1", "2001:db8::/32 via fd01::1", "fd02::/64 via fd01::1",
			},
		})
	}
	for i, name := range webs {
		s.Hosts = append(s.Hosts, lab.Host{
			Name:   name,
			Nets:   lab.Nets{"back": fmt.Sprintf("10.2.0.%d/24 fd02::%d/64", i+11, i+11)},
			Routes: []string{"default via 10.2.0.1", "default via fd02::1"},
		})
	}
	return s
}

// boxBeside puts a second box beside the only one of a site, on its networks, where its
// addresses end in last.
func boxBeside(p lab.Site, last int) lab.Site {
	second := p.Boxes[0]
	second.Name, second.Systemd = "box2", false
	second.Nets = lab.Nets{
		"front": fmt.Sprintf("10.1.0.%d/24 fd01::%d/64", last, last), "back": fmt.Sprintf("10.2.0.%d/24 fd02::%d/64", last, last),
	}
	p.Boxes = append(p.Boxes, second)
	return p
}

// underSystemd has systemd run on the first box of a site.
func underSystemd(p lab.Site) lab.Site {
	p.Boxes[0].Systemd = true
	return p
}

// kubeSite is the plain site with the API servers of so many clusters beside the web servers.
func kubeSite(clusters int) lab.Site {
	p := plain(lab.UML)
	for i, name := range kubes[:clusters] {
		p.Hosts = append(p.Hosts, lab.Host{
			Name: name, Nets: lab.Nets{"back": fmt.Sprintf("10.2.0.%d/24 fd02::%d/64", i+101, i+101)},
			Routes: []string{"default via 10.2.0.1", "default via fd02::1"},
		})
	}
	return p
}

// kubes are the hosts of API servers.
var kubes = []string{"kube1", "kube2"}

// The site of BGP: the box among three routers that others wrote, a client behind each of two (GoBGP
// passes nothing on), and web servers behind the box.
//
//	client1 10.8.0.2 -- bird  10.1.0.11 --\                       /-- web1 10.2.0.11
//	client2 10.9.0.2 -- frr   10.1.0.12 ---- front -- box -- back --- web2 10.2.0.12
//	                    gobgp 10.1.0.13 --/   .1          .1      \-- web3 10.2.0.13
//
// IPv6 is the same in fd08::/64, fd09::/64, fd01::/64 and fd02::/64. No host has a route to a VIP but from BGP.
func bgpPlan() lab.Site {
	p := plain(lab.UML)
	p.Hosts = slices.DeleteFunc(p.Hosts, func(h lab.Host) bool { return strings.HasPrefix(h.Name, "client") })
	for i, name := range []string{"bird", "frr", "gobgp"} {
		h := lab.Host{Name: name, Forward: true, Nets: lab.Nets{"front": fmt.Sprintf("10.1.0.%d/24 fd01::%d/64", 11+i, 11+i)}}
		if name != "gobgp" {
			lan, v4, v6 := "lan-"+name, fmt.Sprintf("10.%d.0", 8+i), fmt.Sprintf("fd0%d:", 8+i)
			h.Nets[lan] = fmt.Sprintf("%s.1/24 %s:1/64", v4, v6)
			p.Hosts = append(p.Hosts, lab.Host{
				Name:   fmt.Sprintf("client%d", i+1),
				Nets:   lab.Nets{lan: fmt.Sprintf("%s.2/24 %s:2/64", v4, v6)},
				Routes: []string{"default via " + v4 + ".1", "default via " + v6 + ":1"},
			})
			p.Boxes[0].Routes = append(p.Boxes[0].Routes, fmt.Sprintf("%s.0/24 via 10.1.0.%d", v4, 11+i), fmt.Sprintf("%s:/64 via fd01::%d", v6, 11+i))
		}
		p.Hosts = append(p.Hosts, h)
	}
	return p
}

// The site of what is announced: clients behind a router that knows of VIPs only what
// boxes announce, two boxes with a cable each to the router, and the web servers behind
// them.
//
//	client1 10.0.0.2-9 --\             /-- front1 -- box1 --\             /-- web1 10.2.0.11
//	                      lan -- router                      back -------<--- web2 10.2.0.12
//	client2 10.0.0.12-19 /             \-- front2 -- box2 --/             \-- web3 10.2.0.13
//
// The router answers unreachable to packets for VIPs that no box announces, at once
// and always. IPv6 is the same. The
// boxes announce both families over one session of IPv4.
//
// linkOf is the network between a box, 1 or 2, and the router, where the router is
// .254 and the box .1.
func linkOf(box int) string { return fmt.Sprintf("front%d", box) }

func boxAddr(box int) string    { return fmt.Sprintf("10.1.%d.1", box) }
func boxAddr6(box int) string   { return fmt.Sprintf("fd01:%d::1", box) }
func routerAddr(box int) string { return fmt.Sprintf("10.1.%d.254", box) }

// clientAddrs are those of client 1 or 2, eight of a family.
func clientAddrs(client int, v6 bool) []string {
	out := make([]string, 8)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.0.%d", 10*(client-1)+i+2)
		if v6 {
			out[i] = fmt.Sprintf("fd00::%d", 10*(client-1)+i+2)
		}
	}
	return out
}

// edgeSite is the site of a fleet behind a router, with so many boxes of it.
func edgeSite(boxes int, more ...lab.Host) lab.Site {
	var s lab.Site
	lan := lab.Nets{"lan": "10.0.0.1/24 fd00::1/64"}
	for client := 1; client <= 2; client++ {
		addrs := strings.Join(clientAddrs(client, false), "/24 ") + "/24 " + strings.Join(clientAddrs(client, true), "/64 ") + "/64"
		s.Hosts = append(s.Hosts, lab.Host{
			Name: fmt.Sprintf("client%d", client), Nets: lab.Nets{"lan": addrs},
			Routes: []string{"192.0.2.0/24 via 10.0.0.1", "198.51.100.0/24 via 10.0.0.1", "2001:db8::/32 via fd00::1"},
		})
	}
	for i, name := range webs {
		s.Hosts = append(s.Hosts, lab.Host{Name: name, Nets: lab.Nets{"back": fmt.Sprintf("10.2.0.%d/24 fd02::%d/64", i+11, i+11)}})
	}
	for n := 1; n <= boxes; n++ {
		lan[linkOf(n)] = fmt.Sprintf("%s/24 fd01:%d::fe/64", routerAddr(n), n)
		s.Boxes = append(s.Boxes, lab.Box{
			Name: fmt.Sprintf("box%d", n),
			Nets: lab.Nets{
				linkOf(n): fmt.Sprintf("%s/24 %s/64", boxAddr(n), boxAddr6(n)),
				"back":    fmt.Sprintf("10.2.0.%d/24 fd02::%d/64", n, n),
			},
			Routes: []string{"default via " + routerAddr(n), fmt.Sprintf("default via fd01:%d::fe", n)},
		})
	}
	s.Hosts = append(append(s.Hosts, lab.Host{Name: "router", Nets: lan, Forward: true}), more...)
	return s
}

// Three nodes of a cluster, weir on each in place of kube-proxy, and pods behind
// them. Who provides routes between pods is not weir's business.
//
//	outside .200, api .100
//	        |
//	       lan 192.168.0.0/24
//	        |.1            |.2            |.3
//	       n1             n2             n3
//	  pods1   guests1    pods2       pods3   guests3
//	  |       |          |           |       |
//	  P1      guest1     P2          P3      guest3
//	  10.244.1.2 .11.2   10.244.2.2  .3.2    .13.2
//
// P are backends; guests are pods that no Service has.
func nodesSite() lab.Site {
	var p lab.Site
	for n := 1; n <= 3; n++ {
		box := lab.Box{Name: fmt.Sprintf("n%d", n), Forward: true, Memory: 512, Nets: lab.Nets{
			"lan": fmt.Sprintf("192.168.0.%d/24", n), fmt.Sprintf("pods%d", n): fmt.Sprintf("10.244.%d.254/24", n),
			fmt.Sprintf("guests%d", n): fmt.Sprintf("10.244.1%d.254/24", n),
		}}
		pod := func(name, net string, third int) lab.Host {
			return lab.Host{Name: name, Nets: lab.Nets{net: fmt.Sprintf("10.244.%d.2/24", third)}, Routes: []string{fmt.Sprintf("default via 10.244.%d.254", third)}}
		}
		p.Hosts = append(p.Hosts, pod(fmt.Sprintf("P%d", n), fmt.Sprintf("pods%d", n), n), pod(fmt.Sprintf("guest%d", n), fmt.Sprintf("guests%d", n), 10+n))
		for other := 1; other <= 3; other++ {
			if other != n {
				box.Routes = append(box.Routes, fmt.Sprintf("10.244.%d.0/24 via 192.168.0.%d", other, other), fmt.Sprintf("10.244.1%d.0/24 via 192.168.0.%d", other, other))
			}
		}
		p.Boxes = append(p.Boxes, box)
	}
	p.Hosts = append(p.Hosts, lab.Host{Name: "api", Nets: lab.Nets{"lan": "192.168.0.100/24"}},
		lab.Host{Name: "outside", Nets: lab.Nets{"lan": outsiderIP + "/24"}})
	return p
}

// office is the network that configs/fleet-l2.toml speaks of. Backends have no other way
// back than the gateway that the boxes answer for.
func office() lab.Site {
	s := lab.Site{Hosts: []lab.Host{{Name: "client", Nets: lab.Nets{"eth0": "10.1.0.100/24 fd00:1::100/64"}}}}
	for i := range 2 {
		s.Hosts = append(s.Hosts, lab.Host{
			Name:   webs[i],
			Nets:   lab.Nets{"eth1": fmt.Sprintf("10.2.0.%d/24 fd00:2::%d/64", 11+i, 11+i)},
			Routes: []string{"default via 10.2.0.254", "default via fd00:2::254"},
		})
		s.Boxes = append(s.Boxes, lab.Box{
			Name: fmt.Sprintf("box%d", i+1), Kernel: lab.UML,
			Nets: lab.Nets{"eth0": fmt.Sprintf("10.1.0.%d/24 fd00:1::%d/64", 5+i, 5+i), "eth1": fmt.Sprintf("10.2.0.%d/24 fd00:2::%d/64", 5+i, 5+i)},
		})
	}
	return s
}

// uplinked is the network that configs/fleet-edge.toml speaks of, with a client behind each
// router.
func uplinked() lab.Site {
	s := lab.Site{}
	routes := []string{}
	for i := range 2 {
		lan := fmt.Sprintf("lan%d", i+1)
		s.Hosts = append(s.Hosts, lab.Host{
			Name: fmt.Sprintf("tor%d", i+1), Forward: true,
			Nets: lab.Nets{"eth0": fmt.Sprintf("10.0.0.%d/24 fd00::%d/64", i+1, i+1), lan: fmt.Sprintf("10.9.%d.1/24 fd00:9:%d::1/64", i, i)},
		}, lab.Host{
			Name: fmt.Sprintf("client%d", i+1), Nets: lab.Nets{lan: fmt.Sprintf("10.9.%d.2/24 fd00:9:%d::2/64", i, i)},
			Routes: []string{fmt.Sprintf("default via 10.9.%d.1", i), fmt.Sprintf("default via fd00:9:%d::1", i)},
		})
		routes = append(routes, fmt.Sprintf("10.9.%d.0/24 via 10.0.0.%d", i, i+1), fmt.Sprintf("fd00:9:%d::/64 via fd00::%d", i, i+1))
	}
	for i, name := range webs {
		s.Hosts = append(s.Hosts, lab.Host{Name: name, Nets: lab.Nets{"eth1": fmt.Sprintf("10.2.0.%d/24 fd00:2::%d/64", 21+i, 21+i)}})
	}
	for i := range 2 {
		s.Boxes = append(s.Boxes, lab.Box{
			Name: fmt.Sprintf("box%d", i+1), Kernel: lab.UML, Routes: routes,
			Nets: lab.Nets{"eth0": fmt.Sprintf("10.0.0.%d/24 fd00::%d/64", 5+i, 5+i), "eth1": fmt.Sprintf("10.2.0.%d/24 fd00:2::%d/64", 5+i, 5+i)},
		})
	}
	return s
}

// newSite boots the plain site. Nothing runs on it yet.
func newSite(t *testing.T, kernel lab.Kernel) *site {
	t.Helper()
	return openSite(t, plain(kernel))
}

// openSite boots a site, and gives its first box.
func openSite(t *testing.T, p lab.Site) *site {
	t.Helper()
	return openBoxes(t, p)[0]
}

// openBoxes boots a site, and gives its boxes.
func openBoxes(t *testing.T, p lab.Site) (boxes []*site) {
	t.Helper()
	l := lab.Start(t, p)
	has := func(name string) bool {
		return slices.ContainsFunc(p.Hosts, func(h lab.Host) bool { return h.Name == name })
	}
	for _, b := range p.Boxes {
		s := &site{Lab: l, box: l.Box(b.Name), weir: lab.Build(t, "weir/cmd/weir")}
		if has("client1") && has("client2") {
			s.client1, s.client2 = l.Host("client1"), l.Host("client2")
		}
		s.tracksMany(t)
		boxes = append(boxes, s)
	}
	return boxes
}

// keepsTable lets the table of connections of IPVS keep its size. While Linux 7.x makes it larger or smaller, it resets
// a connection that begins a second time: kernel.md. Earlier kernels never do that, and have no such parameter.
func (s *site) keepsTable(t testing.TB) {
	t.Helper()
	s.box.Must(t, "sh", "-ec", "modprobe ip_vs; f=/proc/sys/net/ipv4/vs/conn_lfactor; if [ -e $f ]; then echo 8 >$f; fi")
}

// tracksMany lets a box that has just booted track connections. One with little memory tracks
// few, and closed ones stay for minutes: a full table would drop packets that no test means.
func (s *site) tracksMany(t testing.TB) {
	t.Helper()
	s.box.Must(t, "sysctl", "-qw", "net.netfilter.nf_conntrack_max=200000")
}
