package linux

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// unmapped values of netip are compared as what they are.
var compareNetip = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})

func frontend(s string, proto lb.Protocol) lb.Frontend {
	a := netip.MustParseAddrPort(s)
	return lb.Frontend{Addr: a.Addr(), Port: a.Port(), Proto: proto}
}

// encoded is one message without its netlink header.
func encoded(put func(*encoder)) []byte {
	var e encoder
	e.reset(1)
	put(&e)
	e.finish()
	return e.b[unix.NLMSG_HDRLEN:]
}

// words formats bytes in groups of four.
func words(b []byte) string {
	var out []string
	for len(b) > 0 {
		n := min(4, len(b))
		out = append(out, hex.EncodeToString(b[:n]))
		b = b[n:]
	}
	return strings.Join(out, " ")
}

// The bytes of the golden messages are a little-endian machine's.
func TestServiceMessage(t *testing.T) {
	t.Parallel()
	vs := lb.VirtualServer{
		Frontend:  frontend("192.0.2.1:80", lb.TCP),
		Scheduler: lb.Scheduler{Name: "mh", Flags: lb.Fallback | lb.WithPort},
		Affinity:  300,
	}
	got := words(encoded(func(e *encoder) { ipvsMessages{family: 0x20}.service(e, ipvsNewService, vs) }))
	want := "01010000 " + // command, version
		"48000180 " + // service
		"06000100 02000000 " + // family: AF_INET
		"06000200 06000000 " + // protocol: 6
		"08000300 c0000201 " + // address
		"06000400 00500000 " + // port, big endian
		"07000600 6d680000 " + // scheduler
		"0c000700 19000000 ffffffff " + // flags and mask
		"08000800 2c010000 " + // timeout
		"08000900 ffffffff" // netmask
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDestMessage(t *testing.T) {
	t.Parallel()
	rs := lb.RealServer{
		Frontend: frontend("[2001:db8::1]:53", lb.UDP),
		Addr:     netip.MustParseAddrPort("[2001:db8::7]:5353"),
		Weight:   65535, Upper: 100, Lower: 50,
	}
	got := words(encoded(func(e *encoder) { ipvsMessages{family: 0x20}.dest(e, ipvsSetDest, rs) }))
	want := "06010000 " +
		"30000180 06000100 0a000000 06000200 11000000 " +
		"14000300 20010db8 00000000 00000000 00000001 06000400 00350000 " +
		"48000280 14000100 20010db8 00000000 00000000 00000007 06000200 14e90000 06000b00 0a000000 " +
		"08000300 00000000 08000400 ffff0000 08000500 64000000 08000600 32000000"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestServiceComesBackAsItWent(t *testing.T) {
	t.Parallel()
	for _, vs := range []lb.VirtualServer{
		{Frontend: frontend("192.0.2.1:80", lb.TCP), Scheduler: lb.Scheduler{Name: "wrr"}},
		{Frontend: frontend("[2001:db8::1]:53", lb.UDP), Scheduler: lb.Scheduler{Name: "sh", Flags: lb.WithPort}},
		{Frontend: frontend("192.0.2.1:132", lb.SCTP), Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 10800},
		{Frontend: frontend("[2001:db8::1]:80", lb.TCP), Scheduler: lb.Scheduler{Name: "foreign"}, Affinity: 1},
		{Frontend: frontend("192.0.2.1:80", lb.TCP), Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 300, Mask: 0xff000000},
		{Frontend: frontend("[2001:db8::1]:80", lb.TCP), Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 300, Mask: 64},
		{Frontend: lb.MarkFrontend(lb.IPv4, 1), Scheduler: lb.Scheduler{Name: "wlc"}},
		{Frontend: lb.MarkFrontend(lb.IPv6, lb.MaxMark), Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 60},
	} {
		body := encoded(func(e *encoder) { ipvsMessages{}.service(e, ipvsNewService, vs) })
		got, ok := ipvsMessages{}.parseService(body, true)
		if d := cmp.Diff(vs, got.VirtualServer, compareNetip); !ok || d != "" {
			t.Errorf("%s (-want +got):\n%s", vs, d)
		}
	}
}

func TestForeignEditsOfAServiceStayVisible(t *testing.T) {
	t.Parallel()
	build := func(flags, netmask uint32) []byte {
		return encoded(func(e *encoder) {
			ipvsMessages{}.begin(e, 1, 0)
			at := e.nest(ipvsAttrService)
			ipvsMessages{}.tuple(e, frontend("192.0.2.1:80", lb.TCP))
			e.str(svcScheduler, "rr")
			e.u32s(svcFlags, flags, 0xffffffff)
			e.u32(svcTimeout, 300)
			e.u32(svcNetmask, netmask)
			e.end(at)
		})
	}
	for _, test := range []struct {
		name           string
		flags, netmask uint32
		want           lb.VirtualServer
	}{
		{"hashed is the kernel's", flagHashed | flagPersistent, 0xffffffff,
			lb.VirtualServer{Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 300}},
		{"timeout without persistence", flagHashed, 0xffffffff,
			lb.VirtualServer{Scheduler: lb.Scheduler{Name: "rr"}}},
		{"one-packet scheduling", 0x4, 0xffffffff,
			lb.VirtualServer{Scheduler: lb.Scheduler{Name: "rr", Flags: 0x4}}},
		{"affinity of networks", flagPersistent, 0x00ffffff,
			lb.VirtualServer{Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 300, Mask: 0xff000000}},
	} {
		test.want.Frontend = frontend("192.0.2.1:80", lb.TCP)
		got, ok := ipvsMessages{}.parseService(build(test.flags, test.netmask), false)
		if d := cmp.Diff(test.want, got.VirtualServer, compareNetip); !ok || d != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, d)
		}
	}
}

