package l2

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/cmd/weirlab/fuzzing"
)

var sameAddr = cmp.Options{cmp.AllowUnexported(message{}), cmpopts.EquateComparable(netip.Addr{})}

// unhex reads a frame, blanks and all.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	must(t, err)
	return b
}

// Frames of Linux's and of FreeBSD's making.
const (
	askARP     = "ffffffffffff 020000000064 0806 0001 0800 06 04 0001 020000000064 c0000264 000000000000 c00002c9"
	probeARP   = "ffffffffffff 020000000064 0806 0001 0800 06 04 0001 020000000064 00000000 000000000000 c00002c9"
	unaskedARP = "ffffffffffff 020000000064 0806 0001 0800 06 04 0001 020000000064 c00002c9 000000000000 c00002c9"
	replyARP   = "02000000000b 020000000064 0806 0001 0800 06 04 0002 020000000064 c00002c9 02000000000b c000020b"
)

func TestParseARP(t *testing.T) {
	t.Parallel()
	mac := MAC{2, 0, 0, 0, 0, 0x64}
	vip, asker := netip.MustParseAddr("192.0.2.201"), netip.MustParseAddr("192.0.2.100")
	for _, test := range []struct {
		name, frame string
		want        message
	}{
		{"asks", askARP, message{from: mac, used: asker, asked: vip, asker: asker}},
		{"asks, padded", askARP + strings.Repeat("00", 18), message{from: mac, used: asker, asked: vip, asker: asker}},
		{"probes", probeARP, message{from: mac, asked: vip}},
		{"announces", unaskedARP, message{from: mac, used: vip}},
		{"replies", replyARP, message{from: mac, used: vip}},
		{"cut", askARP[:len(askARP)-2], message{}},
		{"no ARP", strings.Replace(askARP, "0806", "0800", 1), message{}},
		{"of another hardware", strings.Replace(askARP, "0001 0800", "0006 0800", 1), message{}},
		{"of another protocol", strings.Replace(askARP, "0001 0800", "0001 86dd", 1), message{}},
		{"of other lengths", strings.Replace(askARP, "06 04", "08 04", 1), message{}},
		{"another operation", strings.Replace(askARP, "04 0001", "04 0003", 1), message{}},
		{"sender is a group", strings.Replace(askARP, "0001 020000000064", "0001 030000000064", 1), message{}},
		{"sender is nobody", strings.Replace(askARP, "0001 020000000064", "0001 000000000000", 1), message{}},
		{"frame is from a group", strings.Replace(askARP, "ffffffffffff 02", "ffffffffffff ff", 1), message{}},
		{"sender is loopback", strings.Replace(askARP, "c0000264", "7f000001", 1), message{}},
		{"sender is broadcast", strings.Replace(askARP, "c0000264", "ffffffff", 1), message{}},
		{"probes for nothing", strings.Replace(probeARP, "c00002c9", "00000000", 1), message{}},
		{"asks for a group", strings.Replace(askARP, "c00002c9", "e0000001", 1), message{from: mac, used: asker}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := parseARP(unhex(t, test.frame))
			if ok != (test.want != message{}) {
				t.Errorf("ok is %v", ok)
			}
			if !ok {
				got = message{}
			}
			if diff := cmp.Diff(test.want, got, sameAddr); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// ndOf makes a neighbour message by its parts, with the right checksum.
func ndOf(change func(packet []byte), source, destination string, kind, flags byte, target string, option []byte) []byte {
	b := ndFrame(MAC{0x33, 0x33, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 0x64}, netip.MustParseAddr(source), netip.MustParseAddr(destination),
		kind, flags, netip.MustParseAddr(target), option)
	p := b[headerEthernet:]
	if change != nil {
		change(p)
		p[42], p[43] = 0, 0
		sum := checksum(p)
		p[42], p[43] = byte(sum>>8), byte(sum)
	}
	return b
}

func TestParseND(t *testing.T) {
	t.Parallel()
	station, told := MAC{2, 0, 0, 0, 0, 0x64}, MAC{2, 0, 0, 0, 0, 0x65}
	const vip, group, asker = "2001:db8::1:201", "ff02::1:ff01:201", "fe80::64"
	addr := netip.MustParseAddr
	link := func(kind byte) []byte { return append([]byte{kind, 1}, told[:]...) }
	nonce := []byte{14, 1, 1, 2, 3, 4, 5, 6} // RFC 7527
	for _, test := range []struct {
		name  string
		frame []byte
		want  message
	}{
		{"asks", ndOf(nil, asker, group, 135, 0, vip, link(1)), message{told, addr(asker), addr(vip), addr(asker)}},
		{"asks without its MAC", ndOf(nil, asker, vip, 135, 0, vip, nil), message{station, addr(asker), addr(vip), addr(asker)}},
		{"probes", ndOf(nil, "::", group, 135, 0, vip, nil), message{from: station, asked: addr(vip)}},
		{"probes with a nonce", ndOf(nil, "::", group, 135, 0, vip, nonce), message{from: station, asked: addr(vip)}},
		{"answers", ndOf(nil, vip, asker, 136, 0x60, vip, link(2)), message{from: told, used: addr(vip)}},
		{"announces", ndOf(nil, vip, "ff02::1", 136, 0x20, vip, nil), message{from: station, used: addr(vip)}},
		{"probes with its MAC", ndOf(nil, "::", group, 135, 0, vip, link(1)), message{}},
		{"probes one", ndOf(nil, "::", vip, 135, 0, vip, nil), message{}},
		{"answers a group", ndOf(nil, vip, "ff02::1", 136, 0x60, vip, nil), message{}},
		{"answers from nowhere", ndOf(nil, "::", asker, 136, 0x20, vip, nil), message{}},
		{"from a group", ndOf(nil, "ff02::5", group, 135, 0, vip, nil), message{}},
		{"asks for a group", ndOf(nil, asker, group, 135, 0, group, nil), message{}},
		{"a redirect", ndOf(nil, asker, group, 137, 0, vip, nil), message{}},
		{"option without length", ndOf(nil, asker, group, 135, 0, vip, []byte{1, 0, 0, 0, 0, 0, 0, 0}), message{}},
		{"option too long", ndOf(nil, asker, group, 135, 0, vip, []byte{1, 2, 0, 0, 0, 0, 0, 0}), message{}},
		{"option cut", ndOf(nil, asker, group, 135, 0, vip, []byte{1, 1, 0}), message{}},
		{"MAC of a group", ndOf(nil, asker, group, 135, 0, vip, []byte{1, 1, 3, 0, 0, 0, 0, 1}), message{}},
		{"came by a router", ndOf(func(p []byte) { p[7] = 254 }, asker, group, 135, 0, vip, nil), message{}},
		{"has a code", ndOf(func(p []byte) { p[41] = 1 }, asker, group, 135, 0, vip, nil), message{}},
		{"is IPv4", ndOf(func(p []byte) { p[0] = 0x40 }, asker, group, 135, 0, vip, nil), message{}},
		{"says that it is longer", ndOf(func(p []byte) { p[5] += 8 }, asker, group, 135, 0, vip, nil), message{}},
		{"says that it is shorter", ndOf(func(p []byte) { p[5] = 20 }, asker, group, 135, 0, vip, nil), message{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := parseND(test.frame)
			if !ok {
				got = message{}
			}
			if diff := cmp.Diff(test.want, got, sameAddr); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	bad := ndOf(nil, asker, group, 135, 0, vip, nil)
	bad[len(bad)-1] ^= 1
	if _, ok := parseND(bad); ok {
		t.Error("a wrong checksum is right")
	}
}

// The frames of a box are understood by another, and an answer is to the sender of the request.
func TestFramesAreUnderstood(t *testing.T) {
	t.Parallel()
	mac, other := MAC{2, 1}, MAC{2, 2}
	parse := func(b []byte) message {
		m, ok := parseARP(b)
		if !ok {
			m, ok = parseND(b)
		}
		if !ok {
			t.Fatalf("nobody understands %x", b)
		}
		return m
	}
	for _, vip := range []netip.Addr{vip4(1), vip6(1)} {
		if m := parse(probeFrame(mac, vip)); m.asked != vip || !m.probes() || m.used.IsValid() {
			t.Errorf("probe: %+v", m)
		}
		if m := parse(gratuitous(mac, vip)); m.used != vip || m.from != mac || m.asked.IsValid() {
			t.Errorf("announcement: %+v", m)
		}
		asked := message{from: other, asked: vip, asker: vip.Next(), used: vip.Next()}
		b := answer(mac, asked)
		if m := parse(b); m.used != vip || m.from != mac || MAC(b[:6]) != other {
			t.Errorf("answer: %+v", m)
		}
		asked.asker, asked.used = netip.Addr{}, netip.Addr{}
		if m := parse(answer(mac, asked)); m.used != vip || m.from != mac {
			t.Errorf("answer to a probe: %+v", m)
		}
	}
	if m := parse(gratuitousReply(mac, vip4(1))); m.used != vip4(1) || m.from != mac {
		t.Errorf("announcement by reply: %+v", m)
	}
}

func FuzzParseARP(f *testing.F) {
	fuzzing.Wide(f)
	for _, s := range []string{askARP, probeARP, unaskedARP, replyARP} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkParsed(t, b, parseARP, netip.Addr.Is4) })
}

func FuzzParseND(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(probeFrame(MAC{2}, vip6(1)))
	f.Add(gratuitous(MAC{2}, vip6(1)))
	f.Add(ndOf(nil, "fe80::1", "ff02::1:ff01:201", 135, 0, "2001:db8::1:201", []byte{14, 1, 1, 2, 3, 4, 5, 6, 1, 1, 2, 0, 0, 0, 0, 1}))
	f.Fuzz(func(t *testing.T, b []byte) { checkParsed(t, b, parseND, netip.Addr.Is6) })
}

// checkParsed holds what is true of every accepted message, and that an engine
// survives it.
func checkParsed(t *testing.T, b []byte, parse func([]byte) (message, bool), family func(netip.Addr) bool) {
	before := bytes.Clone(b)
	m, ok := parse(b)
	if !bytes.Equal(b, before) {
		t.Fatal("the frame was changed")
	}
	if !ok {
		return
	}
	if !m.from.single() || !m.used.IsValid() && !m.asked.IsValid() {
		t.Fatalf("nobody speaks, or of nothing: %+v", m)
	}
	for _, a := range []netip.Addr{m.used, m.asked, m.asker} {
		if a.IsValid() && (!family(a) || a.IsMulticast() || a.IsUnspecified()) {
			t.Fatalf("speaks of %v: %+v", a, m)
		}
	}
	if !m.asked.IsValid() {
		return
	}
	if got, ok := parse(answer(MAC{2, 9}, m)); !ok || got.used != m.asked || got.from != (MAC{2, 9}) {
		t.Fatalf("the answer to %+v is %+v", m, got)
	}
}

func TestCoverContainsAllAndLittleElse(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		var words []uint32
		for range random.IntN(200) {
			words = append(words, random.Uint32N(1<<(4+random.Uint32N(28))))
		}
		all := append([]uint32(nil), words...)
		spans := cover(words)
		if len(spans) > maxSpans {
			t.Fatalf("%d spans", len(spans))
		}
		for i, s := range spans {
			if s.low > s.high || i > 0 && s.low <= spans[i-1].high+1 {
				t.Fatalf("spans are not apart: %v", spans)
			}
		}
		for _, w := range all {
			in := false
			for _, s := range spans {
				in = in || s.low <= w && w <= s.high
			}
			if !in {
				t.Fatalf("%d is in none of %v", w, spans)
			}
		}
	}
	if diff := cmp.Diff([]span{{1, 3}, {7, 7}, {1 << 31, 1 << 31}}, cover([]uint32{7, 2, 1 << 31, 1, 3, 2}), cmp.AllowUnexported(span{})); diff != "" {
		t.Error(diff)
	}
	if got := cover([]uint32{0, 1<<32 - 1}); len(got) != 2 {
		t.Errorf("the ends: %v", got)
	}
}
