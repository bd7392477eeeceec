package l2

import (
	"fmt"
	"net/netip"
	"time"
)

// Config is the part of the configuration that all claims share.
type Config struct {
	// Interfaces are the names of Ethernet interfaces, including VLANs, bonds and bridges.
	// They carry every Claim that names no interface itself. An interface that does not
	// exist yet is waited for.
	Interfaces []string
	// GARPInterval is the interval at which answered addresses are announced, once the burst
	// after a takeover is over; 0: never. A minute is usual: it repairs stale entries of
	// switches and neighbours.
	GARPInterval time.Duration
}

// Claim makes this box answer for a VIP.
type Claim struct {
	// Interfaces are the names of the interfaces; nil: those of the Config. They need not
	// be in the Config.
	Interfaces []string
	// Cautious extends the probes from 300 to 600 ms, for when the present owner may still
	// be alive. A VIP that is Answered stays Answered.
	Cautious bool
	// Orphaned is set if the last owner is known to be dead: then a host that only answers
	// for the VIP, such as a router with proxy ARP, does not keep it (see Conflicts).
	Orphaned bool
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

// Member is another member of the fleet, known by one of its MAC addresses.
type Member struct {
	Name string
	// Gone is set if the member is known to be dead: then answers with its MAC address are
	// those of a switch, unless it shows that it lives (see Conflicts).
	Gone bool
	// Preferred reports whether that member keeps a VIP that both hold, for instance
	// after a partition has healed. It must be the rule by which the fleet chooses owners,
	// and the two members must answer it the opposite way: then exactly one of them gives
	// the VIP up. It is called under a lock and must be fast. Nil: the other member is
	// never preferred.
	Preferred func(vip netip.Addr) bool
}

// State is the state of a claim on an interface.
type State uint8

// The states.
const (
	// Idle: the interface is missing or has no carrier.
	Idle State = iota
	// Probing: probes are sent to find out whether another host answers.
	Probing
	// Contested: another host answers; it is probed until it stops.
	Contested
	// Answered: this box answers.
	Answered
)

func (s State) String() string { return [...]string{"idle", "probing", "contested", "answered"}[s] }

// MarshalText is String, for JSON and the like.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is the state of an Answerer. Everything in it is a copy.
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
	// Other is the MAC address of the last other host that answered for the address,
	// within the last minute or since the VIP is Contested; zero: there was none. Member
	// is its name if it is in the fleet; otherwise one of the two hosts is misconfigured.
	// OtherSeen is the time.
	Other     MAC
	Member    string
	OtherSeen time.Time
	// Overruled is set if the VIP is Answered although Other answered for it.
	Overruled bool
	// Requested is when another member last probed for the VIP that is Answered here, to a
	// second, and Requester its name. The zero time: none has since it is Answered.
	Requested time.Time
	Requester string
}

// Duplicate reports whether a host outside the fleet answers for the address.
func (v VIP) Duplicate() bool { return v.Other != (MAC{}) && v.Member == "" }

// Interface is an interface that the Config or a claim names.
type Interface struct {
	Name    string
	Index   int // index in the kernel; 0 if no interface has that name
	MAC     MAC
	Carrier bool // up and connected
	// Error is the reason why some or all claims cannot be served here although there is a
	// carrier, or why the interface is missing.
	Error string
	Counters
}

// Counters are those of an interface, since it was first named.
type Counters struct {
	Answered   uint64 // requests and solicitations answered
	Gratuitous uint64 // gratuitous ARP and unsolicited neighbour advertisements sent
	Probes     uint64 // probes sent
	// Frames of another member, or of a foreign host, that used an address which this box
	// answered or probed; at most one a second for each VIP.
	MemberConflicts, ForeignConflicts uint64
	Takeovers                         uint64 // transitions to Answered
	Overruled                         uint64 // of these, those although another host answered
	ReceiveDrops                      uint64 // frames that arrived faster than they were read, or made weir panic
	SendDrops                         uint64 // frames that the interface did not accept
}
