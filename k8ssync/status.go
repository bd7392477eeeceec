package k8ssync

import (
	"net/netip"
	"time"
)

// Status is the state of a cluster.
type Status struct {
	Name string
	// Connected is that all watches are open, since Since; otherwise Since is when
	// they broke.
	Connected bool
	Since     time.Time
	// Error is why the cluster is not connected, objects are missing, or new
	// credentials can't be used.
	Error string
	// LastContact is the time of the last answer or event of the API server; of a box
	// that serves from its snapshot, the time when that was written. Up to
	// three minutes pass without one if nothing changes.
	LastContact time.Time
	// Stale reports whether the served Services are from the snapshot.
	Stale bool
	// Synced is that all Services have been read, from the API server or the file.
	Synced bool
	// Objects are the numbers of watched objects, by kind: services, endpointslices,
	// nodes.
	Objects map[string]int
	// Endpoints is the number of endpoints.
	Endpoints int
	// KernelObjects is about the number that all Services need, served or not; OverBudget
	// is the number of Services that are not served for that (Config.Budget).
	KernelObjects, OverBudget int
	// Missing are keys of the block that are not set, so that objects are not used: each has
	// the ranges of these objects, as a value to check and to set. It must not be modified.
	Missing map[string][]netip.Prefix
	// Relists counts whole lists.
	Relists uint64
	// NodePodCIDRs are those of the box's own Node, NodeAddrs its primary
	// addresses: the first of each family, internal ones before external ones.
	NodePodCIDRs []netip.Prefix
	NodeAddrs    []netip.Addr
	// NodeLeaving reports whether the box's own Node is being deleted, or is about to be by the
	// cluster autoscaler.
	NodeLeaving bool
	// SnapshotError is why the snapshot can't be read or written.
	SnapshotError string
	// Events counts Events written; EventsError is why they can't be.
	Events      uint64
	EventsError string
}
