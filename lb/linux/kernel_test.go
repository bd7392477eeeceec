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

func isServer(o lb.Object) bool {
	switch o.(type) {
	case lb.VirtualServer, lb.RealServer:
		return true
	}
	return false
}

func real(fe lb.Frontend, addr string, weight uint32) lb.RealServer {
	return lb.RealServer{Frontend: fe, Addr: netip.MustParseAddrPort(addr), Weight: weight}
}

// someServers returns servers with every scheduler, protocol, family and attribute that the
// test's mode supports.
func someServers() []lb.Object {
	var out []lb.Object
	port := uint16(1000)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range lb.Schedulers {
			if name != "twos" && !yield(name) { // in Linux since 6.2
				return
			}
		}
	}) {
		for _, vip := range []string{"192.0.2.1", "2001:db8::1"} {
			for _, proto := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
				port++
				fe := lb.Frontend{Addr: netip.MustParseAddr(vip), Port: port, Proto: proto}
				if port%4 == 0 { // one by mark, with the protocol in its number
					fe = lb.MarkFrontend(lb.FamilyOf(fe.Addr), uint32(port)<<8)
				}
				vs := lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: name, Flags: lb.Schedulers[name]}, Affinity: uint32(port % 3 * 100)}
				backend, network := "10.0.0.1", uint32(0xff000000) // a /24, in the byte order of the network
				if fe.Addr.Is6() {
					backend, network = "2001:db8:1::1", 64
				}
				if vs.Affinity == 200 && testMode == ModeIPVS {
					vs.Mask = network
				}
				out = append(out, vs)
				for i, weight := range []uint32{0, 1, 65535} {
					rs := lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(netip.MustParseAddr(backend), uint16(8000+i)), Weight: weight}
					if i == 1 && testMode == ModeIPVS {
						if rs.Forward = lb.Forwarding(port % 4); rs.Forward == lb.Tunnel {
							rs.Encap = []lb.Encap{{}, {Type: lb.GUE, Port: 6080, Checksum: lb.RemoteChecksum}, {Type: lb.GRE, Checksum: lb.FullChecksum}}[port%3]
						}
					}
					if i == 2 && port%2 == 0 {
						rs.Upper, rs.Lower = 100000, 1000
					}
					out = append(out, rs)
				}
			}
		}
	}
	return out
}

func TestServersComeBack(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	want := someServers()
	t.Cleanup(func() { remove(t, k, want...) })
	for range 2 { // present on add is success
		add(t, k, want...)
	}
	for _, depth := range []string{"deep", "shallow"} {
		kernelHas(t, k, isServer, depth, want...)
	}
	text := sh(t, "ipvsadm -Sn")
	for _, line := range []string{
		"-s mh -p 100 -b mh-fallback,mh-port", "-s sh -b sh-fallback,sh-port", "-m -w 65535", "-A -t [2001:db8::1]:", "--sctp-service 192.0.2.1:",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("ipvsadm -S has no %q:\n%s", line, text)
		}
	}
	for range 2 {
		remove(t, k, want...)
	}
	if got := snapshot(t, k, isServer); len(got) != 0 {
		t.Errorf("after removal: %v", got)
	}
}

func TestServersTakeNewAttributes(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	fe := frontend("192.0.2.1:80", lb.TCP)
	vs := lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}
	rs := real(fe, "10.0.0.1:80", 1)
	add(t, k, vs, rs)
	t.Cleanup(func() { remove(t, k, vs, rs) })

	vs.Scheduler, vs.Affinity = lb.Scheduler{Name: "mh", Flags: lb.WithPort}, 60
	rs.Weight, rs.Upper, rs.Lower = 7, 20, 10
	apply(t, k, lb.Op{Verb: lb.Change, Object: vs}, lb.Op{Verb: lb.Change, Object: rs})
	kernelHas(t, k, isServer, "change", vs, rs)
	sh(t, "ipvsadm -e -t 192.0.2.1:80 -r 10.0.0.1:80 -g -w 3; ipvsadm -E -t 192.0.2.1:80 -s lc -p 60 -M 255.255.255.0")
	if got := snapshot(t, k, isServer); got[vs.ID()] == vs || got[rs.ID()] == rs {
		t.Errorf("a foreign edit goes unnoticed: %v", got)
	}
	apply(t, k, lb.Op{Verb: lb.Add, Object: vs}, lb.Op{Verb: lb.Add, Object: rs}) // over existing ones
	kernelHas(t, k, isServer, "repair", vs, rs)
	sh(t, "ipvsadm -C")
	apply(t, k, lb.Op{Verb: lb.Change, Object: vs}, lb.Op{Verb: lb.Change, Object: rs}) // of missing ones
	kernelHas(t, k, isServer, "after a flush", vs, rs)
}

