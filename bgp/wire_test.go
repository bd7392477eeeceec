package bgp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bgp/advertise"
)

// capabilities are the codes in an OPEN, sorted.
func capabilities(t *testing.T, open []byte) (codes []byte, values map[byte][]byte) {
	t.Helper()
	values = map[byte][]byte{}
	params := open[10:]
	for len(params) > 0 {
		if params[0] != 2 {
			t.Fatalf("the OPEN has a parameter of kind %d", params[0])
		}
		caps := params[2 : 2+int(params[1])]
		params = params[2+int(params[1]):]
		for len(caps) > 0 {
			codes = append(codes, caps[0])
			values[caps[0]] = caps[2 : 2+int(caps[1])]
			caps = caps[2+int(caps[1]):]
		}
	}
	slices.Sort(codes)
	return codes, values
}

// What goes over the wire to an eBGP router, byte by byte.
func TestTheWireHasNothingUnusual(t *testing.T) {
	parallel(t)
	r, b := newRaw(t), newBox(t)
	b.set(map[netip.Prefix][]advertise.Path{
		prefix("192.0.2.1/32"): {{Peers: []string{"r"}, MED: advertise.MetricOf(7), LocalPref: advertise.MetricOf(300),
			Communities: []advertise.Community{advertise.NoExport}, LargeCommunities: []advertise.LargeCommunity{{ASN: 65001, Data1: 2, Data2: 3}}}},
		prefix("2001:db8::1/128"): to("r"),
		prefix("192.0.2.2/32"):    to("somebody else"),
	})
	b.configure(func(c *Config) {
		c.NextHops = NextHops{IPv4: netip.MustParseAddr("198.51.100.1"), IPv6: netip.MustParseAddr("2001:db8::b")}
		c.GracefulRestart = 120 * time.Second
		c.Peers = []Peer{r.peer("r", b.addr)}
	})
	opened := r.establish(capIPv4, capIPv6, capAS4, capRestart)

	codes, values := capabilities(t, opened)
	// Multiprotocol twice, route refresh, extended next hop, extended messages, graceful
	// restart, ASNs of four bytes, and the host's name.
	if want := []byte{1, 1, 2, 5, 6, 64, 65, 73}; !bytes.Equal(codes, want) {
		t.Errorf("the OPEN has capabilities %v, want %v", codes, want)
	}
	if got, want := opened[:5], unhex("04 fde9 0009"); !bytes.Equal(got, want) {
		t.Errorf("the OPEN begins with % x, want % x", got, want)
	}
	// R, 120 seconds; both families, with F.
	if got, want := values[64], unhex("8078 0001 01 80 0002 01 80"); !bytes.Equal(got, want) {
		t.Errorf("graceful restart is % x, want % x", got, want)
	}

	want := map[string]string{
		"IPv4": "0000 0031" + // nothing withdrawn, the attributes' length
			"400101 00" + // ORIGIN IGP
			"400206 0201 0000fde9" + // AS_PATH 65001
			"400304 c6336401" + // NEXT_HOP
			"800404 00000007" + // MED
			"c00804 ffffff01" + // no-export
			"c0200c 0000fde9 00000002 00000003" + // large community
			"20 c0000201",
		"IPv6": "0000 003d" +
			"400101 00" +
			"400206 0201 0000fde9" +
			"800404 00000000" +
			"800e26 0002 01 10 20010db800000000000000000000000b 00 80 20010db8000000000000000000000001",
		"End-of-RIB IPv4": "0000 0000",
		"End-of-RIB IPv6": "0000 0006 800f03 0002 01",
	}
	got := map[string]bool{}
	last := ""
	for range want {
		last = hex.EncodeToString(r.next(update))
		got[last] = true
	}
	for name, w := range want {
		if !got[hex.EncodeToString(unhex(w))] {
			t.Errorf("no %s as wanted among the UPDATEs:\n%v", name, got)
		}
	}
	if last != "00000000" && last != hex.EncodeToString(unhex(want["End-of-RIB IPv6"])) {
		t.Errorf("the last UPDATE is %s, not an End-of-RIB", last)
	}
}

