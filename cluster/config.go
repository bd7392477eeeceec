package cluster

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// DefaultPort is what memberlist's users know.
const DefaultPort = 7946

// Config says who this box is and whom it asks.
type Config struct {
	// Fleet is the name that all members share: messages of others are not heard. At
	// most 255 bytes; it is sent in the clear.
	Fleet string
	// Name is this box's own, unlike all others: 1 to 63 of a-z, 0-9, - and ., with a
	// letter or digit first and last. Members with other names are not heard.
	Name string
	// Bind is where the box listens, TCP and UDP. Advertise is what it tells others;
	// the zero AddrPort is Bind, or, if that is unspecified, the box's own address towards
	// the first of Join that can be looked up.
	Bind, Advertise netip.AddrPort
	// Join are names or addresses of members, with or without a port, asked again
	// and again for as long as they are not in the fleet. One that is the box itself
	// does no harm.
	Join []string
	// Keys sign and encrypt everything: the first one what is sent, all of them what
	// is received.
	Keys []Key
	// Open does without keys.
	Open bool
	// Timing is how fast a dead member is noticed.
	Timing Timing
	// Allowed are the networks that members are in; none is all.
	Allowed []netip.Prefix
}

// Key is an AES key of 16, 24 or 32 bytes. Whatever prints it prints asterisks.
type Key struct{ secret string }

// ParseKey reads a key as base64, which is what a file has: `openssl rand -base64 32`.
func ParseKey(text string) (Key, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return Key{}, errors.New("not base64: make a key with `openssl rand -base64 32`")
	}
	if err := memberlist.ValidateKey(raw); err != nil {
		return Key{}, fmt.Errorf("%d bytes, of which there must be 16, 24 or 32: make a key with `openssl rand -base64 32`", len(raw))
	}
	return Key{string(raw)}, nil
}

// String gives asterisks.
func (k Key) String() string { return "***" }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// LogValue is String, for slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText is String, for JSON and the like.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Timing is how fast a dead member is noticed, and how much loss is forgiven.
type Timing uint8

// The timings, with the times, as measured, in which a member of two to five that has
// lost power is Suspect, and Dead.
const (
	// LAN: 0.8 to 1.8 s, and 3 to 5 s.
	LAN Timing = iota
	// Local, for boxes side by side on a quiet network: 0.4 to 1.2 s, and 1.3 to 2 s.
	Local
	// WAN: 10 s, and half a minute.
	WAN
)

func (t Timing) String() string { return [...]string{"lan", "local", "wan"}[t] }

// memberlist gives the library's configuration of a timing. A message is sent to each
// of a few members often enough to get through a network that loses every third one,
// before somebody is taken for dead: the library's figures are for hundreds of members.
// What has been lost all the same is learnt when two members compare all they know.
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

// farewell is how long it takes to tell each of a few members farewells times.
func (t Timing) farewell() time.Duration { return farewells * t.memberlist().GossipInterval }

// farewells is how often something is told that cannot be told for longer.
const farewells = 3

// check tells what is wrong with a Config.
func (c Config) check() error {
	switch {
	case c.Name == "" || c.Fleet == "":
		return errors.New("the fleet and this member need names")
	case !nameForm.MatchString(c.Name):
		return fmt.Errorf("%.64q can't be the name of a member: write 1 to 63 of a-z, 0-9, - and ., with a letter or digit first and last", c.Name)
	case len(c.Fleet) > memberlist.LabelMaxSize:
		return fmt.Errorf("the fleet's name has %d bytes, of which there may be %d", len(c.Fleet), memberlist.LabelMaxSize)
	case !c.Bind.IsValid():
		return errors.New("no address to listen on")
	case len(c.Keys) == 0 && !c.Open:
		return errors.New("no key: whoever can send a datagram would be a member")
	}
	return nil
}

// same tells whether a running member can become d without joining anew.
func (c Config) same(d Config) bool {
	return c.Fleet == d.Fleet && c.Name == d.Name && c.Bind == d.Bind && c.Advertise == d.Advertise &&
		c.Timing == d.Timing && (len(c.Keys) == 0) == (len(d.Keys) == 0) && slices.Equal(c.Allowed, d.Allowed)
}

// found tells whether others find d by the name, and at the address, of c.
func (c Config) found(d Config) bool {
	if c.Fleet != d.Fleet || c.Name != d.Name || c.Advertise != d.Advertise {
		return false
	}
	return c.Advertise.IsValid() || c.Bind == d.Bind && (!c.Bind.Addr().IsUnspecified() || slices.Equal(c.Join, d.Join))
}

// library gives memberlist's configuration.
func (c Config) library(f *Fleet) (*memberlist.Config, error) {
	m := c.Timing.memberlist()
	m.Name, m.Label = c.Name, c.Fleet
	m.BindAddr, m.BindPort = c.Bind.Addr().String(), int(c.Bind.Port())
	advertise, err := c.advertised()
	if err != nil {
		return nil, err
	}
	m.AdvertiseAddr, m.AdvertisePort = advertise.Addr().String(), int(advertise.Port())
	if len(c.Keys) > 0 {
		var keys [][]byte
		for _, k := range c.Keys {
			keys = append(keys, []byte(k.secret))
		}
		ring, err := memberlist.NewKeyring(keys, keys[0])
		if err != nil {
			return nil, err
		}
		m.Keyring = ring
	}
	for _, p := range c.Allowed {
		p = p.Masked()
		m.CIDRsAllowed = append(m.CIDRsAllowed, net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())})
	}
	// One that comes back with another address is believed as soon as it counts as
	// dead.
	m.DeadNodeReclaimTime = time.Second
	m.Logger = f.lines.logger()
	m.Delegate, m.Events, m.Conflict, m.Alive, m.Ping = f, f, f, f, f
	return m, nil
}
