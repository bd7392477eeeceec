package doctor

import (
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// served is what the box serves, as far as it is known: by the daemon, or without one
// by the configuration, which knows nothing of clusters.
type served struct {
	vips      []netip.Addr
	frontends []frontend
	nodePorts []frontend // their Addr is unspecified, or one of the box
	backends  []netip.Addr
	// keep are the backends that see clients' addresses, by the configuration.
	keep       map[netip.Addr]bool
	schedulers []string
}

type frontend struct {
	addr  netip.Addr
	port  uint16
	proto string // tcp, udp, sctp
	what  string // the Service
}

func (f *Facts) served() served {
	s := served{keep: map[netip.Addr]bool{}}
	if f.Running != nil {
		s.addDaemon(f)
	}
	if f.Config != nil {
		s.addConfig(f.Config, f.Running == nil)
	}
	slices.SortFunc(s.vips, netip.Addr.Compare)
	slices.SortFunc(s.backends, netip.Addr.Compare)
	slices.Sort(s.schedulers)
	s.vips, s.backends, s.schedulers = slices.Compact(s.vips), slices.Compact(s.backends), slices.Compact(s.schedulers)
	return s
}

// addDaemon takes what the daemon says is in the kernel.
func (s *served) addDaemon(f *Facts) {
	for _, x := range f.Services.Frontends {
		for _, r := range x.Servers {
			if a, err := netip.ParseAddrPort(r.Address); err == nil {
				s.backends = append(s.backends, a.Addr())
			}
		}
		addr, err := netip.ParseAddr(x.Address)
		if err != nil || x.Service == "" { // a mark's, or a stranger's
			continue
		}
		one := frontend{addr, x.Port, strings.ToLower(x.Protocol), x.Service}
		if x.Kind == lb.NodePort.String() {
			s.nodePorts = append(s.nodePorts, one)
			continue
		}
		s.vips, s.frontends = append(s.vips, addr), append(s.frontends, one)
	}
}

// addConfig takes what the configuration says; all is false where the daemon has said
// what there is.
func (s *served) addConfig(cfg *config.Config, all bool) {
	for _, svc := range cfg.Services {
		s.schedulers = append(s.schedulers, svc.Scheduler.Name)
		for _, p := range svc.Ports {
			for _, b := range p.Backends {
				if all {
					s.backends = append(s.backends, b.Addr.Addr())
				}
				if svc.Keep {
					s.keep[b.Addr.Addr()] = true
				}
			}
		}
		if !all {
			continue
		}
		for _, v := range svc.VIPs {
			s.vips = append(s.vips, v.Addr)
		}
		for _, x := range svc.Frontends() {
			s.frontends = append(s.frontends, frontend{x.Addr, x.Port, strings.ToLower(x.Proto.String()), svc.ID.Name})
		}
	}
	for _, c := range cfg.Clusters {
		s.schedulers = append(s.schedulers, c.Scheduler.Name)
	}
}

// pid is the daemon's process; 0 is none.
func (f *Facts) pid() int {
	if f.Running == nil {
		return 0
	}
	return f.Running.PID
}

// usesIPVS tells whether IPVS balances on this box, or shall.
func (f *Facts) usesIPVS() bool {
	if f.Running != nil {
		return f.Running.Kernel.Mode != string(config.ModeIPTables)
	}
	return f.Config == nil || f.Config.Kernel.Mode != config.ModeIPTables
}
