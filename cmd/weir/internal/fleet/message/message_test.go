package message

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cmd/weirlab/fuzzing"
)

var vipA = netip.MustParseAddr("192.0.2.1")

var compareNetip = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	six := netip.MustParseAddr("2001:db8::1")
	for _, w := range []Message{
		{VIPs: map[netip.Addr]Flags{}},
		{
			VIPs:    map[netip.Addr]Flags{vipA: Serves, six: Serves | Owns, vipA.Next(): Drains},
			Sources: map[string]cluster.Digest{"static": "0123456789abcdef"}, Orders: map[string]string{"192.0.2.1:80/tcp": "ff"},
			MACs: []string{"02:00:00:00:00:01"},
		},
	} {
		text, err := w.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(text)
		if d := cmp.Diff(w, got, compareNetip); err != nil || d != "" {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	}
	w := Message{VIPs: map[netip.Addr]Flags{vipA: Serves, six: Serves | Owns}}
	if w.Count(Serves) != 2 || w.Count(Owns) != 1 || !w.Has(Owns)(six) || w.Has(Owns)(vipA) {
		t.Errorf("parts: %+v", w)
	}
}

// randomMessage returns a message of up to n VIPs, where each flag is rare, frequent, on
// all, or on half of them.
func randomMessage(r *rand.Rand, n int) Message {
	m := Message{VIPs: map[netip.Addr]Flags{}, Orders: map[string]string{}}
	var chance [4]float64
	for i := range chance {
		chance[i] = []float64{0, 0.001, 0.5, 0.999, 1}[r.IntN(5)]
	}
	for range r.IntN(n) {
		a := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(256)), byte(r.IntN(256))})
		if r.IntN(3) == 0 {
			six := netip.MustParseAddr("2001:db8::").As16()
			six[15], six[14] = byte(r.IntN(256)), byte(r.IntN(256))
			a = netip.AddrFrom16(six)
		}
		var f Flags
		for i, c := range chance {
			if r.Float64() < c {
				f |= 1 << i
			}
		}
		m.VIPs[a] = f
		if r.IntN(4) == 0 {
			m.Orders[netip.AddrPortFrom(a, 80).String()+"/tcp"] = "ff"
		}
	}
	return m
}

// Whatever the flags are, a message is read as it was written, but for VIPs without one.
func TestRandomMessagesAreReadAsWritten(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		w := randomMessage(r, 2000)
		text, err := w.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(w.VIPs, func(_ netip.Addr, f Flags) bool { return f == 0 })
		if !maps.Equal(w.VIPs, got.VIPs) || !maps.Equal(w.Orders, got.Orders) {
			t.Fatalf("%d VIPs, %d orders, read as %d, %d", len(w.VIPs), len(w.Orders), len(got.VIPs), len(got.Orders))
		}
	}
}

// crowd returns the message of one of three members that serve n VIPs; two have none of
// their backends.
func crowd(n, me int) Message {
	m := Message{
		VIPs: map[netip.Addr]Flags{}, Answers: true, Orders: map[string]string{}, MACs: []string{fmt.Sprintf("02:00:00:00:00:%02x", me)},
		Sources: map[string]cluster.Digest{"[fleet]": DigestOf(1), "static": DigestOf(2), "prod": DigestOf(3)},
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		a, f := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), Serves
		if i%5000 == 7 {
			f = 0
		}
		if r.IntN(3) == me && f != 0 {
			f |= Owns
		}
		m.VIPs[a] = f
		m.Orders[netip.AddrPortFrom(a, 443).String()+"/tcp"] = string(DigestOf(uint64(i)))
	}
	return m
}

// maxAgreed is the promised length of a message with 10,000 VIPs, each with an order of
// its backends, among members that agree.
const maxAgreed = 4096

