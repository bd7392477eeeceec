package bgp

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// raw is a router of nothing but bytes: it sends what a test has it send, however
// wrong, and keeps what it receives.
type raw struct {
	t    testing.TB
	l    net.Listener
	conn net.Conn
	addr netip.Addr
}

const headerLen = 19

// The kinds of messages.
const (
	open         = 1
	update       = 2
	notify       = 3
	keepalive    = 4
	routeRefresh = 5
)

func newRaw(t testing.TB) *raw {
	t.Helper()
	return newRawAt(t, loopback())
}

func newRawAt(t testing.TB, addr netip.Addr) *raw {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
	must(t, err)
	r := &raw{t: t, l: l, addr: addr}
	t.Cleanup(func() {
		l.Close()
		if r.conn != nil {
			r.conn.Close()
		}
	})
	return r
}

func (r *raw) peer(name string, source netip.Addr) Peer {
	return Peer{Name: name, Address: r.addr, ASN: routerASN, Port: r.l.Addr().(*net.TCPAddr).Port, Source: source, ConnectRetry: minRetry}
}

// accept takes the box's next connection.
func (r *raw) accept() {
	r.t.Helper()
	r.l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	conn, err := r.l.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	r.conn = conn
}

// message puts the header before a body.
func message(kind byte, body []byte) []byte {
	m := make([]byte, headerLen, headerLen+len(body))
	for i := range 16 {
		m[i] = 0xff
	}
	binary.BigEndian.PutUint16(m[16:], uint16(headerLen+len(body)))
	m[18] = kind
	return append(m, body...)
}

func (r *raw) send(kind byte, body []byte) { _, _ = r.conn.Write(message(kind, body)) }

// read gives the next message, io.EOF at the connection's end.
func (r *raw) read() (kind byte, body []byte, err error) {
	head := make([]byte, headerLen)
	if _, err := io.ReadFull(r.conn, head); err != nil {
		return 0, nil, err
	}
	body = make([]byte, int(binary.BigEndian.Uint16(head[16:]))-headerLen)
	_, err = io.ReadFull(r.conn, body)
	return head[18], body, err
}

// next gives the next message of a kind.
func (r *raw) next(kind byte) []byte {
	r.t.Helper()
	for {
		k, body, err := r.read()
		if err != nil {
			r.t.Fatalf("waiting for a message of kind %d: %v", kind, err)
		}
		if k == kind {
			return body
		}
	}
}

// openBody is an OPEN of an ASN with capabilities.
func openBody(asn uint16, hold uint16, capabilities ...[]byte) []byte {
	caps := concat(capabilities...)
	body := []byte{4, byte(asn >> 8), byte(asn), byte(hold >> 8), byte(hold), 192, 0, 2, 99}
	if len(caps) == 0 {
		return append(body, 0)
	}
	return append(append(body, byte(len(caps)+2), 2, byte(len(caps))), caps...)
}

func concat(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// Capabilities, each with its code and length.
var (
	capIPv4     = unhex("01 04 0001 00 01")
	capIPv6     = unhex("01 04 0002 00 01")
	capAS4      = unhex("41 04 0000fdea") // 65002
	capRestart  = unhex("40 0a 0078 0001 01 00 0002 01 00")
	capExtended = unhex("05 06 0001 0001 0002")
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// establish takes a connection and answers it with an OPEN of capabilities. It gives
// the box's OPEN.
func (r *raw) establish(capabilities ...[]byte) []byte {
	r.t.Helper()
	r.accept()
	return r.shakeHands(capabilities...)
}

// dial connects to the box, which has the router in a range.
func (r *raw) dial(box netip.Addr, port int, capabilities ...[]byte) {
	r.t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.addr, 0)), Timeout: patience}
	conn, err := d.DialContext(r.t.Context(), "tcp", netip.AddrPortFrom(box, uint16(port)).String())
	must(r.t, err)
	conn.SetDeadline(time.Now().Add(patience))
	r.conn = conn
	r.shakeHands(capabilities...)
}

func (r *raw) shakeHands(capabilities ...[]byte) []byte {
	r.t.Helper()
	theirs := r.next(open)
	r.send(open, openBody(routerASN, 90, capabilities...))
	r.send(keepalive, nil)
	r.next(keepalive)
	return theirs
}

// over reports whether the connection ended, and how.
func (r *raw) over() (how string) {
	for {
		kind, body, err := r.read()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return "still there"
		case err != nil:
			return "closed"
		case kind == notify && len(body) >= 2:
			return notification(body[0], body[1], "")
		}
	}
}
