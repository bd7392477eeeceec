package lb

import (
	"context"
	"errors"
	"net/netip"
)

// ErrEarlier is wrapped by the error of a Change of Rules after which the kernel still has the
// rules of the earlier configuration.
var ErrEarlier = errors.New("the rules of the earlier configuration stay in force")

// Kernel separates decisions from actions. lb/linux implements it for a real kernel, and Fake
// in memory.
//
// An addition of a present object and a deletion of an absent one succeed. A failed call
// changes only the objects that it reports.
type Kernel interface {
	// Observe reads the kernel: everything that could be weir's, and foreign virtual servers
	// too. With frontends, it reads only those virtual servers and their real servers. The
	// objects are those of Expecting expected, so expected ones take no memory; nil expects
	// nothing. It reads no connection, of which there may be millions.
	//
	// Without frontends it may run beside all other methods, which do not wait for it. A change
	// meanwhile is read as before it or after it. A virtual server may be missing. It may keep
	// objects (Observation.Keep) if expected is not nil: then expected has the result of the last
	// Observe, with all later changes of this process.
	Observe(ctx context.Context, expected *Table, only ...Frontend) (Observation, error)
	// Apply applies ops in their order and returns one error for each, nil if it is in effect.
	// The ops of one call must be independent of each other: an op that needs another one
	// belongs in a later call.
	Apply(ctx context.Context, ops []Op) []error
	// Watch blocks, and calls notify for foreign changes, until ctx ends. It sees the
	// announcements of the kernel (links, addresses, routes, rules); Observe finds the rest.
	Watch(ctx context.Context, notify func(Event)) error
}

// Observation is the result of Observe.
type Observation struct {
	// Objects are of weir's kinds, with any owner.
	Objects Table
	// HostAddrs are the addresses of the box's other interfaces.
	HostAddrs map[netip.Addr]string
	kept      Kept
}

// Kept are the objects that an Observation does not read, because only this process has changed
// them since the last one.
type Kept uint8

const (
	KeptNothing Kept = iota
	// KeptRules are sets, their members, and rules.
	KeptRules
	// KeptServers are these with virtual and real servers, where those are rules.
	KeptServers
)

// has reports whether objects of a kind are kept.
func (k Kept) has(of kind) bool {
	switch of {
	case kindSet, kindMember, kindRules:
		return k != KeptNothing
	case kindVirtualServer, kindRealServer:
		return k == KeptServers
	}
	return false
}

// Keep makes an Observation keep objects: it has the expected ones, and nothing of their kinds may
// be Put. It must be called before any Put.
func (o *Observation) Keep(k Kept) {
	o.kept = k
	switch k {
	case KeptRules:
		o.Objects.expect.arriveMembers()
	case KeptServers:
		o.Objects.fronts, o.Objects.expect = o.Objects.expect.fronts, expectation{}
	}
}

// Kept returns the objects that the Observation keeps.
func (o *Observation) Kept() Kept { return o.kept }

// Conns are the connections of a real server: established ones and all others
// that the kernel still knows (being set up or torn down).
type Conns struct {
	Active, Inactive uint32
}

// Event is a foreign change of the kernel.
type Event struct {
	// Lost are IDs of removed or changed objects. A set was removed with its members.
	Lost []Object
	// Host reports that the addresses of other interfaces changed.
	Host bool
	// What describes it for the log.
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
