package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"
)

// Member is one box of the fleet, this one included, as this one sees it.
type Member struct {
	Name string
	Addr netip.AddrPort
	Life Life
	// Since is when Life became so.
	Since time.Time
	// State is what it last said of itself; Unread tells why that can't be read (it
	// is a newer weir's, perhaps), and then State is empty.
	State  State
	Unread string
	// Word is the last Word of it that came, nil if none has; it must not be changed.
	// Old tells that it is not State.Word's: the new one is being asked for, or the
	// member has begun anew and has not said one yet. It stays when the member dies.
	Word []byte
	Has  Digest // of Word
	Old  bool
	Self bool
	// Suspect is a member that is Alive, as far as others have told, but has not
	// answered this box for longer than it should take. Any answer ends it.
	Suspect bool
	// Away is a member that is Suspect or Dead because its weir is not there, although
	// its box is: the kernel of that box refuses connections to the member's port. What
	// it forwards it forwards on. AwaySince is since when it has not answered. It ends
	// when the member is heard again, or when its box does not answer any more, or after
	// a minute.
	Away      bool
	AwaySince time.Time

	asked    time.Time // for the Word
	askedFor Digest    // the Word
	// What watch knows: pings without an answer and when the first of them was, when
	// it looked last, and whether it is looking now.
	misses         int
	missed, looked time.Time
	looking        bool
}

// Life is whether a member is there.
type Life uint8

// The lives.
const (
	// Alive answers, or has not been silent for long enough.
	Alive Life = iota
	// Dead has answered nobody, and has not objected in time.
	Dead
	// Left has said good-bye.
	Left
)

func (l Life) String() string { return [...]string{"alive", "dead", "left"}[l] }

// MarshalText is String, for JSON and the like.
func (l Life) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// State is what a member says of itself. It is comparable.
type State struct {
	// Version is weir's.
	Version string `json:"v,omitempty"`
	// Unfit says why the member should serve nobody; empty: it is fit. Only its first
	// 160 bytes are told.
	Unfit string `json:"u,omitempty"`
	// FitSince is when it last became fit, in Unix seconds; 0 while it is not.
	FitSince int64 `json:"s,omitempty"`
	// Settled says that it has been fit for long enough to be counted with fully.
	Settled bool `json:"t,omitempty"`
	// Drain is how far the member has been taken out.
	Drain Drain `json:"d,omitempty"`
	// Weight is its share of what is spread over the fleet, 1 to 1000.
	Weight uint16 `json:"w,omitempty"`
	// Digest is of what it wants the kernel to be: members with the same
	// configuration and the same clusters have the same one.
	Digest Digest `json:"h,omitempty"`
	// Word is the digest of its Word; Say fills it in.
	Word Digest `json:"b,omitempty"`
	// Leaving says good-bye; Leave fills it in.
	Leaving bool `json:"l,omitempty"`
}

// Drain is how far a member, or a VIP, has been taken out.
type Drain uint8

// The drains.
const (
	Serving Drain = iota
	// Draining takes nothing new, and its connections end.
	Draining
	// Drained has none left.
	Drained
)

func (d Drain) String() string {
	if int(d) < len(drains) {
		return drains[d]
	}
	return fmt.Sprintf("drain %d", uint8(d))
}

var drains = [...]string{"serving", "draining", "drained"}

// Digest is the beginning of a SHA-256 sum, in hexadecimal; empty is that of
// nothing.
type Digest string

const digestBytes = 8

// DigestOf gives the digest of some bytes.
func DigestOf(b []byte) Digest {
	if len(b) == 0 {
		return ""
	}
	sum := sha256.Sum256(b)
	return Digest(hex.EncodeToString(sum[:digestBytes]))
}

// valid tells whether a digest can be one.
func (d Digest) valid() bool {
	raw, err := hex.DecodeString(string(d))
	return err == nil && (len(raw) == 0 || len(raw) == digestBytes)
}

const (
	maxVersion = 64
	maxUnfit   = 160
)

// encode gives a State as it is gossiped, in at most memberlist.MetaMaxSize bytes.
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

// shorten cuts a text to so many bytes, at a character, and shows that it did.
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

// decodeState reads what a member says. Fields of later versions are passed over.
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
	case !s.Digest.valid() || !s.Word.valid():
		return State{}, fmt.Errorf("a digest that is none: %.32q, %.32q", s.Digest, s.Word)
	case int(s.Drain) >= len(drains):
		return State{}, fmt.Errorf("%s is none that is known", s.Drain)
	case s.Weight > 1000:
		return State{}, fmt.Errorf("weight %d is more than 1000", s.Weight)
	case len(s.Version) > maxVersion || len(s.Unfit) > maxUnfit:
		return State{}, fmt.Errorf("texts of %d and %d bytes, more than %d and %d", len(s.Version), len(s.Unfit), maxVersion, maxUnfit)
	}
	s.Version, s.Unfit = printable(s.Version), printable(s.Unfit)
	return s, nil
}

// printable is a text as it may be written to a terminal: who has a key could have one
// do anything by control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
