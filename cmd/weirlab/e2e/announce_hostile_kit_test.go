package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"weir/cmd/weirlab/lab"
)

// A hostile BGP speaker: it writes bytes of its own making, and reads only so far as
// a session requires.

// The types of messages and some path attributes (RFC 4271, 4.1 and 4.3).
const (
	bgpOpen, bgpUpdate, bgpNotification, bgpKeepalive = 1, 2, 3, 4

	attrOrigin, attrASPath, attrNextHop, attrMED = 1, 2, 3, 4
	attrReach, attrAS4Path, attrPrefixSID        = 14, 17, 40

	wellKnown, optional, transitive, partial = 0x40, 0x80, 0xc0, 0xe0
	extendedLength                           = 0x10
)

// message puts the header before a body; its length is true.
func message(kind byte, body []byte) []byte {
	out := bytes.Repeat([]byte{0xff}, 16)
	out = binary.BigEndian.AppendUint16(out, uint16(19+len(body)))
	return append(append(out, kind), body...)
}

// opening is an OPEN of a speaker that does both families and 4-byte ASNs.
func opening(asn uint16, hold uint16, id netip.Addr) []byte {
	capabilities := [][]byte{
		{1, 4, 0, 1, 0, 1}, {1, 4, 0, 2, 0, 1}, // families
		{65, 4, 0, 0, byte(asn >> 8), byte(asn)}, // RFC 6793
	}
	var parameters []byte
	for _, c := range capabilities {
		parameters = append(parameters, 2, byte(len(c)))
		parameters = append(parameters, c...)
	}
	body := []byte{4, byte(asn >> 8), byte(asn), byte(hold >> 8), byte(hold)}
	body = append(body, id.AsSlice()...)
	return message(bgpOpen, append(append(body, byte(len(parameters))), parameters...))
}

// attr is a path attribute with a true length.
func attr(flags, kind byte, value ...byte) []byte {
	if len(value) > 255 {
		return append(binary.BigEndian.AppendUint16([]byte{flags | extendedLength, kind}, uint16(len(value))), value...)
	}
	return append([]byte{flags, kind, byte(len(value))}, value...)
}

// update is an UPDATE of IPv4 routes.
func update(attrs [][]byte, nlri []byte) []byte {
	all := bytes.Join(attrs, nil)
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(all)))
	return message(bgpUpdate, append(append(body, all...), nlri...))
}

// decent are the attributes that a route of this speaker needs.
func decent(asn uint16, next netip.Addr) [][]byte {
	return [][]byte{
		attr(wellKnown, attrOrigin, 0),
		attr(wellKnown, attrASPath, 2, 1, 0, 0, byte(asn>>8), byte(asn)),
		attr(wellKnown, attrNextHop, next.AsSlice()...),
	}
}

// crafted are some of the messages that have killed speakers, or would have; package bgp has more.
func crafted(asn uint16, next netip.Addr) map[string][]byte {
	good, nlri := decent(asn, next), []byte{32, 203, 0, 113, 7}
	with := func(attrs ...[]byte) []byte { return update(slices.Concat(good, attrs), nlri) }
	return map[string][]byte{
		"AS4_PATH before AS_PATH":               update(slices.Concat([][]byte{attr(transitive, attrAS4Path, 2, 1, 0, 1, 0, 1)}, good), nlri),
		"Prefix-SID, TLV longer than attribute": with(attr(transitive, attrPrefixSID, 1, 0xff, 0xff, 0)),
		"attribute says more than there is":     with([]byte{optional, attrMED, 200, 0, 0}),
		"attributes longer than the message":    message(bgpUpdate, []byte{0, 0, 0xff, 0xff, 0x40, 1, 1, 0}),
		"AS_PATH segment cut short":             update([][]byte{good[0], attr(wellKnown, attrASPath, 2, 200, 0, 0, 0, 1), good[2]}, nlri),
		"MP_REACH, next hop of 255 bytes":       update([][]byte{good[0], good[1], attr(optional, attrReach, 0, 2, 1, 255, 0)}, nil),
		"unknown attributes, 3,900 bytes":       with(attr(partial, 222, make([]byte, 3900)...)),
		"1,000 attributes of nothing":           with(bytes.Repeat([]byte{optional, 233, 0}, 1000)),
		"the VIPs of the box itself":            update(good, []byte{32, 192, 0, 2, 10}),
		"a default route":                       update(good, []byte{0}),
		"message of length 65535":               append(append(bytes.Repeat([]byte{0xff}, 16), 0xff, 0xff, bgpUpdate), make([]byte, 5000)...),
		"OPEN in a session":                     opening(asn, 90, next),
	}
}

// mutate alters a message in a few places, and mostly makes its length true again.
func mutate(r *rand.Rand, m []byte) []byte {
	out := bytes.Clone(m)
	for range 1 + r.IntN(4) {
		if len(out) <= 20 {
			break
		}
		at := 19 + r.IntN(len(out)-19)
		switch r.IntN(4) {
		case 0:
			out[at] = byte(r.Uint32())
		case 1:
			out[at] ^= 1 << r.IntN(8)
		case 2:
			out = append(out[:at], out[at+1:]...)
		case 3:
			extra := make([]byte, r.IntN(40))
			for i := range extra {
				extra[i] = byte(r.Uint32())
			}
			out = append(out[:at], append(extra, out[at:]...)...)
		}
	}
	if len(out) >= 19 && r.IntN(10) > 0 {
		binary.BigEndian.PutUint16(out[16:], uint16(len(out)))
	}
	return out
}

// villain is a hostile speaker on a host.
type villain struct {
	m    *lab.Machine
	addr netip.Addr
	asn  uint16
	to   string
}

// connect only opens the TCP connection.
func (v villain) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return v.m.DialFrom(ctx, "tcp", &net.TCPAddr{IP: v.addr.AsSlice()}, v.to)
}

// establish brings a session up, and reads what comes until it ends.
func (v villain) establish(ctx context.Context) (net.Conn, error) {
	c, err := v.connect(ctx)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(append(opening(v.asn, 90, v.addr), message(bgpKeepalive, nil)...)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for _, want := range []byte{bgpOpen, bgpKeepalive} {
		kind, body, err := readMessage(c)
		if err == nil && kind != want {
			err = fmt.Errorf("message of type %d, want %d: %x", kind, want, body)
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

func readMessage(r io.Reader) (kind byte, body []byte, err error) {
	head := make([]byte, 19)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint16(head[16:])
	if length < 19 {
		return 0, nil, fmt.Errorf("message of length %d", length)
	}
	body = make([]byte, length-19)
	_, err = io.ReadFull(r, body)
	return head[18], body, err
}

// ending is how a session ended after a message: the other side's notification,
// or that the session continues.
func ending(c net.Conn, patience time.Duration) string {
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	for {
		kind, body, err := readMessage(c)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return "goes on"
		case err != nil:
			return "closed"
		case kind == bgpNotification && len(body) >= 2:
			return fmt.Sprintf("notification %d/%d", body[0], body[1])
		}
	}
}
