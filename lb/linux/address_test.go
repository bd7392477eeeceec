package linux

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

func isLink(o lb.Object) bool { return watched(o) }

func linkObjects() []lb.Object {
	a, p := netip.MustParseAddr, netip.MustParsePrefix
	return []lb.Object{
		lb.Device{Name: "kube-ipvs0"},
		lb.Address{Addr: a("192.0.2.1")}, lb.Address{Addr: a("2001:db8::1")},
		lb.PoolRoute{Prefix: p("198.51.100.0/24")}, lb.PoolRoute{Prefix: p("2001:db8:100::/64")},
		lb.PoolRoute{Prefix: p("198.51.101.0/24"), Src: a("10.9.0.1")},
		lb.PoolRoute{Prefix: p("2001:db8:101::/64"), Src: a("2001:db8:9::1")},
		lb.Unreachable{Prefix: p("203.0.113.0/24")}, lb.Unreachable{Prefix: p("2001:db8:113::/64")},
		lb.TunnelDevice{Remote: a("10.9.0.2")},
	}
}

// host adds an interface with a forwarding neighbour to the box.
func host(t *testing.T) {
	t.Helper()
	inNamespace(t)
	sh(t, "ip link add host0 type veth peer name host1 && ip link set host0 up && ip link set host1 up && "+
		"ip addr add 10.9.0.1/24 dev host0 && ip -6 addr add 2001:db8:9::1/64 dev host0 nodad")
	t.Cleanup(func() { sh(t, "ip link del host0") })
}

func TestLinksComeBack(t *testing.T) {
	inBox(t)
	host(t)
	k := newKernel(t)
	want := linkObjects()
	t.Cleanup(func() { remove(t, k, want...) })
	for range 2 {
		add(t, k, want...)
	}
	obs, err := k.Observe(context.Background(), nil)
	must(t, err)
	objects := obs.Objects.Snapshot()
	for id := range objects {
		if !isLink(id) {
			delete(objects, id)
		}
	}
	if d := cmp.Diff(lb.NewSnapshot(want...), objects, compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, sh(t, "ip a; ip r show table local; ip -6 r show table local"))
	}
	hosts := map[netip.Addr]string{netip.MustParseAddr("10.9.0.1"): "host0", netip.MustParseAddr("2001:db8:9::1"): "host0"}
	if d := cmp.Diff(hosts, obs.HostAddrs, compareNetip); d != "" {
		t.Errorf("host addresses (-want +got):\n%s", d)
	}
	for to, want := range map[string]string{
		"192.0.2.1": "local", "2001:db8::1": "local", "198.51.100.7": "local", "2001:db8:100::7": "local",
		"198.51.101.7": "src 10.9.0.1", "2001:db8:101::7": "src 2001:db8:9::1",
	} {
		if got := sh(t, "ip route get %s", to); !strings.HasPrefix(got, "local") || !strings.Contains(got, want) {
			t.Errorf("route to %s: %s", to, got)
		}
	}
	for range 2 {
		remove(t, k, want...)
	}
	if got := snapshot(t, k, isLink); len(got) != 0 {
		t.Errorf("after removal: %v", got)
	}
}

func TestManyAddressesComeBack(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	want := []lb.Object{lb.Device{Name: "kube-ipvs0"}}
	for i := range 2000 {
		want = append(want, lb.Address{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})})
		v6 := netip.MustParseAddr("2001:db8::").As16()
		v6[14], v6[15] = byte(i>>8)+1, byte(i)
		want = append(want, lb.Address{Addr: netip.AddrFrom16(v6)})
	}
	add(t, k, want...)
	kernelHas(t, k, isLink, "added", want...)
	remove(t, k, want...)
}

