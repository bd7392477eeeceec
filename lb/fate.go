package lb

import "net/netip"

// Fate is the result of a client's new connection.
type Fate string

// The fates.
const (
	Unrouted Fate = "unrouted" // the address is not on this box
	Dropped  Fate = "dropped"  // no answer
	Refused  Fate = "refused"  // an error at once
	HostPort Fate = "host"     // a daemon of the box that listens on all addresses gets it
	Served   Fate = "served"   // one of Backends gets it
	// Foreign is only known to Explain: a virtual server that weir did not make gets it.
	Foreign Fate = "foreign"
)

// Outcome is the result of a client's connection to a frontend.
type Outcome struct {
	Fate     Fate
	Backends []netip.AddrPort // sorted
	// Direct are those of Backends that get the packet unchanged (Forwarding.Direct). They see the
	// client's address.
	Direct []netip.AddrPort
	// Masqueraded reports that the others see the box's address.
	Masqueraded bool
	// Loops reports that the client is one of these others. If it reaches itself, it sees the box's
	// address; the others see the client's.
	Loops bool
}
