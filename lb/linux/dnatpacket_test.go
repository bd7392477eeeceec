package linux

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// inRulesMode creates the kernels of a test with virtual servers as rules.
func inRulesMode(t *testing.T) {
	testMode = ModeNetfilter
	t.Cleanup(func() { testMode = ModeIPVS })
}

func TestServersAsRulesComeBack(t *testing.T) {
	inBox(t)
	inNamespace(t)
	inRulesMode(t)
	k := newKernel(t)
	want := append(someServers(), somePortalObjects()...)
	all := append(base(lb.IPv4, lb.IPv6), want...)
	add(t, k, all...)
	t.Cleanup(func() { remove(t, k, all...) })
	for name, kernel := range map[string]*Kernel{"the same": k, "one that starts": newKernel(t)} {
		obs, err := kernel.Observe(t.Context(), nil)
		must(t, err)
		if d := lb.Diff(obs.Objects.Snapshot(), stateOf(all)); len(d) > 0 {
			t.Errorf("%s: to do are %d: %v", name, len(d), d[0])
		}
	}
	execs := k.Counters().Execs.Load()
	add(t, k, want...)
	if n := k.Counters().Execs.Load() - execs; n != 0 {
		t.Errorf("nothing to change took %d programs", n)
	}
	remove(t, k, want...)
	if got := snapshot(t, k, isServer); len(got) != 0 {
		t.Errorf("after removal: %v", got)
	}
	remove(t, k, all...)
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		if text := sh(t, "%s", save); strings.Contains(text, "KUBE") {
			t.Errorf("%s after cleanup:\n%s", save, text)
		}
	}
}

func TestEachServerAsRulesHasItsOwnError(t *testing.T) {
	inBox(t)
	inNamespace(t)
	inRulesMode(t)
	k := newKernel(t)
	fe, none := frontend("192.0.2.1:80", lb.TCP), frontend("192.0.2.2:80", lb.TCP)
	vs := lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}
	add(t, k, vs)
	t.Cleanup(func() { remove(t, k, vs) })
	var ops []lb.Op
	for i := range 1000 {
		rs := lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), Weight: 1}
		switch i % 100 {
		case 17:
			rs.Frontend = none
		case 18:
			rs.Addr = netip.AddrPortFrom(vip6, 80)
		}
		ops = append(ops, lb.Op{Verb: lb.Add, Object: rs})
	}
	for i, err := range k.Apply(t.Context(), ops) {
		if want := map[int]string{17: "virtual server is missing", 18: "another family"}[i%100]; (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("real server %d: %v, want %q", i, err, want)
		}
	}
	if got := len(snapshot(t, k, isServer)); got != 981 {
		t.Errorf("%d objects, want 981", got)
	}
	errs := k.Apply(t.Context(), []lb.Op{
		{Verb: lb.Delete, Object: real(none, "10.0.0.1:80", 1)}, {Verb: lb.Delete, Object: lb.VirtualServer{Frontend: none}},
		{Verb: lb.Add, Object: lb.VirtualServer{Frontend: none, Scheduler: lb.Scheduler{Name: `"; drop`}}},
	})
	if errs[0] != nil || errs[1] != nil || errs[2] == nil {
		t.Errorf("%v", errs)
	}
}

func stateOf(objects []lb.Object) *lb.State {
	s := lb.NewState()
	s.Replace(lb.Owner{}, objects, map[lb.Object]struct{}{})
	return s
}

// The NAT services of these objects have marks.
func somePortalObjects() (out []lb.Object) {
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		for mark := range uint32(5) {
			fe := lb.MarkFrontend(f, mark+1)
			a := backendAddr(map[lb.Family]netip.Addr{lb.IPv4: vip4, lb.IPv6: vip6}[f], 1)
			out = append(out, lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}},
				lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(a, 80), Weight: 1})
		}
	}
	return out
}

func TestServersAsRulesSpreadByWeight(t *testing.T) {
	s := newRulesSite(t)
	const n = 120
	for _, fe := range allProtocols() {
		add(t, s.k, served(fe, "wrr", 0, 3, 1)...)
		count := map[string]int{}
		for range n {
			count[s.ask1("client", fe)]++
		}
		// Three quarters of 120 are 90, their standard deviation is 4.7.
		if a := count["backend1"]; a < 66 || a > 112 || a+count["backend2"] != n {
			t.Errorf("%s: %v", fe, count)
		}
		t.Logf("%s: %v", fe, count)
		rs := served(fe, "wrr", 0, 3, 1)[5].(lb.RealServer)
		rs.Weight = 0
		apply(t, s.k, lb.Op{Verb: lb.Change, Object: rs})
		forgetFlows(t)
		for range 10 {
			if got := s.ask1("client", fe); got != "backend2" {
				t.Errorf("%s with weight 0: %q", fe, got)
			}
		}
	}
}

