package k8ssync

import (
	"net/netip"
	"time"
)

// Objects as far as weir uses them: what transforms leave of the API's, what
// translate reads, and what the last-known-good file holds. There is nothing
// secret in them. Values that make no sense (an address that does not parse, a
// port that is zero) are left out when they are read, and told in Dropped.

// key names a namespaced object.
type key struct {
	Namespace, Name string
}

func (k key) String() string { return k.Namespace + "/" + k.Name }

// service is a Service.
type service struct {
	key
	Created time.Time
	// Type is spec.type.
	Type string
	// OtherProxy is label service.kubernetes.io/service-proxy-name, whatever it
	// says: somebody else serves it.
	OtherProxy bool
	// ClusterIPs are those of spec.clusterIPs that are addresses of a family in
	// spec.ipFamilies, unmapped, one of each family at most. Their families are
	// the Service's.
	ClusterIPs  []netip.Addr
	ExternalIPs []netip.Addr
	// Ingress are the addresses in status.loadBalancer whose ipMode is VIP or
	// absent.
	Ingress             []netip.Addr
	Ports               []servicePort
	LoadBalancerClass   string
	ExternalLocal       bool // externalTrafficPolicy
	InternalLocal       bool // internalTrafficPolicy
	AffinitySeconds     int  // sessionAffinity ClientIP; 0 is None
	HealthCheckNodePort uint16
	// SourceRanges are spec.loadBalancerSourceRanges; Restricted tells that there
	// are any, even if none could be read.
	SourceRanges []netip.Prefix
	Restricted   bool
	// Annotations are those that begin with "weir/".
	Annotations map[string]string
	Dropped     []string
}

// servicePort is a port of a Service.
type servicePort struct {
	Name     string
	Proto    string // TCP, UDP or SCTP
	Port     uint16
	NodePort uint16
}

// slice is an EndpointSlice of IPv4 or IPv6 addresses.
type slice struct {
	key
	// Service is the name in label kubernetes.io/service-name.
	Service   string
	Ports     []slicePort
	Endpoints []endpoint
	// Triggered is annotation endpoints.kubernetes.io/last-change-trigger-time;
	// zero if absent.
	Triggered time.Time
	Dropped   []string
}

// slicePort is a port of a slice, of the same name as the Service's port.
type slicePort struct {
	Name  string
	Proto string
	Port  uint16
}

// endpoint is one address of a slice.
type endpoint struct {
	Addr  netip.Addr
	Node  string
	Zone  string
	Ready bool
	// Serving and Terminating are as the conditions say; nil is serving, and not
	// terminating.
	Serving, Terminating bool
	ForZones, ForNodes   []string
}

// node is a Node.
type node struct {
	Name string
	Zone string
	// InternalIPs and ExternalIPs are those of status.addresses, unmapped.
	InternalIPs, ExternalIPs []netip.Addr
	PodCIDRs                 []netip.Prefix
	Ready                    bool
	// Excluded is label node.kubernetes.io/exclude-from-external-load-balancers,
	// a deletion under way, or the autoscaler's taint before one.
	Excluded bool
	Dropped  []string
}
