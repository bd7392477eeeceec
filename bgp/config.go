package bgp

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"weir/bgp/advertise"
)

// Defaults of a Peer and of a Config.
const (
	DefaultPort            = 179 // of the listener and of the routers
	DefaultHold            = 9 * time.Second
	DefaultKeepalive       = 3 * time.Second
	DefaultConnectRetry    = 5 * time.Second
	DefaultMaxPrefixes     = 2_000_000 // above a full table: 240 bytes each
	DefaultBFDInterval     = 300 * time.Millisecond
	DefaultBFDMultiplier   = 3
	DefaultGracefulRestart = 120 * time.Second
)

// Config is the configuration of a Speaker. The zero value of a duration or a port stands
// for its default, unless its comment states otherwise.
type Config struct {
	// ASN is the box's autonomous system, 1 to 4294967295.
	ASN uint32
	// RouterID is an IPv4 address, usually one of the box; it must be unique among the
	// routers (RFC 6286).
	RouterID netip.Addr
	// ListenPort is the TCP port on which routers may connect. 0: none; weir only connects
	// to routers, and there are no passive peers and no ranges.
	ListenPort int
	// ListenAddrs are the addresses to listen on; empty: all of them.
	ListenAddrs []netip.Addr
	// NextHops are the next hops of routes. The default is the session's own address, or,
	// for routes of the other family, an address of the session's interface.
	NextHops NextHops
	// GracefulRestart is how long the routers keep the routes while weir is down, in whole
	// seconds, 1s to 4095s (RFC 4724 has 12 bits for it). 0: not at all.
	GracefulRestart time.Duration
	// Peers are the routers. Names, addresses and ranges are unique.
	Peers []Peer
}

// NextHops are next hops. The zero Addr: the default.
type NextHops struct {
	IPv4, IPv6 netip.Addr
}

// Peer is a router, or a range of addresses from which routers may connect. It is
// comparable: equal peers have the same session.
type Peer struct {
	// Name is the name in Path.Peers.
	Name string
	// Address is the router's, with a zone if it is link-local. Range is set instead for
	// routers that connect by themselves; weir never connects to them.
	Address netip.Addr
	Range   netip.Prefix
	// ASN is the router's. Equal to the box's: iBGP. In a Range 0 takes every one.
	ASN uint32
	// LocalASN is the box's ASN towards this router; 0: Config.ASN.
	LocalASN uint32
	// Port is the router's port.
	Port int
	// Source is the box's address of the session; the zero Addr: by the routing table.
	Source netip.Addr
	// Multihop is the TTL of packets to an eBGP peer that is more than one hop away, 2 to
	// 255. 0: the router is on the same link. iBGP needs none.
	Multihop int
	// TTLSecurity is the greatest number of hops of the router's packets (RFC 5082), 1 to
	// 254; 1: the same link. 0: packets are not checked. It excludes Multihop, and the
	// router must have it too.
	TTLSecurity int
	// Password signs every segment (TCP MD5, RFC 2385), 80 bytes at most; empty: none. It
	// is the content of the configured file without the newline at its end.
	Password Secret
	// Passive waits for the router to connect.
	Passive bool
	// Hold is the hold time, 3s to 65535s, in whole seconds; the shorter one of both sides
	// counts. Keepalive is at most a third of it. ConnectRetry is the pause between
	// connection attempts.
	Hold, Keepalive, ConnectRetry time.Duration
	BFD                           BFD
	Families                      advertise.Families
	// MaxPrefixes is how many prefixes of a family the router may send. None is used, but
	// GoBGP stores them. With more the session is closed and retried an hour later, but a
	// router of a Range may connect at once: the limit protects the memory, and must not take
	// the box off the network because a router lost its filter.
	MaxPrefixes int
	// NextHops override Config.NextHops.
	NextHops NextHops
}

// BFD detects a dead router within Interval × Multiplier (RFC 5880, single hop: RFC 5881,
// UDP port 3784). The router must have a BFD session with the box too.
type BFD struct {
	Enabled bool
	// Interval is the interval in both directions, 10ms to 60s.
	Interval time.Duration
	// Multiplier is how many packets in a row may be lost, 1 to 255.
	Multiplier int
}

// Secret is a password. It is printed as asterisks.
type Secret string

// String returns asterisks, or nothing without a password.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// Format is String, for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, for JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
