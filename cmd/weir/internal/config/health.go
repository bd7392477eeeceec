package config

import (
	"net/netip"
	"reflect"
	"slices"

	"weir/lb"
	"weir/lb/health"
)

// HealthDuring returns the health of Services while a reload waits. The checks are those of the new configuration already, and
// do not cover removed backends. Services with other backends keep their health.
func HealthDuring(running, next *Config, had, now map[lb.ServiceID]lb.Health) map[lb.ServiceID]lb.Health {
	ports := map[lb.ServiceID][]lb.Port{}
	for _, g := range next.Checks {
		ports[g.Service] = g.Ports
	}
	out := map[lb.ServiceID]lb.Health{}
	for _, g := range running.Checks {
		out[g.Service] = had[g.Service]
		if reflect.DeepEqual(g.Ports, ports[g.Service]) {
			out[g.Service] = now[g.Service]
		}
	}
	return out
}

// ChecksWith returns the checks of a configuration. A backend that the kernel serves already counts as up until its first
// result.
func (c *Config) ChecksWith(have *lb.Table) []health.Group {
	services := map[lb.ServiceID]lb.Service{}
	for _, svc := range c.Services {
		services[svc.ID] = svc
	}
	out := slices.Clone(c.Checks)
	for i := range out {
		svc := services[out[i].Service]
		out[i].Serves = func(port lb.PortKey, backend netip.AddrPort) bool {
			return slices.ContainsFunc(frontendsOf(svc, port), func(f lb.Frontend) bool {
				rs, ok := have.RealServer(f, backend)
				return ok && rs.Weight > 0
			})
		}
	}
	return out
}

// frontendsOf returns the frontends of a Service for one port. A Service by mark has one port.
func frontendsOf(svc lb.Service, port lb.PortKey) []lb.Frontend {
	i := slices.IndexFunc(svc.Ports, func(p lb.Port) bool { return p.Key() == port })
	if i < 0 {
		return nil
	}
	svc.Ports = svc.Ports[i : i+1]
	return svc.Frontends()
}
