package linux

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/lb"
)

// load opens new connections one after the other, with a short rest. stop returns the number of answered ones, and all
// others with start and duration.
func (s *site) load(fe lb.Frontend) (stop func() (good int64, bad []string)) {
	var good atomic.Int64
	var mu sync.Mutex
	var bad []string
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if got := s.ask1("client", fe); strings.HasPrefix(got, "backend") {
				good.Add(1)
			} else {
				mu.Lock()
				bad = append(bad, fmt.Sprintf("%s: %s, begun at %s, after %s", fe, got, began.Format("05.000"), time.Since(began)))
				mu.Unlock()
			}
			time.Sleep(10 * time.Millisecond) // the box has one processor
		}
	})
	return func() (int64, []string) { cancel(); all.Wait(); return good.Load(), bad }
}

func TestModesTakeOverWithoutAGap(t *testing.T) {
	inBox(t)
	s := newSite(t)
	s.serveSCTP("backend1")
	s.serveSCTP("backend2")
	var objects []lb.Object
	for _, fe := range allProtocols() {
		name := "rr"
		if fe.Proto == lb.TCP {
			name = "mh" // the leftover IPVS keeps the order of its servers
		}
		objects = append(objects, served(fe, name, 0, 1, 1)...)
	}
	none := lb.Frontend{Addr: vip4, Port: 7001, Proto: lb.TCP}
	objects = append(objects, served(none, "rr", 0)...)
	add(t, s.k, objects...)
	all := slices.Concat(base(lb.IPv4, lb.IPv6), s.anchors(), objects)
	held := map[string]net.Conn{}
	for _, to := range []string{"192.0.2.1:7000", "[2001:db8::1]:7000"} {
		c, err := s.dial("client", "tcp", to)
		must(t, err)
		held[to] = c
	}
	var stops []func() (int64, []string)
	for _, fe := range allProtocols() {
		stops = append(stops, s.load(fe))
	}
	for i, mode := range []Mode{ModeNetfilter, ModeIPVS, ModeNetfilter} {
		testMode = mode
		k := newKernel(t)
		testMode = ModeIPVS
		obs, err := k.Observe(t.Context(), nil)
		must(t, err)
		s.k.Close()
		s.k = k
		t.Logf("%s: begun at %s", mode, time.Now().Format("05.000"))
		apply(t, k, lb.Diff(obs.Objects.Snapshot(), stateOf(all))...)
		t.Logf("%s: in place at %s", mode, time.Now().Format("05.000"))
		time.Sleep(200 * time.Millisecond)
		left, err := k.ForgetOther(t.Context(), anyServer, false)
		must(t, err)
		if i == 0 && left == 0 {
			t.Errorf("%s: no virtual server is left, and %d connections are held", mode, len(held))
		}
		for to, c := range held {
			if _, err := ask(c); err != nil {
				t.Errorf("%s: a connection to %s has ended: %v", mode, to, err)
			}
			if mode == ModeNetfilter { // IPVS has these, rules have the next ones
				c.Close()
				if held[to], err = s.dial("client", "tcp", to); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.expectBackend(string(mode)+": no backend", "client", none, "connection refused")
		for end := time.Now().Add(2 * time.Second); left > 0 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if left, err = k.ForgetOther(t.Context(), anyServer, false); err != nil {
				t.Fatal(err)
			}
		}
		if left > 0 {
			t.Logf("%s: the connections of %d virtual servers had to be cut at %s", mode, left, time.Now().Format("05.000"))
			if left, err = k.ForgetOther(t.Context(), anyServer, true); err != nil || left != 0 {
				t.Errorf("%s: %d left, %v", mode, left, err)
			}
		}
		s.holdsAll(all)
		rules, servers := strings.Count(sh(t, "iptables-save; ip6tables-save"), "KUBE-SVC-"), strings.Count(sh(t, "ipvsadm -Ln"), "\n")
		if testBackend == NFTables {
			rules = strings.Count(sh(t, "nft list sets; nft list maps"), "KUBE-SERVERS")
		}
		if (mode == ModeNetfilter) != (rules > 0) || (mode == ModeIPVS) != (servers > 3) {
			t.Errorf("%s: %d rules, %d lines of ipvsadm:\n%s", mode, rules, servers, sh(t, "ipvsadm -Ln; iptables-save -t nat"))
		}
	}
	total := int64(0)
	for _, stop := range stops {
		good, bad := stop()
		total += good
		if len(bad) > 0 {
			t.Errorf("%d new connections failed: %s", len(bad), bad[0])
		}
	}
	t.Logf("%d new connections were answered", total)
}

func anyServer(lb.Frontend) bool { return true }

// TestModesTakeOverOneByOne has a virtual server that is never in place. It delays neither the
// move of others, nor new ones.
func TestModesTakeOverOneByOne(t *testing.T) {
	inBox(t)
	s := newSite(t)
	at := func(vip netip.Addr, port uint16) lb.Frontend {
		return lb.Frontend{Addr: vip, Port: port, Proto: lb.TCP}
	}
	first := slices.Concat(base(lb.IPv4, lb.IPv6), s.anchors())
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, port := range []uint16{80, 81} {
			first = append(first, served(at(vip, port), "rr", 0, 1)...) // backend1
		}
	}
	add(t, s.k, first...)
	for _, mode := range []Mode{ModeNetfilter, ModeIPVS, ModeNetfilter} {
		testMode = mode
		k := newKernel(t)
		testMode = ModeIPVS
		obs, err := k.Observe(t.Context(), nil)
		must(t, err)
		s.k.Close()
		s.k = k
		// Port 81 is never in place; port 80 has moved to backend2, port 82 is new.
		stuck := func(f lb.Frontend) bool { return f.Port == 81 }
		want := slices.Concat(base(lb.IPv4, lb.IPv6), s.anchors())
		for _, vip := range []netip.Addr{vip4, vip6} {
			want = append(want, served(at(vip, 80), "rr", 0, 0, 1)...)
			want = append(want, served(at(vip, 82), "rr", 0, 1)...)
			want = append(want, served(at(vip, 81), "rr", 0, 1)...)
		}
		all := want
		want = slices.DeleteFunc(slices.Clone(want), func(o lb.Object) bool {
			switch o := o.(type) {
			case lb.VirtualServer:
				return stuck(o.Frontend)
			case lb.RealServer:
				return stuck(o.Frontend)
			}
			return false
		})
		apply(t, k, lb.Diff(obs.Objects.Snapshot(), stateOf(want))...)
		may := func(f lb.Frontend) bool { return !stuck(f) }
		for range 2 {
			if left, err := k.ForgetOther(t.Context(), may, true); err != nil || left != 2 {
				t.Fatalf("%s: %d are left, %v; want the stuck ones of two families", mode, left, err)
			}
			for _, vip := range []netip.Addr{vip4, vip6} {
				s.expectBackend(string(mode)+": in place", "client", at(vip, 80), "backend2")
				s.expectBackend(string(mode)+": new", "client", at(vip, 82), "backend1")
				s.expectBackend(string(mode)+": stuck", "client", at(vip, 81), "backend1")
			}
			s.holdsAll(want) // and an observation changes nothing
		}
		if left, err := k.ForgetOther(t.Context(), anyServer, true); err != nil || left != 0 {
			t.Fatalf("%s: %d are left, %v", mode, left, err)
		}
		for _, vip := range []netip.Addr{vip4, vip6} {
			s.expectBackend(string(mode)+": its time is over", "client", at(vip, 81), "connection refused")
		}
		add(t, k, all...)
		// What the next one takes over is at backend1 again.
		obs, err = k.Observe(t.Context(), nil)
		must(t, err)
		apply(t, k, lb.Diff(obs.Objects.Snapshot(), stateOf(first))...)
		for _, vip := range []netip.Addr{vip4, vip6} {
			s.expectBackend(string(mode)+": all in place", "client", at(vip, 81), "backend1")
		}
	}
}