func TestCloseSendsNothingToPeersThatKeepTheRoutes(t *testing.T) {
	parallel(t)
	for _, c := range []struct {
		name string
		caps [][]byte
		end  func(*box) error
		want string
	}{
		{"close", [][]byte{capIPv4, capAS4, capRestart}, func(b *box) error { return b.Close() }, "closed"},
		{"close without graceful restart", [][]byte{capIPv4, capAS4}, func(b *box) error { return b.Close() }, "cease: peer de-configured"},
		{"leave", [][]byte{capIPv4, capAS4, capRestart}, func(b *box) error { return b.Leave(t.Context()) }, "cease: peer de-configured"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			r, b := newRaw(t), newBox(t)
			b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
			b.configure(func(cfg *Config) {
				cfg.GracefulRestart = 120 * time.Second
				cfg.Peers = []Peer{r.peer("r", b.addr)}
			})
			r.establish(c.caps...)
			r.next(update)
			b.established("r")
			ended := make(chan error, 1)
			go func() { ended <- c.end(b) }()
			if got := r.over(); got != c.want {
				t.Errorf("the router sees %q, want %q", got, c.want)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := b.Set(nil); !errors.Is(err, ErrClosed) {
				t.Errorf("Set on a closed Speaker: %v", err)
			}
		})
	}
}

