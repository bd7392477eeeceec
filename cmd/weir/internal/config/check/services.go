package check

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
	"weir/lb/health"
)

// serviceCheck checks [[service]] against the other tables.
type serviceCheck struct{ *Draft }

func (d serviceCheck) all() {
	d.sameNames()
	d.sameFrontends()
	d.bfd()
	if d.Config.ChecksIPv4VIPs() {
		d.contrary([]lb.Sysctl{lb.OwnSourceSysctl()}, "checks of VIPs")
	}
	vips := d.staticVIPs()
	for _, s := range d.Services {
		for _, b := range s.Backends {
			d.localBackend(s, b.Located, vips)
		}
		for _, f := range s.Fallback {
			d.localBackend(s, f, vips)
		}
		if vip, mixed := s.LB.Mixed(); mixed && d.VIPs.Fleet != nil && d.VIPs.Fleet.Sync != nil {
			s.Fail("vips", fmt.Sprintf("%q has backends of the other family, and the kernel does not sync connections of mixed families", vip),
				"add backends of its family, or remove [fleet.sync]")
		}
		if s.Check != nil && s.Check.Check.Kind == health.Exec && !d.Daemon.AllowExec {
			s.Sub("check").Fail("type", `"exec" runs programs, which [daemon] does not permit`, "set daemon.allow_exec = true, and start weir-exec.socket")
		}
	}
	for _, l := range d.Daemon.Listeners() {
		host, _, _ := net.SplitHostPort(l.Addr)
		if a, err := netip.ParseAddr(host); err == nil {
			d.notVIP(vips, a, "daemon", l.Key)
		}
	}
	for _, r := range d.Kernel.Pools {
		d.notVIP(vips, r.Src, "kernel", "route_source")
	}
}

// notVIP reports an address of the box that is a VIP.
func (d serviceCheck) notVIP(vips map[netip.Addr]owned, a netip.Addr, table, key string) {
	if v, ok := vips[a]; ok {
		d.Top.Sub(table).Fail(key, fmt.Sprintf("%q is a VIP of %s at %s", a, v.by.Called(), v.at), "use an address of the box")
	}
}

func (d serviceCheck) sameNames() {
	first := map[string]source.Place{}
	for _, s := range d.Services {
		name := s.LB.ID.Name
		if name == "" {
			continue
		}
		if at, ok := first[name]; ok {
			s.Fail("name", fmt.Sprintf("%q is also the name of the service at %s", name, at), "rename one of them")
			continue
		}
		first[name] = s.At("name")
	}
}

// sameFrontends reports a VIP and port of several services.
func (d serviceCheck) sameFrontends() {
	first := map[lb.Frontend]owned{}
	for _, s := range d.Services {
		if mark := lb.GivenFrontend(lb.IPv4, s.LB.FWMark); s.LB.FWMark != 0 {
			if c, ok := first[mark]; ok {
				s.Fail("fwmark", fmt.Sprintf("%d belongs to %s at %s", s.LB.FWMark, c.by.Called(), c.at), "use another mark for one of them")
				continue
			}
			first[mark] = owned{s, s.At("fwmark")}
		}
		for _, v := range s.VIPs {
			for _, port := range s.Ports {
				f := lb.Frontend{Addr: v.Addr.Addr(), Port: port.Port, Proto: port.Proto}
				if c, ok := first[f]; ok {
					d.Top.Add(source.Error, v.At, source.Join(s.Shown, v.Name),
						fmt.Sprintf("%s belongs to %s at %s", f, c.by.Called(), c.at), "use another VIP or port for one of them")
					continue
				}
				first[f] = owned{s, v.At}
			}
		}
	}
}

// localBackend reports a backend with an address that is local to this box.
func (d serviceCheck) localBackend(s *serving.Service, b serving.Located, vips map[netip.Addr]owned) {
	a := b.Addr.Addr()
	if c, ok := vips[a]; ok {
		d.Top.Add(source.Error, b.At, source.Join(s.Shown, b.Name), fmt.Sprintf("%q is a VIP of %s at %s, so packets to it never leave this box",
			a, c.by.Called(), c.at), "use the backend's own address")
		return
	}
	for _, pool := range d.Kernel.Pools {
		if pool.Prefix.Contains(a) {
			d.Top.Add(source.Error, b.At, source.Join(s.Shown, b.Name), strconv.Quote(a.String())+" is in "+strconv.Quote(pool.Prefix.String())+
				" of kernel.route_pools, so packets to it never leave this box", "narrow the pool, or move the backend")
			return
		}
	}
}
