package bgp

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"weir/bgp/advertise"
	"weir/cmd/weirlab/fuzzing"
)

// besieged is a box that takes every router, with one friend among them that has a session
// which must not suffer.
type besieged struct {
	*box
	friend *router
}

func besiege(t testing.TB) *besieged {
	b := &besieged{box: newBox(t)}
	if tt, ok := t.(*testing.T); ok {
		b.friend = newRouter(tt, routerASN)
	}
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("friend", "anybody")})
	b.configure(func(c *Config) {
		c.ListenPort, c.ListenAddrs = freePort(t, b.addr), []netip.Addr{b.addr}
		c.GracefulRestart = 120 * time.Second
		c.Peers = []Peer{{Name: "anybody", Range: prefix("127.0.0.0/8"), ASN: routerASN, MaxPrefixes: 100}}
		if b.friend != nil {
			c.Peers = append(c.Peers, b.friend.peer("friend", b.addr))
		}
	})
	if b.friend != nil {
		b.friend.expect(b.addr, boxASN, nil)
		b.established("friend")
	}
	return b
}

// dial connects to the box from an address that has not been used before.
func (b *besieged) dial() (*net.TCPConn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: loopback().AsSlice()}}
	conn, err := d.Dial("tcp", netip.AddrPortFrom(b.addr, uint16(b.cfg.ListenPort)).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), conn.SetDeadline(time.Now().Add(patience))
}

// attack is what a hostile router sends: its OPEN, and if the box takes that, what
// comes after.
type attack struct {
	name string
	open []byte // the whole message
	then []byte // whole messages
	// waits until the box has announced something, so that there is a session for sure.
	waits bool
}

// suffer lets an attack happen and waits until the box is through with it. It gives
// the kinds of messages that the box answered with.
func (b *besieged) suffer(a attack) (answers []byte, err error) {
	conn, err := b.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := &raw{t: b.t, conn: conn}
	_, _ = conn.Write(a.open)
	_, _ = conn.Write(message(keepalive, nil))
	for a.waits && !bytes.Contains(answers, []byte{update}) {
		kind, _, err := r.read()
		if err != nil {
			return answers, nil
		}
		answers = append(answers, kind)
	}
	_, _ = conn.Write(a.then)
	_ = conn.CloseWrite()
	for { // until the box has ended it too
		kind, _, err := r.read()
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return answers, fmt.Errorf("the box holds on to a connection that ended: %w", err)
		}
		if err != nil {
			return answers, nil
		}
		answers = append(answers, kind)
	}
}

// well returns what is wrong with the box, if anything.
func (b *besieged) well() error {
	s := b.Status()
	if s.Problem != "" {
		return fmt.Errorf("the box has a problem: %s", s.Problem)
	}
	if b.friend == nil {
		return nil
	}
	if f := b.status("friend"); f.State != Established || f.Flaps > 0 {
		return fmt.Errorf("its friend suffered: %+v", f)
	}
	return nil
}

var (
	goodOpen = message(open, openBody(routerASN, 90, capIPv4, capIPv6, capAS4, capRestart))
	oldOpen  = message(open, openBody(routerASN, 90)) // ASNs of two bytes
)

// attrs makes an UPDATE of path attributes and IPv4 prefixes.
func attrs(attributes, nlri string) []byte {
	a := unhex(attributes)
	return message(update, concat([]byte{0, 0, byte(len(a) >> 8), byte(len(a))}, a, unhex(nlri)))
}

