package lb

import "net/netip"

// Fate is what happens to a client's new connection.
type Fate string

// The fates.
const (
	Unrouted Fate = "unrouted" // the address is not on this box
	Dropped  Fate = "dropped"  // no answer
	Refused  Fate = "refused"  // an error at once
	HostPort Fate = "host"     // a daemon of the box that listens on all addresses gets it
	Served   Fate = "served"   // one of Backends gets it
	// Foreign is only known to Explain: a virtual server gets it that weir did not
	// make.
	Foreign Fate = "foreign"
)

// Outcome is what a client that connects to a frontend meets.
type Outcome struct {
	Fate     Fate
	Backends []netip.AddrPort // sorted
	// Masqueraded tells that the backend sees the box's address.
	Masqueraded bool
	// Loops tells that the others of Backends see the client's address, but that the
	// client is one of them too, and sees the box's if it gets itself.
	Loops bool
}