func TestForeignLimitsAreFoundByADeepObservation(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	fe := frontend("192.0.2.1:80", lb.TCP)
	vs := lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}
	rs := real(fe, "10.0.0.1:80", 1)
	add(t, k, vs, rs)
	t.Cleanup(func() { remove(t, k, vs, rs) })
	snapshot(t, k, isServer)
	sh(t, "ipvsadm -e -t 192.0.2.1:80 -r 10.0.0.1:80 -m -w 1 -x 9")
	for range deepEvery + 1 {
		if snapshot(t, k, isServer)[rs.ID()] != rs {
			return
		}
	}
	t.Error("a limit is never seen")
}

func TestEachServerHasItsOwnError(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	fe, none := frontend("192.0.2.1:80", lb.TCP), frontend("192.0.2.2:80", lb.TCP)
	vs := lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}
	add(t, k, vs)
	t.Cleanup(func() { remove(t, k, vs) })

	errs := k.Apply(context.Background(), []lb.Op{
		{Verb: lb.Add, Object: lb.VirtualServer{Frontend: none, Scheduler: lb.Scheduler{Name: "nosuch"}}},
		{Verb: lb.Add, Object: vs},
		{Verb: lb.Delete, Object: lb.VirtualServer{Frontend: none}},
	})
	if want := (*MissingError)(nil); !errors.As(errs[0], &want) || !strings.Contains(errs[0].Error(), "modprobe ip_vs_nosuch") {
		t.Errorf("a scheduler that does not exist: %v", errs[0])
	}
	if errs[1] != nil || errs[2] != nil {
		t.Errorf("errors %v", errs[1:])
	}

	var ops []lb.Op
	for i := range 1000 {
		rs := lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), Weight: 1}
		switch i % 100 {
		case 17:
			rs.Frontend = none
		case 18:
			rs.Upper, rs.Lower = 1, 2
		}
		ops = append(ops, lb.Op{Verb: lb.Add, Object: rs})
	}
	for i, err := range k.Apply(context.Background(), ops) {
		want := map[int]error{17: unix.ESRCH, 18: unix.ERANGE}[i%100]
		if !errors.Is(err, want) {
			t.Errorf("real server %d: %v, want %v", i, err, want)
		}
	}
	if got := len(snapshot(t, k, isServer)); got != 981 {
		t.Errorf("%d objects, want 981", got)
	}
	errs = k.Apply(context.Background(), []lb.Op{{Verb: lb.Delete, Object: real(none, "10.0.0.1:80", 1)}})
	if errs[0] != nil {
		t.Errorf("delete a real server of no virtual server: %v", errs[0])
	}
}

// The kernel runs modprobe for each virtual server with a missing scheduler: one request is
// made, and the others are served.
func TestAMissingSchedulerIsAskedForOnce(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	var ops []lb.Op
	var served []lb.Object
	for i := range 1000 {
		vs := lb.VirtualServer{Frontend: lb.Frontend{Addr: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP}}
		if vs.Scheduler.Name = "nosuch"; i%10 == 9 {
			vs.Scheduler.Name = "rr"
			served = append(served, vs)
		}
		ops = append(ops, lb.Op{Verb: lb.Add, Object: vs})
	}
	t.Cleanup(func() { remove(t, k, served...) })
	before := k.counters.IPVS.Messages.Load()
	for i, err := range k.Apply(context.Background(), ops) {
		if missing := (*MissingError)(nil); errors.As(err, &missing) != (i%10 != 9) {
			t.Errorf("%s: %v", ops[i], err)
		}
	}
	if sent := k.counters.IPVS.Messages.Load() - before; sent != 101 {
		t.Errorf("%d messages, want one for the scheduler that is missing and 100 for the others", sent)
	}
	if got := len(snapshot(t, k, isServer)); got != 100 {
		t.Errorf("%d virtual servers, want 100", got)
	}
}

