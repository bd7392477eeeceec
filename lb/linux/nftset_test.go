package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// testNFTSets returns the sets of an empty table in the namespace of the test.
func testNFTSets(t testing.TB) *nftSets {
	t.Helper()
	count := &Traffic{}
	s := newNFTSets(sharedTables(newConn(unix.NETLINK_NETFILTER, count)), "KUBE", marking{0x4000})
	errs, err := s.conn.transaction(context.Background(), func(e *encoder) {
		for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			beginNFT(e, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, nftFamily(f))
			e.str(unix.NFTA_TABLE_NAME, s.table)
		}
	})
	if err := errors.Join(err, firstError(errs)); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("SKIPPED: this kernel has no nf_tables for IPv4 and IPv6")
	}
	empty := func() {
		for _, family := range []string{"ip", "ip6"} {
			_ = exec.Command("nft", "delete", "table", family, "weir").Run() // usually there is none
		}
	}
	empty()
	t.Cleanup(func() {
		s.conn.close()
		empty()
	})
	return s
}

// applyObjects applies sets and members with one verb, and fails the test at the first error.
func (s *nftSets) applyObjects(t testing.TB, verb lb.Verb, objects ...lb.Object) {
	t.Helper()
	var sets, members []lb.Op
	for _, o := range objects {
		if _, ok := o.(lb.Member); ok {
			members = append(members, lb.Op{Verb: verb, Object: o})
		} else {
			sets = append(sets, lb.Op{Verb: verb, Object: o})
		}
	}
	ctx := context.Background()
	run := func() error { return firstError(s.applySets(ctx, sets)) }
	if verb == lb.Delete {
		defer func() {
			must(t, run())
		}()
	} else if err := run(); err != nil {
		t.Fatal(err)
	}
	must(t, firstError(s.applyMembers(ctx, members)))
}

// observed returns the sets and members of both families.
func (s *nftSets) observed(t testing.TB) lb.Snapshot {
	t.Helper()
	var obs lb.Observation
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		must(t, s.observe(context.Background(), f, &obs))
	}
	return obs.Objects.Snapshot()
}

func TestNFTSetsAndMembersComeBack(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	if got := s.observed(t); len(got) != 0 {
		t.Errorf("without a table: %v", got)
	}
	sh(t, "nft add table ip other && nft add set ip other KUBE-LOAD-BALANCER '{ type ipv4_addr; elements = { 192.0.2.9 } }'")
	t.Cleanup(func() { sh(t, "nft delete table ip other") })
	other := sh(t, "nft list table ip other")
	want := setObjects()
	for _, m := range someMembers() {
		want = append(want, m)
	}
	for range 2 { // present on add is success
		s.applyObjects(t, lb.Add, want...)
	}
	sh(t, "nft add set ip weir FOREIGN '{ type ipv4_addr; elements = { 192.0.2.9 } }'")
	if d := cmp.Diff(lb.NewSnapshot(want...), s.observed(t), compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text := oneLine(sh(t, "nft list table ip weir && nft list table ip6 weir"))
	for _, part := range []string{
		"set KUBE-IPVS-IPS { type ipv4_addr elements = { 192.0.2.1 } }",
		"set KUBE-IPVS-NETS { type ipv4_addr flags interval elements = { 192.0.2.0/24 } }",
		"set KUBE-LOAD-BALANCER-SOURCE-CIDR { type ipv4_addr . inet_proto . inet_service . ipv4_addr flags interval elements = { 192.0.2.1 . tcp . 80 . ",
		"192.0.2.1 . tcp . 80 . 0.0.0.0/1",
		"192.0.2.1 . tcp . 80 . 198.51.100.0/24",
		"set KUBE-LOOP-BACK { type ipv4_addr . inet_proto . inet_service . ipv4_addr elements = { 10.0.0.7 . tcp . 8080 . 10.0.0.7 } }",
		"set KUBE-IPVS-PORTS { type ipv4_addr . inet_proto . inet_service elements = { 192.0.2.1 . sctp . 7 } }",
		"set KUBE-HEALTH-CHECK-NODE-PORT { type inet_service elements = { 65535 } }",
		"map KUBE-INTERNAL { type ipv4_addr . inet_proto . inet_service : mark elements = { 192.0.2.1 . tcp . 80 : 0xb4000001 } }",
		"set KUBE-6-IPVS-NETS { type ipv6_addr flags interval elements = { 2001:db8:1::/48 } }",
		"set KUBE-6-LOAD-BALANCER-SOURCE-CID { type ipv6_addr . inet_proto . inet_service . ipv6_addr flags interval elements = { 2001:db8::1 . tcp . 80 . 2001:db8:2::/64 } }",
		"map KUBE-6-INTERNAL { type ipv6_addr . inet_proto . inet_service : mark elements = { 2001:db8::1 . udp . 53 : 0xb5ff3fff } }",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("nft list has no %q", part)
		}
	}
	for range 2 { // absent on delete is success
		s.applyObjects(t, lb.Delete, want...)
	}
	if got := s.observed(t); len(got) != 0 {
		t.Errorf("after removal: %v", got)
	}
	if got := oneLine(sh(t, "nft list table ip weir")); got != "table ip weir { set FOREIGN { type ipv4_addr elements = { 192.0.2.9 } } }" {
		t.Errorf("left: %s", got)
	}
	if got := sh(t, "nft list table ip other"); got != other {
		t.Errorf("the other table:\n%s", got)
	}
}

