package daemon

import (
	"log/slog"
	"net/netip"
	"reflect"
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/linux"
)

// node is what the box's own Node says, if it is a node of a cluster: the zero
// value until it has said anything, and for every other box.
type node struct {
	podCIDRs []netip.Prefix
	addrs    []netip.Addr
}

func (n node) equal(other node) bool {
	return slices.Equal(n.podCIDRs, other.podCIDRs) && slices.Equal(n.addrs, other.addrs)
}

// node gives what the clusters say of the box's own Node: it is one of one cluster
// at most.
func (c *clusters) node() node {
	for _, name := range c.names() {
		if f := c.all[name]; f.cfg.NodeName != "" {
			s, _ := f.status()
			return node{s.NodePodCIDRs, s.NodeAddrs}
		}
	}
	return node{}
}

// kernelConfig is what a configuration makes of lb/linux on a box whose Node says
// n.
func kernelConfig(cfg *config.Config, m Mode, n node, log *slog.Logger) linux.Config {
	out := KernelConfig(cfg, m, log)
	if cfg.Kernel.DetectLocal == config.NodeCIDR {
		out.ClusterCIDRs = n.podCIDRs
	}
	return out
}

// nowhere are ranges that no address is in: node ports are served nowhere until
// the Node has said where.
var nowhere = []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 32), netip.PrefixFrom(netip.IPv6Unspecified(), 128),
}

// lbOptions is the same for lb.
func lbOptions(cfg *config.Config, m Mode, n node) lb.Options {
	out := LBOptions(cfg, m)
	if cfg.Kernel.NodePortPrimary {
		out.NodePortNets = slices.Clone(nowhere)
		for _, a := range n.addrs {
			out.NodePortNets = append(out.NodePortNets, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// settleNode takes in what the own Node says, and tells whether that is something
// else than before.
func (b *box) settleNode() bool {
	n := b.clusters.node()
	if n.equal(b.node) {
		return false
	}
	if err := b.configure(b.cfg, n); err != nil {
		b.log.Error("what the Node says can't be brought into force", "error", err)
		return false
	}
	b.causes.add("what the Node says")
	b.log.Info("the Node says", "pod_cidrs", n.podCIDRs, "addresses", n.addrs)
	return true
}

// configure makes kernel and Reconciler work as a configuration says on a box
// whose Node says n.
func (b *box) configure(cfg *config.Config, n node) error {
	before, after := kernelConfig(b.cfg, b.mode, b.node, b.log), kernelConfig(cfg, b.mode, n, b.log)
	if err := b.kernel.Configure(after); err != nil {
		return err
	}
	if !sameRules(before, after) {
		for _, f := range cfg.Kernel.Families {
			b.rec.Lost([]lb.Object{lb.Rules{Family: f}})
		}
	}
	b.node = n
	b.rec.Configure(b.lbOptions(cfg, n))
	return nil
}

// sameRules tells whether two configurations have the same static rules: they
// differ in nothing but what has no part in them.
func sameRules(a, b linux.Config) bool {
	a.Sysctls, a.Logger, b.Sysctls, b.Logger = nil, nil, nil, nil
	a.ClusterCIDRs, b.ClusterCIDRs = slices.Concat(a.ClusterCIDRs), slices.Concat(b.ClusterCIDRs) // none is nil
	return reflect.DeepEqual(a, b)
}