// forgetFlows deletes ended UDP flows and SCTP associations from conntrack. It keeps them for
// ten seconds at least, and one with the same port by chance has the same backend: ten after
// 120 others do so in 1 of 25 runs.
func forgetFlows(t *testing.T) {
	t.Helper()
	sh(t, "conntrack -D -p udp; conntrack -D -p sctp; true")
}

// forgetClients deletes all clients with affinity.
func (s *site) forgetClients() {
	s.Helper()
	if testBackend != NFTables {
		lists, err := filepath.Glob("/proc/thread-self/net/xt_recent/*") // without a program: it is called hundreds of times
		if err != nil || len(lists) == 0 {
			s.Fatalf("%d lists of clients: %v", len(lists), err)
		}
		for _, list := range lists {
			if err := os.WriteFile(list, []byte("/\n"), 0); err != nil {
				s.Fatal(err)
			}
		}
		return
	}
	for _, r := range s.k.rules { // no other program can change the map
		err := r.nft.transact(s.Context(), func(e *encoder) { r.nft.putMap(e, unix.NFT_MSG_DELSETELEM, 0, mapClients) })
		if err != nil {
			s.Fatal(err)
		}
	}
}

func TestServersAsRulesKeepAffinity(t *testing.T) {
	s := newRulesSite(t)
	for _, fe := range allProtocols() {
		objects := served(fe, "rr", 600, 1, 1)
		add(t, s.k, objects...)
		first := s.ask1("client", fe)
		if !strings.HasPrefix(first, "backend") {
			t.Fatalf("%s: %q", fe, first)
		}
		for range 20 {
			if got := s.ask1("client", fe); got != first {
				t.Errorf("%s: %q after %q", fe, got, first)
			}
		}
		// A backend without weight is left immediately, and for good.
		gone := objects[5+slices.Index([]string{"backend1", "backend2"}, first)].(lb.RealServer)
		none := gone
		none.Weight = 0
		apply(t, s.k, lb.Op{Verb: lb.Change, Object: none})
		forgetFlows(t)
		second := s.ask1("client", fe)
		if second == first || !strings.HasPrefix(second, "backend") {
			t.Errorf("%s: %q, then %q", fe, first, second)
		}
		apply(t, s.k, lb.Op{Verb: lb.Change, Object: gone})
		for range 10 {
			if got := s.ask1("client", fe); got != second {
				t.Errorf("%s: back to %q", fe, got)
			}
		}
		// After its timeout it ends.
		brief := objects[2].(lb.VirtualServer)
		brief.Affinity = 1
		apply(t, s.k, lb.Op{Verb: lb.Change, Object: brief})
		time.Sleep(2 * time.Second)
		seen := map[string]bool{}
		for i := 0; i < 40 && len(seen) < 2; i++ {
			got := s.ask1("client", fe)
			if !strings.HasPrefix(got, "backend") {
				t.Errorf("%s: after its time %q", fe, got)
			}
			seen[got] = true
			s.forgetClients()
		}
		if len(seen) != 2 {
			t.Errorf("%s: after its time only %v", fe, seen)
		}
	}
}