// holdsAll checks that the state is complete. /proc/net is that of the process's first thread,
// which may be in another namespace for a moment, to open a connection.
func (s *site) holdsAll(all []lb.Object) {
	s.Helper()
	var d []lb.Op
	for range 20 {
		obs, err := s.k.Observe(s.Context(), nil)
		if err != nil {
			s.Fatal(err)
		}
		if d = lb.Diff(obs.Objects.Snapshot(), stateOf(all)); len(d) == 0 {
			return
		}
	}
	s.Errorf("to do are %d: %v", len(d), d[0])
}

func TestOneEndpointOfAThousandServices(t *testing.T) {
	inBox(t)
	inNamespace(t)
	inRulesMode(t)
	k := newKernel(t)
	var objects []lb.Object
	for i := range 1000 {
		fe := lb.Frontend{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP}
		objects = append(objects, lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}})
		for j := range 10 {
			objects = append(objects, lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), 8080), Weight: 1})
		}
	}
	all := append(base(lb.IPv4, lb.IPv6), objects...)
	start := time.Now()
	add(t, k, all...)
	t.Logf("1,000 services with 10 backends each: %v, %d programs", time.Since(start), k.Counters().Execs.Load())
	t.Cleanup(func() {
		start := time.Now()
		remove(t, k, all...)
		t.Logf("their removal: %v", time.Since(start))
	})
	fe := lb.Frontend{Addr: netip.AddrFrom4([4]byte{192, 0, 1, 44}), Port: 80, Proto: lb.TCP}
	for _, verb := range []lb.Verb{lb.Add, lb.Change, lb.Delete} {
		before := k.Counters().Execs.Load()
		start := time.Now()
		apply(t, k, lb.Op{Verb: verb, Object: lb.RealServer{Frontend: fe, Addr: netip.MustParseAddrPort("10.99.0.1:8080"), Weight: 1 + uint32(verb)}})
		took, want := time.Since(start), uint64(1)
		if testBackend == NFTables {
			want = 0
		}
		if n := k.Counters().Execs.Load() - before; n != want {
			t.Errorf("%s took %d programs, want %d", verb, n, want)
		}
		t.Logf("%s one backend: %v", verb, took)
	}
	start = time.Now()
	snapshot(t, k, isServer)
	t.Logf("an audit: %v", time.Since(start))
}
