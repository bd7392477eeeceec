package owner

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// vips gives n addresses, half of them IPv6.
func vips(n int) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		b := [4]byte{10}
		binary.BigEndian.PutUint16(b[2:], uint16(i/2))
		out[i] = netip.AddrFrom4(b)
		if i%2 == 1 {
			c := netip.MustParseAddr("2001:db8::").As16()
			binary.BigEndian.PutUint32(c[12:], uint32(i))
			out[i] = netip.AddrFrom16(c)
		}
	}
	return out
}

func fleet(weights ...int) []Member {
	var out []Member
	for i, w := range weights {
		m := member(fmt.Sprintf("box%d", i+1), Stable)
		m.Weight = w
		out = append(out, m)
	}
	return out
}

// The figures are from another program, with decimal logarithms of 60 places.
// Members of different versions and processors must give these. If they have to
// change, so has the domain, and the changelog must require that all members of a fleet
// are upgraded at once.
func TestHashIsGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    uint64
		want uint64
	}{
		{0, 64 << 40}, {1<<64 - 1, 0}, {1<<63 - 1, 1 << 40}, {1<<62 - 1, 2 << 40},
		{0xc000000000000000 - 1, 456338556421}, {0xaaaaaaaaaaaaaaaa, 643173071356}, {12345678901234567, 11594508783108},
	} {
		if got := length(c.n); got != c.want {
			t.Errorf("length(%#x) = %d, want %d", c.n, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		vip  string
		want uint64
	}{
		{"a", "192.0.2.20", 5508791176792}, {"b", "192.0.2.20", 3460127786921}, {"c", "192.0.2.20", 2751686538987},
		{"a", "2001:db8::20", 285272740924}, {"lb1.example.net", "192.0.2.20", 5202274639},
	} {
		m := member(c.name, Stable)
		if got := (Rules{}).score(&m, netip.MustParseAddr(c.vip)).length; got != c.want {
			t.Errorf("%s at %s: %d, want %d", c.name, c.vip, got, c.want)
		}
	}
	text := ""
	members := fleet(100, 200, 50)
	for _, v := range vips(24) {
		text += Rules{}.Owner(members, v)[3:]
	}
	if want := "131221222333232122113132"; text != want {
		t.Errorf("owners %s, want %s", text, want)
	}
	if got := (Rules{SingleOwner: true}).Owner(members, vip); got != "box2" {
		t.Errorf("together: %s", got)
	}
}

func TestLengthIsALogarithm(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	last := uint64(0)
	for range 100_000 {
		h := r.Uint64() >> r.IntN(64)
		got, want := float64(length(h))/(1<<40), 64-math.Log2(float64(h)+1)
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("length(%#x) = %v, want %v", h, got, want)
		}
		last = max(last, length(h))
	}
	if last*1000 < last {
		t.Error("a product of length and weight overflows")
	}
	for h := uint64(1<<64 - 1000); h != 0; h++ {
		if length(h) > length(h-1) {
			t.Fatalf("length(%#x) is more than that of the one before", h)
		}
	}
}

func TestTheOrderOfMembersMakesNoDifference(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	standings := []State{Absent, Draining, Unfit, Fresh, Stable}
	for i, v := range vips(2000) {
		var members []Member
		for n := range 1 + r.IntN(6) {
			m := Member{Name: fmt.Sprint("box", n), Weight: r.IntN(1001), State: standings[r.IntN(5)]}
			for _, f := range []*func(netip.Addr) bool{&m.Serves, &m.Owns, &m.Drains} {
				if r.IntN(2) == 0 {
					*f = always
				}
			}
			members = append(members, m)
		}
		rules := Rules{Mode: Mode(i % 2), SingleOwner: i%3 == 0, NoPreempt: i%5 < 2}
		want := rules.Owner(members, v)
		for range 5 {
			r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			if got := rules.Owner(members, v); got != want {
				t.Fatalf("%+v: %s, and in another order %s: %+v", rules, want, got, members)
			}
		}
		serves := slices.ContainsFunc(members, func(m Member) bool { return m.State != Absent && m.Serves != nil })
		if (want != "") != serves {
			t.Fatalf("owned by %q of %+v", want, members)
		}
		// The owner is the one that claims so itself, and some member announces.
		owners, announced := 0, false
		for _, m := range members {
			verdict := rules.Decide(m.Name, members, v)
			if verdict.Owner != want {
				t.Fatalf("%s: %+v, want %s", m.Name, verdict, want)
			}
			if rules.Mode == ActiveStandby && verdict.Role == Owner {
				owners++
			}
			announced = announced || verdict.Role >= Standby
			if verdict.Owner == m.Name && verdict.Role != Owner {
				t.Fatalf("the owner is %+v", verdict)
			}
		}
		if serves && (!announced || rules.Mode == ActiveStandby && owners != 1) {
			t.Fatalf("announced %v, %d owners", announced, owners)
		}
	}
}

