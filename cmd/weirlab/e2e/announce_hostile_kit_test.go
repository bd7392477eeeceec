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
	"time"

	"weir/cmd/weirlab/lab"
)

// A hostile BGP speaker: it writes bytes of its own making, and reads only so far as
// it must to be believed.

// The types of messages and some path attributes (RFC 4271, 4.1 and 4.3).
const (
	bgpOpen, bgpUpdate, bgpNotification, bgpKeepalive, bgpRefresh = 1, 2, 3, 4, 5

	attrOrigin, attrASPath, attrNextHop, attrMED, attrLocalPref = 1, 2, 3, 4, 5
	attrAtomic, attrAggregator, attrCommunities                 = 6, 7, 8
	attrReach, attrUnreach, attrExtended                        = 14, 15, 16
	attrAS4Path, attrAS4Aggregator, attrTunnel                  = 17, 18, 23
	attrLinkState, attrLarge, attrPrefixSID                     = 29, 32, 40

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
func opening(asn uint16, hold uint16, id netip.Addr, more ...[]byte) []byte {
	capabilities := [][]byte{
		{1, 4, 0, 1, 0, 1}, {1, 4, 0, 2, 0, 1}, // families
		{65, 4, 0, 0, byte(asn >> 8), byte(asn)}, // RFC 6793
	}
	var parameters []byte
	for _, c := range append(capabilities, more...) {
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

// attrLying is a path attribute that says another length than it has.
func attrLying(flags, kind, length byte, value ...byte) []byte {
	return append([]byte{flags, kind, length}, value...)
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

// crafted are UPDATEs that have killed speakers, or would have: a name for each.
func crafted(asn uint16, next netip.Addr) map[string][]byte {
	good, nlri := decent(asn, next), []byte{32, 203, 0, 113, 7}
	with := func(attrs ...[]byte) []byte { return update(append(append([][]byte{}, good...), attrs...), nlri) }
	first := func(attrs ...[]byte) []byte { return update(append(append([][]byte{}, attrs...), good...), nlri) }
	long := bytes.Repeat([]byte{0, 0, 0xfe, 0x09}, 255)
	reach := func(value ...byte) []byte {
		return update([][]byte{good[0], good[1], attr(optional, attrReach, value...)}, nil)
	}
	return map[string][]byte{
		"AS4_PATH before AS_PATH":               first(attr(transitive, attrAS4Path, 2, 1, 0, 1, 0, 1)),
		"AS4_PATH alone":                        update([][]byte{attr(transitive, attrAS4Path, 2, 1, 0, 1, 0, 1)}, nlri),
		"AS4_PATH empty":                        with(attr(transitive, attrAS4Path)),
		"AS4_AGGREGATOR without AGGREGATOR":     with(attr(transitive, attrAS4Aggregator, 0, 1, 0, 1, 1, 2, 3, 4)),
		"AGGREGATOR of 3 bytes":                 with(attr(transitive, attrAggregator, 1, 2, 3)),
		"Prefix-SID, unknown SRv6 sub-TLV":      with(attr(transitive, attrPrefixSID, 5, 0, 10, 0, 99, 0, 6, 1, 2, 3, 4, 5, 6)),
		"Prefix-SID, SRv6 sub-TLV cut short":    with(attr(transitive, attrPrefixSID, 5, 0, 5, 0, 1, 0, 30, 0)),
		"Prefix-SID, TLV longer than attribute": with(attr(transitive, attrPrefixSID, 1, 0xff, 0xff, 0)),
		"Prefix-SID of nothing":                 with(attr(transitive, attrPrefixSID)),
		"attribute says more than there is":     update(append(append([][]byte{}, good...), attrLying(optional, attrMED, 200, 0, 0)), nlri),
		"attribute says less than there is":     update(append(append([][]byte{}, good...), attrLying(optional, attrMED, 1, 0, 0, 0, 7)), nlri),
		"attributes longer than the message":    message(bgpUpdate, []byte{0, 0, 0xff, 0xff, 0x40, 1, 1, 0}),
		"withdrawn longer than the message":     message(bgpUpdate, []byte{0xff, 0xff, 0, 0}),
		"an attribute twice":                    with(good[0], good[0]),
		"no attribute at all":                   update(nil, nlri),
		"ORIGIN of no kind":                     update([][]byte{attr(wellKnown, attrOrigin, 77), good[1], good[2]}, nlri),
		"ORIGIN of nothing":                     update([][]byte{attr(wellKnown, attrOrigin), good[1], good[2]}, nlri),
		"AS_PATH segment of no type":            update([][]byte{good[0], attr(wellKnown, attrASPath, 9, 1, 0, 0, 0, 1), good[2]}, nlri),
		"AS_PATH segment of none":               update([][]byte{good[0], attr(wellKnown, attrASPath, 2, 0), good[2]}, nlri),
		"AS_PATH segment cut short":             update([][]byte{good[0], attr(wellKnown, attrASPath, 2, 200, 0, 0, 0, 1), good[2]}, nlri),
		"AS_PATH of 1,020 bytes":                update([][]byte{good[0], attr(wellKnown, attrASPath, append([]byte{2, 255}, long...)...), good[2]}, nlri),
		"NEXT_HOP of 5 bytes":                   update([][]byte{good[0], good[1], attr(wellKnown, attrNextHop, 1, 2, 3, 4, 5)}, nlri),
		"NEXT_HOP 0.0.0.0":                      update([][]byte{good[0], good[1], attr(wellKnown, attrNextHop, 0, 0, 0, 0)}, nlri),
		"NLRI of 33 bits":                       update(good, []byte{33, 203, 0, 113, 7, 0}),
		"NLRI cut short":                        update(good, []byte{32, 203}),
		"communities of 5 bytes":                with(attr(transitive, attrCommunities, 0, 1, 0, 2, 9)),
		"large communities of 11 bytes":         with(attr(transitive, attrLarge, make([]byte, 11)...)),
		"extended communities of 7 bytes":       with(attr(transitive, attrExtended, make([]byte, 7)...)),
		"extended communities of no type":       with(attr(transitive, attrExtended, 0xff, 0xff, 1, 2, 3, 4, 5, 6)),
		"MP_REACH of nothing":                   reach(),
		"MP_REACH, next hop of 255 bytes":       reach(0, 2, 1, 255, 0),
		"MP_REACH, next hop of 1 byte":          reach(0, 2, 1, 1, 7, 0, 128),
		"MP_REACH of a family nobody has":       reach(0x7f, 0xff, 0x80, 4, 1, 2, 3, 4, 0, 32, 1, 2, 3, 4),
		"MP_REACH of EVPN":                      reach(0, 25, 70, 4, 1, 2, 3, 4, 0, 2, 255, 1, 2, 3),
		"MP_REACH of flowspec":                  reach(0, 1, 133, 0, 0, 0xff, 0xff, 1, 2, 3),
		"MP_REACH, prefix of 255 bits":          reach(append(append([]byte{0, 2, 1, 16}, make([]byte, 16)...), 0, 255, 1)...),
		"MP_UNREACH of 2 bytes":                 update([][]byte{attr(optional, attrUnreach, 0, 2)}, nil),
		"tunnel encapsulation cut short":        with(attr(transitive, attrTunnel, 0, 15, 0xff, 0xff, 1)),
		"BGP-LS cut short":                      with(attr(optional, attrLinkState, 4, 7, 0xff, 0xff)),
		"unknown attributes, 3,900 bytes":       with(attr(partial, 222, make([]byte, 3900)...)),
		"unknown well-known attribute":          with(attr(wellKnown, 250, 1, 2, 3)),
		"well-known attribute marked optional":  update([][]byte{attr(transitive, attrOrigin, 0), good[1], good[2]}, nlri),
		"1,000 attributes of nothing":           with(bytes.Repeat([]byte{optional, 233, 0}, 1000)),
		"LOCAL_PREF of an external peer":        with(attr(wellKnown, attrLocalPref, 0, 0, 0, 9)),
		"ATOMIC_AGGREGATE with a value":         with(attr(wellKnown, attrAtomic, 1)),
		"the VIPs of the box itself":            update(good, []byte{32, 192, 0, 2, 10}),
		"a default route":                       update(good, []byte{0}),
		"message of length 18":                  append(bytes.Repeat([]byte{0xff}, 16), 0, 18, bgpUpdate),
		"message of length 65535":               append(append(bytes.Repeat([]byte{0xff}, 16), 0xff, 0xff, bgpUpdate), make([]byte, 5000)...),
		"marker of zeros":                       append(make([]byte, 16), 0, 19, bgpKeepalive),
		"message of no type":                    message(77, []byte{1, 2, 3}),
		"KEEPALIVE with a body":                 message(bgpKeepalive, []byte{1}),
		"NOTIFICATION of nothing":               message(bgpNotification, nil),
		"NOTIFICATION, Hard Reset cut short":    message(bgpNotification, []byte{6, 9}),
		"ROUTE-REFRESH of 1 byte":               message(bgpRefresh, []byte{0}),
		"OPEN in a session":                     opening(asn, 90, next),
	}
}

// openings are OPENs that are not what they should be.
func openings(asn uint16, id netip.Addr) map[string][]byte {
	good := opening(asn, 90, id)
	edit := func(at int, b ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[at:], b)
		return out
	}
	return map[string][]byte{
		"version 3":                       edit(19, 3),
		"ASN 0":                           edit(20, 0, 0),
		"another ASN":                     opening(asn+1, 90, id),
		"hold time 1":                     edit(22, 0, 1),
		"identifier 0.0.0.0":              edit(24, 0, 0, 0, 0),
		"parameters longer than message":  edit(28, 255),
		"extended parameters (RFC 9072)":  edit(28, 255, 255, 0xff, 0xff),
		"capability longer than its room": opening(asn, 90, id, []byte{64, 200, 0, 0}),
		"graceful restart of 1 byte":      opening(asn, 90, id, []byte{64, 1, 0}),
		"FQDN cut short":                  opening(asn, 90, id, []byte{73, 3, 200, 65, 66}),
		"ADD-PATH cut short":              opening(asn, 90, id, []byte{69, 3, 0, 1, 1}),
		"software version of nothing":     opening(asn, 90, id, []byte{75, 1, 255}),
		"families of 3 bytes":             opening(asn, 90, id, []byte{1, 3, 0, 1, 0}),
		"60 capabilities of no kind":      opening(asn, 90, id, bytes.Repeat([]byte{239, 0}, 60)),
		"no parameters":                   message(bgpOpen, append([]byte{4, byte(asn >> 8), byte(asn), 0, 90}, append(id.AsSlice(), 0)...)),
		"HTTP":                            []byte("GET / HTTP/1.1\r\nHost: router\r\n\r\n"),
		"TLS":                             {0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3},
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

// ending is how a session ended after something was said: what the other side said of
// it, or that it goes on.
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
