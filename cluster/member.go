package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"
)

// Member is a box of the fleet, this one included, as this box sees it.
type Member struct {
	Name string
	Addr netip.AddrPort
	Life Life
	// Since is when Life changed.
	Since time.Time
	// State is the last state that it published. Unreadable is the reason why that cannot
	// be read, for instance that it is of a newer weir; then State is empty.
	State      State
	Unreadable string
	// Message is the last message that was received, empty if there was none; it must not
	// be changed. Stale: it is not the one of State.Message, since the new one has been
	// requested, or the member has restarted and published none yet. It stays when the
	// member dies.
	Message       Message
	MessageDigest Digest // of Message
	Stale         bool
	Self          bool
	// Suspect is a member that is Alive, according to the others, but has not answered
	// this box for too long. Any answer ends it.
	Suspect bool
	// ProcessDown is a member that is Suspect or Dead while its box is up: the kernel of
	// that box refuses connections to the member's port, and still forwards.
	// ProcessDownSince is the first ping without an answer. It ends when the member
	// answers, when its box no longer answers, or after MaxRestartGrace.
	ProcessDown      bool
	ProcessDownSince time.Time
}

// Life is whether a member is alive.
type Life uint8

// The lives.
const (
	// Alive: it answers, or has not been silent for long enough.
	Alive Life = iota
	// Dead: it has answered no member, and has not objected in time.
	Dead
	// Left: it has announced its leave.
	Left
)

func (l Life) String() string { return [...]string{"alive", "dead", "left"}[l] }

// MarshalText is String, for JSON and the like.
func (l Life) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// State is the published state of a member. It is comparable.
type State struct {
	// Stamp orders the states of the member; Publish sets it.
	Stamp
	// Version is weir's.
	Version string `json:"v,omitempty"`
	// Unfit is the reason why the member should not serve; empty: it is fit. Its first 160
	// bytes are published.
	Unfit string `json:"u,omitempty"`
	// FitSince is when it last became fit, in Unix seconds; 0 while it is not.
	FitSince int64 `json:"s,omitempty"`
	// Stable: it has been fit for long enough to own VIPs.
	Stable bool `json:"t,omitempty"`
	// Drain is the progress of its drain.
	Drain Drain `json:"d,omitempty"`
	// Weight is its weight in the distribution of VIPs, 1 to 1000.
	Weight uint16 `json:"w,omitempty"`
	// Digest is that of its intended kernel state: members with the same configuration and
	// the same clusters have the same one.
	Digest Digest `json:"h,omitempty"`
	// Message is the digest of its message; Publish sets it.
	Message Digest `json:"b,omitempty"`
	// Leaving: it leaves; Leave sets it.
	Leaving bool `json:"l,omitempty"`
}

// Drain is the progress of the drain of a member, or of a VIP.
type Drain uint8

// The drains.
const (
	Serving Drain = iota
	// Draining: no new connections, and the present ones end.
	Draining
	// Drained: no connections are left.
	Drained
)

func (d Drain) String() string {
	if int(d) < len(drains) {
		return drains[d]
	}
	return fmt.Sprintf("drain %d", uint8(d))
}

var drains = [...]string{"serving", "draining", "drained"}

const (
	maxVersion  = 64
	maxUnfit    = 160
	maxFitSince = 253402300799 // the end of 9999
)

// encode returns the gossiped form, of at most memberlist.MetaMaxSize bytes.
func (s State) encode() ([]byte, error) {
	s.Version, s.Unfit = shorten(s.Version, maxVersion), shorten(s.Unfit, maxUnfit)
	out, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	for len(out) > memberlist.MetaMaxSize { // control characters take six bytes each
		s.Unfit, s.Version = shorten(s.Unfit, len(s.Unfit)/2), shorten(s.Version, len(s.Version)/2)
		if out, err = json.Marshal(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// shorten cuts a text to a number of bytes, at a character, and marks the cut.
func shorten(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= most {
		return s
	}
	end := "..."
	if most < len(end) {
		end = ""
	}
	s = s[:most-len(end)]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + end
}

// decodeState parses the state of a member. Fields of later versions are ignored.
func decodeState(b []byte) (State, error) {
	var s State
	if len(b) == 0 {
		return s, nil
	}
	if len(b) > memberlist.MetaMaxSize {
		return s, fmt.Errorf("%d bytes, more than %d", len(b), memberlist.MetaMaxSize)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, err
	}
	switch {
	case !s.Digest.valid() || !s.Message.valid():
		return State{}, fmt.Errorf("invalid digest: %.32q, %.32q", s.Digest, s.Message)
	case int(s.Drain) >= len(drains):
		return State{}, fmt.Errorf("unknown %s", s.Drain)
	case s.Weight > 1000:
		return State{}, fmt.Errorf("weight %d is more than 1000", s.Weight)
	case s.FitSince < 0 || s.FitSince > maxFitSince: // JSON has no other years
		return State{}, fmt.Errorf("invalid time %d", s.FitSince)
	case s.Epoch > maxEpoch:
		return State{}, fmt.Errorf("epoch %d is more than %d", s.Epoch, uint64(maxEpoch))
	case len(s.Version) > maxVersion || len(s.Unfit) > maxUnfit:
		return State{}, fmt.Errorf("texts of %d and %d bytes, more than %d and %d", len(s.Version), len(s.Unfit), maxVersion, maxUnfit)
	}
	s.Version, s.Unfit = printable(s.Version), printable(s.Unfit)
	return s, nil
}

// printable returns a text that is safe for a terminal: a host with a key could send
// control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