// oneLine returns the text with one space for all white space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// hidden is the one of someMembers inside another one.
var hidden = lb.Object(lb.Member{Set: lb.SetSourceCIDR, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP,
	Net: netip.MustParsePrefix("198.51.100.7/32")})

// nft(8) makes the sets of this text as weir does, and weir accepts them.
func TestNFTSetsOfOtherProgramsAreEqual(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	sets := setObjects()
	s.applyObjects(t, lb.Add, sets...)
	text := sh(t, "nft -s list table ip weir && nft -s list table ip6 weir")
	s.applyObjects(t, lb.Delete, sets...)
	sh(t, "nft -f - <<'END'\n%s\nEND", text)
	if d := cmp.Diff(lb.NewSnapshot(sets...), s.observed(t)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	s.applyObjects(t, lb.Add, sets...)
	members := []lb.Object{}
	for _, m := range someMembers() {
		members = append(members, m)
	}
	s.applyObjects(t, lb.Add, members...)
	want := append(sets, members...)
	if d := cmp.Diff(lb.NewSnapshot(want...), s.observed(t), compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text = sh(t, "nft -s list table ip weir && nft -s list table ip6 weir")
	s.applyObjects(t, lb.Delete, want...)
	sh(t, "nft -f - <<'END'\n%s\nEND", text)
	want = slices.DeleteFunc(want, func(o lb.Object) bool { return o == hidden })
	if d := cmp.Diff(lb.NewSnapshot(want...), s.observed(t), compareNetip); d != "" {
		t.Errorf("made by nft (-want +got):\n%s", d)
	}
	s.applyObjects(t, lb.Delete, want...)
	if got := s.observed(t); len(got) != 0 {
		t.Errorf("after removal: %v", got)
	}
}

func TestNFTSetMembersTakeAnotherMark(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	id := lb.IPSet{Set: lb.SetInternal, Family: lb.IPv4}
	member := func(port uint16, mark uint32) lb.Object {
		return lb.Member{Set: lb.SetInternal, Addr: netip.MustParseAddr("192.0.2.1"), Port: port, Proto: lb.TCP, Mark: mark}
	}
	s.applyObjects(t, lb.Add, id, member(80, 1), member(81, 1))
	sh(t, "nft delete element ip weir KUBE-INTERNAL '{ 192.0.2.1 . tcp . 81 }' && nft add element ip weir KUBE-INTERNAL '{ 192.0.2.1 . tcp . 81 : 7 }'")
	if d := cmp.Diff(lb.NewSnapshot(id, member(80, 1), member(81, 0)), s.observed(t), compareNetip); d != "" {
		t.Errorf("a foreign mark (-want +got):\n%s", d)
	}
	want := []lb.Object{member(80, 2), member(81, 1), member(82, 3)}
	s.applyObjects(t, lb.Change, want...)
	if d := cmp.Diff(lb.NewSnapshot(append(want, id)...), s.observed(t), compareNetip); d != "" {
		t.Errorf("changed (-want +got):\n%s", d)
	}
}

func TestNFTSetErrorsNameTheFault(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	ctx := context.Background()
	sh(t, "nft add table ip weir")
	wrong := map[lb.Set]string{
		lb.SetIPVSIPs:             "{ type ipv4_addr; flags interval; }",
		lb.SetIPVSNets:            "{ type ipv4_addr; }",
		lb.SetInternal:            "{ type ipv4_addr . inet_proto . inet_service; }",
		lb.SetHealthCheckNodePort: "{ type ipv4_addr; }",
		lb.SetLoopBack:            "{ type ipv4_addr . inet_proto . inet_service . ipv4_addr; flags timeout; }",
		lb.SetSourceIP:            "{ type ipv4_addr . inet_proto . inet_service . ipv4_addr; size 3; }",
	}
	for set, kind := range wrong {
		id := lb.IPSet{Set: set, Family: lb.IPv4}
		sh(t, "nft add set ip weir %s '%s'", s.name(id), kind)
		err := s.applySets(ctx, []lb.Op{{Verb: lb.Add, Object: id}})[0]
		if err == nil || !strings.Contains(err.Error(), "of another kind") || !strings.Contains(err.Error(), s.name(id)) || !strings.Contains(err.Error(), "name_prefix") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if got := s.observed(t); len(got) != 0 {
		t.Errorf("they count as weir's: %v", got)
	}
	used := lb.IPSet{Set: lb.SetLoadBalancer, Family: lb.IPv4}
	s.applyObjects(t, lb.Add, used)
	sh(t, "nft add chain ip weir c && nft add rule ip weir c ip daddr . ip protocol . th dport @KUBE-LOAD-BALANCER accept")
	errs := s.applySets(ctx, []lb.Op{{Verb: lb.Delete, Object: used}, {Verb: lb.Add, Object: used}})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "used by rules") || errs[1] != nil {
		t.Errorf("a set in use: %v", errs)
	}
	for _, f := range []string{"192.0.2.1", "2001:db8::1"} { // no set, no table
		for _, m := range []lb.Member{
			{Set: lb.SetClusterIP, Addr: netip.MustParseAddr(f), Port: 80, Proto: lb.TCP},
			{Set: lb.SetSourceCIDR, Addr: netip.MustParseAddr(f), Port: 80, Proto: lb.TCP, Net: single(netip.MustParseAddr(f))},
		} {
			if err := s.applyMembers(ctx, []lb.Op{{Verb: lb.Add, Object: m}})[0]; !errors.Is(err, unix.ENOENT) {
				t.Errorf("a member of no set: %v", err)
			}
			if err := s.applyMembers(ctx, []lb.Op{{Verb: lb.Delete, Object: m}})[0]; err != nil {
				t.Errorf("the removal from no set: %v", err)
			}
		}
	}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// One refused member, which undoes a whole transaction, is no error of the others.
func TestNFTSetsEachMemberHasItsOwnError(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	ports := lb.IPSet{Set: lb.SetIPVSPorts, Family: lb.IPv4}
	missing := lb.SetClusterIP
	s.applyObjects(t, lb.Add, ports)
	var ops []lb.Op
	for i := range 3000 {
		set := lb.SetIPVSPorts
		if i%400 == 7 {
			set = missing
		}
		ops = append(ops, lb.Op{Verb: lb.Add, Object: lb.Member{Set: set, Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP}})
	}
	failed := 0
	for i, err := range s.applyMembers(context.Background(), ops) {
		if (err != nil) != (i%400 == 7) {
			t.Errorf("member %d: %v", i, err)
		}
		if err != nil {
			failed++
		}
	}
	if got, want := len(s.observed(t))-1, len(ops)-failed; got != want {
		t.Errorf("%d members, want %d", got, want)
	}
	// The removal of a member that is gone undoes the transaction, too.
	for i := range ops {
		ops[i].Verb = lb.Delete
	}
	sh(t, "nft delete element ip weir KUBE-IPVS-PORTS '{ 10.0.0.0 . tcp . 80, 10.0.11.183 . tcp . 80, 10.0.4.4 . tcp . 80 }'")
	if err := firstError(s.applyMembers(context.Background(), ops)); err != nil {
		t.Error(err)
	}
	if got := len(s.observed(t)); got != 1 {
		t.Errorf("%d objects left, want the set", got)
	}
}

// The kernel refuses some changes of one transaction; the others are carried out.
func TestNFTSetsFindTheRefusedChange(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	id := lb.IPSet{Set: lb.SetInternal, Family: lb.IPv4}
	s.applyObjects(t, lb.Add, id)
	changes := make([]nftChange, 3000)
	refused := func(i int) bool { return i == 0 || i%500 == 499 }
	for i := range changes {
		m := lb.Member{Set: lb.SetInternal, Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP, Mark: 1}
		changes[i].add = []nftElement{elementOf(m)}
		if refused(i) {
			m.Mark++
			changes[i].add = append(changes[i].add, elementOf(m)) // one key, two marks
		}
	}
	failed := 0
	for i, err := range s.send(context.Background(), id, changes) {
		if (err != nil) != refused(i) {
			t.Errorf("change %d: %v", i, err)
		}
		if err != nil {
			failed++
		}
	}
	if got, want := len(s.observed(t)), 1+len(changes)-failed; got != want {
		t.Errorf("%d objects, want %d", got, want)
	}
}

// The kernel's hash table still grows after the additions.
func TestNFTSetsAreObservedWholeAfterManyAdditions(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	want := []lb.Object{lb.IPSet{Set: lb.SetIPVSPorts, Family: lb.IPv4}}
	for _, m := range manyMembers(lb.SetIPVSPorts, 3000) {
		want = append(want, m)
	}
	for range 30 {
		s.applyObjects(t, lb.Add, want...)
		if got := len(s.observed(t)); got != len(want) {
			t.Fatalf("%d of %d objects", got, len(want))
		}
		s.applyObjects(t, lb.Delete, want...)
	}
}

func TestNFTSetsTakeFewMessages(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	for _, set := range []lb.Set{lb.SetIPVSPorts, lb.SetSourceCIDR} {
		id := lb.IPSet{Set: set, Family: lb.IPv4}
		want := []lb.Object{id}
		s.applyObjects(t, lb.Add, id)
		before, sends := s.conn.count.Messages.Load(), s.conn.count.Sends.Load()
		for _, m := range manyMembers(set, 10000) {
			want = append(want, m)
		}
		s.applyObjects(t, lb.Add, want[1:]...)
		messages, sent := s.conn.count.Messages.Load()-before, s.conn.count.Sends.Load()-sends
		if messages > 60 || sent > 20 {
			t.Errorf("%s: %d messages in %d transactions", set, messages, sent)
		}
		if d := cmp.Diff(lb.NewSnapshot(want...), s.observed(t), compareNetip); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		s.applyObjects(t, lb.Delete, id)
	}
}

// manyMembers returns n members of a set with frontends.
func manyMembers(set lb.Set, n int) []lb.Member {
	out := make([]lb.Member, n)
	for i := range out {
		out[i] = lb.Member{Set: set, Addr: netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP}
		if set == lb.SetSourceCIDR {
			out[i].Net = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		}
	}
	return out
}

// Another program's elements that are no members make a set incomplete, and go when it is
// created.
func TestNFTSetsRemoveForeignElements(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	nets, ranges := lb.IPSet{Set: lb.SetIPVSNets, Family: lb.IPv4}, lb.IPSet{Set: lb.SetSourceCIDR, Family: lb.IPv4}
	ports := lb.IPSet{Set: lb.SetIPVSPorts, Family: lb.IPv4}
	a := netip.MustParseAddr
	want := []lb.Object{nets, ranges, ports,
		lb.Member{Set: lb.SetIPVSNets, Net: netip.MustParsePrefix("255.255.0.0/16")},
		lb.Member{Set: lb.SetIPVSNets, Net: netip.MustParsePrefix("10.0.0.0/9")},
		lb.Member{Set: lb.SetIPVSNets, Net: netip.MustParsePrefix("10.128.0.0/9")},
		lb.Member{Set: lb.SetSourceCIDR, Addr: a("192.0.2.1"), Port: 80, Proto: lb.TCP, Net: netip.MustParsePrefix("10.0.0.0/8")},
	}
	s.applyObjects(t, lb.Add, want...)
	foreign := "nft add element ip weir KUBE-IPVS-NETS '{ 172.16.0.1-172.16.0.9 }' &&" +
		"nft add element ip weir KUBE-LOAD-BALANCER-SOURCE-CIDR '{ 192.0.2.1 . tcp . 80-90 . 11.0.0.0/8, 192.0.2.1 . tcp . 80 . 172.16.0.1-172.16.0.9 }' &&" +
		"nft add element ip weir KUBE-IPVS-PORTS '{ * }'"
	whole := lb.NewSnapshot(want...)
	for range 2 {
		if d := cmp.Diff(whole, s.observed(t), compareNetip); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		sh(t, "%s", foreign)
		if d := cmp.Diff(lb.NewSnapshot(want[3:]...), s.observed(t), compareNetip); d != "" {
			t.Errorf("foreign elements (-want +got):\n%s", d)
		}
		s.applyObjects(t, lb.Add, nets, ranges, ports)
	}
	if d := cmp.Diff(whole, s.observed(t), compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if text := sh(t, "nft list table ip weir"); strings.Contains(text, "172.16") || strings.Contains(text, "*") || strings.Contains(text, "80-90") {
		t.Errorf("left:\n%s", text)
	}
	// An element inside a range that weir adds is no obstacle.
	sh(t, "nft add element ip weir KUBE-IPVS-NETS '{ 172.16.0.1-172.16.0.9 }'")
	s.applyObjects(t, lb.Add, lb.Member{Set: lb.SetIPVSNets, Net: netip.MustParsePrefix("172.16.0.0/12")})
	if text := sh(t, "nft list set ip weir KUBE-IPVS-NETS"); strings.Contains(text, "172.16.0.1") || !strings.Contains(text, "172.16.0.0/12") {
		t.Errorf("added:\n%s", text)
	}
}

func BenchmarkNFTSets(b *testing.B) {
	for _, set := range []lb.Set{lb.SetIPVSPorts, lb.SetSourceCIDR} {
		b.Run(set.String(), func(b *testing.B) {
			s := testNFTSets(b)
			benchmarkMembers(b, set, s.applySets, s.applyMembers, s.observe)
		})
	}
}

func BenchmarkIPSets(b *testing.B) {
	for _, set := range []lb.Set{lb.SetIPVSPorts, lb.SetSourceCIDR} {
		b.Run(set.String(), func(b *testing.B) {
			s := newSets("KUBE", marking{0x4000}, &Traffic{})
			benchmarkMembers(b, set, s.applySets, s.applyMembers, s.observe)
		})
	}
}

// benchmarkMembers measures 10,000 members: all added, all observed, one more added, all removed.
func benchmarkMembers(b *testing.B, set lb.Set, applySets, applyMembers func(context.Context, []lb.Op) []error, observe func(context.Context, lb.Family, *lb.Observation) error) {
	ctx := context.Background()
	all := manyMembers(set, 10001)
	apply := func(verb lb.Verb, members ...lb.Member) func() error {
		ops := make([]lb.Op, len(members))
		for i, m := range members {
			ops[i] = lb.Op{Verb: verb, Object: m}
		}
		return func() error { return firstError(applyMembers(ctx, ops)) }
	}
	id := []lb.Op{{Verb: lb.Add, Object: lb.IPSet{Set: set, Family: lb.IPv4}}}
	steps := []struct {
		name string
		run  func() error
	}{
		{"add", apply(lb.Add, all[:10000]...)},
		{"observe", func() error {
			var obs lb.Observation
			if err := observe(ctx, lb.IPv4, &obs); err != nil || obs.Objects.Len() != 10001 {
				return fmt.Errorf("%d objects: %w", obs.Objects.Len(), err)
			}
			return nil
		}},
		{"add-one", apply(lb.Add, all[10000])},
		{"remove-one", apply(lb.Delete, all[10000])},
		{"remove", apply(lb.Delete, all[:10000]...)},
	}
	took := make([]float64, len(steps))
	for b.Loop() {
		if err := firstError(applySets(ctx, id)); err != nil {
			b.Fatal(err)
		}
		for i, step := range steps {
			before := b.Elapsed()
			if err := step.run(); err != nil {
				b.Fatal(step.name, err)
			}
			took[i] += float64(b.Elapsed() - before)
		}
		remove := slices.Clone(id)
		remove[0].Verb = lb.Delete
		if err := firstError(applySets(ctx, remove)); err != nil {
			b.Fatal(err)
		}
	}
	for i, step := range steps {
		b.ReportMetric(took[i]/float64(b.N)/1e6, step.name+"-ms")
	}
}

// An audit does not list the sets while a change creates one, and so does not take it for missing.
func TestSetsAreNotListedDuringTheirCreation(t *testing.T) {
	s := testNFTSets(t)
	id := lb.IPSet{Set: lb.SetIPVSNets, Family: lb.IPv4}
	s.known.mu.Lock()
	conn := newConn(unix.NETLINK_NETFILTER, &Traffic{})
	defer conn.close()
	obs := lb.Observation{Objects: lb.Expecting(nil)}
	read := make(chan error, 1)
	go func() { read <- s.reader(conn).observe(t.Context(), lb.IPv4, &obs) }()
	time.Sleep(50 * time.Millisecond)
	err := s.create(t.Context(), id)
	s.known.mu.Unlock()
	must(t, errors.Join(err, <-read))
	if _, ok := obs.Objects.Get(id); !ok {
		t.Error("the set counts as missing")
	}
}

// After a removal of the table all its sets are back at once. A set that exists is no obstacle.
func TestSetsAreCreatedTogether(t *testing.T) {
	s := testNFTSets(t)
	var ops []lb.Op
	for _, set := range lb.Sets() {
		ops = append(ops, lb.Op{Verb: lb.Add, Object: lb.IPSet{Set: set, Family: lb.IPv4}})
	}
	create := func() (transactions uint32) {
		before := s.conn.commits
		must(t, firstError(s.applySets(t.Context(), ops)))
		heads, err := nftSetHeads(t.Context(), s.conn, lb.IPv4, s.table)
		if err != nil || len(heads) != len(ops) {
			t.Errorf("%d sets, want %d (%v)", len(heads), len(ops), err)
		}
		return s.conn.commits - before
	}
	if n := create(); n > 2 { // one of the table
		t.Errorf("the sets came in %d transactions", n)
	}
	sh(t, "nft delete set ip weir KUBE-IPVS-PORTS")
	create()
	sh(t, "nft delete table ip weir")
	if n := create(); n > 2 {
		t.Errorf("after a removal of the table the sets came in %d transactions", n)
	}
}
