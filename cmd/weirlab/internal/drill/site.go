package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

const (
	routerASN  = 65000
	boxASN     = 65001
	echoPort   = 7000
	routerAddr = "10.1.0.254"
	gateway    = "10.2.0.254" // the way back of backends, where the boxes hold one
	source     = "10.2.0.250" // the address of masqueraded clients, where it moves with the VIPs
)

// webs are the backends.
var webs = []string{"web1", "web2", "web3"}

func boxName(box int) string  { return fmt.Sprintf("box%d", box) }
func boxAddr(box int) string  { return fmt.Sprintf("10.1.0.%d", box) }
func backAddr(box int) string { return fmt.Sprintf("10.2.0.%d", box) }

// frontOf is the network of a box on the clients' side.
func frontOf(box int) string {
	if box == 1 {
		return "front"
	}
	return "far"
}

func plan(boxes int) lab.Site {
	s := lab.Site{Hosts: []lab.Host{
		{Name: "client", Nets: lab.Nets{"lan": "10.0.0.2/24"}, Routes: []string{"default via 10.0.0.1"}},
		{Name: "router", Forward: true, Nets: lab.Nets{"lan": "10.0.0.1/24", "front": routerAddr + "/24"}},
		{Name: "near", Nets: lab.Nets{"front": "10.1.0.50/24"}},
		{Name: "switch", Nets: lab.Nets{"front": "", "far": ""}},
	}}
	for i, name := range webs {
		s.Hosts = append(s.Hosts, lab.Host{
			Name: name, Nets: lab.Nets{"back": fmt.Sprintf("10.2.0.%d/24", 11+i)}, Routes: []string{"default via " + gateway},
		})
	}
	for n := 1; n <= boxes; n++ {
		s.Boxes = append(s.Boxes, lab.Box{
			Name: boxName(n), Forward: true, Memory: 512,
			Nets:   lab.Nets{frontOf(n): boxAddr(n) + "/24", "back": backAddr(n) + "/24"},
			Routes: []string{"10.0.0.0/24 via " + routerAddr},
		})
	}
	return s
}

// Site is a fleet and what is around it.
type Site struct {
	*lab.Lab
	router *lab.Router
	boxes  []*lab.Machine
	cards  map[string]int // which box has this hardware address at its front
	ends   []func()
}

// Open boots a site with so many boxes, 2 or 3, on which nothing runs. Close it.
func Open(ctx context.Context, boxes int) (s *Site, err error) {
	if err := errors.Join(lab.Routers.Check(), lab.Keepalived.Check()); err != nil {
		return nil, err
	}
	s = &Site{cards: map[string]int{}}
	if s.Lab, err = lab.Open(ctx, plan(boxes)); err != nil {
		return nil, err
	}
	for n := 1; n <= boxes; n++ {
		s.boxes = append(s.boxes, s.Box(boxName(n)))
	}
	if err := s.furnish(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Site) furnish(ctx context.Context) (err error) {
	_, err = s.Host("switch").Run(ctx, "sh", "-ec",
		"ip link add wire type bridge forward_delay 0; ip link set front master wire; ip link set far master wire; ip link set wire up")
	if err != nil {
		return err
	}
	for _, name := range webs {
		l, err := s.Host(name).Listen("tcp", fmt.Sprintf(":%d", echoPort))
		if err != nil {
			return fmt.Errorf("serve on %s: %w", name, err)
		}
		s.ends = append(s.ends, traffic.ServeEcho(l, name))
	}
	for n := range s.boxes {
		mac, err := s.boxes[n].ReadFile(ctx, "/sys/class/net/"+frontOf(n+1)+"/address")
		if err != nil {
			return err
		}
		s.cards[strings.TrimSpace(mac)] = n + 1
		if err := s.prepare(ctx, n+1); err != nil {
			return err
		}
	}
	s.router, err = lab.StartRouter(ctx, s.Host("router"), lab.FRR, frrOf(len(s.boxes)))
	return err
}

// prepare is what a box needs after each boot: room for the connections of a minute.
func (s *Site) prepare(ctx context.Context, box int) error {
	_, err := s.boxes[box-1].Run(ctx, "sysctl", "-qw", "net.netfilter.nf_conntrack_max=200000")
	return err
}

// powered boots a box that has no power.
func (s *Site) powered(ctx context.Context, box int) error {
	m := s.boxes[box-1]
	if lab.Powered(m) {
		return nil
	}
	if err := m.Boot(ctx); err != nil {
		return err
	}
	return s.prepare(ctx, box)
}

// Close takes the site down.
func (s *Site) Close() {
	for _, end := range s.ends {
		end()
	}
	s.Lab.Close()
}

// frrOf is the router, as weir bgp router-config would have it. BFD finds a dead box after 0.9 s,
// and does not touch routes that graceful restart keeps.
func frrOf(boxes int) string {
	var b, v4 strings.Builder
	fmt.Fprintf(&b, "router bgp %d\n bgp router-id %s\n no bgp ebgp-requires-policy\n bgp bestpath as-path multipath-relax\n", routerASN, routerAddr)
	for n := 1; n <= boxes; n++ {
		a := boxAddr(n)
		fmt.Fprintf(&b, " neighbor %s remote-as %d\n neighbor %s timers 3 9\n neighbor %s timers connect 1\n", a, boxASN, a, a)
		fmt.Fprintf(&b, " neighbor %s advertisement-interval 0\n neighbor %s graceful-restart-helper\n neighbor %s bfd profile weir\n", a, a, a)
		fmt.Fprintf(&v4, "  neighbor %s activate\n", a)
	}
	fmt.Fprintf(&b, " address-family ipv4 unicast\n%s  maximum-paths 8\n exit-address-family\nexit\n", v4.String())
	b.WriteString("bfd\n profile weir\n  detect-multiplier 3\n  receive-interval 300\n  transmit-interval 300\n exit\nexit\n")
	return b.String()
}