func TestLeaveWithdrawsFirst(t *testing.T) {
	parallel(t)
	r, b := newRaw(t), newBox(t)
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
	b.configure(func(c *Config) { c.Peers = []Peer{r.peer("r", b.addr)} })
	r.establish(capIPv4, capAS4)
	r.next(update)
	b.established("r")
	ended := make(chan error, 1)
	go func() { ended <- b.Leave(t.Context()) }()
	if got, want := r.next(update), unhex("0005 20 c0000201 0000"); !bytes.Equal(got, want) {
		t.Errorf("the first UPDATE is % x, want the withdrawal % x", got, want)
	}
	r.next(notify)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// newReturning returns a router and a box that creates the peer again after each loss of the session.
func newReturning(t *testing.T) (*raw, *box) {
	r, b := newRaw(t), newBox(t)
	b.sessions.recreateAfter = 0
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
	b.configure(func(c *Config) {
		c.GracefulRestart = 120 * time.Second
		c.Peers = []Peer{r.peer("r", b.addr)}
	})
	return r, b
}

// A session that breaks, with weir and the kernel still there, must not cost the
// router its routes when it comes back.
func TestAReturningSessionReportsPreservedForwarding(t *testing.T) {
	parallel(t)
	r, b := newReturning(t)
	for round := range 3 {
		_, values := capabilities(t, r.establish(capIPv4, capAS4, capRestart))
		if got, want := values[64], unhex("8078 0001 01 80 0002 01 80"); !bytes.Equal(got, want) {
			t.Errorf("round %d: graceful restart is % x, want % x", round, got, want)
		}
		if got := r.next(update); len(got) < 5 {
			t.Errorf("round %d: the first UPDATE is % x, not the route", round, got)
		}
		b.established("r")
		r.conn.Close()
		b.hasDown("r", "ended without a NOTIFICATION")
	}
	if s := b.status("r"); s.Flaps != 3 || s.Messages.SentUpdates < 3 {
		t.Errorf("after three sessions: %d flaps, %+v", s.Flaps, s.Messages)
	}
}

// A reload that changes a peer makes it once. A second one, as after a lost session, would cost the router its next
// connection.
func TestAChangedPeerIsMadeOnce(t *testing.T) {
	parallel(t)
	r, b := newReturning(t)
	r.establish(capIPv4, capAS4, capRestart)
	b.established("r")
	b.configure(func(c *Config) { c.Peers[0].Hold = 30 * time.Second })
	if got, want := r.over(), "cease: peer de-configured"; got != want {
		t.Errorf("the router sees %q, want %q", got, want)
	}
	_, values := capabilities(t, r.establish(capIPv4, capAS4, capRestart))
	if restarting := values[64][0]&0x80 != 0; restarting {
		t.Errorf("graceful restart is % x: the peer was created again", values[64])
	}
}

// A router that has a session for each family lacks none, also while one of them is down.
func TestAFamilyOfAnotherSessionIsNoProblem(t *testing.T) {
	parallel(t)
	id, other := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("192.0.2.10")
	for _, tt := range []struct {
		name   string
		change func(v6 *PeerStatus)
		want   string // the problem of the session with IPv4 only
	}{
		{"a session for each family", func(*PeerStatus) {}, ""},
		{"one is down", func(v6 *PeerStatus) { v6.State, v6.RouterID = Active, netip.Addr{} }, ""},
		{"another router of the same ASN", func(v6 *PeerStatus) { v6.RouterID = other }, "the router has no IPv6 unicast"},
		{"a router of another ASN", func(v6 *PeerStatus) { v6.ASN++ }, "the router has no IPv6 unicast"},
	} {
		all := []PeerStatus{
			{Name: "r-v4", Address: id, State: Established, ASN: routerASN, RouterID: id, Families: advertise.Families{IPv4: true}},
			{Name: "r-v6", Address: other, State: Established, ASN: routerASN, RouterID: id, Families: advertise.Families{IPv6: true}},
		}
		tt.change(&all[1])
		has := shown{hops: map[string]hops{}}
		has.route(prefix("2001:db8::1/128"), advertise.Path{Peers: []string{"r-v4", "r-v6"}}, map[string][]*PeerStatus{"r-v4": {&all[0]}}, carriers(all))
		if got := all[0].Problem; !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Routes of a family that the router has not are a problem; without such routes there is none.
func TestRoutesOfAFamilyThatTheRouterHasNotAreAProblem(t *testing.T) {
	parallel(t)
	r, b := newRaw(t), newBox(t)
	v4, v6 := prefix("192.0.2.1/32"), prefix("2001:db8::1/128")
	b.set(map[netip.Prefix][]advertise.Path{v4: to("r")})
	b.configure(func(c *Config) {
		c.NextHops = NextHops{IPv4: netip.MustParseAddr("198.51.100.1"), IPv6: netip.MustParseAddr("2001:db8::b")}
		c.Peers = []Peer{r.peer("r", b.addr)}
	})
	r.establish(capIPv4, capAS4)
	b.established("r")
	has := func(routes int, problem string) {
		t.Helper()
		eventually(t, func() string {
			if s := b.status("r"); s.Advertised != routes || !strings.HasPrefix(s.Problem, problem) || problem == "" && s.Problem != "" {
				return fmt.Sprintf("%+v; want %d routes and the problem %q", s, routes, problem)
			}
			return ""
		})
	}
	has(1, "")
	if id := b.status("r").RouterID; !id.IsValid() {
		t.Error("the router ID is not known")
	}
	b.set(map[netip.Prefix][]advertise.Path{v6: to("r")})
	has(1, "the router has no IPv6 unicast in this session")
	b.set(map[netip.Prefix][]advertise.Path{v6: nil})
	has(1, "")
}

// A box without IPv4 addresses announces IPv4 routes all the same, to who takes that.
func TestIPv4RoutesWithIPv6NextHops(t *testing.T) {
	parallel(t)
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		l.Close()
	}
	for _, c := range []struct {
		name  string
		caps  [][]byte
		takes bool
	}{
		{"RFC 8950", [][]byte{capIPv4, capIPv6, capAS4, capExtended}, true},
		{"without", [][]byte{capIPv4, capIPv6, capAS4}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			r := newRawAt(t, netip.IPv6Loopback())
			s := newSpeaker(quietLog())
			e := newEngine(s.log, s.sessions)
			e.next.interfaces = func() [][]netip.Addr { return nil }
			go s.run(e)
			b := &box{Speaker: s, t: t, cfg: Config{ASN: boxASN, RouterID: loopback(), Peers: []Peer{r.peer("r", netip.Addr{})}}}
			t.Cleanup(func() { _ = b.Close() })
			b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
			b.configure(nil)
			r.establish(c.caps...)
			b.established("r")
			routes := func() int { return b.status("r").Advertised }
			if c.takes {
				want := unhex("0000 0031 400101 00 400206 0201 0000fde9 800404 00000000" +
					"800e1a 0001 01 10 00000000000000000000000000000001 00 20 c0000201")
				if got := r.next(update); !bytes.Equal(got, want) {
					t.Errorf("have % x\nwant % x", got, want)
				}
				if routes() != 1 || b.status("r").Problem != "" {
					t.Errorf("%+v", b.status("r"))
				}
				return
			}
			eventually(t, func() string {
				if p := b.status("r"); p.Advertised != 0 || !strings.Contains(p.Problem, "no IPv4 next hop is known") {
					return fmt.Sprintf("%+v", p)
				}
				return ""
			})
		})
	}
}
