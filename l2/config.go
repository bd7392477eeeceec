package l2

import (
	"fmt"
	"net/netip"
	"time"
)

// Config is what an Answerer is to do about all its claims.
type Config struct {
	// Interfaces are names of Ethernet interfaces (VLANs, bonds and bridges are), on
	// which every Claim is answered for that names none itself. One that does not exist
	// yet is waited for.
	Interfaces []string
	// Refresh is how often an address that is held is announced again once the burst
	// after a takeover is over; 0 is never. A minute is usual: switches and neighbours
	// whose entry has gone stale in silence learn it again.
	Refresh time.Duration
}

// Claim says that this box is to answer for a VIP.
type Claim struct {
	// Interfaces are those to answer on; nil is all of Config. They need not be in
	// Config.
	Interfaces []string
	// Doubtful says that the present owner may still live: it is asked for longer before
	// its silence is believed (600 ms instead of 300). A VIP that is held already stays
	// held.
	Doubtful bool
}

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MarshalText is String, for JSON and the like; nothing for the zero MAC.
func (m MAC) MarshalText() ([]byte, error) {
	if m == (MAC{}) {
		return nil, nil
	}
	return []byte(m.String()), nil
}

// Fellow is another box of the fleet, told by one of its MACs.
type Fellow struct {
	Name string
	// Wins tells whether the fellow keeps a VIP that both boxes hold (after a network that
	// was split is whole again). Both must say the same, that is, the opposite of each
	// other: then exactly one yields. It is called with a lock held and must be fast. Nil
	// is that the fellow never wins.
	Wins func(vip netip.Addr) bool
}

// State is how far a claim is on an interface.
type State uint8

// The states.
const (
	// Idle can't be answered for: the interface is not there, or has no carrier.
	Idle State = iota
	// Probing asks whether anybody else answers.
	Probing
	// Contested waits: somebody else answers, and is asked again until it is silent.
	Contested
	// Held is answered for.
	Held
)

func (s State) String() string { return [...]string{"idle", "probing", "contested", "held"}[s] }

// MarshalText is String, for JSON and the like.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is what an Answerer does at a moment. Everything in it is a copy.
type Status struct {
	Interfaces []Interface // sorted by name
	VIPs       []VIP       // sorted by address, then interface
}

// VIP is one claim on one interface.
type VIP struct {
	Addr      netip.Addr
	Interface string
	State     State
	Since     time.Time // of State
	Doubtful  bool
	// Other is who else answered for the address last, within the last minute or since
	// the VIP has been Contested; zero: nobody. Fellow is its name if it is one of the
	// fleet, else a stranger has the address: one of the two is configured wrong. Heard
	// is when.
	Other  MAC
	Fellow string
	Heard  time.Time
	// Wanted is when a fellow last asked, as one that wants to have it, whether the VIP is
	// free that is Held here; to a second. Zero: none has since it is Held.
	Wanted time.Time
}

// Duplicate tells whether somebody who is not of the fleet answers for the address.
func (v VIP) Duplicate() bool { return v.Other != (MAC{}) && v.Fellow == "" }

// Interface is one that a claim or Config names.
type Interface struct {
	Name    string
	Index   int // of the kernel; 0: there is none of that name
	MAC     MAC
	Carrier bool // up, and the cable is in
	// Error says why nothing, or not everything, can be answered here, though there is
	// a carrier, or why there is no such interface.
	Error string
	Counters
}

// Counters count for each interface, since it was first named.
type Counters struct {
	Answered   uint64 // requests and solicitations answered
	Gratuitous uint64 // unasked ARP and neighbour advertisements sent
	Probes     uint64 // probes sent
	// Times that another box of the fleet, or somebody else, used an address that this
	// one held or was about to; at most once a second for each VIP.
	FellowConflicts, StrangerConflicts uint64
	Takeovers                          uint64 // claims that became Held
	Unheard                            uint64 // frames that came too fast to be read
	Unsent                             uint64 // frames that the interface did not take
}
