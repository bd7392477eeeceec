package kube

import (
	"net/netip"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/k8ssync"
)

// Configs returns the clusters of a configuration for a version of weir and a mode of the kernel.
func Configs(cfg *config.Config, version string, mode kernelmode.Mode) []k8ssync.Config {
	out := make([]k8ssync.Config, len(cfg.Clusters))
	for i, c := range cfg.Clusters {
		out[i] = c.Config
		out[i].Version = version
		out[i].Refused = refused(cfg, i)
		out[i].NoIPVS = !mode.IPVS()
		out[i].Decapsulates = len(cfg.Kernel.DecapsulateFrom) > 0
	}
	return out
}

// refused returns the addresses that no VIP of the nth cluster may have: those that the box needs, and the ranges of
// other clusters.
func refused(cfg *config.Config, n int) k8ssync.Refused {
	out := k8ssync.Refused{Peers: map[netip.Addr]string{}, Backends: map[netip.Addr]string{}}
	for _, s := range cfg.Services {
		for _, p := range s.Ports {
			for _, be := range p.Backends {
				out.Backends[be.Addr.Addr()] = "a backend of " + s.ID.String()
			}
		}
	}
	if cfg.BGP != nil {
		for _, p := range cfg.BGP.Speaker.Peers {
			if p.Address.IsValid() {
				out.Peers[p.Address] = "the router " + p.Name
			}
		}
	}
	if cfg.Fleet != nil {
		for _, name := range cfg.Fleet.Gossip.Join {
			if a, ok := addressOf(name); ok {
				out.Peers[a] = "a member of the fleet"
			}
		}
	}
	for i, c := range cfg.Clusters {
		if a, ok := k8ssync.ServerAddr(c.Config); ok {
			out.Peers[a] = "the API server of cluster " + c.Name
		}
		if i == n {
			continue
		}
		for _, p := range c.PodCIDRs {
			out.Ranges = append(out.Ranges, k8ssync.Range{Prefix: p, What: "pods of cluster " + c.Name})
		}
		for _, p := range c.ServiceCIDRs {
			out.Ranges = append(out.Ranges, k8ssync.Range{Prefix: p, What: "ClusterIPs of cluster " + c.Name})
		}
	}
	return out
}

// addressOf returns the address of a member's name with or without a port; false if it has to be looked up.
func addressOf(name string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(name); err == nil {
		return at.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(name)
	return a.Unmap(), err == nil
}
