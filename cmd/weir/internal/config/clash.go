package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"weir/lb"
)

// claim is who has something, and where it says so.
type claim struct {
	by *service
	at place
}

// clashes complains about what each service may say, but not two together.
func (p *parser) clashes(services []*service, c *Config, top section) {
	p.sameNames(services)
	p.sameFrontends(services)
	vips := vipsOf(services)
	for _, s := range services {
		for _, b := range s.backends {
			p.localBackend(s, b.located, vips, c.Kernel)
		}
		for _, f := range s.fallback {
			p.localBackend(s, f, vips, c.Kernel)
		}
	}
	if host, _, err := net.SplitHostPort(c.Daemon.Listen); err == nil {
		if a, err := netip.ParseAddr(host); err == nil {
			if v, ok := vips[a]; ok {
				top.sub("daemon").fail("listen", fmt.Sprintf("%q is a VIP of %s at %s", a, called(v.by), v.at),
					"choose an address of the box")
			}
		}
	}
	for _, r := range c.Kernel.Pools {
		if v, ok := vips[r.Src]; ok {
			top.sub("kernel").fail("route_source", fmt.Sprintf("%q is a VIP of %s at %s", r.Src, called(v.by), v.at),
				"choose an address of the box")
		}
	}
}

func (p *parser) sameNames(services []*service) {
	first := map[string]claim{}
	for _, s := range services {
		name := s.lb.ID.Name
		if name == "" {
			continue
		}
		if c, ok := first[name]; ok {
			s.fail("name", fmt.Sprintf("%q is the name of the service at %s too", name, c.at), "rename one of them")
			continue
		}
		first[name] = claim{s, s.at("name")}
	}
}

// sameFrontends finds VIPs that several services want on the same port.
func (p *parser) sameFrontends(services []*service) {
	first := map[lb.Frontend]claim{}
	for _, s := range services {
		for _, v := range s.vips {
			for _, port := range s.ports {
				f := lb.Frontend{Addr: v.addr.Addr(), Port: port.key.Port, Proto: port.key.Proto}
				if c, ok := first[f]; ok {
					p.add(Error, v.at, join(s.shown, v.name),
						fmt.Sprintf("%s belongs to %s at %s", f, called(c.by), c.at), "give one of them another VIP or port")
					continue
				}
				first[f] = claim{s, v.at}
			}
		}
	}
}

func vipsOf(services []*service) map[netip.Addr]claim {
	out := map[netip.Addr]claim{}
	for _, s := range services {
		for _, v := range s.vips {
			if _, ok := out[v.addr.Addr()]; !ok {
				out[v.addr.Addr()] = claim{s, v.at}
			}
		}
	}
	return out
}

// localBackend complains about a backend whose address this box makes its own:
// what is sent there would never leave it.
func (p *parser) localBackend(s *service, b located, vips map[netip.Addr]claim, k Kernel) {
	a := b.addr.Addr()
	if c, ok := vips[a]; ok {
		p.add(Error, b.at, join(s.shown, b.name), fmt.Sprintf("%q is a VIP of %s at %s, so nothing sent there leaves this box",
			a, called(c.by), c.at), "name the backend's own address")
		return
	}
	for _, pool := range k.Pools {
		if pool.Prefix.Contains(a) {
			p.add(Error, b.at, join(s.shown, b.name), strconv.Quote(a.String())+" is in "+strconv.Quote(pool.Prefix.String())+
				" of kernel.route_pools, so nothing sent there leaves this box", "narrow the pool, or move the backend")
			return
		}
	}
}

// called is a short name of a service in messages about another one.
func called(s *service) string {
	if name := s.lb.ID.Name; name != "" {
		return "service " + strconv.Quote(name)
	}
	return "another service"
}