// The kernel acknowledges an IPv6 address before it has its route, which a kernel with one
// processor rarely shows.
func TestAddedAddressWaitsForItsRoute(t *testing.T) {
	t.Parallel()
	asked := 0
	c, _ := playedConn(&played{kernel: func(m message) []byte {
		if m.typ != unix.RTM_GETROUTE {
			return ack(m, 0)
		}
		asked++
		route := make([]byte, unix.SizeofRtMsg)
		switch route[7] = unix.RTN_LOCAL; asked {
		case 1:
			return ack(m, unix.ENETUNREACH)
		case 2:
			route[7] = unix.RTN_UNICAST // the default route
		}
		return append(reply(m, unix.RTM_NEWROUTE, route...), ack(m, 0)...)
	}})
	a := &addresses{conn: c, device: "kube-ipvs0"}
	a.index.Store(1)
	op := func(v lb.Verb, addr string) lb.Op {
		return lb.Op{Verb: v, Object: lb.Address{Addr: netip.MustParseAddr(addr)}}
	}
	for _, tc := range []struct {
		op    lb.Op
		asked int
	}{{op(lb.Add, "192.0.2.1"), 0}, {op(lb.Delete, "2001:db8::1"), 0}, {op(lb.Add, "2001:db8::1"), 3}} {
		if err := a.applyAddresses(t.Context(), []lb.Op{tc.op})[0]; err != nil || asked != tc.asked {
			t.Errorf("%v: asked %d times for the route, want %d; error %v", tc.op, asked, tc.asked, err)
		}
	}
}

// A client's packet may come as soon as the address is reported as added.
func TestAddedAddressIsLocalAtOnce(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	all := []lb.Object{lb.Device{Name: "kube-ipvs0"}}
	add(t, k, all...)
	late := 0
	for i := range 500 {
		v6 := netip.MustParseAddr("2001:db8::").As16()
		v6[14], v6[15] = byte(i>>8)+1, byte(i)
		addr := netip.AddrFrom16(v6)
		all = append(all, lb.Address{Addr: addr})
		add(t, k, lb.Address{Addr: addr})
		if !k.addresses.isLocal(t.Context(), addr) {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d of 500 addresses are not yet local", late)
	}
	remove(t, k, all...)
}

func TestUnreachableYieldsToAnInterface(t *testing.T) {
	host(t)
	k := newKernel(t, withoutIPVS)
	own := []lb.Object{lb.Unreachable{Prefix: netip.MustParsePrefix("10.9.0.0/24")}, lb.Unreachable{Prefix: netip.MustParsePrefix("2001:db8:9::/64")}}
	other := []lb.Object{lb.Unreachable{Prefix: netip.MustParsePrefix("203.0.113.0/24")}, lb.Unreachable{Prefix: netip.MustParsePrefix("2001:db8:113::/64")}}
	for range 2 {
		add(t, k, slices.Concat(own, other)...)
	}
	kernelHas(t, k, isLink, "added", slices.Concat(own, other)...)
	for _, to := range []string{"10.9.0.77", "2001:db8:9::77"} {
		if got := sh(t, "ip route get %s", to); !strings.Contains(got, "dev host0") {
			t.Errorf("the route to the neighbour %s: %s", to, got)
		}
	}
	for _, to := range []string{"203.0.113.77", "2001:db8:113::77"} {
		if got := sh(t, "ip route get %s 2>&1 || true", to); !strings.Contains(got, "unreachable") && !strings.Contains(got, "No route to host") {
			t.Errorf("the route to %s: %s", to, got)
		}
	}
	for range 2 {
		remove(t, k, slices.Concat(own, other)...)
	}
	if got := sh(t, "ip route show proto 87; ip -6 route show proto 87"); got != "" {
		t.Errorf("left: %s", got)
	}
	if got := sh(t, "ip route show 10.9.0.0/24; ip -6 route show 2001:db8:9::/64"); strings.Count(got, "host0") != 2 {
		t.Errorf("the interface's own routes: %s", got)
	}
}

func TestPoolRouteTakesANewSource(t *testing.T) {
	host(t)
	k := newKernel(t, withoutIPVS)
	r := lb.PoolRoute{Prefix: netip.MustParsePrefix("198.51.100.0/24")}
	r6 := lb.PoolRoute{Prefix: netip.MustParsePrefix("2001:db8:100::/64")}
	add(t, k, r, r6)
	t.Cleanup(func() { remove(t, k, r, r6) })
	r.Src, r6.Src = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("2001:db8:9::1")
	apply(t, k, lb.Op{Verb: lb.Change, Object: r}, lb.Op{Verb: lb.Change, Object: r6})
	kernelHas(t, k, isLink, "added", r, r6)
	bad := r
	bad.Src = netip.MustParseAddr("10.77.0.1")
	errs := k.Apply(context.Background(), []lb.Op{{Verb: lb.Change, Object: bad}})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "is 10.77.0.1 an address of this box?") {
		t.Errorf("a source that is not the box's: %v", errs[0])
	}
}

