package config

import (
	"time"

	fleet "weir/cluster"
	"weir/cluster/owner"
)

// Fleet is the table [cluster]: the boxes that serve the same VIPs, of which this
// is one, and who of them serves what. (Cluster is one of Kubernetes.)
type Fleet struct {
	// Gossip says who this box is and whom it asks. Its Advertise is the zero AddrPort
	// if the box is to find its own address.
	Gossip fleet.Config
	// KeyFiles are the names of the files of Gossip.Keys, in the same order.
	KeyFiles []string
	// Rules are those by which VIPs are shared.
	Rules owner.Rules
	// Weight is this box's share of the VIPs that are spread over the fleet, 1 to 1000.
	Weight uint16
	// TakeBack is for how long without a break a box must have been fit until it takes
	// over what others hold; it is not used where Rules.Stay.
	TakeBack time.Duration
	// RestartGrace is for how long a box whose daemon is gone, while its kernel
	// answers, counts as it was.
	RestartGrace time.Duration
	// Interfaces are those without whose carrier the box is unfit, sorted; those of L2
	// are to be added.
	Interfaces []string
	// Sync is nil without [cluster.sync].
	Sync *FleetSync
}
