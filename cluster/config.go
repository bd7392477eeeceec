package cluster

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// DefaultPort is the default of memberlist.
const DefaultPort = 7946

// Config is the configuration of this member.
type Config struct {
	// Fleet is the name that all members share, at most 255 bytes; it is sent in the
	// clear. Packets of other fleets are refused.
	Fleet string
	// Name is the unique name of this member: 1 to 63 of a-z, 0-9, - and ., with a letter
	// or digit first and last. Members with other names are refused.
	Name string
	// Bind is the address to listen on, TCP and UDP. Advertise is the address that other
	// members use; the zero AddrPort: Bind, or, if that is unspecified, the own address
	// towards the first host of Join that can be looked up.
	Bind, Advertise netip.AddrPort
	// Join are names or addresses of members, with or without a port. They are tried for
	// as long as they are not in the fleet. The box itself may be one of them.
	Join []string
	// Keys sign and encrypt all packets: the first one those that are sent, all of them
	// those that are received.
	Keys []Key
	// Open allows a fleet without keys.
	Open bool
	// Timing selects how fast a dead member is found.
	Timing Timing
	// AllowedCIDRs are the networks of members; empty: all.
	AllowedCIDRs []netip.Prefix
}

// Key is an AES key of 16, 24 or 32 bytes. It is printed as asterisks.
type Key struct{ secret string }

// ParseKey parses a key in base64, as in a file: `openssl rand -base64 32`.
func ParseKey(text string) (Key, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return Key{}, errors.New("not base64: make a key with `openssl rand -base64 32`")
	}
	if err := memberlist.ValidateKey(raw); err != nil {
		return Key{}, fmt.Errorf("%d bytes instead of 16, 24 or 32: make a key with `openssl rand -base64 32`", len(raw))
	}
	return Key{string(raw)}, nil
}

// String returns asterisks.
func (k Key) String() string { return "***" }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// LogValue is String, for slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText is String, for JSON and the like.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Timing selects how fast a dead member is found, and how much loss is tolerated.
type Timing uint8

// The timings, with the measured times in which a member of two to five that has lost
// power is Suspect, and Dead.
const (
	// LAN: 0.8 to 1.8 s, and 3 to 5 s.
	LAN Timing = iota
	// Local, for boxes side by side on a quiet network: 0.4 to 1.2 s, and 1.3 to 2 s.
	Local
	// WAN: 10 s, and half a minute.
	WAN
)

func (t Timing) String() string { return [...]string{"lan", "local", "wan"}[t] }

// memberlist returns the library's configuration for a timing. A message is sent to each
// of a few members often enough to pass a network that loses every third one, before a
// member is considered dead: the library's defaults are for hundreds of members. The rest
// is repaired when two members compare their tables.
func (t Timing) memberlist() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	if t == WAN {
		c = memberlist.DefaultWANConfig()
	}
	c.RetransmitMult, c.SuspicionMult, c.SuspicionMaxTimeoutMult = 16, 4, 2
	c.PushPullInterval = 10 * time.Second
	switch t {
	case WAN:
		c.TCPTimeout = 10 * time.Second
		return c
	case Local:
		c.ProbeInterval, c.ProbeTimeout = 250*time.Millisecond, 150*time.Millisecond
		c.GossipInterval = 50 * time.Millisecond
	case LAN:
		c.ProbeInterval, c.ProbeTimeout = 500*time.Millisecond, 300*time.Millisecond
		c.GossipInterval, c.SuspicionMult = 100*time.Millisecond, 5
	}
	c.TCPTimeout = 5 * time.Second
	return c
}

// leaveTime returns the time to send leaveCopies to each of a few members.
func (t Timing) leaveTime() time.Duration { return leaveCopies * t.memberlist().GossipInterval }

// leaveCopies is how often a leave is sent.
const leaveCopies = 3

// check returns an error if the Config is invalid.
func (c Config) check() error {
	switch {
	case c.Name == "" || c.Fleet == "":
		return errors.New("the fleet and this member need names")
	case !nameForm.MatchString(c.Name):
		return fmt.Errorf("%.64q is not a valid member name: use 1 to 63 of a-z, 0-9, - and ., with a letter or digit first and last", c.Name)
	case len(c.Fleet) > memberlist.LabelMaxSize:
		return fmt.Errorf("the fleet's name has %d bytes, more than %d", len(c.Fleet), memberlist.LabelMaxSize)
	case !c.Bind.IsValid():
		return errors.New("no address to listen on")
	case len(c.Keys) == 0 && !c.Open:
		return errors.New("no key: any host could become a member by a datagram")
	}
	return nil
}

// same reports whether a running member can take over d without joining again.
func (c Config) same(d Config) bool {
	return c.Fleet == d.Fleet && c.Name == d.Name && c.Bind == d.Bind && c.Advertise == d.Advertise &&
		c.Timing == d.Timing && (len(c.Keys) == 0) == (len(d.Keys) == 0) && slices.Equal(c.AllowedCIDRs, d.AllowedCIDRs)
}

// found reports whether members find d under the name and the address of c.
func (c Config) found(d Config) bool {
	if c.Fleet != d.Fleet || c.Name != d.Name || c.Advertise != d.Advertise {
		return false
	}
	return c.Advertise.IsValid() || c.Bind == d.Bind && (!c.Bind.Addr().IsUnspecified() || slices.Equal(c.Join, d.Join))
}

// nameForm is that of a member's name, which is shown to people and programs unchanged.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
