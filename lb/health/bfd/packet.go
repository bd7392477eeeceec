package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// State is the state of a session.
type State uint8

// The states (RFC 5880, 4.1).
const (
	AdminDown State = iota
	Down
	Init
	Up
)

func (s State) String() string {
	return [...]string{"AdminDown", "Down", "Init", "Up"}[s&3]
}

// Diagnostic is the reason of the last change of a session's state.
type Diagnostic uint8

// The diagnostics that weir sends (RFC 5880, 4.1).
const (
	NoDiagnostic   Diagnostic = 0
	Expired        Diagnostic = 1
	NeighborDown   Diagnostic = 3
	Administrative Diagnostic = 7
)

func (d Diagnostic) String() string {
	if names := [...]string{"no diagnostic", "control detection time expired", "echo function failed",
		"neighbor signaled session down", "forwarding plane reset", "path down", "concatenated path down",
		"administratively down", "reverse concatenated path down"}; int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("diagnostic %d", d)
}

// Packet is a BFD Control packet (RFC 5880, 4.1). It has no authentication.
type Packet struct {
	Diagnostic          Diagnostic
	State               State
	Poll, Final, Demand bool
	Multiplier          uint8
	// Mine is the discriminator of the sender, Yours that of the receiver, 0 if unknown.
	Mine, Yours uint32
	// The required interval of echo packets is always 0: there are none.
	DesiredMinTx, RequiredMinRx time.Duration
}

const (
	version    = 1
	packetSize = 24
)

// The flags of the second byte.
const (
	flagPoll       = 1 << 5
	flagFinal      = 1 << 4
	flagAuth       = 1 << 2
	flagDemand     = 1 << 1
	flagMultipoint = 1 << 0
)

// maxInterval is the longest interval of a packet, 2^32-1 microseconds.
const maxInterval = (1<<32 - 1) * time.Microsecond

// Marshal returns the bytes of p.
func (p Packet) Marshal() []byte {
	b := make([]byte, packetSize)
	b[0] = version<<5 | byte(p.Diagnostic)&0x1f
	b[1] = byte(p.State) << 6
	if p.Poll {
		b[1] |= flagPoll
	}
	if p.Final {
		b[1] |= flagFinal
	}
	if p.Demand {
		b[1] |= flagDemand
	}
	b[2], b[3] = p.Multiplier, packetSize
	binary.BigEndian.PutUint32(b[4:], p.Mine)
	binary.BigEndian.PutUint32(b[8:], p.Yours)
	binary.BigEndian.PutUint32(b[12:], microseconds(p.DesiredMinTx))
	binary.BigEndian.PutUint32(b[16:], microseconds(p.RequiredMinRx))
	return b
}

func microseconds(d time.Duration) uint32 { return uint32(min(d, maxInterval) / time.Microsecond) }

// The reasons to discard a packet, in the order of RFC 5880, 6.8.6.
var (
	errShort      = errors.New("packet too short")
	errVersion    = errors.New("not BFD version 1")
	errLength     = errors.New("wrong length")
	errMultiplier = errors.New("detection multiplier 0")
	errMultipoint = errors.New("multipoint")
	errMine       = errors.New("no discriminator")
	errYours      = errors.New("no discriminator of the receiver")
	errAuth       = errors.New("authentication is not configured")
)

// Parse returns the packet in b, if it may be accepted by any session.
func Parse(b []byte) (Packet, error) {
	if len(b) < packetSize {
		return Packet{}, errShort
	}
	p := Packet{
		Diagnostic:    Diagnostic(b[0] & 0x1f),
		State:         State(b[1] >> 6),
		Poll:          b[1]&flagPoll != 0,
		Final:         b[1]&flagFinal != 0,
		Demand:        b[1]&flagDemand != 0,
		Multiplier:    b[2],
		Mine:          binary.BigEndian.Uint32(b[4:]),
		Yours:         binary.BigEndian.Uint32(b[8:]),
		DesiredMinTx:  time.Duration(binary.BigEndian.Uint32(b[12:])) * time.Microsecond,
		RequiredMinRx: time.Duration(binary.BigEndian.Uint32(b[16:])) * time.Microsecond,
	}
	switch {
	case b[0]>>5 != version:
		return Packet{}, errVersion
	case b[3] < packetSize || int(b[3]) > len(b):
		return Packet{}, errLength
	case p.Multiplier == 0:
		return Packet{}, errMultiplier
	case b[1]&flagMultipoint != 0:
		return Packet{}, errMultipoint
	case p.Mine == 0:
		return Packet{}, errMine
	case p.Yours == 0 && p.State != Down && p.State != AdminDown:
		return Packet{}, errYours
	case b[1]&flagAuth != 0:
		return Packet{}, errAuth
	}
	return p, nil
}