// Members that agree send each other at most maxAgreed bytes, and equal parts; one VIP
// more changes two parts, and a member with other VIPs is read exactly.
func TestMembersThatAgreeSendLittle(t *testing.T) {
	t.Parallel()
	encode := func(m Message) cluster.Message {
		t.Helper()
		out, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b := encode(crowd(10_000, 0)), encode(crowd(10_000, 1))
	if d := cmp.Diff(a.Parts, b.Parts); d != "" {
		t.Error("members that agree have different parts")
	}
	if n := len(a.Wire()); n > maxAgreed {
		t.Errorf("a message of %d bytes, more than %d", n, maxAgreed)
	} else {
		t.Logf("a message of %d bytes, and parts of %d", n, a.Len()-len(a.Head))
	}
	more := crowd(10_000, 0)
	more.VIPs[vipA] = Serves
	more.Orders["192.0.2.1:443/tcp"] = "ff"
	changed := 0
	for i, part := range encode(more).Parts {
		if !bytes.Equal(part, a.Parts[i]) {
			changed++
		}
	}
	if changed != 2 {
		t.Errorf("one VIP more changes %d parts", changed)
	}
	none := Message{VIPs: map[netip.Addr]Flags{}}
	got, err := Parse(encode(more))
	if err != nil || len(none.Changed(got)) != 9_999 {
		t.Errorf("%d VIPs are read, %v", len(got.VIPs), err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	parse := func(head string, parts ...string) error {
		in := cluster.Message{Head: []byte(head)}
		for _, p := range parts {
			in.Parts = append(in.Parts, []byte(p))
		}
		_, err := Parse(in)
		return err
	}
	var macs strings.Builder
	for i := range maxMessageMACs + 1 {
		fmt.Fprintf(&macs, `,"%d"`, i)
	}
	two := "v\x02\xc0\x00\x02\x01\xc0\x00\x02\x02"
	for _, tt := range []struct {
		head  string
		parts []string
	}{
		{``, nil},
		{`[]`, nil},
		{`{"serves":["192.0.2.1"]}`, nil},
		{`{"serves":{"except":[2]}}`, []string{two}},
		{`{"serves":{"except":[-1]}}`, []string{two}},
		{`{"serves":{"all":true,"except":[1,0]}}`, []string{two}},
		{`{"serves":{"except":[1,1]}}`, []string{two}},
		{`{"owns":{"bits":"BA=="}}`, []string{two}},
		{`{"owns":{"bits":"AQE="}}`, []string{two}},
		{`{"owns":{"bits":"AQ==","all":true}}`, []string{two}},
		{`{}`, []string{"v"}},
		{`{}`, []string{"v\x01\xc0\x00\x02"}},
		{`{}`, []string{"v\x00\x01"}},
		{`{}`, []string{"v\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}},
		{`{}`, []string{"v\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01"}},
		{`{}`, []string{"o"}},
		{`{}`, []string{`o{"a":"\t"}`}},
		{`{}`, []string{`o{"a":"\u0007"}`}},
		{`{}`, []string{`o{"` + strings.Repeat("a", maxMessageText+1) + `":"00"}`}},
		{`{"sources":{"` + strings.Repeat("a", maxMessageText+1) + `":"00"}}`, nil},
		{`{"sources":{"a\n":"00"}}`, nil},
		{`{"sources":{"a":"\u001b[2J"}}`, nil},
		{`{"macs":["\u0007"]}`, nil},
		{`{"macs":[` + macs.String()[1:] + `]}`, nil},
	} {
		if err := parse(tt.head, tt.parts...); err == nil {
			t.Errorf("%.60s with %.60q is accepted", tt.head, tt.parts)
		}
	}
	if err := parse(`{"serves":{"all":true,"except":[1]},"later":{"x":1}}`, two, "x from a later version", ""); err != nil {
		t.Errorf("fields and parts of a later version: %v", err)
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	a, b, c, d := vipA, vipA.Next(), vipA.Next().Next(), vipA.Next().Next().Next()
	one := Message{VIPs: map[netip.Addr]Flags{a: Serves, b: Serves, c: Serves}}
	two := Message{VIPs: map[netip.Addr]Flags{a: Serves, b: Serves | Owns, d: Serves}}
	got := one.Changed(two)
	slices.SortFunc(got, netip.Addr.Compare)
	if diff := cmp.Diff([]netip.Addr{b, c, d}, got, compareNetip); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	fuzzing.Wide(f)
	f.Add([]byte(`{"serves":{"all":true},"owns":{"bits":"Aw=="},"sources":{"a":"00"},"macs":["02:00:00:00:00:01"]}`), []byte("v\x02\xc0\x00\x02\x01\xc0\x00\x02\x02"))
	f.Add([]byte(`{}`), []byte(`o{"192.0.2.1:80/tcp":"ff"}`))
	f.Fuzz(func(t *testing.T, head, part []byte) {
		w, err := Parse(cluster.Message{Head: head, Parts: [][]byte{part}})
		if err != nil {
			return
		}
		again, err := w.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(again)
		if err != nil || len(w.Changed(back)) > 0 {
			t.Errorf("%q, %q are read as %v, and that as %v: %v", head, part, w, back, err)
		}
	})
}

// BenchmarkLength prints the bytes that a member sends to one that agrees, and their ratio
// to a list of the same VIPs, the floor of a message without parts.
func BenchmarkLength(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("%d VIPs", n), func(b *testing.B) {
			m := crowd(n, 0)
			var sent, whole int
			for b.Loop() {
				out, err := m.Encode()
				if err != nil {
					b.Fatal(err)
				}
				sent, whole = len(out.Wire()), out.Len()
			}
			b.ReportMetric(float64(sent), "bytes-sent")
			b.ReportMetric(float64(sent)/float64(whole), "of-whole-message")
			if n == 10_000 && sent > maxAgreed {
				b.Errorf("%d bytes, more than %d", sent, maxAgreed)
			}
		})
	}
}