// TestServiceWithoutBackendsIsRefused has a daemon of the host on all addresses and each
// service's port. It does not use SCTP: its clients on Linux ignore ICMP, from IPVS too.
func TestServiceWithoutBackendsIsRefused(t *testing.T) {
	s := newRulesSite(t)
	s.in("", func() { s.listenTCP("daemon", ":7000"); s.listenUDP("daemon", ":7000") })
	fronts := slices.DeleteFunc(allProtocols(), func(fe lb.Frontend) bool { return fe.Proto == lb.SCTP })
	for _, host := range []string{"10.1.0.1", "2001:db8:1::1"} {
		for _, proto := range []lb.Protocol{lb.TCP, lb.UDP} {
			fronts = append(fronts, lb.Frontend{Addr: netip.MustParseAddr(host), Port: 7000, Proto: proto})
		}
	}
	s.expect("without a service", "client", "tcp", "10.1.0.1:7000", "daemon 10.1.0.2")
	for _, fe := range fronts {
		objects := served(fe, "rr", 0)
		if !slices.Contains([]netip.Addr{vip4, vip6}, fe.Addr) {
			objects = []lb.Object{objects[2], lb.Member{Set: lb.SetNodePorts, Addr: fe.Addr, Port: fe.Port, Proto: fe.Proto}, objects[4]}
		}
		add(t, s.k, objects...)
		for _, from := range []string{"client", "backend1", ""} {
			start := time.Now()
			if got := s.ask1(from, fe); got != "connection refused" {
				t.Errorf("%s from %q: %q", fe, from, got)
			}
			if took := time.Since(start); took > 1500*time.Millisecond {
				t.Errorf("%s from %q: refused after %v", fe, from, took)
			}
		}
	}
}

// A backend may be a process of the box itself.
func TestBackendOnTheBoxItself(t *testing.T) {
	s := newRulesSite(t)
	s.in("", func() { s.listenTCP("backend0", ":8088") })
	for _, vip := range []netip.Addr{vip4, vip6} {
		fe := lb.Frontend{Addr: vip, Port: 80, Proto: lb.TCP}
		host := netip.MustParseAddr(hostAddr(vip, "backend2", 1))
		add(t, s.k, append(served(fe, "rr", 0), lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(host, 8088), Weight: 1})...)
		iptables := map[bool]string{true: "iptables", false: "ip6tables"}[vip.Is4()]
		s.expectBackend("open", "client", fe, "backend0")
		if testBackend == NFTables {
			continue // a table can't admit what another one drops
		}
		sh(t, "%s -P INPUT DROP", iptables)
		if !vip.Is4() {
			sh(t, "ip6tables -A INPUT -p ipv6-icmp -j ACCEPT")
		}
		t.Cleanup(func() {
			sh(t, "%[1]s -P INPUT ACCEPT; %[1]s -D INPUT -p ipv6-icmp -j ACCEPT 2>/dev/null; true", iptables)
		})
		s.expectBackend("INPUT policy DROP", "client", fe, "backend0")
		s.expect("not by its own address", "client", "tcp", netip.AddrPortFrom(host, 8088).String(), "timeout")
	}
}

func (s *site) expectBackend(what, from string, fe lb.Frontend, want string) {
	s.Helper()
	if got := s.ask1(from, fe); got != want {
		s.Errorf("%s: %s: %q, want %q", what, fe, got, want)
	}
}

func TestServersAsRulesDrain(t *testing.T) {
	s := newRulesSite(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		fe := lb.Frontend{Addr: vip, Port: 80, Proto: lb.TCP}
		objects := served(fe, "rr", 0, 1)
		add(t, s.k, objects...)
		rs := objects[5].(lb.RealServer)
		conns := func() lb.Conns {
			t.Helper()
			execs := s.k.Counters().Execs.Load()
			gone := lb.RealServer{Frontend: frontend("192.0.2.77:80", lb.TCP), Addr: rs.Addr}
			counted, err := s.k.CountConns(t.Context(), []lb.RealServer{rs, gone})
			must(t, err)
			if n := s.k.Counters().Execs.Load() - execs; n != 0 {
				t.Errorf("counting took %d programs", n)
			}
			if n, ok := counted[gone.ID()]; !ok || n != (lb.Conns{}) {
				t.Errorf("a real server that is not there: %v", counted)
			}
			return counted[rs.ID()]
		}
		to := netip.AddrPortFrom(vip, 80).String()
		one, err1 := s.dial("client", "tcp", to)
		two, err2 := s.dial("client", "tcp", to)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		ask(one)
		ask(two)
		if got := conns(); got != (lb.Conns{Active: 2}) {
			t.Errorf("two connections: %+v", got)
		}
		rs.Weight = 0
		apply(t, s.k, lb.Op{Verb: lb.Change, Object: rs})
		s.expectBackend("a new one", "client", fe, "connection refused")
		if _, err := ask(one); err != nil {
			t.Errorf("an old one: %v", err)
		}
		two.Close()
		for end := time.Now().Add(5 * time.Second); conns() != (lb.Conns{Active: 1}) && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
		if got := conns(); got != (lb.Conns{Active: 1}) {
			t.Errorf("one is closed: %+v", got)
		}
		remove(t, s.k, rs)
		start := time.Now()
		if got, err := ask(one); err == nil || time.Since(start) > time.Second {
			t.Errorf("after the deadline: %q, %v", got, err)
		} else {
			t.Logf("after the deadline: %v within %v", err, time.Since(start))
		}
	}
}

