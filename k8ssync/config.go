package k8ssync

import (
	"net/netip"
	"time"

	"weir/lb"
)

// Config is one [[kubernetes]] block, already checked.
type Config struct {
	// Name is the cluster's name: the Source of its Services.
	Name string
	// Kubeconfig is a file, read again when it changes; empty is the service
	// account that a Pod has.
	Kubeconfig string
	// Context is one of the file's; empty is its current one.
	Context string

	// Reach says how backends are reached.
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
	// Classes are the loadBalancerClasses whose addresses are served; "" is a
	// Service without one. Empty is every class.
	Classes []string
	// ExternalIPRanges are what spec.externalIPs may be of; empty is nothing.
	ExternalIPRanges []netip.Prefix
	// LoadBalancerRanges are what status.loadBalancer addresses may be of; empty
	// is anything.
	LoadBalancerRanges []netip.Prefix
	// PodCIDRs are addresses that no VIP may have, beside the Nodes' own.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are those of the cluster's ClusterIPs, as far as they are known:
	// no other VIP may be of them, even if its Service is not followed.
	ServiceCIDRs []netip.Prefix
	// Refused are more addresses that no VIP may have. Cluster.Refuse changes it.
	Refused Refused
	// Provided are the addresses that weir itself gives to the cluster's Services.
	// Cluster.Provide changes it.
	Provided Provided
	// Labels are the keys of Services' labels that count; no others are kept.
	Labels []string
	// Ranges says which VIPs source ranges hold for.
	Ranges lb.RangeScope
	// Annotations are those that Services may use, without "weir/".
	Annotations []string

	// Scheduler and Drain are for Services that say nothing else.
	Scheduler lb.Scheduler
	Drain     time.Duration

	// StateFile is where the last-known-good objects are kept; empty is nowhere.
	StateFile string
	// Events writes Events on Services for Notes.
	Events bool
	// Version is weir's, for the User-Agent.
	Version string
}

// Reach says how the backends of a cluster are reached.
type Reach uint8

// The ways to reach backends.
const (
	// Pods sends packets to the endpoints' own addresses.
	Pods Reach = iota
	// NodePorts sends them to the nodes, at the Service's node port.
	NodePorts
)

func (r Reach) String() string { return [...]string{"pods", "nodeports"}[r] }