func TestRouteErrorsBlameASourceThatIsThere(t *testing.T) {
	t.Parallel()
	op := lb.Op{Verb: lb.Add, Object: lb.PoolRoute{Prefix: netip.MustParsePrefix("198.51.100.0/24")}}
	if err := explainRoute(unix.EINVAL, op); !errors.Is(err, unix.EINVAL) || strings.Contains(err.Error(), "address of this box") {
		t.Errorf("a route without a source: %v", err)
	}
	op.Object = lb.PoolRoute{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Src: netip.MustParseAddr("10.77.0.1")}
	if err := explainRoute(unix.EINVAL, op); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "is 10.77.0.1 an address of this box?") {
		t.Errorf("a route with a source: %v", err)
	}
}

func TestForeignRoutesAndAddressesAreNotWeirs(t *testing.T) {
	host(t)
	k := newKernel(t, withoutIPVS)
	sh(t, "ip route add local 198.51.100.0/24 dev lo && ip -6 route add local 2001:db8:100::/64 dev lo && ip route add 203.0.113.0/24 dev host0 proto %d", RouteProtocol)
	t.Cleanup(func() {
		sh(t, "ip route del local 198.51.100.0/24 dev lo; ip -6 route del local 2001:db8:100::/64 dev lo; ip route del 203.0.113.0/24")
	})
	if got := snapshot(t, k, isLink); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestInterfaceOfAnotherKindIsNotWeirs(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add kube-ipvs0 type veth peer name other0")
	t.Cleanup(func() { sh(t, "ip link del kube-ipvs0") })
	k := newKernel(t, withoutIPVS)
	device := lb.Device{Name: "kube-ipvs0"}
	for _, verb := range []lb.Verb{lb.Add, lb.Delete} {
		errs := k.Apply(context.Background(), []lb.Op{{Verb: verb, Object: device}})
		if verb == lb.Delete {
			if errs[0] == nil || !strings.Contains(errs[0].Error(), "not weir's") {
				t.Errorf("delete: %v", errs[0])
			}
			continue
		}
		// Without dummy devices the kernel returns that error first.
		if _, ok := errors.AsType[*MissingError](errs[0]); ok {
			continue
		}
		if errs[0] == nil || !strings.Contains(errs[0].Error(), "another device name") {
			t.Errorf("add: %v", errs[0])
		}
	}
	if got := snapshot(t, k, isLink); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestTunnelDeviceIsRepaired(t *testing.T) {
	inBox(t)
	host(t)
	k := newKernel(t)
	d := lb.TunnelDevice{Remote: netip.MustParseAddr("10.9.0.2")}
	add(t, k, d)
	t.Cleanup(func() { remove(t, k, d) })
	for _, damage := range []string{"ip link set weir-0a090002 down", "ip addr flush dev weir-0a090002", "sysctl -qw net.ipv4.conf.weir-0a090002.rp_filter=1", "sysctl -qw net.ipv4.conf.weir-0a090002.forwarding=1"} {
		sh(t, "%s", damage)
		damaged := lb.TunnelDevice{Remote: d.Remote, Damaged: true}
		kernelHas(t, k, isLink, damage, damaged)
		apply(t, k, lb.Op{Verb: lb.Change, Object: d})
		kernelHas(t, k, isLink, "repaired, after "+damage, d)
	}
	remove(t, k, d)
	sh(t, "ip link add other type ipip remote 10.9.0.2")
	if errs := k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: d}}); errs[0] == nil || !strings.Contains(errs[0].Error(), "another tunnel device decapsulates packets from 10.9.0.2") {
		t.Errorf("beside a foreign tunnel: %v", errs[0])
	}
	sh(t, "ip link del other && ip link add weir-0a090002 type dummy")
	if errs := k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: d}}); errs[0] == nil || !strings.Contains(errs[0].Error(), "is not weir's (dummy)") {
		t.Errorf("beside a foreign interface: %v", errs[0])
	}
	sh(t, "ip link del weir-0a090002")
}