func TestOnlyTheVIPsOfOneThatGoesMove(t *testing.T) {
	t.Parallel()
	before := fleet(100, 100, 200, 50, 1000)
	for gone := range before {
		after := slices.Delete(slices.Clone(before), gone, gone+1)
		for _, v := range vips(4000) {
			was, is := Rules{}.Owner(before, v), Rules{}.Owner(after, v)
			if was != is && was != before[gone].Name {
				t.Fatalf("%s goes, and %s moves from %s to %s", before[gone].Name, v, was, is)
			}
		}
	}
}

func TestMoreWeightOnlyTakes(t *testing.T) {
	t.Parallel()
	before, after := fleet(100, 100, 100), fleet(100, 150, 100)
	for _, v := range vips(4000) {
		if was, is := (Rules{}).Owner(before, v), (Rules{}).Owner(after, v); was != is && is != "box2" {
			t.Fatalf("%s moves from %s to %s", v, was, is)
		}
	}
}

func TestWeightsAreShares(t *testing.T) {
	t.Parallel()
	for _, weights := range [][]int{{100, 100}, {100, 100, 100}, {1, 2, 3, 4}, {1000, 1}, {0, 100, 300}} {
		members, counts, sum := fleet(weights...), map[string]int{}, 0
		all := vips(40_000)
		for _, v := range all {
			counts[Rules{}.Owner(members, v)]++
		}
		for i, w := range weights {
			if w == 0 {
				w, weights[i] = DefaultWeight, DefaultWeight
			}
			sum += w
		}
		for i, w := range weights {
			got, want := float64(counts[members[i].Name])/float64(len(all)), float64(w)/float64(sum)
			// Four standard deviations.
			if math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/float64(len(all))) {
				t.Errorf("%v: %s has %.4f, want %.4f", weights, members[i].Name, got, want)
			}
		}
	}
}

func TestTogetherIsOneOwner(t *testing.T) {
	t.Parallel()
	members := fleet(100, 100, 100)
	owners := map[string]int{}
	for _, v := range vips(100) {
		owners[Rules{SingleOwner: true}.Owner(members, v)]++
	}
	if len(owners) != 1 {
		t.Errorf("%v", owners)
	}
	// One that it does not serve is another's.
	for i := range members {
		if owners[members[i].Name] > 0 {
			members[i].Serves = func(a netip.Addr) bool { return a != vip }
		}
	}
	if got := (Rules{SingleOwner: true}).Owner(members, vip); got == "" || owners[got] > 0 {
		t.Errorf("what the owner does not serve is %q's", got)
	}
}

func TestNamesAreDistinguished(t *testing.T) {
	t.Parallel()
	long := make([]byte, 255)
	a, b := member(string(long), Stable), member(string(long[1:]), Stable)
	if (Rules{}).score(&a, vip) == (Rules{}).score(&b, vip) {
		t.Error("two names, one score")
	}
}

func BenchmarkFleetOf5With5000VIPs(b *testing.B) {
	members, all := fleet(100, 100, 100, 100, 100), vips(5000)
	serves := map[netip.Addr]bool{}
	for _, v := range all {
		serves[v] = true
	}
	for i := range members {
		members[i].Serves = func(a netip.Addr) bool { return serves[a] }
	}
	rules := Rules{Mode: ActiveStandby}
	b.ReportAllocs()
	for b.Loop() {
		for _, v := range all {
			rules.Decide("box1", members, v)
		}
	}
}
