package linux

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// rangeMember returns a member of a set of ranges: of one frontend for each number, or of the only
// one of a set of networks.
func rangeMember(set lb.Set, front int, p netip.Prefix) lb.Member {
	if set == lb.SetIPVSNets {
		return lb.Member{Set: set, Net: p}
	}
	a := netip.AddrFrom4([4]byte{192, 0, 2, byte(front)})
	if p.Addr().Is6() {
		a = netip.MustParseAddr("2001:db8::").Next()
	}
	return lb.Member{Set: set, Addr: a, Port: 80 + uint16(front), Proto: lb.TCP, Net: p}
}

// elements returns the elements of a set in the kernel; another program's are errors.
func (s *nftSets) elements(t testing.TB, id lb.IPSet) (out []lb.Member) {
	t.Helper()
	err := s.read(context.Background(), id, func() { out = nil }, func(el nftElement) {
		m, ok := el.member(id)
		if !ok {
			t.Errorf("an element that is no member: %+v", el)
		}
		out = append(out, m)
	})
	must(t, err)
	return out
}

// checkRanges checks that the kernel matches exactly the packets of the members, and that they
// are observed.
func (s *nftSets) checkRanges(t testing.TB, id lb.IPSet, want map[lb.Member]bool) {
	t.Helper()
	outermost := lb.Snapshot{}
	whole := lb.NewSnapshot(id)
	for m := range want {
		whole[m] = m
		around := func(o lb.Member) bool {
			return o != m && rangesOf(o) == rangesOf(m) && o.Net.Bits() < m.Net.Bits() && o.Net.Contains(m.Net.Addr())
		}
		hides := false
		for o := range want {
			hides = hides || around(o)
		}
		if !hides {
			outermost[m] = m
		}
	}
	kernel := lb.Snapshot{}
	for _, m := range s.elements(t, id) {
		kernel[m] = m
	}
	if d := cmp.Diff(outermost, kernel, compareNetip); d != "" {
		t.Fatalf("elements (-want +got):\n%s", d)
	}
	if d := cmp.Diff(whole, s.observed(t), compareNetip); d != "" {
		t.Fatalf("members (-want +got):\n%s", d)
	}
}

// Members overlap in all ways, and are added and removed in all orders.
func TestNFTSetsOfNestedRanges(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	pools := map[lb.Family][]netip.Prefix{}
	for _, text := range []string{"0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "10.0.0.0/16", "10.1.0.0/16",
		"10.1.2.0/24", "10.1.2.0/32", "10.1.2.255/32", "10.255.255.255/32", "255.0.0.0/8", "255.255.255.255/32", "0.0.0.0/32", "192.0.2.0/24"} {
		pools[lb.IPv4] = append(pools[lb.IPv4], netip.MustParsePrefix(text))
	}
	for _, text := range []string{"::/1", "8000::/1", "2001:db8::/32", "2001:db8::/33", "2001:db8:8000::/33", "2001:db8::/64", "2001:db8::1/128",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "ff00::/8"} {
		pools[lb.IPv6] = append(pools[lb.IPv6], netip.MustParsePrefix(text))
	}
	for _, id := range []lb.IPSet{{Set: lb.SetSourceCIDR, Family: lb.IPv4}, {Set: lb.SetIPVSNets, Family: lb.IPv4},
		{Set: lb.SetSourceCIDR, Family: lb.IPv6}, {Set: lb.SetIPVSNets, Family: lb.IPv6}} {
		for seed := range uint64(15) {
			rnd := rand.New(rand.NewPCG(seed, uint64(id.Set)))
			s.applyObjects(t, lb.Add, id)
			have := map[lb.Member]bool{}
			for range 25 {
				verb := lb.Add
				if rnd.IntN(2) == 0 {
					verb = lb.Delete
				}
				var ops []lb.Op
				for range 1 + rnd.IntN(5) {
					pool := pools[id.Family]
					m := rangeMember(id.Set, rnd.IntN(3), pool[rnd.IntN(len(pool))])
					ops = append(ops, lb.Op{Verb: verb, Object: m})
					if verb == lb.Delete {
						delete(have, m)
					} else {
						have[m] = true
					}
				}
				if err := firstError(s.applyMembers(context.Background(), ops)); err != nil {
					t.Fatalf("%s, seed %d, %v: %v", id, seed, ops, err)
				}
				s.checkRanges(t, id, have)
			}
			s.applyObjects(t, lb.Delete, id)
		}
	}
}

