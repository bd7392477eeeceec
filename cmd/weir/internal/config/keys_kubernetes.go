package config

import (
	"weir/k8ssync"
	"weir/lb"
)

// The kinds of VIPs that clusters have, and their names.
var (
	vipKinds     = []lb.VIPKind{lb.ClusterIP, lb.NodePort, lb.ExternalIP, lb.LoadBalancer}
	vipKindNames = namesOf(vipKinds)
)

func namesOf(kinds []lb.VIPKind) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.String())
	}
	return out
}

// allowedAnnotations is the default: without drain, which has the kernel keep
// what is gone for as long as a tenant likes, and without source-address, which
// brings strangers' addresses into the network of the pods.
const allowedAnnotations = `["scheduler", "scheduler-flags", "weights", "affinity", "max-connections"]`

// nodeKeys are those of the table [kernel] that matter most to a box that is a
// node of a cluster.
var nodeKeys = []Key{
	{Path: "kernel.detect_local", Type: Text, Default: `"cluster-cidr"`,
		Values: []string{"cluster-cidr", "node-cidr", "bridge-interface", "interface-prefix"},
		Doc: "How the pods' packets are known, whose address ClusterIP VIPs keep, and who reach all endpoints of a Service whose " +
			"externalTrafficPolicy is Local: by cluster_cidrs, by the pod ranges of the box's own Node, or by the interface they come from."},
	{Path: "kernel.bridge_interface", Type: Text, Default: `""`,
		Doc: "With detect_local \"bridge-interface\": the bridge of the pods."},
	{Path: "kernel.interface_prefix", Type: Text, Default: `""`,
		Doc: "With detect_local \"interface-prefix\": what the names of the pods' interfaces begin with."},
	{Path: "kernel.node_port_addresses", Type: Texts, Default: `[]`,
		Doc: "The box's own addresses that serve node ports, as ranges, or just \"primary\" for those that its Node has. " +
			"A family without a range is served on all addresses, but never on loopback, link-local ones or VIPs."},
	{Path: "kernel.strict_arp", Type: Texts, Default: `[]`,
		Doc: "Interfaces on which the box answers ARP only for their own addresses, not for VIPs (arp_ignore 1, arp_announce 2): " +
			"where other boxes announce the same VIPs. \"all\" is every interface, other software's too, as kube-proxy's strictARP."},
	{Path: "kernel.sysctls", Type: Texts, Default: `[]`,
		Doc: "More kernel parameters that weir sets and keeps set, such as conntrack's: \"net.netfilter.nf_conntrack_max=1048576\". " +
			"weir needs none of them, but forwards no more than conntrack has room for."},
}

