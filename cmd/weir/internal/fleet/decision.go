package fleet

import (
	"log/slog"
	"net/netip"
	"time"

	"weir/bgp/advertise"
	"weir/cluster"
	"weir/cluster/l2"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

// Inputs are the facts of one moment.
type Inputs struct {
	Now   time.Time
	Box   Box
	Links Links
	// Routes are the VIPs that have changed in the kernel since the last Update.
	Routes []lb.Route
	// Members and L2 are the state of the gossip and of the ARP claims; nil: unchanged.
	Members *cluster.Status
	L2      *l2.Status
	// Orders are digests of the order of backends of each frontend with scheduler mh.
	Orders map[lb.Frontend]uint64
}

// Drain is what an operator drains on this box: all of it, or some VIPs.
type Drain struct {
	All  bool
	VIPs map[netip.Addr]time.Time
	// Stages are the stages of these drains. Version changes when one of them does.
	Stages  advertise.Drains
	Version uint64
}

// withdrawn reports whether a VIP has been withdrawn from this box.
func (d Drain) withdrawn(a netip.Addr) bool { return d.Stages.Of(a) == advertise.Drained }

// Decision is what this box does from now on.
type Decision struct {
	// Roles are the new roles of VIPs for routers. Late ones are of VIPs that no backend
	// here serves: routers learn them after the withdrawal, so that the VIP waits for
	// reannounce_delay when it returns.
	Roles, Late map[netip.Addr]advertise.Role
	// Claims are the changes of the addresses to answer ARP and NDP for; nil releases one.
	Claims map[netip.Addr]*l2.Claim
	// GratuitousARP repeats the announcement of all claims to the neighbors.
	GratuitousARP bool
	// Peers are the other members by MAC; nil: unchanged.
	Peers map[l2.MAC]l2.Member
	// JoinFleet starts the gossip.
	JoinFleet bool
	// Publish is the new message to the other members; nil: none.
	Publish *Publication
	// Stable and Owned are the trace for the next run; without [fleet] there is none.
	Stable bool
	Owned  []netip.Addr
	// Took are the times from the ownership of an address until ARP was answered for it.
	Took   []time.Duration
	Events []Event
}

// Publication is a message to the other members, with the state that goes with it.
type Publication struct {
	State   cluster.State
	Message message.Message
}

// Event is a line of the log.
type Event struct {
	Level   slog.Level
	Message string
	Args    []any
}

func info(message string, args ...any) Event    { return Event{slog.LevelInfo, message, args} }
func warning(message string, args ...any) Event { return Event{slog.LevelWarn, message, args} }