// attacks are those that are known to have done harm, and further ideas.
func attacks() []attack {
	const (
		origin = "400101 00"
		path   = "400206 0201 0000fdea"
		path2  = "400204 0201 fdea"
		hop    = "400304 c0000263"
		some   = "20 cb007101"
	)
	after := func(name string, then ...[]byte) attack { return attack{name, goodOpen, concat(then...), true} }
	old := func(name string, then ...[]byte) attack { return attack{name, oldOpen, concat(then...), true} }
	opens := func(name string, body []byte) attack { return attack{name: name, open: message(open, body)} }
	var flood []byte
	for i := range 20000 {
		flood = append(flood, attrs(origin+path+hop, fmt.Sprintf("20 cb%02x%02x%02x", byte(i>>16), byte(i>>8), byte(i)))...)
	}
	return []attack{
		after("nothing wrong", attrs(origin+path+hop, some), message(routeRefresh, unhex("0001 00 01"))),
		old("AS4_PATH before AS_PATH", attrs(origin+"c01106 0201 0000fdea"+path2+hop, some)),
		old("AS4_PATH alone", attrs(origin+"c01106 0201 0000fdea"+hop, some)),
		old("AS4_PATH longer than AS_PATH", attrs(origin+path2+"c0110a 0202 0000fdea 0000fdeb"+hop, some)),
		old("AS4_PATH of a confederation", attrs(origin+path2+"c01106 0301 0000fdea"+hop, some)),
		old("AS4_AGGREGATOR alone", attrs(origin+path2+hop+"c01208 0000fdea c0000201", some)),
		old("empty AS4_PATH", attrs(origin+path2+hop+"c01100", some)),
		after("Prefix-SID with an unknown SRv6 sub-TLV", attrs(origin+path+hop+"c02810 05000d 00 ff0009 000000000000000000", some)),
		after("Prefix-SID with an SRv6 sub-sub-TLV cut off", attrs(origin+path+hop+"c0281b 050018 00 010014 00 20010db8000000000000000000000001 00 0000 01", some)),
		after("Prefix-SID of nothing", attrs(origin+path+hop+"c02800", some)),
		after("Prefix-SID with TLVs of no length", attrs(origin+path+hop+"c02806 050000 010000", some)),
		after("attributes longer than the message", message(update, unhex("0000 ffff"))),
		after("withdrawn routes longer than the message", message(update, unhex("ffff 0000"))),
		after("nothing at all", message(update, nil)),
		after("a prefix of 33 bits", attrs(origin+path+hop, "21 cb00710100")),
		after("no prefix to speak of", attrs(origin+path+hop, "20 cb")),
		after("AS_PATH with more ASNs than bytes", attrs(origin+"400206 02ff 0000fdea"+hop, some)),
		after("AS_PATH of an unknown kind", attrs(origin+"400206 0901 0000fdea"+hop, some)),
		after("ORIGIN 9", attrs("400101 09"+path+hop, some)),
		after("next hop of two bytes", attrs(origin+path+"400302 c000", some)),
		after("no next hop", attrs(origin+path, some)),
		after("attributes twice", attrs(origin+origin+path+path+hop, some)),
		after("AGGREGATOR of one byte", attrs(origin+path+hop+"c00701 00", some)),
		after("communities of three bytes", attrs(origin+path+hop+"c00803 000000", some)),
		after("large communities of eleven bytes", attrs(origin+path+hop+"c0200b 0000000000000000000000", some)),
		after("extended communities of seven bytes", attrs(origin+path+hop+"c01007 00000000000000", some)),
		after("CLUSTER_LIST of five bytes", attrs(origin+path+hop+"800a05 0000000000", some)),
		after("tunnels of garbage", attrs(origin+path+hop+"c0170a 000f 0006 ff04 00000000", some)),
		after("PMSI of garbage", attrs(origin+path+hop+"c01603 00ffff", some)),
		after("AIGP of no length", attrs(origin+path+hop+"801a03 010000", some)),
		after("link state of garbage", attrs(origin+path+hop+"801d06 0400ffff 0000", some)),
		after("MP_REACH of IPv6 with a short next hop", attrs(origin+path+"800e0a 0002 01 04 c0000263 00 00", "")),
		after("MP_REACH with a next hop longer than itself", attrs(origin+path+"800e06 0002 01 ff 0000", "")),
		after("MP_REACH of an unknown family", attrs(origin+path+"800e09 00ff ff 04 00000000 00", "")),
		after("MP_REACH of EVPN", attrs(origin+path+"800e0b 0019 46 04 c0000263 00 02 ff", "")),
		after("MP_REACH of flowspec", attrs(origin+path+"800e09 0001 85 00 00 03 01 ff ff", "")),
		after("MP_REACH of VPN routes cut off", attrs(origin+path+"800e12 0001 80 0c 0000000000000000c0000263 00 ff", "")),
		after("MP_UNREACH of nothing", attrs("800f00", "")),
		after("MP_UNREACH of an unknown family", attrs("800f03 00ff ff", "")),
		after("End-of-RIB of every family", attrs("", ""), attrs("800f03 0002 01", "")),
		after("unknown attributes", attrs(origin+path+hop+"c0fe01 00"+"40fd01 00", some)),
		after("a header too short", unhex("ffffffffffffffffffffffffffffffff 0012 02")),
		after("a header too long", unhex("ffffffffffffffffffffffffffffffff ffff 02")),
		after("a marker of zeros", unhex("00000000000000000000000000000000 0017 02 0000 0000")),
		after("an unknown message", message(9, nil)),
		after("another OPEN", goodOpen),
		after("a NOTIFICATION of nothing", message(notify, nil)),
		after("a NOTIFICATION of half", message(notify, []byte{6})),
		after("a NOTIFICATION with a communication longer than itself", message(notify, []byte{6, 2, 255, 'x'})),
		after("ROUTE-REFRESH of an unknown family", message(routeRefresh, unhex("00ff 00 ff"))),
		after("ROUTE-REFRESH of nothing", message(routeRefresh, nil)),
		after("half a message", unhex("ffffffffffffffffffffffffffffffff 0100 02 0000")),
		after("a flood", flood),
		after("an attribute that says more than there is", attrs(origin+path+hop+"8004c8 0000", some)),
		after("an attribute that says less than there is", attrs(origin+path+hop+"800401 00000007", some)),
		after("prefixes without an attribute", attrs("", some)),
		after("ORIGIN of nothing", attrs("400100"+path+hop, some)),
		after("AS_PATH with a segment of none", attrs(origin+"400202 0200"+hop, some)),
		after("AS_PATH of 255 ASNs", attrs(origin+"500203fe 02ff"+strings.Repeat("0000fe09", 255)+hop, some)),
		after("next hop 0.0.0.0", attrs(origin+path+"400304 00000000", some)),
		after("extended communities of no type", attrs(origin+path+hop+"c01008 ffff010203040506", some)),
		after("MP_REACH of nothing", attrs(origin+path+"800e00", "")),
		after("MP_REACH with a next hop of one byte", attrs(origin+path+"800e07 0002 01 01 07 00 80", "")),
		after("MP_REACH with a prefix of 255 bits", attrs(origin+path+"800e17 0002 01 10"+strings.Repeat("00", 16)+"00 ff 01", "")),
		after("an unknown attribute of 3,900 bytes", attrs(origin+path+hop+"f0de0f3c"+strings.Repeat("00", 3900), some)),
		after("a thousand attributes of nothing", attrs(origin+path+hop+strings.Repeat("80e900", 1000), some)),
		after("a well-known attribute marked optional", attrs("c00101 00"+path+hop, some)),
		after("LOCAL_PREF of an external router", attrs(origin+path+hop+"400504 00000009", some)),
		after("ATOMIC_AGGREGATE with a value", attrs(origin+path+hop+"400601 01", some)),
		after("a KEEPALIVE with a body", message(keepalive, []byte{1})),
		after("a Hard Reset cut short", message(notify, unhex("0609"))),
		after("the box's own VIP, and a default route", attrs(origin+path+hop, "20 c0000201"), attrs(origin+path+hop, "00")),
		{name: "HTTP", open: []byte("GET / HTTP/1.1\r\nHost: router\r\n\r\n")},
		{name: "TLS", open: unhex("16 03 01 00c8 01 0000c4 0303")},
		opens("BGP 3", append([]byte{3}, openBody(routerASN, 90)[1:]...)),
		opens("a hold time of 1", openBody(routerASN, 1)),
		opens("a hold time of 0", openBody(routerASN, 0, capIPv4)),
		opens("ASN 0", openBody(0, 90)),
		opens("no router ID", unhex("04 fdea 005a 00000000 00")),
		opens("half an OPEN", unhex("04 fdea")),
		opens("parameters longer than the OPEN", unhex("04 fdea 005a c0000263 ff 02")),
		opens("an unknown parameter", unhex("04 fdea 005a c0000263 04 09 02 0000")),
		opens("extended parameters", unhex("04 fdea 005a c0000263 ff ff 0005 02 0002 0200")),
		opens("a capability longer than its parameter", unhex("04 fdea 005a c0000263 04 02 02 01ff")),
		opens("multiprotocol of one byte", openBody(routerASN, 90, unhex("0101 00"))),
		opens("graceful restart of one byte", openBody(routerASN, 90, unhex("4001 00"))),
		opens("graceful restart of half a family", openBody(routerASN, 90, unhex("4004 0078 0001"))),
		opens("an ASN of three bytes", openBody(routerASN, 90, unhex("4103 000000"))),
		opens("add-path of three bytes", openBody(routerASN, 90, unhex("4503 000101"))),
		opens("extended next hop of five bytes", openBody(routerASN, 90, unhex("0505 0001000100"))),
		opens("a host name longer than itself", openBody(routerASN, 90, unhex("4902 ff 00"))),
		opens("a long host name", openBody(routerASN, 90, concat([]byte{73, 202, 200}, make([]byte, 201)))),
		opens("a version longer than itself", openBody(routerASN, 90, unhex("4b02 40 00"))),
		opens("long-lived graceful restart of half a family", openBody(routerASN, 90, unhex("4703 000101"))),
		opens("unknown capabilities", openBody(routerASN, 90, unhex("f700"), unhex("f803 010203"))),
	}
}

