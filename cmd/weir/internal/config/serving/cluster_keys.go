package serving

import (
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync"
	"weir/lb"
)

// Cluster is a table [[kubernetes]] with the positions of its parts.
type Cluster struct {
	schema.Section
	config.Cluster
	snapshot bool
}

// VIPKinds are the kinds of VIPs of clusters, VIPKindNames their names.
var (
	VIPKinds     = []lb.VIPKind{lb.ClusterIP, lb.NodePort, lb.ExternalIP, lb.LoadBalancer}
	VIPKindNames = namesOf(VIPKinds)
)

func namesOf(kinds []lb.VIPKind) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.String())
	}
	return out
}

// allowedAnnotations is the default. It excludes drain-timeout, because a tenant could
// keep removed objects in the kernel with it, source-address, because that lets
// foreign addresses into the pod network, and forward, because nodes without
// kernel.decapsulate_from lose the packets.
const allowedAnnotations = `["scheduler", "scheduler-flags", "weights", "affinity-timeout", "max-connections"]`

// clusterKeys returns the keys of [[kubernetes]].
func clusterKeys(c *Cluster) []schema.Key {
	return []schema.Key{
		{Path: "kubernetes", Type: schema.Tables,
			Doc: "A Kubernetes cluster to serve. Clusters are independent of each other. If one is slow or unreachable, weir keeps serving its last known " +
				"state."},
		{Path: "kubernetes.name", To: &c.Name, Example: `"prod"`, Required: true, Check: checkClusterName,
			Doc: "The unique name of the cluster: 1 to 63 of a-z, 0-9 and -, not \"static\"."},
		{Path: "kubernetes.kubeconfig", Type: schema.Text, File: true, Default: `""`,
			Doc: "The kubeconfig file with the API server and the credentials, relative to this file, or credential:NAME. weir rereads it when it changes. " +
				"\"\" means the service account of weir's own Pod."},
		{Path: "kubernetes.context", To: &c.Context, Default: `""`,
			Doc: "The context of the kubeconfig. \"\" means its current context."},
		{Path: "kubernetes.backends", Type: schema.Text, Default: `"pods"`, Values: []string{"pods", "nodeports"},
			Doc: "The destination of packets. pods sends to the pods, which needs routes to them. nodeports sends to the node ports of ready nodes, which " +
				"needs no routes."},
		{Path: "kubernetes.node_name", Type: schema.Text, Default: `""`,
			Doc: "Makes the box a node of the cluster, in place of kube-proxy: the name of its Node. \"$NODE_NAME\" reads it from that environment variable; " +
				"\"$HOSTNAME\" is always set. \"\" means an edge box, for which no endpoint is local. A box can be a node of one cluster only."},
		{Path: "kubernetes.zone", To: &c.Zone, Default: `""`,
			Doc: "The box's zone, for topology hints. \"\" means the zone of its Node, if it has one."},
		{Path: "kubernetes.serve", Example: `["LoadBalancer"]`, Type: schema.Texts, Values: VIPKindNames,
			Doc: "The kinds of Service addresses to serve. By default a node serves all, and any other box ExternalIP and LoadBalancer."},
		{Path: "kubernetes.service_cidrs", To: &c.ServiceCIDRs, Default: `[]`,
			Doc: "The ranges of the cluster's ClusterIPs, which no other VIP may use. Needed with namespaces, or if two clusters have their ClusterIPs served. " +
				"Their ranges must not overlap."},
		{Path: "kubernetes.namespaces", To: &c.Namespaces, Default: `[]`, Check: parse.Kubectl(parse.NamespaceForm, "namespace"),
			Doc: "The namespaces to serve. [] means all namespaces."},
		{Path: "kubernetes.load_balancer_classes", To: &c.Classes, Default: `[]`, Check: parse.Kubectl(parse.ClassForm, "loadBalancerClass"),
			Doc: "Serves only LoadBalancer addresses of Services with these loadBalancerClasses. \"\" selects Services without a class. [] means all classes. " +
				"Addresses from a [[pool]] are always served."},
		{Path: "kubernetes.load_balancer_ranges", To: &c.LoadBalancerRanges, Default: `[]`,
			Doc: "The permitted LoadBalancer addresses that other controllers assign. Addresses from a [[pool]] are always permitted. " +
				"On an edge box [] permits no others. On a node [] permits all, as with kube-proxy, except the addresses of nodes, of pods and of this box. " +
				"A node without external_ip_ranges knows its own Node only, and can lose one of its own addresses to a Service."},
		{Path: "kubernetes.external_ip_ranges", To: &c.ExternalIPRanges, Default: `[]`,
			Doc: "The permitted externalIPs. [] permits none, because any author of a Service could claim any address and its traffic."},
		{Path: "kubernetes.endpoint_ranges", To: &c.EndpointRanges, Default: `[]`,
			Doc: "The permitted addresses of endpoints with backends = \"pods\". [] permits on a node the same as kube-proxy, and elsewhere the pods: " +
				"pod_cidrs and the pod CIDRs of the Nodes. If the Nodes have none, as with some CNIs, the key is required. Node addresses, of pods " +
				"with hostNetwork, are permitted only by this list. API servers, routers, the addresses in fleet.join, and the pod_cidrs and service_cidrs " +
				"of other clusters never are. Other addresses of those clusters are, if this list has them."},
		{Path: "kubernetes.require_pod_backed", To: &c.RequirePodBacked, Default: `false`,
			Doc: "With backends = \"pods\": uses only endpoints with a targetRef to a Pod of their own namespace, as Services with a selector have them. " +
				"This excludes endpoints that other controllers or people write. It is no protection against an account that can write EndpointSlices: " +
				"such an account can write the targetRef, too, and weir does not watch Pods."},
		{Path: "kubernetes.pod_cidrs", To: &c.PodCIDRs, Default: `[]`,
			Doc: "Ranges of pods, in addition to those of the Nodes. No VIP may be in them."},
		{Path: "kubernetes.source_ranges", Type: schema.Text, Default: `"LoadBalancer"`, Values: []string{"LoadBalancer", "all"},
			Doc: "The scope of loadBalancerSourceRanges: only the LoadBalancer addresses, like kube-proxy, or all addresses of the Service that outside " +
				"clients can reach."},
		{Path: "kubernetes.annotation_prefix", To: &c.AnnotationPrefix, Default: `"weir/"`, Check: checkAnnotationPrefix,
			Doc: "The prefix of weir's annotations and of its condition on the cluster's Services: \"weir/\", or a DNS name and a slash, such as " +
				"\"lb.example.com/\"."},
		{Path: "kubernetes.allow_annotations", To: &c.Annotations, Default: allowedAnnotations, Values: k8ssync.Annotations(),
			Doc: "The annotations, without annotation_prefix, that Services may use. Others are ignored with a Note. The default excludes drain-timeout, " +
				"because a tenant could keep removed objects in the kernel with it. It excludes source-address, because that lets foreign addresses into the " +
				"pod network. It excludes forward, because that needs nodes with decapsulate_from. The annotations addresses, pool and sharing-key are always allowed; the pools restrict them."},
		{Path: "kubernetes.scheduler", Type: schema.Text, Values: schedulerNames, From: "defaults.scheduler",
			Doc: "The IPVS scheduler. The default is defaults.scheduler."},
		{Path: "kubernetes.scheduler_flags", Type: schema.Texts, Values: []string{"fallback", "port"}, From: "defaults.scheduler_flags",
			Doc: "Flags of the schedulers sh and mh. fallback selects another backend if the hashed one is unavailable. port includes the client's port in the " +
				"hash. The default is defaults.scheduler_flags if the scheduler is the same. Otherwise mh has both and sh has fallback."},
		{Path: "kubernetes.drain_timeout", Type: schema.Duration, From: "defaults.drain_timeout", Max: 24 * schema.Hour,
			Doc: "Time limit for the open connections of a removed backend or Service. The default is defaults.drain_timeout."},
		{Path: "kubernetes.events", To: &c.Events, Default: `true`,
			Doc: "Writes Events about problems with a Service. The account needs the permission."},
		{Path: "kubernetes.snapshot", To: &c.snapshot, Default: `true`,
			Doc: "Stores the last state of the cluster in daemon.state_dir. A box that starts while the API server is unreachable serves this state."},
		{Path: "kubernetes.max_objects", To: &c.Budget.Cluster, Unit: "kernel objects", Default: `1000000`, Min: 1000, Max: 10000000,
			Doc: "Limit for the cluster's kernel objects: virtual servers, real servers and members of sets. A cluster that needs more divides them " +
				"between its namespaces. Each has the objects that it needs, up to an equal part and to the rest of the others. 1000000 take about 1.5 GiB of memory."},
		{Path: "kubernetes.max_namespace_objects", To: &c.Budget.Namespace, Unit: "kernel objects", Default: `500000`, Min: 100, Max: 10000000,
			Doc: "Limit for one namespace. Its youngest Services are not served above it, with a Note and an Event."},
		{Path: "kubernetes.max_service_objects", To: &c.Budget.Service, Unit: "kernel objects", Default: `100000`, Min: 100, Max: 10000000,
			Doc: "Limit for one Service, in which each VIP and port has all backends and source ranges. Above it weir uses fewer backends, with a " +
				"Note and an Event."},
		{Path: "kubernetes.guard_threshold", To: &c.Guard.Share, Unit: "part of the cluster's objects", Default: `"50%"`, Min: 1, Max: 100,
			Doc: "The mass-deletion guard. If a cluster deletes more than this part of its frontends within guard_window, weir keeps serving them and warns. " +
				"Backends count only for ports that lose all of theirs. 100% disables the guard."},
		{Path: "kubernetes.guard_min_objects", To: &c.Guard.Least, Unit: "frontends or backends", Default: `20`, Max: 1000000,
			Doc: "The guard ignores deletions of fewer objects than this, so it never acts on a cluster with fewer."},
		{Path: "kubernetes.guard_window", To: &c.Guard.Window, Default: `"1m"`, Min: schema.Second, Max: schema.Hour,
			Doc: "The period over which the guard adds up deletions."},
		{Path: "kubernetes.guard_timeout", To: &c.Guard.Timeout, Default: `"10m"`, Max: 24 * schema.Hour,
			Doc: "The guard ends after this time, or when the cluster restores the objects or an operator confirms the deletion. 0s waits for one of these " +
				"without a limit."},
	}
}

func checkClusterName(value any) *source.Fault {
	switch name := value.(string); {
	case name == config.Source:
		return source.Faultf("choose another name", "%q is reserved for the services of this file", name)
	case !parse.NamespaceForm.Matches(name):
		return source.Faultf("use 1 to 63 of a-z, 0-9 and -, with a letter or digit first and last", "%q is not a valid cluster name", name)
	}
	return nil
}

// checkAnnotationPrefix checks annotation_prefix: "weir/", or a DNS name and a slash.
func checkAnnotationPrefix(value any) *source.Fault {
	prefix := value.(string)
	name, slash := strings.CutSuffix(prefix, "/")
	if prefix != k8ssync.DefaultAnnotationPrefix && (len(name) > 253 || !slash || !parse.DomainForm.Matches(name)) {
		return source.Faultf(`write a DNS name and a slash, as in "lb.example.com/"`, "%q is not a valid annotation prefix", prefix)
	}
	return nil
}
