package k8ssync

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// The types of this file are API objects, reduced to the fields that weir uses: translate
// reads them, and the snapshot has them. They have no secrets. Invalid values (an
// address that does not parse, a port that is zero) are left out when they are read, and
// reported in Dropped.

// key names a namespaced object.
type key struct {
	Namespace, Name string
}

func (k key) String() string { return k.Namespace + "/" + k.Name }

// compare orders by namespace and name.
func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

// service is a Service.
type service struct {
	key
	// UID distinguishes it from another of the same name, Version (resourceVersion) from
	// its earlier states.
	UID, Version string
	Created      time.Time
	// Deleting reports whether it is deleted when its finalizers permit.
	Deleting bool
	// Type is spec.type.
	Type string
	// OtherProxy is the label service.kubernetes.io/service-proxy-name, with any value:
	// another proxy serves it.
	OtherProxy bool
	// ClusterIPs are those of spec.clusterIPs that are addresses of a family in
	// spec.ipFamilies, unmapped, one of each family at most. Their families are
	// the Service's.
	ClusterIPs  []netip.Addr
	ExternalIPs []netip.Addr
	// Ingress are the addresses in status.loadBalancer with ipMode VIP or none, Proxied
	// those with ipMode Proxy. Named reports whether there are host names.
	Ingress, Proxied []netip.Addr
	Named            bool
	// Condition is weir's own in status.conditions.
	Condition         condition
	Ports             []servicePort
	LoadBalancerClass string
	// Asked is spec.loadBalancerIP, as it is written. Families are spec.ipFamilies and FamilyPolicy is
	// spec.ipFamilyPolicy.
	Asked        string
	Families     []string
	FamilyPolicy string
	// Selector is spec.selector as ipam.SelectorText has it.
	Selector            string
	ExternalLocal       bool // externalTrafficPolicy
	InternalLocal       bool // internalTrafficPolicy
	AffinitySeconds     int  // sessionAffinity ClientIP; 0 is None
	HealthCheckNodePort uint16
	// SourceRanges are spec.loadBalancerSourceRanges; Restricted reports whether there are any,
	// even if none could be read.
	SourceRanges []netip.Prefix
	Restricted   bool
	// Annotations are those with the prefix, without it; Labels those of
	// Config.Labels.
	Annotations, Labels map[string]string
	Dropped             []string
}

// condition is weir's condition of a Service. The zero value is none.
type condition struct {
	Status, Reason, Message string
	Since                   time.Time
}

func (c condition) equal(d condition) bool {
	return c.Status == d.Status && c.Reason == d.Reason && c.Message == d.Message && c.Since.Equal(d.Since)
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
	// Service is the name in label kubernetes.io/service-name. Owner is the UID of the
	// Service that owns the slice, if one of that name does.
	Service   string
	Owner     string `json:",omitempty"`
	Ports     []slicePort
	Endpoints []endpoint
	// Triggered is annotation endpoints.kubernetes.io/last-change-trigger-time;
	// zero if absent.
	Triggered time.Time `json:"-"`
	Dropped   []string
}

// target names the Service.
func (s *slice) target() key { return key{s.Namespace, s.Service} }

// of reports whether a slice is one of a Service, and not of an earlier one of the same name:
// a watch of slices may be behind that of Services.
func (s *slice) of(svc *service) bool { return s.Owner == "" || svc.UID == "" || s.Owner == svc.UID }

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
	// Serving and Terminating are the conditions; a missing one is serving, and not
	// terminating.
	Serving, Terminating bool
	// Pod reports whether the endpoint refers to a Pod of the slice's namespace.
	Pod bool `json:",omitempty"`
	// Hints are nil if there are none.
	Hints *hints `json:",omitempty"`
}

// hints are the zones and the nodes that an endpoint is for. Few endpoints have some, and
// there may be 100,000 endpoints.
type hints struct {
	ForZones, ForNodes []string
}

func (h *hints) zones() []string {
	if h == nil {
		return nil
	}
	return h.ForZones
}

func (h *hints) nodes() []string {
	if h == nil {
		return nil
	}
	return h.ForNodes
}

// equal reports whether two hints are the same. None are as good as empty ones.
func (h *hints) equal(g *hints) bool {
	return slices.Equal(h.zones(), g.zones()) && slices.Equal(h.nodes(), g.nodes())
}

// node is a Node.
type node struct {
	Name string
	Zone string
	// InternalIPs and ExternalIPs are those of status.addresses, unmapped.
	InternalIPs, ExternalIPs []netip.Addr
	PodCIDRs                 []netip.Prefix
	Ready                    bool
	// Excluded is label node.kubernetes.io/exclude-from-external-load-balancers, or
	// Leaving: a deletion under way, or the autoscaler's taint before one.
	Excluded, Leaving bool
	Dropped           []string
}

// equal reports whether two Services are the same, but for Version.
func (s *service) equal(t *service) bool {
	return s.key == t.key && s.UID == t.UID && s.Created.Equal(t.Created) && s.Deleting == t.Deleting && s.Type == t.Type && s.OtherProxy == t.OtherProxy &&
		slices.Equal(s.ClusterIPs, t.ClusterIPs) && slices.Equal(s.ExternalIPs, t.ExternalIPs) && slices.Equal(s.Ingress, t.Ingress) &&
		slices.Equal(s.Proxied, t.Proxied) && s.Named == t.Named && s.Condition.equal(t.Condition) &&
		s.Asked == t.Asked && slices.Equal(s.Families, t.Families) && s.FamilyPolicy == t.FamilyPolicy && s.Selector == t.Selector &&
		slices.Equal(s.Ports, t.Ports) && s.LoadBalancerClass == t.LoadBalancerClass &&
		s.ExternalLocal == t.ExternalLocal && s.InternalLocal == t.InternalLocal &&
		s.AffinitySeconds == t.AffinitySeconds && s.HealthCheckNodePort == t.HealthCheckNodePort &&
		slices.Equal(s.SourceRanges, t.SourceRanges) && s.Restricted == t.Restricted &&
		maps.Equal(s.Annotations, t.Annotations) && maps.Equal(s.Labels, t.Labels) && slices.Equal(s.Dropped, t.Dropped)
}

// equal reports whether two EndpointSlices are the same, but for Triggered.
func (s *slice) equal(t *slice) bool {
	return s.key == t.key && s.Service == t.Service && s.Owner == t.Owner && slices.Equal(s.Ports, t.Ports) &&
		slices.EqualFunc(s.Endpoints, t.Endpoints, endpoint.equal) && slices.Equal(s.Dropped, t.Dropped)
}

func (e endpoint) equal(f endpoint) bool {
	return e.Addr == f.Addr && e.Node == f.Node && e.Zone == f.Zone &&
		e.Ready == f.Ready && e.Serving == f.Serving && e.Terminating == f.Terminating && e.Pod == f.Pod &&
		e.Hints.equal(f.Hints)
}

// equal reports whether two Nodes are the same.
func (n *node) equal(o *node) bool {
	return n.Name == o.Name && n.Zone == o.Zone && n.Ready == o.Ready && n.Excluded == o.Excluded && n.Leaving == o.Leaving &&
		slices.Equal(n.InternalIPs, o.InternalIPs) && slices.Equal(n.ExternalIPs, o.ExternalIPs) &&
		slices.Equal(n.PodCIDRs, o.PodCIDRs) && slices.Equal(n.Dropped, o.Dropped)
}