// A process that starts finds the widest ranges only.
func TestNFTSetsOfNestedRangesAfterARestart(t *testing.T) {
	inNamespace(t)
	for _, set := range []lb.Set{lb.SetSourceCIDR, lb.SetIPVSNets} {
		s := testNFTSets(t)
		id := lb.IPSet{Set: set, Family: lb.IPv4}
		wide, narrow := rangeMember(set, 1, netip.MustParsePrefix("10.0.0.0/8")), rangeMember(set, 1, netip.MustParsePrefix("10.1.0.0/16"))
		s.applyObjects(t, lb.Add, id, wide, narrow)
		s.checkRanges(t, id, map[lb.Member]bool{wide: true, narrow: true})

		again := testRestarted(s)
		again.checkRanges(t, id, map[lb.Member]bool{wide: true})
		again.applyObjects(t, lb.Add, narrow)
		again.checkRanges(t, id, map[lb.Member]bool{wide: true, narrow: true})
		again.applyObjects(t, lb.Delete, wide)
		again.checkRanges(t, id, map[lb.Member]bool{narrow: true})

		// Without an observation before the first change, too.
		again = testRestarted(s)
		again.applyObjects(t, lb.Add, wide)
		again.checkRanges(t, id, map[lb.Member]bool{wide: true, narrow: true})
	}
}

// testRestarted returns the sets of a process that knows nothing.
func testRestarted(s *nftSets) *nftSets { return newNFTSets(s.tables, s.prefix, s.marks) }

// Another program changes elements. The next observation has that, and changes go on.
func TestNFTSetsOfRangesBesideAnotherProgram(t *testing.T) {
	inNamespace(t)
	for _, set := range []lb.Set{lb.SetSourceCIDR, lb.SetIPVSNets} {
		s := testNFTSets(t)
		id := lb.IPSet{Set: set, Family: lb.IPv4}
		p := netip.MustParsePrefix
		wide, narrow, other := rangeMember(set, 1, p("10.0.0.0/8")), rangeMember(set, 1, p("10.1.0.0/16")), rangeMember(set, 1, p("172.16.0.0/12"))
		element := func(m lb.Member) string {
			if set == lb.SetIPVSNets {
				return m.Net.String()
			}
			return "192.0.2.1 . tcp . 81 . " + m.Net.String()
		}
		edit := func(verb string, m lb.Member) {
			t.Helper()
			sh(t, "nft %s element ip weir %s '{ %s }'", verb, s.name(id), element(m))
		}
		s.applyObjects(t, lb.Add, id, wide, narrow, other)
		edit("delete", wide)
		s.checkRanges(t, id, map[lb.Member]bool{other: true})
		s.applyObjects(t, lb.Add, wide, narrow)
		s.checkRanges(t, id, map[lb.Member]bool{wide: true, narrow: true, other: true})

		edit("delete", wide)
		s.applyObjects(t, lb.Delete, wide) // which is gone, while the narrow one comes back
		s.checkRanges(t, id, map[lb.Member]bool{narrow: true, other: true})

		edit("delete", other)
		s.applyObjects(t, lb.Add, other) // which weir still knows
		s.checkRanges(t, id, map[lb.Member]bool{narrow: true, other: true})

		edit("delete", narrow)
		edit("add", wide)
		second := rangeMember(set, 1, p("10.2.0.0/16"))
		s.applyObjects(t, lb.Add, second)
		if _, ok := s.observed(t)[wide]; !ok {
			t.Error("the foreign element is not observed")
		}
		s.applyObjects(t, lb.Delete, wide)
		s.checkRanges(t, id, map[lb.Member]bool{narrow: true, second: true, other: true})
	}
}

// The kernel's own lookup finds the members, not only their list.
func TestNFTSetsMatchTheAddressesOfRanges(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	id := lb.IPSet{Set: lb.SetSourceCIDR, Family: lb.IPv4}
	member := func(text string) lb.Object { return rangeMember(lb.SetSourceCIDR, 1, netip.MustParsePrefix(text)) }
	check := func(matched ...string) {
		t.Helper()
		for _, a := range []string{"9.255.255.255", "10.0.0.0", "10.0.255.255", "10.1.0.0", "10.1.255.255", "10.2.0.0", "10.255.255.255", "11.0.0.0"} {
			for port, want := range map[string]bool{"81": slices.Contains(matched, a), "82": false} {
				cmd := exec.Command("nft", "get", "element", "ip", "weir", s.name(id), "{ 192.0.2.1 . tcp . "+port+" . "+a+" }")
				if out, err := cmd.CombinedOutput(); (err == nil) != want {
					t.Errorf("%s from %s is matched: %t, want %t\n%s", port, a, err == nil, want, out)
				}
			}
		}
	}
	wide := []string{"10.0.0.0", "10.0.255.255", "10.1.0.0", "10.1.255.255", "10.2.0.0", "10.255.255.255"}
	s.applyObjects(t, lb.Add, id, member("10.1.0.0/16"))
	check(wide[2:4]...)
	s.applyObjects(t, lb.Add, member("10.0.0.0/8"))
	check(wide...)
	s.applyObjects(t, lb.Delete, member("10.1.0.0/16"))
	check(wide...)
	s.applyObjects(t, lb.Add, member("10.1.0.0/16"), member("10.0.0.0/32"))
	check(wide...)
	s.applyObjects(t, lb.Delete, member("10.0.0.0/8"))
	check("10.0.0.0", "10.1.0.0", "10.1.255.255")
}