// TestTunnelDeviceDelivers sends packets of a client through a tunnel, whatever the reverse path
// filter of all interfaces is. The replies return by another interface. Only packets to addresses
// of the box are delivered.
func TestTunnelDeviceDelivers(t *testing.T) {
	inBox(t)
	inNamespace(t)
	sh(t, `
for n in 8 9; do
	ip netns add far$n
	ip link add near$n type veth peer name eth netns far$n
	ip addr add 10.$n.0.1/24 dev near$n
	ip link set near$n up
	ip -n far$n addr add 10.$n.0.2/24 dev eth
	ip -n far$n link set eth up
	ip -n far$n route add default via 10.$n.0.1
done
ip -n far9 addr add 10.7.0.2/32 dev eth
ip route add 10.7.0.2 via 10.9.0.2
ip -n far9 link add out type ipip local 10.9.0.2 remote 10.9.0.1
ip -n far9 link set out up
ip -n far9 route add 192.0.2.1 dev out src 10.7.0.2
ip -n far9 route add 10.8.0.2 dev out src 10.7.0.2
sysctl -qw net.ipv4.ip_forward=1`)
	t.Cleanup(func() { sh(t, "ip netns del far8; ip netns del far9; sysctl -qw net.ipv4.conf.all.rp_filter=0") })
	k := newKernel(t)
	want := []lb.Object{lb.TunnelDevice{Remote: netip.MustParseAddr("10.9.0.2")}, lb.Device{Name: "kube-ipvs0"}, lb.Address{Addr: netip.MustParseAddr("192.0.2.1")}}
	add(t, k, want...)
	t.Cleanup(func() { remove(t, k, want...) })
	// A host without a listener refuses a connection, so its answer has come.
	answers := func(to string) bool {
		return strings.Contains(sh(t, "ip netns exec far9 timeout 1 bash -c '</dev/tcp/%s/9' 2>&1 || true", to), "refused")
	}
	for filter := range 3 {
		sh(t, "sysctl -qw net.ipv4.conf.all.rp_filter=%d", filter)
		if !answers("192.0.2.1") {
			t.Errorf("no answer of a VIP, with rp_filter %d of all interfaces:\n%s", filter, sh(t, "ip netns exec far9 timeout 1 bash -c '</dev/tcp/192.0.2.1/9' 2>&1; ip -n far9 route; ip -n far9 -s link; ip -s link"))
		}
	}
	sh(t, "sysctl -qw net.ipv4.conf.all.rp_filter=0")
	if answers("10.8.0.2") {
		t.Error("the device forwards packets to another host")
	}
	if sh(t, "sysctl -qw net.ipv4.conf.weir-0a090002.forwarding=1"); !answers("10.8.0.2") {
		t.Error("the other host does not answer with forwarding, so it proves nothing")
	}
}