var clusterKeys = []Key{
	{Path: "kubernetes", Type: Tables,
		Doc: "A Kubernetes cluster whose Services are served. Each cluster is followed on its own: one that is slow or down " +
			"harms no other, and what it said last stays in force."},
	{Path: "kubernetes.name", Example: `"prod"`, Type: Text, Required: true,
		Doc: "What the cluster is called everywhere: 1 to 63 of a-z, 0-9 and -, its own among all clusters, not \"static\"."},
	{Path: "kubernetes.kubeconfig", Type: Text, Default: `""`,
		Doc: "The file that says where the API server is and how to log in, relative to this file, or credential:NAME; read again " +
			"when it changes. \"\" is the service account of the Pod that weir runs in."},
	{Path: "kubernetes.context", Type: Text, Default: `""`,
		Doc: "The context of the kubeconfig; \"\" is its current one."},
	{Path: "kubernetes.backends", Type: Text, Default: `"pods"`, Values: []string{"pods", "nodeports"},
		Doc: "Where packets are sent: to the pods, which the box must have routes to, or to the node ports of ready nodes, " +
			"which need none."},
	{Path: "kubernetes.node_name", Type: Text, Default: `""`,
		Doc: "Makes the box a node of the cluster, in place of kube-proxy: the name of its Node, or \"$NODE_NAME\" for that of an " +
			"environment variable; \"$HOSTNAME\" is always known. \"\" is a box before the cluster, for which no endpoint is local. " +
			"A box is a node of one cluster at most."},
	{Path: "kubernetes.zone", Type: Text, Default: `""`,
		Doc: "The box's zone, for topology hints; \"\" is that of its Node, or none."},
	{Path: "kubernetes.serve", Example: `["LoadBalancer"]`, Type: Texts, Values: vipKindNames,
		Doc: "The addresses of Services that are served. Left out, a node has all, any other box ExternalIP and LoadBalancer."},
	{Path: "kubernetes.service_cidrs", Type: Texts, Default: `[]`,
		Doc: "The ranges of the cluster's ClusterIPs, which no other VIP may be of. Needed where not all namespaces are followed, " +
			"or two clusters have their ClusterIPs served: their ranges must not overlap."},
	{Path: "kubernetes.namespaces", Type: Texts, Default: `[]`,
		Doc: "The namespaces that are followed; none is all."},
	{Path: "kubernetes.load_balancer_classes", Type: Texts, Default: `[]`,
		Doc: "The loadBalancerClasses whose LoadBalancer addresses are served; \"\" is a Service without one. None is every class. " +
			"What weir gives of a [[pool]] is served in any case."},
	{Path: "kubernetes.load_balancer_ranges", Type: Texts, Default: `[]`,
		Doc: "What LoadBalancer addresses may be of; none is anything but the addresses of nodes, of pods and of this box. A " +
			"node without external_ip_ranges knows its own Node's only, and has an address of its own there if it is given to a Service. " +
			"What weir gives of a [[pool]] may be in any case."},
	{Path: "kubernetes.external_ip_ranges", Type: Texts, Default: `[]`,
		Doc: "What externalIPs may be of; none is nothing, because who may write a Service may claim any address there, and with it " +
			"the traffic of others."},
	{Path: "kubernetes.pod_cidrs", Type: Texts, Default: `[]`,
		Doc: "Ranges of pods that no VIP may be of, beside those that the Nodes tell."},
	{Path: "kubernetes.source_ranges", Type: Text, Default: `"LoadBalancer"`, Values: []string{"LoadBalancer", "all"},
		Doc: "What loadBalancerSourceRanges hold for: the LoadBalancer addresses, as with kube-proxy, or all addresses of the " +
			"Service that clients outside can reach."},
	{Path: "kubernetes.allow_annotations", Type: Texts, Default: allowedAnnotations, Values: k8ssync.Annotations(),
		Doc: "The annotations weir/NAME that Services may use; others are ignored, and the Service is told. The default has not " +
			"drain, with which a tenant has the kernel keep what is gone, and not source-address, which brings strangers' addresses " +
			"into the network of the pods. addresses, pool and share need no leave: what may be had is for the pools to say."},
	{Path: "kubernetes.scheduler", Type: Text, Values: schedulerNames, from: "defaults.scheduler",
		Doc: "How new connections are spread over the backends, if not as [defaults] says."},
	{Path: "kubernetes.scheduler_flags", Type: Texts, Values: []string{"fallback", "port"}, from: "defaults.scheduler_flags",
		Doc: "For sh and mh: fallback takes another backend when the hashed one is out, port hashes the client's port too. " +
			"Left out, mh has both and sh has fallback, unless [defaults] has flags for the same scheduler."},
	{Path: "kubernetes.drain", Type: Duration, from: "defaults.drain", max: 24 * hour,
		Doc: "How long connections of a removed backend or Service may live on, if not as [defaults] says."},
	{Path: "kubernetes.events", Type: Bool, Default: `true`,
		Doc: "Writes Events about what can't be done for a Service; the account must have the right."},
	{Path: "kubernetes.snapshot", Type: Bool, Default: `true`,
		Doc: "Keeps what the cluster said last in daemon.state_dir, so that a box that starts while the API server is away serves it."},
	{Path: "kubernetes.guard_share", Type: Percent, Unit: "part of what the cluster has", Default: `"50%"`, min: 1, max: 100,
		Doc: "A cluster that takes away more than this part of its frontends, or by ports that lose all of theirs of its backends, " +
			"within guard_window is not believed at once: weir serves on what is gone, and says so. Fewer backends of a port " +
			"are always believed. 100% believes everything."},
	{Path: "kubernetes.guard_least", Type: Integer, Unit: "frontends or backends", Default: `20`, max: 1000000,
		Doc: "Fewer than so many may always be taken away: a cluster with less than that is not guarded."},
	{Path: "kubernetes.guard_window", Type: Duration, Default: `"1m"`, min: sec, max: hour,
		Doc: "The time over which what is taken away adds up."},
	{Path: "kubernetes.guard_hold", Type: Duration, Default: `"10m"`, max: 24 * hour,
		Doc: "How long weir holds on, unless the cluster brings back what it took or somebody confirms: then it is believed. " +
			"0s is until then."},
}