func TestObserveOnlySome(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	fe, other := frontend("192.0.2.1:80", lb.TCP), frontend("[2001:db8::1]:80", lb.TCP)
	want := []lb.Object{
		lb.VirtualServer{Frontend: other, Scheduler: lb.Scheduler{Name: "rr"}},
		lb.RealServer{Frontend: other, Addr: netip.MustParseAddrPort("[2001:db8:1::1]:80"), Weight: 3},
	}
	all := append([]lb.Object{lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}, real(fe, "10.0.0.1:80", 1)}, want...)
	add(t, k, all...)
	t.Cleanup(func() { remove(t, k, all...) })
	obs, err := k.Observe(context.Background(), nil, other, frontend("192.0.2.77:80", lb.TCP))
	must(t, err)
	if d := cmp.Diff(lb.NewSnapshot(want...), obs.Objects.Snapshot(), compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestTimeouts(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	ctx := context.Background()
	before, err := k.Timeouts(ctx)
	must(t, err)
	t.Cleanup(func() { k.SetTimeouts(ctx, before) })
	must(t, k.SetTimeouts(ctx, Timeouts{TCP: 1234, UDP: 56}))
	want := Timeouts{TCP: 1234, TCPFin: before.TCPFin, UDP: 56}
	if got, err := k.Timeouts(ctx); err != nil || got != want {
		t.Errorf("timeouts %s, %v, want %s", got, err, want)
	}
}

func TestOneBackendIsOneMessage(t *testing.T) {
	inBox(t)
	inNamespace(t)
	k := newKernel(t)
	fe := frontend("192.0.2.1:80", lb.TCP)
	vs := lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}
	rs := real(fe, "10.0.0.1:80", 1)
	add(t, k, vs)
	t.Cleanup(func() { remove(t, k, vs) })
	total := func() uint64 {
		c := k.Counters()
		n := c.Execs.Load()
		for _, part := range []*Traffic{&c.IPVS, &c.IPSet, &c.Route, &c.Conntrack} {
			n += part.Messages.Load()
		}
		return n
	}
	for _, verb := range []lb.Verb{lb.Add, lb.Change, lb.Delete} {
		before := total()
		apply(t, k, lb.Op{Verb: verb, Object: rs})
		if got := total() - before; got != 1 {
			t.Errorf("%s takes %d messages", verb, got)
		}
	}
}

// TestMixedFamilies compares the real servers of the other family with those of lb.Fake: only tunnels
// are possible, and not together with a synchronization of connections, in either order.
func TestMixedFamilies(t *testing.T) {
	inBox(t)
	host(t)
	k, fake := newKernel(t), &lb.Fake{}
	both := func(what string, want bool, op lb.Op) {
		t.Helper()
		errs := [2]error{k.Apply(t.Context(), []lb.Op{op})[0], fake.Apply(t.Context(), []lb.Op{op})[0]}
		if (errs[0] == nil) != want || (errs[1] == nil) != want {
			t.Errorf("%s: %s: the kernel %v, the fake %v, want success: %v", what, op, errs[0], errs[1], want)
		}
	}
	sync := lb.SyncDaemon{Role: lb.SyncBackup, Interface: "host0", Group: netip.MustParseAddrPort("224.0.0.81:8848"), TTL: 1, MaxLen: 1400}
	for vip, backend := range map[string]string{"192.0.2.1": "2001:db8:9::2", "2001:db8::1": "10.9.0.2"} {
		f := lb.Frontend{Addr: netip.MustParseAddr(vip), Port: 80, Proto: lb.TCP}
		vs := lb.VirtualServer{Frontend: f, Scheduler: lb.Scheduler{Name: "rr"}}
		rs := lb.RealServer{Frontend: f, Addr: netip.AddrPortFrom(netip.MustParseAddr(backend), 80), Weight: 1}
		both(vip, true, lb.Op{Verb: lb.Add, Object: vs})
		for _, method := range []lb.Forwarding{lb.Masquerading, lb.DirectRouting} {
			rs.Forward = method
			both(vip, false, lb.Op{Verb: lb.Add, Object: rs})
		}
		rs.Forward = lb.Tunnel
		if f.Addr.Is6() { // the kernel takes seconds to end the daemon
			both(vip, true, lb.Op{Verb: lb.Add, Object: sync})
			both("with sync", false, lb.Op{Verb: lb.Add, Object: rs})
			both(vip, true, lb.Op{Verb: lb.Delete, Object: sync})
		}
		both(vip, true, lb.Op{Verb: lb.Add, Object: rs})
		both("with "+backend, false, lb.Op{Verb: lb.Add, Object: sync})
		for _, encap := range []lb.Encap{{}, {Type: lb.GUE, Port: 6080}, {Type: lb.GRE, Checksum: lb.FullChecksum}} {
			rs.Encap, rs.Weight = encap, rs.Weight+1
			both(vip, true, lb.Op{Verb: lb.Change, Object: rs})
			ours := func(o lb.Object) bool { return lb.Kind(o) == "virtual_server" || lb.Kind(o) == "real_server" }
			kernelHas(t, k, ours, vip, vs, rs)
		}
		both(vip, true, lb.Op{Verb: lb.Delete, Object: rs})
		both(vip, true, lb.Op{Verb: lb.Delete, Object: vs})
	}
}
