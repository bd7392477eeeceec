package lab

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Site describes the machines. Networks need no declaration: one exists as soon as a machine
// has a card in it.
type Site struct {
	Hosts []Host
	Boxes []Box
	// NoIPVS takes this machine's kernel for boxes even if it has no IPVS.
	NoIPVS bool
}

// Host is a client, a backend, a router: a machine that shares the kernel of the one that carries the
// lab, in namespaces of its own.
type Host struct {
	Name    string
	Nets    Nets
	Routes  []string // as `ip route add` takes them: "default via 10.1.0.1"
	Forward bool     // pass packets on, as a router does
}

// Box is a machine with a kernel of its own, for weir to run on.
type Box struct {
	Name    string
	Nets    Nets
	Routes  []string
	Forward bool
	Kernel  Kernel // Any: Choose finds one
	Memory  int    // MiB; 0 means 768
	// Systemd gives the box a Debian of its own, in which systemd is PID 1 (see CheckSystemd). Of
	// UML only.
	Systemd bool
	// Firewalls adds ufw, firewalld, Docker and nftables to that Debian, all disabled (see CheckFirewalls).
	Firewalls bool
}

// Nets puts a machine on networks: under the name of each, the machine's addresses there with their
// prefix lengths, separated by spaces ("10.1.0.2/24 fd01::2/64"), or "" for none. Inside the machine
// the card is called as the network.
type Nets map[string]string

// withKernels returns the site with a kernel for each box.
func (s Site) withKernels() (Site, error) {
	s.Boxes = slices.Clone(s.Boxes)
	for i := range s.Boxes {
		b := &s.Boxes[i]
		switch {
		case b.Kernel != Any:
		case b.Systemd:
			b.Kernel = UML
		default:
			var err error
			if b.Kernel, err = Choose(); err != nil {
				return s, fmt.Errorf("%s: %w", b.Name, err)
			}
		}
	}
	return s, nil
}

// kernels lists what the site's boxes run on.
func (s Site) kernels() []Kernel {
	var kernels []Kernel
	for _, b := range s.Boxes {
		kernels = append(kernels, b.Kernel)
	}
	return kernels
}

// plan is a machine as the lab builds it: a Host or a Box, parsed.
type plan struct {
	name    string
	index   int // from 1, unique in the lab
	cards   []card
	routes  []string
	forward bool
	kernel  Kernel
	memory  int
	systemd bool

	firewalls bool
}

// card is one network card of a machine.
type card struct {
	net   string
	addrs []netip.Prefix
	mac   string
	port  string // its other end's name, on the switch
}

const defaultMemory = 768

// parse checks the site and numbers its machines, in the order of their declaration.
func (s Site) parse() ([]plan, error) {
	var all []Box
	for _, h := range s.Hosts {
		all = append(all, Box{Name: h.Name, Nets: h.Nets, Routes: h.Routes, Forward: h.Forward, Kernel: shared})
	}
	var plans []plan
	seen := map[string]bool{}
	for i, b := range append(all, s.Boxes...) {
		if b.Systemd && b.Kernel != UML && b.Kernel != Any {
			return nil, fmt.Errorf("%s: systemd is for boxes on user-mode Linux", b.Name)
		}
		p := plan{
			name: b.Name, index: i + 1, routes: b.Routes, forward: b.Forward, kernel: b.Kernel, memory: cmp.Or(b.Memory, defaultMemory),
			systemd: b.Systemd, firewalls: b.Firewalls,
		}
		if err := checkName(p.name, seen); err != nil {
			return nil, err
		}
		for j, net := range slices.Sorted(maps.Keys(b.Nets)) {
			c, err := newCard(p.index, j+1, net, b.Nets[net])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			p.cards = append(p.cards, c)
		}
		plans = append(plans, p)
	}
	return plans, nil
}

func checkName(name string, seen map[string]bool) error {
	if name == "" || strings.ContainsAny(name, "/. \t\n") {
		return fmt.Errorf("machine name %q: want letters, digits and dashes", name)
	}
	if seen[name] {
		return fmt.Errorf("two machines are called %s", name)
	}
	seen[name] = true
	return nil
}

func newCard(machine, number int, net, addrs string) (card, error) {
	if net == "" || len(net) > 15 || strings.ContainsAny(net, "/.: \t\n") {
		return card{}, fmt.Errorf("network name %q: want 1 to 15 letters, digits and dashes", net)
	}
	if net == "lo" || net == managementSwitch {
		return card{}, fmt.Errorf("network name %q: the lab uses it itself", net)
	}
	c := card{net: net, mac: hardwareAddress(machine, number), port: fmt.Sprintf("m%d.%d", machine, number)}
	for _, text := range strings.Fields(addrs) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return card{}, fmt.Errorf("network %s: %w", net, err)
		}
		c.addrs = append(c.addrs, prefix)
	}
	return c, nil
}

// hardwareAddress is locally administered; card 0 is the management card of a box.
func hardwareAddress(machine, card int) string {
	return fmt.Sprintf("02:77:00:%02x:%02x:%02x", machine>>8, machine&0xff, card)
}