// TestForeignRulesAreNotTouched has a foreign DNAT rule, which uses one of weir's chains.
func TestForeignRulesAreNotTouched(t *testing.T) {
	s := newRulesSite(t)
	fe := lb.Frontend{Addr: vip4, Port: 80, Proto: lb.TCP}
	sh(t, `iptables -t nat -N DOCKER; iptables -t nat -A PREROUTING -j DOCKER
		iptables -t nat -A DOCKER -p tcp --dport 8088 -j DNAT --to-destination 10.2.2.2:8080
		iptables -t nat -N KUBE-SVC-ANOTHERSANOTHERS; iptables -t nat -A KUBE-SVC-ANOTHERSANOTHERS -j RETURN`)
	t.Cleanup(func() {
		sh(t, "iptables -t nat -D PREROUTING -j DOCKER; for c in DOCKER KUBE-SVC-ANOTHERSANOTHERS; do iptables -t nat -F $c; iptables -t nat -X $c; done; true")
	})
	foreign := func() (out []string) {
		for line := range strings.Lines(sh(t, "iptables-save -t nat")) {
			if strings.Contains(line, "DOCKER") || strings.Contains(line, "ANOTHERS") {
				out = append(out, line)
			}
		}
		return out
	}
	before := foreign()
	objects := served(fe, "rr", 0, 1)
	for range 3 {
		add(t, s.k, objects...)
		s.expectBackend("the service", "client", fe, "backend1")
		s.expect("another's", "client", "tcp", "10.1.0.1:8088", "backend2 10.1.0.2")
		if _, err := s.k.Observe(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		remove(t, s.k, objects...)
	}
	if d := cmp.Diff(before, foreign()); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	// A chain with a foreign jump can't be deleted, and nothing fails because of that.
	add(t, s.k, objects...)
	sh(t, "iptables -t nat -A DOCKER -p tcp --dport 1 -j %s", testNames.server(fe))
	add(t, s.k, lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(vip4, 2), 8080), Weight: 1})
	remove(t, s.k, append(objects, lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(vip4, 2), 8080), Weight: 1})...)
	sh(t, "iptables -t nat -F DOCKER && iptables -t nat -X %s", testNames.server(fe))
}

// TestForeignFlushIsRepaired flushes everything, as firewall scripts do.
func TestForeignFlushIsRepaired(t *testing.T) {
	s := newRulesSite(t)
	fe := lb.Frontend{Addr: vip4, Port: 80, Proto: lb.TCP}
	objects := served(fe, "rr", 0, 1)
	add(t, s.k, objects...)
	snapshot(t, s.k, isServer)
	events := watching(t, s.k)
	apply(t, s.k, lb.Op{Verb: lb.Change, Object: objects[5]})
	rs := objects[5].(lb.RealServer)
	rs.Weight = 7
	apply(t, s.k, lb.Op{Verb: lb.Change, Object: rs})
	for _, e := range quiet(t, events, time.Second) {
		t.Errorf("weir's own change is %v", e)
	}
	sh(t, "iptables -t nat -F")
	want := []lb.Object{lb.Rules{Family: lb.IPv4}, objects[2].ID(), rs.ID()}
	for _, a := range s.anchors()[:2] {
		want = append(want, a.ID())
	}
	lost(t, events, want...)
	add(t, s.k, append(objects[:5:5], rs)...)
	add(t, s.k, lb.Rules{Family: lb.IPv4})
	s.expectBackend("after the repair", "client", fe, "backend1")
	sh(t, "iptables -t nat -I %s 1 -d 192.0.2.1/32 -j RETURN", testNames.dispatch())
	lost(t, events, lb.Rules{Family: lb.IPv4})
	add(t, s.k, lb.Rules{Family: lb.IPv4})
	if text := sh(t, "iptables -t nat -S %s", testNames.dispatch()); strings.Contains(text, "RETURN") {
		t.Errorf("still there:\n%s", text)
	}
	s.expectBackend("after the repair", "client", fe, "backend1")
}
