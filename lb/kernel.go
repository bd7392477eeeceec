package lb

import (
	"context"
	"net/netip"
)

// Kernel is the seam between deciding and doing. lb/linux implements it for a
// real kernel, Fake in memory.
//
// Present on add and absent on delete are success. A failed call changes no
// more than it says it did.
type Kernel interface {
	// Observe reads what the kernel holds: everything that could be weir's, and
	// foreign virtual servers too. With frontends given, it reads only those
	// virtual servers and their real servers. The objects are those of Expecting
	// expected, so that what is there as expected takes no memory; nil expects nothing. It
	// reads no connection, of which there may be millions.
	//
	// Without frontends it may be called beside all other methods, which do not wait for it.
	// What changes meanwhile is read as before, as after, or, of virtual servers, not at all.
	Observe(ctx context.Context, expected *Table, only ...Frontend) (Observation, error)
	// Apply carries out ops in their order and gives one error per op, nil where
	// it holds now. Ops of one call are independent of each other: the caller
	// calls again for what needs the first to hold.
	Apply(ctx context.Context, ops []Op) []error
	// Watch blocks, and calls notify for changes that others made, until ctx
	// ends. It sees what the kernel announces (links, addresses, routes, rules);
	// the rest is for Observe to find.
	Watch(ctx context.Context, notify func(Event)) error
}

// Observation is what Observe has read.
type Observation struct {
	// Objects are of weir's kinds, whoever made them.
	Objects Table
	// HostAddrs are the addresses of the box's other interfaces.
	HostAddrs map[netip.Addr]string
}

// Conns are the connections of a real server: established ones and all others
// that the kernel still knows (being set up or torn down).
type Conns struct {
	Active, Inactive uint32
}

// Event is something that others did to the kernel.
type Event struct {
	// Lost are IDs of objects that are gone or altered.
	Lost []Object
	// Host tells that the addresses of other interfaces changed.
	Host bool
	// What says it in words, for the log.
	What string
}

// Snapshot is a set of objects by ID.
type Snapshot map[Object]Object

// NewSnapshot makes a Snapshot of objects; of two with one ID the last counts.
func NewSnapshot(objects ...Object) Snapshot {
	s := make(Snapshot, len(objects))
	for _, o := range objects {
		s[o.ID()] = o
	}
	return s
}
