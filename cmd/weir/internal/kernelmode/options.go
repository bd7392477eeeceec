package kernelmode

import (
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/linux"
)

// Mode is the load balancer in the kernel.
type Mode struct {
	Use linux.Mode
	// Fallback is set when mode "auto" selected netfilter because the kernel has no IPVS.
	Fallback bool
	// NFTables is set when nf_tables has the sets and rules.
	NFTables bool
	// IPTablesReason is why weir selected iptables; empty if it did not.
	IPTablesReason string
}

// IPVS reports whether virtual servers are those of IPVS.
func (m Mode) IPVS() bool { return m.Use == linux.ModeIPVS }

// Of returns the mode that a configuration requests, without asking the kernel.
func Of(cfg *config.Config) Mode {
	m := Mode{Use: linux.ModeIPVS, NFTables: cfg.Kernel.Rules == config.RulesNFTables}
	if cfg.Kernel.Mode == config.ModeNetfilter {
		m.Use = linux.ModeNetfilter
	}
	return m
}

// Base returns the objects and parameters that a configuration requires before any Service.
func Base(cfg *config.Config, m Mode) lb.Base {
	b := cfg.Base()
	if !m.IPVS() { // the parameters exist with IPVS only, as do checks of VIPs
		b.Sysctls = slices.DeleteFunc(b.Sysctls, func(s lb.Sysctl) bool {
			return strings.HasPrefix(s.Name, "net.ipv4.vs.") || s == lb.OwnSourceSysctl() && !slices.Contains(cfg.Kernel.Sysctls, s)
		})
		b.Sync, b.Tunnels = nil, nil
	}
	return b
}

// Node holds the data of the box's own Kubernetes Node: the zero value until it is known, and on a box that is no node.
type Node struct {
	PodCIDRs []netip.Prefix
	Addrs    []netip.Addr
}

// Equal reports whether two Nodes hold the same data.
func (n Node) Equal(other Node) bool {
	return slices.Equal(n.PodCIDRs, other.PodCIDRs) && slices.Equal(n.Addrs, other.Addrs)
}

// KernelConfig returns the configuration of lb/linux.
func KernelConfig(cfg *config.Config, m Mode, n Node, log *slog.Logger) linux.Config {
	k := cfg.Kernel
	out := linux.Config{
		Mode: m.Use, Prefix: k.NamePrefix, Device: k.Device, Mark: k.Mark(),
		MasqueradeAll: k.MasqueradeAll, ClusterCIDRs: k.ClusterCIDRs, Ping: k.Ping,
		Backend: backendOf(k, m), Families: k.Families, Logger: log,
		Sources: k.MasqueradeSource, SloppyTCP: k.SloppyTCP, Sync: cfg.Sync() != nil, CheckVIPs: cfg.ChecksVIPs(), ManageSysctls: k.ManageSysctls,
		Decapsulates: len(Base(cfg, m).Tunnels) > 0, TunnelMTU: k.DecapsulateMTU,
	}
	switch k.DetectLocal {
	case config.BridgeInterface:
		out.LocalInterfaces = []string{k.BridgeInterface}
	case config.InterfacePrefix:
		out.LocalInterfaces = []string{k.InterfacePrefix + "+"}
	case config.NodeCIDR:
		out.ClusterCIDRs = n.PodCIDRs
	}
	for _, s := range Base(cfg, m).Sysctls {
		out.Sysctls = append(out.Sysctls, s.Name)
	}
	return out
}

// backendOf returns the owner of the sets and rules.
func backendOf(k config.Kernel, m Mode) linux.Backend {
	if m.NFTables {
		return linux.NFTables
	}
	return linux.Backend(k.IPTables)
}

// SameRules reports whether two configurations result in the same static rules.
func SameRules(a, b linux.Config) bool {
	a.Sysctls, a.Logger, b.Sysctls, b.Logger = nil, nil, nil, nil                                 // not part of the rules
	a.ClusterCIDRs, b.ClusterCIDRs = slices.Concat(a.ClusterCIDRs), slices.Concat(b.ClusterCIDRs) // nil if empty
	return reflect.DeepEqual(a, b)
}

// noAddress are ranges without any address of the box: node ports are served on no address until the Node is known.
var noAddress = []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 32), netip.PrefixFrom(netip.IPv6Unspecified(), 128),
}

// LBOptions returns the options of an lb.Reconciler.
func LBOptions(cfg *config.Config, m Mode, n Node) lb.Options {
	out := lb.Options{
		Base:         Base(cfg, m),
		Exclude:      cfg.Kernel.ExcludeCIDRs,
		Pools:        cfg.Kernel.Pools,
		NodePortNets: cfg.Kernel.NodePortNets,
		Drain:        cfg.Defaults.Drain,
		WithoutIPVS:  m.Use == linux.ModeNetfilter,
		Guards:       map[string]lb.GuardOptions{},
	}
	if cfg.Kernel.NodePortPrimary {
		out.NodePortNets = slices.Clone(noAddress)
		for _, a := range n.Addrs {
			out.NodePortNets = append(out.NodePortNets, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	// Only clusters are guarded: a changed file is the operator's request.
	for _, c := range cfg.Clusters {
		out.Guards[c.Name] = lb.GuardOptions{Share: c.Guard.Share, Least: c.Guard.Least, Window: c.Guard.Window, Timeout: c.Guard.Timeout}
	}
	return out
}

// Sources returns the sources of a configuration's Services: its files, and its clusters.
func Sources(cfg *config.Config) []string {
	out := []string{config.Source}
	for _, c := range cfg.Clusters {
		out = append(out, c.Name)
	}
	return out
}
