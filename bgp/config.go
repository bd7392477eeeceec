package bgp

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"
)

// What a Peer or a Config that does not say gets.
const (
	DefaultPort            = 179 // of the listener and of the routers
	DefaultHold            = 9 * time.Second
	DefaultKeepalive       = 3 * time.Second
	DefaultConnectRetry    = 5 * time.Second
	DefaultMaxPrefixes     = 10
	DefaultBFDInterval     = 300 * time.Millisecond
	DefaultBFDMultiplier   = 3
	DefaultGracefulRestart = 120 * time.Second
)

// Config is everything a Speaker is told but the routes. The zero value of a
// duration or a port stands for its default, unless its comment says otherwise.
type Config struct {
	// ASN is the box's autonomous system, 1 to 4294967295.
	ASN uint32
	// RouterID is an IPv4 address, by custom one of the box; no two routers that
	// hear of each other may have the same (RFC 6286).
	RouterID netip.Addr
	// ListenPort is the TCP port on which routers may connect. 0: nobody listens,
	// weir connects to the routers alone, and there can be no passive peers and no
	// ranges.
	ListenPort int
	// ListenAddrs are the addresses of the box that listen; none: all of them.
	ListenAddrs []netip.Addr
	// NextHops are the box's addresses that routes bear as next hop. One that is not
	// given is the session's own address, or, for routes of the family that the
	// session does not run over, an address of the session's interface.
	NextHops NextHops
	// GracefulRestart is how long the routers keep the routes when weir is away, in
	// whole seconds, 1s to 4095s (RFC 4724 has 12 bits for it). 0: they do not.
	GracefulRestart time.Duration
	// Peers are the routers. Names are unique, and so are addresses and ranges.
	Peers []Peer
}

// NextHops are the addresses that routers send packets to. The zero Addr is one
// that is not given.
type NextHops struct {
	IPv4, IPv6 netip.Addr
}

// Peer is one router, or a range of addresses from which routers may connect.
// It is comparable: two that are equal have the same session.
type Peer struct {
	// Name is what the operator calls it; Path.Peers has names.
	Name string
	// Address is the router's, with a zone if it is link-local. Range is given in
	// its stead for routers that connect by themselves; weir never connects to them.
	Address netip.Addr
	Range   netip.Prefix
	// ASN is the router's. Equal to the box's: iBGP. In a Range 0 takes every one.
	ASN uint32
	// LocalASN is what this router takes the box for; 0: Config.ASN.
	LocalASN uint32
	// Port is where the router listens.
	Port int
	// Source is the box's address of the session; the zero Addr: as the routing
	// table has it.
	Source netip.Addr
	// Multihop is the TTL of what weir sends to an eBGP peer that is more than one
	// hop away, 2 to 255. 0: the router is on the same link. iBGP needs none.
	Multihop int
	// TTLSecurity is the greatest number of hops that packets of the router may have
	// come (RFC 5082), 1 to 254; 1: the same link. 0: packets are not checked. Not
	// together with Multihop; the router must have it too.
	TTLSecurity int
	// Password signs every segment (TCP MD5, RFC 2385), 80 bytes at most; empty: none.
	// It is what stands in the file that the configuration names, without the newline
	// at its end; whoever makes the Config has read it.
	Password Secret
	// Passive waits for the router to connect.
	Passive bool
	// Hold is how long a silent router counts as there, 3s to 65535s, in whole
	// seconds; the shorter one of both sides holds. Keepalive is a third of it at
	// most. ConnectRetry is how long to wait before connecting again.
	Hold, Keepalive, ConnectRetry time.Duration
	BFD                           BFD
	Families                      Families
	// MaxPrefixes is how many prefixes of a family the router may send. None of them
	// is used; a router that sends more is mistaken about what weir is, and its
	// session is cut and tried again an hour later.
	MaxPrefixes int
	// NextHops, where given, are used in the stead of Config.NextHops.
	NextHops NextHops
	// Standby is how much worse it is told of VIPs that the box is Standby for. It is
	// the Advertiser's alone: a Speaker does not look at it.
	Standby Handicap
}

// Families are what a session carries. The zero value is both.
type Families struct {
	IPv4, IPv6 bool
}

// BFD finds a router dead within Interval × Multiplier (RFC 5880, single hop: RFC
// 5881, UDP port 3784). The router must have a BFD session with the box too.
type BFD struct {
	Enabled bool
	// Interval is that of both directions, 10ms to 60s.
	Interval time.Duration
	// Multiplier is how many packets in a row may be lost, 1 to 255.
	Multiplier int
}

// Secret is a password. Whatever prints it prints asterisks.
type Secret string

// String gives asterisks, or nothing where there is no password.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// Format is String, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, for JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
