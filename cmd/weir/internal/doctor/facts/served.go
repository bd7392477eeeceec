package facts

import (
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/linux"
)

// Served are the VIPs and backends of the box: from the daemon, or without one from the
// configuration, which has no Services of clusters.
type Served struct {
	VIPs      []netip.Addr
	Frontends []Frontend
	NodePorts []Frontend // their Addr is unspecified, or one of the box
	Servers   []Server
	Backends  []netip.Addr
	// Keep are the backends with source_address keep, and Direct those with forward direct.
	Keep, Direct map[netip.Addr]bool
	Schedulers   []string
}

// Frontend is a frontend of a Service.
type Frontend struct {
	Addr    netip.Addr
	Port    uint16
	Proto   string // tcp, udp, sctp
	Service string
}

// Server is the address and port of packets that IPVS or a rule sends to a backend. Those in tunnels and those of the
// box itself are not listed.
type Server struct {
	Frontend
	Backend netip.Addr
}

// ServedBy returns the VIPs and backends of a box.
func ServedBy(f *Facts) Served {
	s := Served{Keep: map[netip.Addr]bool{}, Direct: map[netip.Addr]bool{}}
	if f.Running != nil {
		s.addDaemon(f)
	}
	if f.Config != nil {
		s.addConfig(f.Config, f.Running == nil)
	}
	slices.SortFunc(s.VIPs, netip.Addr.Compare)
	slices.SortFunc(s.Backends, netip.Addr.Compare)
	slices.Sort(s.Schedulers)
	s.VIPs, s.Backends, s.Schedulers = slices.Compact(s.VIPs), slices.Compact(s.Backends), slices.Compact(s.Schedulers)
	return s
}

// addDaemon adds the virtual servers of the daemon.
func (s *Served) addDaemon(f *Facts) {
	for _, x := range f.Services.Frontends {
		for _, r := range x.Servers {
			if a, err := netip.ParseAddrPort(r.Address); err == nil {
				s.Backends = append(s.Backends, a.Addr())
				s.addServer(x, r, a)
			}
		}
		addr, err := netip.ParseAddr(x.Address)
		if err != nil || x.Mark != 0 || x.Service == "" { // of a mark, or foreign
			continue
		}
		one := Frontend{addr, x.Port, strings.ToLower(x.Protocol), x.Service}
		if x.Kind == lb.NodePort.String() {
			s.NodePorts = append(s.NodePorts, one)
			continue
		}
		s.VIPs, s.Frontends = append(s.VIPs, addr), append(s.Frontends, one)
	}
}

// addServer adds a real server of the daemon. One with direct routing gets packets to the VIP.
func (s *Served) addServer(x status.Frontend, r status.Server, a netip.AddrPort) {
	one := Frontend{a.Addr(), a.Port(), strings.ToLower(x.Protocol), x.Service}
	if r.Forward == "Route" {
		vip, err := netip.ParseAddr(x.Address)
		if err != nil || x.Mark != 0 {
			return
		}
		one.Addr, one.Port = vip, x.Port
	}
	if x.Service != "" && r.Forward != "Tunnel" && r.Forward != "Local" {
		s.Servers = append(s.Servers, Server{one, a.Addr()})
	}
}

// addConfig adds the configuration; without all only what the daemon does not report.
func (s *Served) addConfig(cfg *config.Config, all bool) {
	for _, svc := range cfg.Services {
		s.Schedulers = append(s.Schedulers, svc.Scheduler.Name)
		for _, p := range svc.Ports {
			for _, b := range p.Backends {
				if all {
					s.Backends = append(s.Backends, b.Addr.Addr())
				}
				if all && !b.Forward.Direct() {
					s.Servers = append(s.Servers, Server{Frontend{b.Addr.Addr(), b.Addr.Port(), strings.ToLower(p.Proto.String()), svc.ID.Name}, b.Addr.Addr()})
				}
				switch {
				case b.Forward == lb.DirectRouting:
					s.Direct[b.Addr.Addr()] = true
				case svc.Keep && !b.Forward.Direct():
					s.Keep[b.Addr.Addr()] = true
				}
			}
		}
		if !all {
			continue
		}
		for _, v := range svc.VIPs {
			s.VIPs = append(s.VIPs, v.Addr)
		}
		for _, x := range svc.Frontends() {
			if x.Given {
				continue
			}
			s.Frontends = append(s.Frontends, Frontend{x.Addr, x.Port, strings.ToLower(x.Proto.String()), svc.ID.Name})
		}
	}
	for _, c := range cfg.Clusters {
		s.Schedulers = append(s.Schedulers, c.Scheduler.Name)
	}
}

// PID returns the process of the daemon; 0 without one.
func PID(f *Facts) int {
	if f.Running == nil {
		return 0
	}
	return f.Running.PID
}

// Backend returns the owner of the sets and rules on this box, as far as it decides about kernel modules.
func Backend(f *Facts) linux.Backend {
	switch {
	case f.Running != nil && f.Running.Kernel.Rules == linux.NFTables.Name(),
		f.Running == nil && f.Config != nil && f.Config.Kernel.Rules == config.RulesNFTables,
		f.Running == nil && f.Config != nil && f.Config.Kernel.Rules == config.RulesAuto &&
			f.Config.Kernel.IPTables == config.IPTablesAuto && f.Kernel.NFTables:
		return linux.NFTables
	}
	return linux.AutoBackend
}

// UsesIPVS reports whether this box uses IPVS, or will.
func UsesIPVS(f *Facts) bool {
	if f.Running != nil {
		return f.Running.Kernel.Mode != string(config.ModeNetfilter)
	}
	return f.Config == nil || f.Config.Kernel.Mode != config.ModeNetfilter
}