func TestNoRouterHurtsTheBox(t *testing.T) {
	parallel(t)
	b := besiege(t)
	for _, a := range attacks() {
		answers, err := b.suffer(a)
		if err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		if a.waits && !bytes.Contains(answers, []byte{update}) {
			t.Errorf("%s: there was no session, only messages %v", a.name, answers)
		}
		if err := b.well(); err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
	}
	// It still does its work, and takes a good router.
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.2/32"): to("friend")})
	line := "%s/32 med 0 origin 0 path [65001] via " + b.addr.String()
	b.friend.has(fmt.Sprintf(line, "192.0.2.1"), fmt.Sprintf(line, "192.0.2.2"))
	conn, err := b.dial()
	must(t, err)
	defer conn.Close()
	r := &raw{t: t, conn: conn}
	r.send(open, openBody(routerASN, 90, capIPv4, capAS4))
	r.send(keepalive, nil)
	r.next(update)
	if err := b.well(); err != nil {
		t.Error(err)
	}
}

// parseAll parses messages as GoBGP does for a session, until one is invalid.
func parseAll(stream []byte) {
	families := map[packet.Family]packet.BGPAddPathMode{packet.RF_IPv4_UC: packet.BGP_ADD_PATH_NONE, packet.RF_IPv6_UC: packet.BGP_ADD_PATH_NONE}
	for len(stream) >= packet.BGP_HEADER_LENGTH {
		var h packet.BGPHeader
		if h.DecodeFromBytes(stream) != nil || int(h.Len) < packet.BGP_HEADER_LENGTH || int(h.Len) > len(stream) {
			return
		}
		m, err := packet.ParseBGPBody(&h, stream[packet.BGP_HEADER_LENGTH:h.Len], &packet.MarshallingOption{AddPath: families})
		if err != nil {
			return
		}
		if u, ok := m.Body.(*packet.BGPUpdate); ok {
			_, _ = packet.ValidateUpdateMsg(u, families, true, false, true)
		}
		stream = stream[h.Len:]
	}
}

// sessionShare is the part of the inputs of FuzzRouter that get a connection, which takes some milliseconds:
// one of so many.
const sessionShare = 16

// FuzzRouter has routers send anything: in their OPEN, or once there is a session. GoBGP parses all of it as
// it does for a session, and a part is sent over a connection. The process dies with a panic in any of
// GoBGP's goroutines.
func FuzzRouter(f *testing.F) {
	fuzzing.Wide(f)
	for _, a := range attacks() {
		if len(a.then) < 4096 {
			f.Add(a.open, a.then)
		}
	}
	b := besiege(f)
	f.Fuzz(func(t *testing.T, open, then []byte) {
		if len(open) > 4096 || len(then) > 1<<16 {
			t.Skip("more than one message")
		}
		all := concat(open, then)
		parseAll(all)
		if crc32.ChecksumIEEE(all)%sessionShare != 0 {
			return
		}
		if _, err := b.suffer(attack{open: open, then: then}); err != nil {
			t.Fatal(err)
		}
		must(t, b.well())
	})
}