// A reader observes over its own socket while members change, and finds each present one.
func TestNFTSetsAreObservedBesideChanges(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	id := lb.IPSet{Set: lb.SetSourceCIDR, Family: lb.IPv4}
	fixed := []lb.Object{id}
	for _, m := range manyMembers(lb.SetSourceCIDR, 2000) {
		hidden := m
		hidden.Net = netip.PrefixFrom(m.Net.Addr(), 30)
		fixed = append(fixed, m, hidden)
	}
	s.applyObjects(t, lb.Add, fixed...)
	r := s.reader(newConn(unix.NETLINK_NETFILTER, &Traffic{}))
	defer r.conn.close()
	done := make(chan error)
	go func() {
		wide, narrow := rangeMember(lb.SetSourceCIDR, 1, netip.MustParsePrefix("10.0.0.0/8")), rangeMember(lb.SetSourceCIDR, 1, netip.MustParsePrefix("10.1.0.0/16"))
		var errs error
		for range 20 {
			for _, op := range []lb.Op{{Verb: lb.Add, Object: narrow}, {Verb: lb.Add, Object: wide}, {Verb: lb.Delete, Object: narrow}, {Verb: lb.Delete, Object: wide}} {
				errs = errors.Join(errs, s.applyMembers(context.Background(), []lb.Op{op})[0])
			}
		}
		done <- errs
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			running = false
		default:
		}
		got := r.observed(t)
		for _, o := range fixed {
			if _, ok := got[o]; !ok {
				t.Fatalf("%s is not observed", o)
			}
		}
	}
}

// The ranges of one frontend change together, which is more than a socket sends by default.
func TestNFTSetsOfManyRangesOfOneFrontend(t *testing.T) {
	inNamespace(t)
	for _, set := range []lb.Set{lb.SetSourceCIDR, lb.SetIPVSNets} {
		s := testNFTSets(t)
		id := lb.IPSet{Set: set, Family: lb.IPv6}
		wide := rangeMember(set, 1, netip.MustParsePrefix("2001:db8::/32"))
		narrow := []lb.Object{}
		for i := range 4000 {
			a := wide.Net.Addr().As16()
			a[6], a[7] = byte(i>>8), byte(i)
			m := rangeMember(set, 1, netip.PrefixFrom(netip.AddrFrom16(a), 64))
			narrow = append(narrow, m)
		}
		s.applyObjects(t, lb.Add, append(narrow, id)...)
		if got := len(s.elements(t, id)); got != len(narrow) {
			t.Errorf("%s: %d elements of %d", id, got, len(narrow))
		}
		s.applyObjects(t, lb.Add, wide)
		if got := s.elements(t, id); len(got) != 1 || got[0] != wide {
			t.Errorf("%s: %d elements within a wide one", id, len(got))
		}
		s.applyObjects(t, lb.Delete, wide)
		if got := len(s.elements(t, id)); got != len(narrow) {
			t.Errorf("%s: %d elements of %d without the wide one", id, got, len(narrow))
		}
		s.applyObjects(t, lb.Delete, id)
	}
}

// Before Linux 6.9 another program can remove the table before the creation of a set. That is ENOENT, too, and no
// missing feature.
func TestNFTSetsOfARemovedTable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		errno   syscall.Errno
		missing bool
	}{{unix.ENOENT, false}, {unix.EOPNOTSUPP, true}} {
		conn, _ := playedConn(&played{kernel: func(m message) []byte {
			switch {
			case m.typ == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSET:
				return ack(m, tt.errno)
			case m.flags&unix.NLM_F_ACK != 0:
				return ack(m, 0)
			}
			return nil
		}})
		s := newNFTSets(newNFTTables(conn, NFTable), "KUBE", marking{})
		err := s.applySets(t.Context(), []lb.Op{{Verb: lb.Add, Object: lb.IPSet{Set: lb.SetLoadBalancer, Family: lb.IPv4}}})[0]
		if !errors.Is(err, tt.errno) || errors.As(err, new(*MissingError)) != tt.missing {
			t.Errorf("%v: %v, want a missing feature: %v", tt.errno, err, tt.missing)
		}
	}
}

// An operator of an old kernel gets the feature.
func TestNFTSetsNameAMissingFeature(t *testing.T) {
	t.Parallel()
	for _, set := range lb.Sets() {
		id := lb.IPSet{Set: set, Family: lb.IPv4}
		err := missingSet(id, &refusal{errno: unix.EOPNOTSUPP})
		want := "support for sets in nf_tables"
		switch {
		case set == lb.SetSourceCIDR:
			want = "support for intervals in concatenations in nf_tables"
		case nftKindOf(id).concat():
			want = "support for sets of concatenations in nf_tables"
		}
		if missing := (*MissingError)(nil); !errors.As(err, &missing) || !strings.Contains(err.Error(), want) || !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%s: %v", set, err)
		}
		if err := missingSet(id, &refusal{errno: unix.EPERM}); errors.As(err, new(*MissingError)) || !errors.Is(err, unix.EPERM) {
			t.Errorf("%s without privileges: %v", set, err)
		}
	}
}
