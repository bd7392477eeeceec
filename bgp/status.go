package bgp

import (
	"net/netip"
	"time"
)

// Status is what a Speaker is at, at one moment. It comes from memory of the
// Speaker's own and never waits for GoBGP or a router.
type Status struct {
	ASN      uint32
	RouterID netip.Addr
	Listen   []netip.AddrPort // where routers can connect; none: nowhere
	// Problem is why the speaker does not do its work, for instance that its port is
	// taken; empty when it does.
	Problem string
	Peers   []PeerStatus  // sorted by name, then address
	Routes  []RouteStatus // sorted by prefix, then by the first peer's name
}

// State is that of a session, in the words of RFC 4271, 8.2.2.
type State string

// The states of a session. Established is the one with routes.
const (
	Idle        State = "Idle"
	Connect     State = "Connect"
	Active      State = "Active"
	OpenSent    State = "OpenSent"
	OpenConfirm State = "OpenConfirm"
	Established State = "Established"
)

// PeerStatus is one session. A range has an entry of its own without Address, and
// one more for every router of it that is there.
type PeerStatus struct {
	Name     string
	Address  netip.Addr
	Range    netip.Prefix // of a range, and of the routers in it
	ASN      uint32       // the router's; of a range that takes every one, 0
	LocalASN uint32
	Local    netip.AddrPort // this end of the session; the zero value: there is none
	State    State
	Since    time.Time // when State came to be Established, or stopped being so
	// Down is why the session is not there, or was not the last time: what was sent,
	// what was received or what failed. DownAt is when it was.
	Down   string
	DownAt time.Time
	// Sent and Received are the last NOTIFICATION in each direction, in words, for
	// instance "bad peer AS"; empty: there was none.
	Sent, Received string
	Families       Families // what both sides speak; while not Established, what weir offers
	Prefixes       int      // the router has sent; none is used
	MaxPrefixes    int
	Advertised     int // prefixes that the router has from weir
	Messages       Messages
	Flaps          int // times that an Established session was lost
	Hold           time.Duration
	Keepalive      time.Duration // both as negotiated; while not Established, as configured
	BFD            BFDStatus
	Restart        RestartStatus
	Authentication string // "md5", "gtsm", "md5+gtsm" or "none"
}

// Messages are counts since the peer was configured.
type Messages struct {
	SentUpdates, SentKeepalives, SentNotifications, SentTotal                 uint64
	ReceivedUpdates, ReceivedKeepalives, ReceivedNotifications, ReceivedTotal uint64
}

// BFDStatus is the BFD session beside a BGP session.
type BFDStatus struct {
	Enabled bool
	State   string        // "up", "init", "down" or "admin-down" (RFC 5880, 6.2)
	Detect  time.Duration // within which the router is found dead
}

// RestartStatus is what both sides agreed on about restarts (RFC 4724).
type RestartStatus struct {
	Enabled  bool
	Time     time.Duration // for which the router was asked to keep the routes
	Kept     bool          // the router said that it can
	PeerTime time.Duration // the router's own restart time; weir keeps nothing of it
}

// RouteStatus is one prefix as some of the peers have it.
type RouteStatus struct {
	Prefix netip.Prefix
	Path   Path
	// Peers are who has it now: those of Path.Peers whose session is Established.
	Peers []Advertised
}

// Advertised is a prefix as one router has it.
type Advertised struct {
	Name    string
	Address netip.Addr
	NextHop netip.Addr
	ASPath  []uint32
}
