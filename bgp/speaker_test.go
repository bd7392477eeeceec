package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"weir/bgp/advertise"
)

const (
	boxASN    = 65001
	routerASN = 65002
	patience  = time.Minute // of tests, on a busy machine
)

// router is a plain GoBGP on a loopback address, as the other end.
type router struct {
	t     *testing.T
	gobgp *server.BgpServer
	addr  netip.Addr
	port  int
	asn   uint32
}

var lastHost atomic.Uint32

// loopback gives an address that no other test has.
func loopback() netip.Addr {
	n := lastHost.Add(1)
	return netip.AddrFrom4([4]byte{127, 10 + byte(os.Getpid()%200), byte(n >> 8), byte(n)})
}

// freePort is one without a listener at addr.
func freePort(t testing.TB, addr netip.Addr) int {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// parallel is t.Parallel where GoBGP allows it.
func parallel(t *testing.T) {
	t.Helper()
	if !oneAtATime {
		t.Parallel()
	}
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newRouter(t *testing.T, asn uint32) *router {
	t.Helper()
	return newRouterAt(t, loopback(), asn)
}

func newRouterAt(t *testing.T, addr netip.Addr, asn uint32) *router {
	t.Helper()
	r := &router{t: t, gobgp: server.NewBgpServer(), addr: addr, asn: asn, port: freePort(t, addr)}
	go r.gobgp.Serve()
	id := addr
	if !id.Is4() {
		id = loopback()
	}
	err := r.gobgp.StartBgp(context.Background(), &api.StartBgpRequest{Global: &api.Global{
		Asn: asn, RouterId: id.String(), ListenPort: int32(r.port), ListenAddresses: []string{addr.String()},
	}})
	must(t, err)
	t.Cleanup(r.stop)
	return r
}

func (r *router) stop() {
	if r.gobgp != nil {
		r.gobgp.Stop()
		r.gobgp = nil
	}
}

// expect has the router wait for a box, with whatever edit makes of it.
func (r *router) expect(box netip.Addr, asn uint32, edit func(*api.Peer)) {
	r.t.Helper()
	p := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: box.String(), PeerAsn: asn},
		Transport: &api.Transport{PassiveMode: true},
		AfiSafis: []*api.AfiSafi{
			{Config: &api.AfiSafiConfig{Family: familyIPv4, Enabled: true}},
			{Config: &api.AfiSafiConfig{Family: familyIPv6, Enabled: true}},
		},
	}
	if edit != nil {
		edit(p)
	}
	if err := r.gobgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: p}); err != nil {
		r.t.Fatal(err)
	}
}

// peer is how a box knows the router.
func (r *router) peer(name string, source netip.Addr) Peer {
	return Peer{Name: name, Address: r.addr, ASN: r.asn, Port: r.port, Source: source, ConnectRetry: minRetry}
}

// routes is what the router has, a line a route: prefix, next hop, AS path and the
// communities.
func (r *router) routes() []string {
	var out []string
	for _, f := range []packet.Family{packet.RF_IPv4_UC, packet.RF_IPv6_UC} {
		err := r.gobgp.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: f},
			func(prefix packet.NLRI, paths []*apiutil.Path) {
				for _, p := range paths {
					out = append(out, prefix.String()+" "+attributes(p.Attrs))
				}
			})
		if err != nil {
			r.t.Error(err)
		}
	}
	slices.Sort(out)
	return out
}

