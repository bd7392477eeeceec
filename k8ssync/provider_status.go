package k8ssync

import (
	"net/netip"
	"time"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// ProviderConfig is [addresses], with the pools and reservations of the file,
// already checked.
type ProviderConfig struct {
	// LeaseCluster is the cluster with the claims of all pools.
	LeaseCluster string
	// Namespace is that of the claims in LeaseCluster; weir does not create it.
	Namespace string
	// Class is the loadBalancerClass of the Services that get addresses; with
	// DefaultClass those without a class get them, too.
	Class        string
	DefaultClass bool
	// IPMode is that of every address in status.loadBalancer.ingress.
	IPMode IPMode
	// Identity is unique among the boxes that may write; not empty.
	Identity string
	// IPAM has the pools and reservations. Without pools no address is assigned, and
	// assigned ones stay.
	IPAM ipam.Config
}

// IPMode is how nodes treat packets to an address (KEP-1860).
type IPMode uint8

// The modes.
const (
	// ModeVIP lets the nodes handle packets of the cluster's own clients themselves.
	ModeVIP IPMode = iota
	// ModeProxy makes the nodes send them to the address, and so through weir.
	ModeProxy
)

func (m IPMode) String() string { return [...]string{"vip", "proxy"}[m] }

// ProviderStatus is the state of a Provider.
type ProviderStatus struct {
	LeaseCluster, Namespace, Identity string
	// Writer is the holder of the lease, as far as this box knows; empty is none or
	// unknown. Since is when it took the lease.
	Writer string
	Since  time.Time
	// Writing is that this box is the writer; Error is then the limit that prevents new
	// addresses. Otherwise Error is why it can't be the writer, empty if another box is.
	Writing bool
	Error   string
	// Clusters are those that can't be written to or have not been read, with the
	// reason. Their last-known addresses count as taken.
	Clusters map[string]string
	// IgnoredNodes are, by cluster, the addresses of its Nodes that do not count as taken.
	IgnoredNodes map[string]IgnoredNodes
	// Known reports whether the claims have been read; Usage and Claims are the last known.
	Known  bool
	Usage  ipam.Usage
	Claims []ipam.Claim
	// Decisions are those of all Services that want an address, sorted by Service.
	Decisions []Decision
	Counters  ProviderCounters
}

// IgnoredNodes are addresses of a cluster's Nodes in pools for other clusters. Kubelets write
// them, so only a few are named.
type IgnoredNodes struct {
	Count int
	First []netip.Addr // must not be modified
}

// mostIgnoredNodes is the number of addresses that an IgnoredNodes names.
const mostIgnoredNodes = 3

// Decision is what is decided for a Service. On a box that does not write, it follows
// from the Service's status.
type Decision struct {
	Service lb.ServiceID
	// Addrs are its addresses, IPv4 first.
	Addrs []netip.Addr
	// Pending is why it has none, or not all that it requests; Notes are about the
	// addresses that it has.
	Pending ipam.Pending
	Notes   []ipam.Note
	// Written reports whether the Service's status has all this; Error is why it can't be
	// written.
	Written bool
	Error   string
}

// ProviderCounters count since the start of the process.
type ProviderCounters struct {
	// Assigned and Released count addresses that this box has assigned and released.
	Assigned, Released uint64
	// Conflicts counts claims that another writer had changed first.
	Conflicts uint64
	// StatusWrites counts statuses written, Errors requests that failed.
	StatusWrites, Errors uint64
	// Transitions counts how often this box became the writer or ceased to be.
	Transitions uint64
}

// overview is the part of Status that is not about one Service, and may change without
// update, such as by time.
type overview struct {
	writer         string
	since          int64
	writing, known bool
	obstacle       string
	problems       string
}
