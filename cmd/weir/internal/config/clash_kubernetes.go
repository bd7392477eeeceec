package config

import (
	"fmt"
	"net/netip"
	"strconv"

	"weir/lb"
)

// clusterClashes complains about what each cluster may say, but not two of them
// together, nor with the rest of the configuration.
func (p *parser) clusterClashes(clusters []*cluster, c *Config, top section) {
	kernel := top.sub("kernel")
	p.sameClusters(clusters)
	p.oneNode(clusters)
	p.clusterIPs(clusters)
	node, nodePorts := false, false
	for _, cl := range clusters {
		node = node || cl.meansNode()
		nodePorts = nodePorts || cl.Kinds[lb.NodePort] || cl.bad("serve")
		for _, pods := range cl.PodCIDRs {
			p.poolOfPods(cl, pods, c.Kernel)
		}
	}
	if c.Kernel.DetectLocal == NodeCIDR && !node {
		kernel.fail("detect_local", strconv.Quote(string(NodeCIDR))+" needs a Node, and this box is none",
			"name it by node_name in a [[kubernetes]], or use another way")
	}
	switch {
	case c.Kernel.NodePortPrimary && !node:
		kernel.fail("node_port_addresses", `"primary" needs a Node, and this box is none`,
			"name it by node_name in a [[kubernetes]], or write ranges")
	case kernel.written("node_port_addresses") && !nodePorts:
		kernel.fail("node_port_addresses", "does nothing: no [[kubernetes]] serves NodePort", "add one that does, or remove this")
	}
}

func (p *parser) sameClusters(clusters []*cluster) {
	first := map[string]place{}
	for _, cl := range clusters {
		if cl.Name == "" {
			continue
		}
		if at, ok := first[cl.Name]; ok {
			cl.fail("name", fmt.Sprintf("%q is the name of the cluster at %s too", cl.Name, at), "rename one of them")
			continue
		}
		first[cl.Name] = cl.at("name")
	}
}

// oneNode keeps a box from being a node of two clusters, and from serving the
// node ports of two: API servers give them out without asking each other.
func (p *parser) oneNode(clusters []*cluster) {
	var node, ports *cluster
	for _, cl := range clusters {
		if cl.IsNode() && node != nil {
			cl.fail("node_name", fmt.Sprintf("the box is a node of %s already, at %s", node.called(), node.at("node_name")),
				"remove one of them")
		} else if cl.IsNode() {
			node = cl
		}
		if cl.Kinds[lb.NodePort] && ports != nil {
			cl.fail("serve", fmt.Sprintf("%s, at %s, has its node ports served too, and both give out the same numbers", ports.called(), ports.at("serve")),
				`remove "NodePort" from one of them`)
		} else if cl.Kinds[lb.NodePort] {
			ports = cl
		}
	}
}

// clusterIPs finds clusters whose ClusterIPs are the same addresses. Only one of
// them can have its own served.
func (p *parser) clusterIPs(clusters []*cluster) {
	var served []*cluster
	for _, cl := range clusters {
		if cl.Kinds[lb.ClusterIP] && !cl.bad("service_cidrs") {
			served = append(served, cl)
		}
	}
	for i, cl := range served {
		if len(served) > 1 && len(cl.ServiceCIDRs) == 0 {
			cl.fail("service_cidrs", "is missing: several clusters have their ClusterIPs served, and their ranges must not overlap",
				`add service_cidrs = ["10.96.0.0/12"], or remove "ClusterIP" from serve`)
		}
		for _, other := range served[:i] {
			if a, b, ok := overlap(cl.ServiceCIDRs, other.ServiceCIDRs); ok {
				cl.fail("service_cidrs", fmt.Sprintf("%q overlaps %q of %s at %s", a, b, other.called(), other.at("service_cidrs")),
					`remove "ClusterIP" from serve of one of them`)
			}
		}
	}
}

func overlap(a, b []netip.Prefix) (x, y netip.Prefix, ok bool) {
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				return x, y, true
			}
		}
	}
	return x, y, false
}

// poolOfPods complains about pods whose addresses this box makes its own.
func (p *parser) poolOfPods(cl *cluster, pods netip.Prefix, k Kernel) {
	for _, pool := range k.Pools {
		if pool.Prefix.Overlaps(pods) {
			cl.fail("pod_cidrs", fmt.Sprintf("%q overlaps %q of kernel.route_pools, so nothing sent there leaves this box", pods, pool.Prefix),
				"narrow the pool")
		}
	}
}

// called is a short name of a cluster in messages about another one.
func (c *cluster) called() string {
	if c.Name != "" {
		return "cluster " + strconv.Quote(c.Name)
	}
	return "another cluster"
}