func attributes(attrs []packet.PathAttributeInterface) string {
	var out []string
	for _, a := range attrs {
		switch a := a.(type) {
		case *packet.PathAttributeNextHop:
			out = append(out, "via "+a.Value.String())
		case *packet.PathAttributeMpReachNLRI:
			out = append(out, "via "+a.Nexthop.String())
		case *packet.PathAttributeAsPath:
			out = append(out, "path ["+packet.AsPathString(a)+"]")
		case *packet.PathAttributeMultiExitDisc:
			out = append(out, fmt.Sprintf("med %d", a.Value))
		case *packet.PathAttributeLocalPref:
			out = append(out, fmt.Sprintf("pref %d", a.Value))
		case *packet.PathAttributeCommunities:
			for _, c := range a.Value {
				out = append(out, advertise.Community(c).String())
			}
		case *packet.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				out = append(out, c.String())
			}
		case *packet.PathAttributeOrigin:
			out = append(out, fmt.Sprintf("origin %d", a.Value))
		default:
			out = append(out, a.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// box is a Speaker on an address of its own.
type box struct {
	*Speaker
	t    testing.TB
	addr netip.Addr
	cfg  Config
}

func newBox(t testing.TB, peers ...Peer) *box {
	t.Helper()
	return newBoxAt(t, loopback(), peers...)
}

func newBoxAt(t testing.TB, addr netip.Addr, peers ...Peer) *box {
	t.Helper()
	log := quietLog()
	if testing.Verbose() && os.Getenv("BGP_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	id := addr
	if !id.Is4() {
		id = loopback()
	}
	b := &box{Speaker: New(log), t: t, addr: addr, cfg: Config{ASN: boxASN, RouterID: id, Peers: peers}}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// configure gives the box the Config that edit makes of its own.
func (b *box) configure(edit func(*Config)) {
	b.t.Helper()
	if edit != nil {
		edit(&b.cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Configure(ctx, b.cfg); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) set(changes map[netip.Prefix][]advertise.Path) {
	b.t.Helper()
	if err := b.Set(changes); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) status(name string) PeerStatus {
	for _, p := range b.Status().Peers {
		if p.Name == name && p.Address.IsValid() {
			return p
		}
	}
	return PeerStatus{}
}

func (b *box) established(names ...string) {
	b.t.Helper()
	for _, name := range names {
		eventually(b.t, func() string {
			if p := b.status(name); p.State != Established {
				return fmt.Sprintf("%s is %q: %s", name, p.State, p.Down)
			}
			return ""
		})
	}
}

// eventually waits until wrong returns "".
func eventually(t testing.TB, wrong func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		problem := wrong()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %s: %s", patience, problem)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *router) has(want ...string) {
	r.t.Helper()
	slices.Sort(want)
	eventually(r.t, func() string { return cmp.Diff(want, r.routes()) })
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func to(names ...string) []advertise.Path { return []advertise.Path{{Peers: names}} }

func TestEachPeerGetsItsOwnAttributes(t *testing.T) {
	parallel(t)
	upstream, core := newRouter(t, routerASN), newRouter(t, boxASN)
	b := newBox(t)
	upstream.expect(b.addr, boxASN, nil)
	core.expect(b.addr, boxASN, nil)
	b.set(map[netip.Prefix][]advertise.Path{
		prefix("192.0.2.1/32"): {
			{Peers: []string{"upstream"}, MED: advertise.MetricOf(7), Prepend: 2, LocalPref: advertise.MetricOf(300),
				Communities: []advertise.Community{advertise.NoExport, 65001<<16 | 100, advertise.NoExport}, LargeCommunities: []advertise.LargeCommunity{{ASN: 65001, Data1: 2, Data2: 3}}},
			{Peers: []string{"core"}, LocalPref: advertise.MetricOf(0), Prepend: 3, Communities: []advertise.Community{advertise.GracefulShutdown}},
		},
		prefix("192.0.2.2/32"):       to("core"),
		prefix("192.0.2.3/32"):       {{Peers: []string{"upstream", "core"}, LocalPref: advertise.MetricOf(150)}},
		prefix("192.0.2.4/32"):       {{}},
		prefix("2001:db8::1/128"):    to("upstream"),
		prefix("198.51.100.0/24"):    to("nobody"),
		prefix("2001:db8:1::/48"):    to("core"),
		prefix("203.0.113.128/25"):   to("upstream", "nobody"),
		prefix("203.0.113.255/32"):   nil,
		prefix("2001:db8::ffff/128"): nil,
	})
	b.configure(func(c *Config) {
		c.NextHops.IPv6 = netip.MustParseAddr("2001:db8::b")
		c.Peers = []Peer{upstream.peer("upstream", b.addr), core.peer("core", b.addr)}
	})
	b.established("upstream", "core")
	hop := "via " + b.addr.String()
	upstream.has(
		"192.0.2.1/32 65001:100 65001:2:3 med 7 no-export origin 0 path [65001 65001 65001] "+hop,
		"192.0.2.3/32 med 0 origin 0 path [65001] "+hop,
		"2001:db8::1/128 med 0 origin 0 path [65001] via 2001:db8::b",
		"203.0.113.128/25 med 0 origin 0 path [65001] "+hop,
	)
	core.has(
		"192.0.2.1/32 graceful-shutdown med 0 origin 0 path [] pref 0 "+hop,
		"192.0.2.2/32 med 0 origin 0 path [] pref 100 "+hop,
		"192.0.2.3/32 med 0 origin 0 path [] pref 150 "+hop,
		"2001:db8:1::/48 med 0 origin 0 path [] pref 100 via 2001:db8::b",
	)
	if got := b.status("upstream").Advertised; got != 4 {
		t.Errorf("Status counts %d prefixes for upstream, want 4", got)
	}

	// Who loses a prefix, and who sees it change.
	b.set(map[netip.Prefix][]advertise.Path{
		prefix("192.0.2.1/32"):     {{Peers: []string{"core"}, MED: advertise.MetricOf(9)}},
		prefix("192.0.2.2/32"):     to("upstream"),
		prefix("192.0.2.3/32"):     nil,
		prefix("2001:db8::1/128"):  nil,
		prefix("203.0.113.128/25"): to("core"),
	})
	upstream.has("192.0.2.2/32 med 0 origin 0 path [65001] " + hop)
	core.has(
		"192.0.2.1/32 med 9 origin 0 path [] pref 100 "+hop,
		"2001:db8:1::/48 med 0 origin 0 path [] pref 100 via 2001:db8::b",
		"203.0.113.128/25 med 0 origin 0 path [] pref 100 "+hop,
	)
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
