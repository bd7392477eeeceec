package bfd

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"weir/cmd/weirlab/fuzzing"
)

// sample is a packet with all fields: a poll of a session that is up.
func sample() Packet {
	return Packet{Diagnostic: NeighborDown, State: Up, Poll: true, Multiplier: 5, Mine: 0x01020304, Yours: 0x05060708,
		DesiredMinTx: 300 * time.Millisecond, RequiredMinRx: 50 * time.Millisecond}
}

func TestPacket(t *testing.T) {
	t.Parallel()
	want := []byte{0x23, 0xe0, 5, 24, 1, 2, 3, 4, 5, 6, 7, 8, 0, 4, 0x93, 0xe0, 0, 0, 0xc3, 0x50, 0, 0, 0, 0}
	b := sample().Marshal()
	if !bytes.Equal(b, want) {
		t.Errorf("got  %x\nwant %x", b, want)
	}
	if p, err := Parse(b); err != nil || p != sample() {
		t.Errorf("got %+v, %v", p, err)
	}
}

// TestDiscardedPackets has the rules of RFC 5880, 6.8.6.
func TestDiscardedPackets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		want   error
	}{
		{"short", func(b []byte) []byte { return b[:23] }, errShort},
		{"version 2", func(b []byte) []byte { b[0] = 2 << 5; return b }, errVersion},
		{"length below the minimum", func(b []byte) []byte { b[3] = 23; return b }, errLength},
		{"length beyond the datagram", func(b []byte) []byte { b[3] = 25; return b }, errLength},
		{"multiplier 0", func(b []byte) []byte { b[2] = 0; return b }, errMultiplier},
		{"multipoint", func(b []byte) []byte { b[1] |= flagMultipoint; return b }, errMultipoint},
		{"no discriminator", func(b []byte) []byte { clear(b[4:8]); return b }, errMine},
		{"up without the other discriminator", func(b []byte) []byte { clear(b[8:12]); return b }, errYours},
		{"authentication", func(b []byte) []byte { b[1] |= flagAuth; return b }, errAuth},
		{"bytes behind the packet", func(b []byte) []byte { return append(b, 0) }, nil},
	} {
		if _, err := Parse(c.change(sample().Marshal())); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// FuzzParse feeds packets to a session, which has a peer at all times.
func FuzzParse(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(sample().Marshal())
	f.Add(Packet{State: Down, Multiplier: 1, Mine: 1, RequiredMinRx: maxInterval, DesiredMinTx: maxInterval}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			return
		}
		if back, err := Parse(p.Marshal()); err != nil || back != p {
			t.Fatalf("%+v became %+v, %v", p, back, err)
		}
		m := newMachine(config())
		p.Yours = m.mine
		m.receive(p, start)
		if w := m.wait(0); w <= 0 || m.detection() < 0 || m.expires.Before(start) {
			t.Fatalf("%+v: packets every %s, detection time %s", p, w, m.detection())
		}
		m.expire(m.expires)
		if m.state == Up {
			t.Fatalf("%+v: up after the detection time", p)
		}
	})
}
