package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/config/vips"
	"weir/lb"
)

// clusterCheck checks [[kubernetes]] against the other tables.
type clusterCheck struct{ *Draft }

func (d clusterCheck) all() {
	kernel, k := d.Top.Sub("kernel"), d.Kernel
	d.sameClusters()
	d.oneNode()
	d.clusterIPs()
	node, nodePorts := false, false
	for _, cl := range d.Clusters {
		node = node || cl.MeansNode()
		nodePorts = nodePorts || cl.Kinds[lb.NodePort] || cl.Bad("serve")
		for _, pods := range cl.PodCIDRs {
			d.poolOfPods(cl, pods)
		}
		d.vipsWithin(cl, "pod_cidrs", cl.PodCIDRs, "a pod")
		d.vipsWithin(cl, "service_cidrs", cl.ServiceCIDRs, "a Service")
		d.unlisted(cl)
	}
	if k.DetectLocal == config.NodeCIDR && !node {
		kernel.Fail("detect_local", strconv.Quote(string(config.NodeCIDR))+" needs a Node, and this box is not a node",
			"set node_name in a [[kubernetes]], or use another value")
	}
	switch {
	case k.NodePortPrimary && !node:
		kernel.Fail("node_port_addresses", `"primary" needs a Node, and this box is not a node`,
			"set node_name in a [[kubernetes]], or use ranges")
	case kernel.Written("node_port_addresses") && !nodePorts:
		kernel.Fail("node_port_addresses", "has no effect: no [[kubernetes]] serves NodePort", "add one that does, or remove this")
	}
}

// unlisted warns of a cluster without any permitted address of a load balancer.
func (d clusterCheck) unlisted(cl *serving.Cluster) {
	admits := func(p *vips.Pool) bool { return p.Admits(cl.Name) }
	if cl.MeansNode() || !cl.Kinds[lb.LoadBalancer] || cl.Written("load_balancer_ranges") || cl.Bad("serve") || slices.ContainsFunc(d.Pools, admits) {
		return
	}
	cl.Warn(source.Warning, "load_balancer_ranges", "is missing, and there is no [[pool]] for the cluster: no LoadBalancer address is served",
		`add load_balancer_ranges = ["203.0.113.0/24"] with the addresses that another controller assigns, or a [[pool]], or remove "LoadBalancer" from serve`)
}

func (d clusterCheck) sameClusters() {
	first := map[string]source.Place{}
	for _, cl := range d.Clusters {
		if cl.Name == "" {
			continue
		}
		if at, ok := first[cl.Name]; ok {
			cl.Fail("name", fmt.Sprintf("%q is also the name of the cluster at %s", cl.Name, at), "rename one of them")
			continue
		}
		first[cl.Name] = cl.At("name")
	}
}

// oneNode reports a box that is a node of two clusters or serves the node ports of two:
// API servers assign them independently.
func (d clusterCheck) oneNode() {
	var node, ports *serving.Cluster
	for _, cl := range d.Clusters {
		if cl.IsNode() && node != nil {
			cl.Fail("node_name", fmt.Sprintf("the box is already a node of %s, at %s", node.Called(), node.At("node_name")),
				"remove one of them")
		} else if cl.IsNode() {
			node = cl
		}
		if cl.Kinds[lb.NodePort] && ports != nil {
			cl.Fail("serve", fmt.Sprintf("the box already serves the node ports of %s, at %s, and both clusters assign the same numbers", ports.Called(), ports.At("serve")),
				`remove "NodePort" from one of them`)
		} else if cl.Kinds[lb.NodePort] {
			ports = cl
		}
	}
}

// clusterIPs reports clusters with the same ClusterIPs. Only one of them can have them
// served.
func (d clusterCheck) clusterIPs() {
	var served []*serving.Cluster
	for _, cl := range d.Clusters {
		if cl.Kinds[lb.ClusterIP] && !cl.Bad("service_cidrs") {
			served = append(served, cl)
		}
	}
	for i, cl := range served {
		if len(served) > 1 && len(cl.ServiceCIDRs) == 0 {
			cl.Fail("service_cidrs", "is missing: the box serves the ClusterIPs of several clusters, and their ranges must not overlap",
				`add service_cidrs = ["10.96.0.0/12"], or remove "ClusterIP" from serve`)
		}
		for _, other := range served[:i] {
			if a, b, ok := overlap(cl.ServiceCIDRs, other.ServiceCIDRs); ok {
				cl.Fail("service_cidrs", fmt.Sprintf("%q overlaps %q of %s at %s", a, b, other.Called(), other.At("service_cidrs")),
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

// vipsWithin warns of static VIPs with an address that the cluster may give to something else.
func (d clusterCheck) vipsWithin(cl *serving.Cluster, key string, ranges []netip.Prefix, owner string) {
	for _, s := range d.Services {
		for _, v := range s.VIPs {
			if i := slices.IndexFunc(ranges, func(p netip.Prefix) bool { return p.Contains(v.Addr.Addr()) }); i >= 0 {
				d.Top.Add(source.Warning, v.At, source.Join(s.Shown, v.Name), fmt.Sprintf("%q is in %q of %s of %s, which may give it to %s",
					v.Addr.Addr(), ranges[i], key, cl.Called(), owner), "choose another address")
			}
		}
	}
}

// poolOfPods reports pods with addresses that are local to this box.
func (d clusterCheck) poolOfPods(cl *serving.Cluster, pods netip.Prefix) {
	for _, pool := range d.Kernel.Pools {
		if pool.Prefix.Overlaps(pods) {
			cl.Fail("pod_cidrs", fmt.Sprintf("%q overlaps %q of kernel.route_pools, so packets to it never leave this box", pods, pool.Prefix),
				"narrow the pool")
		}
	}
}