func TestDestComesBackAsItWent(t *testing.T) {
	t.Parallel()
	fe := frontend("[2001:db8::1]:80", lb.TCP)
	for _, forward := range []lb.Forwarding{lb.Masquerading, lb.LocalNode, lb.Tunnel, lb.DirectRouting} {
		rs := lb.RealServer{Frontend: fe, Addr: netip.MustParseAddrPort("[2001:db8::7]:8080"), Weight: 65535, Upper: 9, Lower: 3, Forward: forward}
		if forward == lb.Tunnel {
			rs.Encap = lb.Encap{Type: lb.GUE, Port: 6080, Checksum: lb.RemoteChecksum}
		}
		body := encoded(func(e *encoder) { ipvsMessages{}.dest(e, ipvsNewDest, rs) })
		got, ok := parseDest(body, fe, false)
		if d := cmp.Diff(rs, got.RealServer, compareNetip); !ok || d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// TestUnsupportedForwardingIsRefused expects errors that name the object, before a message is sent.
func TestUnsupportedForwardingIsRefused(t *testing.T) {
	t.Parallel()
	fe := frontend("192.0.2.1:80", lb.TCP)
	same, other := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("[2001:db8::7]:80")
	for _, test := range []struct {
		name string
		rs   lb.RealServer
		want string
	}{
		{"masquerading to the other family", lb.RealServer{Frontend: fe, Addr: other},
			"real server [2001:db8::7]:80 of 192.0.2.1:80/tcp weight 0: IPVS forwards to the other family by tunnel only"},
		{"an unknown method", lb.RealServer{Frontend: fe, Addr: same, Forward: 9},
			"real server 10.0.0.1:80 of 192.0.2.1:80/tcp: IPVS has no forwarding method 9"},
	} {
		table := newTable(nil, 0, marking{}) // without a socket
		errs := table.applyDests(t.Context(), []lb.Op{{Verb: lb.Add, Object: test.rs}})
		if errs[0] == nil || errs[0].Error() != test.want {
			t.Errorf("%s: %v, want %s", test.name, errs[0], test.want)
		}
	}
}

func TestDestInAnotherModeDiffersFromAnyWanted(t *testing.T) {
	t.Parallel()
	fe := frontend("192.0.2.1:80", lb.TCP)
	body := encoded(func(e *encoder) {
		ipvsMessages{}.begin(e, 1, 0)
		at := e.nest(ipvsAttrDest)
		e.addr(destAddr, netip.MustParseAddr("10.0.0.1"))
		e.be16(destPort, 80)
		e.u32(destForward, 3)
		e.u32(destWeight, 1)
		e.u32(destActive, 5)
		e.u32(destInactive, 6)
		e.end(at)
	})
	got, ok := parseDest(body, fe, false)
	if !ok || got.Forward != lb.DirectRouting || got.conns != (lb.Conns{Active: 5, Inactive: 6}) {
		t.Errorf("got %+v", got)
	}
}

func TestForeignFirewallMarkIsGiven(t *testing.T) {
	t.Parallel()
	for mark, want := range map[uint32]lb.Frontend{
		7: lb.GivenFrontend(lb.IPv4, 7), 0xb4000007: lb.MarkFrontend(lb.IPv4, 7), 0xb4004007: lb.GivenFrontend(lb.IPv4, 0xb4004007), 0xffffffff: lb.GivenFrontend(lb.IPv4, 0xffffffff),
	} {
		body := encoded(func(e *encoder) {
			ipvsMessages{}.begin(e, 1, 0)
			at := e.nest(ipvsAttrService)
			e.u16(svcFamily, unix.AF_INET)
			e.u32(svcFWMark, mark)
			e.str(svcScheduler, "rr")
			e.end(at)
		})
		got, ok := ipvsMessages{marks: marking{0x4000}}.parseService(body, false)
		if !ok || got.Frontend != want {
			t.Errorf("mark %#x: %v, %v", mark, got.Frontend, ok)
		}
	}
}

func FuzzParseService(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(encoded(func(e *encoder) {
		ipvsMessages{}.service(e, ipvsNewService, lb.VirtualServer{Frontend: frontend("192.0.2.1:80", lb.TCP)})
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseTimeouts(b)
		parseDest(b, frontend("192.0.2.1:80", lb.TCP), true)
		if s, ok := (ipvsMessages{}).parseService(b, true); ok && !s.Frontend.Addr.IsValid() {
			t.Errorf("a frontend without an address: %v", s)
		}
	})
}

// The kernel answers a change to a scheduler without a module with ENOENT, and the attempt to create the virtual server
// instead with EEXIST.
func TestChangeToAMissingSchedulerNamesIt(t *testing.T) {
	t.Parallel()
	c, _ := playedConn(&played{kernel: func(m message) []byte {
		if m.body[0] == ipvsNewService {
			return ack(m, unix.EEXIST)
		}
		return ack(m, unix.ENOENT)
	}})
	vs := lb.VirtualServer{Frontend: frontend("192.0.2.1:80", lb.TCP), Scheduler: lb.Scheduler{Name: "nosuch"}}
	errs := newTable(c, 1, marking{}).applyServices(t.Context(), []lb.Op{{Verb: lb.Change, Object: vs}})
	if !errors.As(errs[0], new(*MissingError)) || !strings.Contains(errs[0].Error(), "modprobe ip_vs_nosuch") {
		t.Errorf("the error is %v", errs[0])
	}
}
