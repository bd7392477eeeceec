package k8ssync

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// Config is one [[kubernetes]] block, already checked.
type Config struct {
	// Name is the cluster's name: the Source of its Services.
	Name string
	// Kubeconfig is a file, read again when it changes; empty is the service
	// account of a Pod.
	Kubeconfig string
	// Context is one of the file's; empty is its current one.
	Context string

	// Reach is the way to the backends.
	Reach Reach
	// NodeName makes the box a node of the cluster; empty is an edge box, for
	// which no endpoint is local.
	NodeName string
	// Zone is the box's own; empty is that of its Node, if it is one.
	Zone string

	// Kinds are the VIPs that are served.
	Kinds map[lb.VIPKind]bool
	// Namespaces are the ones that are followed; empty is all.
	Namespaces []string
	// Classes are the loadBalancerClasses with addresses that are served; "" is a Service
	// without one. Empty is every class.
	Classes []string
	// ExternalIPRanges limit spec.externalIPs; empty permits none.
	ExternalIPRanges []netip.Prefix
	// LoadBalancerRanges limit status.loadBalancer addresses. Empty permits all on a node,
	// and elsewhere only those that weir assigns.
	LoadBalancerRanges []netip.Prefix
	// EndpointRanges limit the endpoints, if Reach is Pods. Empty permits, on a node, all
	// that kube-proxy does, and elsewhere the pods: PodCIDRs and those of the Nodes.
	EndpointRanges []netip.Prefix
	// RequirePodBacked limits the endpoints to those that refer to a Pod of their
	// namespace, if Reach is Pods.
	RequirePodBacked bool
	// PodCIDRs are ranges that no VIP may be in, beside those of the Nodes.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the known ranges of the cluster's ClusterIPs: no other VIP may be in
	// them, even if its Service is not followed.
	ServiceCIDRs []netip.Prefix
	// Refused are more addresses that no VIP may have. Cluster.Refuse changes it.
	Refused Refused
	// Provided are the addresses that weir assigns to the cluster's Services.
	// Cluster.Provide changes it.
	Provided Provided
	// Budget limits the kernel objects; zero fields have the values of DefaultBudget.
	Budget Budget
	// Labels are the keys of the Services' labels that are stored.
	Labels []string
	// Ranges selects the VIPs to which source ranges apply.
	Ranges lb.RangeScope
	// AnnotationPrefix begins the names of all annotations and of the condition of weir;
	// empty is DefaultAnnotationPrefix.
	AnnotationPrefix string
	// Annotations are the permitted annotations of Services, without the prefix.
	Annotations []string

	// NoIPVS reports whether the kernel's load balancer can't make tunnels. Decapsulates reports
	// whether this box decapsulates those of others.
	NoIPVS, Decapsulates bool

	// Scheduler and Drain are the defaults of Services.
	Scheduler lb.Scheduler
	Drain     time.Duration

	// StateFile is the snapshot; empty is none.
	StateFile string
	// Events writes Events on Services for Notes.
	Events bool
	// Version is weir's, for the User-Agent.
	Version string
}

// DefaultAnnotationPrefix is the prefix of annotations unless the operator configures another.
const DefaultAnnotationPrefix = "weir/"

// prefix returns the prefix of annotations.
func (c *Config) prefix() string { return cmp.Or(c.AnnotationPrefix, DefaultAnnotationPrefix) }

// Reach is how the backends of a cluster are reached.
type Reach uint8

// The ways to reach backends.
const (
	// Pods sends packets to the endpoints' own addresses.
	Pods Reach = iota
	// NodePorts sends them to the nodes, at the Service's node port.
	NodePorts
)

func (r Reach) String() string { return [...]string{"pods", "nodeports"}[r] }

// Refused are addresses that no Service of a cluster may have for a VIP, beside those that
// the objects of the cluster exclude: a box that served them would no longer reach a server
// that it needs, or would take them from another cluster. Backends excepted, they can't be
// endpoints either.
type Refused struct {
	// Peers are the servers that the box needs, with a description: "the API server of
	// cluster prod".
	Peers map[netip.Addr]string
	// Backends are those of static services, with a description.
	Backends map[netip.Addr]string
	// Ranges are those of other clusters. They apply to external IPs and load balancers'
	// addresses, since clusters may have the same ClusterIPs.
	Ranges []Range
}

// Range is a range of addresses with its users: "pods of cluster stage".
type Range struct {
	Prefix netip.Prefix
	What   string
}

func (r Refused) equal(s Refused) bool {
	return maps.Equal(r.Peers, s.Peers) && maps.Equal(r.Backends, s.Backends) && slices.Equal(r.Ranges, s.Ranges)
}

// Provided are the addresses that weir assigns to a cluster's Services, on whichever box.
// They are served regardless of load_balancer_ranges and load_balancer_classes, and in
// either ipMode. The zero value is none.
type Provided struct {
	// Class is the loadBalancerClass of the Services that get them; with DefaultClass
	// those without a class get them, too.
	Class        string
	DefaultClass bool
	// Ranges are those of the pools that serve the cluster.
	Ranges []ipam.Range
}

func (p Provided) equal(q Provided) bool {
	return p.Class == q.Class && p.DefaultClass == q.DefaultClass && slices.Equal(p.Ranges, q.Ranges)
}

// contains reports whether an address is of a pool that serves the cluster.
func (p Provided) contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) })
}

// serves reports whether weir assigns the addresses of a class.
func (p Provided) serves(class string) bool {
	if class == "" {
		return p.DefaultClass && len(p.Ranges) > 0
	}
	return class == p.Class
}
