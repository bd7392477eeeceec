package l2

import (
	"net/netip"
	"time"
)

// engine is the protocol without effects: claims, conflicts and the schedule of frames.
// The time is an argument; frames to send are collected in out.
type engine struct {
	config  Config
	claims  map[netip.Addr]Claim
	links   map[string]*link
	members map[MAC]Member
	own     map[MAC]bool // of links
	timers  timers

	out     []frame
	foreign []foreignUse

	// statusChanges and linksAdded are generations: they count the changes of Status, and
	// the links that nothing is known about yet.
	statusChanges, linksAdded uint64
}

// frame is a frame to send on a link.
type frame struct {
	link *link
	six  bool
	data []byte
}

// foreignUse is the use of a VIP by a host that is no member, or that was overruled.
type foreignUse struct {
	vip       netip.Addr
	link      string
	mac       MAC
	member    string
	overruled bool
}

// link is an interface that the Config or a claim names.
type link struct {
	name string
	linkState
	bindings map[netip.Addr]*binding
	port     portState
	// bindingChanges counts the bindings that were added or removed, filtered those of
	// which the filters of the sockets know.
	bindingChanges, filtered uint64
	count                    stateCounts // of bindings by state
	pace                     pace
	queue                    frameQueue
	Counters
}

// linkState is the state of an interface. The zero value is an interface that cannot
// be used.
type linkState struct {
	index   int // 0: there is none
	mac     MAC
	carrier bool
	problem string // the reason why the interface is missing or unusable
}

// portState is the state of the sockets of a link.
type portState struct {
	closed  bool // there are no sockets
	problem string
}

// ready reports whether the link can be used.
func (l *link) ready() bool { return l.carrier && !l.port.closed && l.index != 0 && l.mac.single() }

// binding is a claim on one interface.
type binding struct {
	vip      netip.Addr
	link     *link
	cautious bool // of the claim
	orphaned bool // of the claim
	state    State
	since    time.Time

	unanswered     int       // probes without an answer
	burstStep      int       // the next step of burst
	nextGratuitous time.Time // when the next announcement is due

	other     otherUser
	requested time.Time // while Answered: when another member last probed for the VIP
	requester string    // its name

	generation uint // frames that were queued in an earlier generation are void
	due        time.Time
	heapIndex  int // in timers
}

// otherUser is the last other host that used a VIP. The zero MAC is none.
type otherUser struct {
	mac     MAC
	member  string    // its name; empty: it is no member of the fleet
	seen    time.Time // when it last used the VIP
	forget  time.Time // when that is forgotten
	counted time.Time // when a conflict with it was last counted and answered
	// probed is when a frame was last sent that it may answer, and lived when it last used the VIP without that.
	probed, lived time.Time
	overruled     bool // the VIP was taken although it answered
	objected      bool // it used the VIP after that: it is not overruled again
}
