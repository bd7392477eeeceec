package linux

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// The bytes are those of nft(8) 1.0.6, which this machine's order affects.
func TestNFTSetMessages(t *testing.T) {
	t.Parallel()
	ranges := lb.IPSet{Set: lb.SetSourceCIDR, Family: lb.IPv4}
	got := words(encoded(func(e *encoder) { putNFTSetNew(e, ranges, "weir", "h3") }))
	want := "02000000 09000100 77656972 00000000 07000200 68330000 " + // family, table, name
		"08000a00 00000001 08000300 00000084 08000400 001cc347 08000500 00000010 " + // id, flags, type, length
		"0a000d00 00040000 00000000 " + // byte order
		"38000980 34000280 0c000180 08000100 00000004 0c000180 08000100 00000001 " + // lengths of the parts
		"0c000180 08000100 00000002 0c000180 08000100 00000004"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("set (-want +got):\n%s", d)
	}
	m := lb.Member{Set: lb.SetSourceCIDR, Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Proto: lb.TCP, Net: netip.MustParsePrefix("10.0.0.0/8")}
	got = words(encoded(func(e *encoder) {
		putNFTElements(e, unix.NFT_MSG_NEWSETELEM, ranges, "weir", "h3", []nftElement{elementOf(m)})
	}))
	want = "02000000 09000100 77656972 00000000 07000200 68330000 " +
		"38000380 34000180 " +
		"18000180 14000100 0a000001 06000000 00500000 0a000000 " +
		"18000a80 14000100 0a000001 06000000 00500000 0affffff"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("element (-want +got):\n%s", d)
	}
}

func TestNFTElementsComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	edges := []lb.Member{
		{Set: lb.SetIPVSNets, Net: netip.MustParsePrefix("0.0.0.0/0")},
		{Set: lb.SetIPVSNets, Net: netip.MustParsePrefix("255.255.255.255/32")},
		{Set: lb.SetIPVSNets, Net: netip.MustParsePrefix("::/0")},
		{Set: lb.SetSourceCIDR, Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Port: 1, Proto: lb.UDP, Net: netip.MustParsePrefix("::/0")},
	}
	for _, m := range append(someMembers(), edges...) {
		id := lb.IPSet{Set: m.Set, Family: m.Family()}
		body := encoded(func(e *encoder) {
			putNFTElements(e, unix.NFT_MSG_NEWSETELEM, id, "weir", "KUBE-X", []nftElement{elementOf(m)})
		})
		var got []lb.Member
		parseElements(body, id, func(m lb.Member, ok bool) {
			if !ok {
				t.Errorf("%s: no member", m)
			}
			got = append(got, m)
		})
		if d := cmp.Diff([]lb.Member{m}, got, compareNetip); d != "" {
			t.Errorf("%s (-want +got):\n%s", m, d)
		}
	}
}

func parseElements(body []byte, id lb.IPSet, each func(lb.Member, bool)) {
	elements := nftElements{kind: nftKindOf(id), each: func(el nftElement) { each(el.member(id)) }}
	elements.parse(body)
	elements.done()
}

// A message has at most 64 KiB, and a transaction fits in the send buffer that each system has.
func TestNFTElementsFillAMessageButNoMore(t *testing.T) {
	t.Parallel()
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		for _, set := range []lb.Set{lb.SetIPVSNets, lb.SetSourceCIDR, lb.SetInternal, lb.SetHealthCheckNodePort} {
			id := lb.IPSet{Set: set, Family: f}
			a := unspecified(f).Next()
			m := lb.Member{Set: set, Addr: a, Port: 80, Proto: lb.TCP}
			if set == lb.SetIPVSNets {
				m.Addr = netip.Addr{}
			}
			if ofRanges(set) {
				m.Net = netip.PrefixFrom(a, a.BitLen())
			}
			many := slices.Repeat([]nftElement{elementOf(m)}, 10000)
			n := 0
			body := encoded(func(e *encoder) {
				n = putNFTElements(e, unix.NFT_MSG_NEWSETELEM, id, "weir", id.Set.Name("KUBEX", f), many)
			})
			if n < 400 || n == len(many) || len(body) > 1<<16 {
				t.Errorf("%s: %d elements in %d bytes", id, n, len(body))
			}
			if got := len(body) / n; got > nftElementBytes {
				t.Errorf("%s: an element has %d bytes, more than %d", id, got, nftElementBytes)
			}
			one := encoded(func(e *encoder) {
				putNFTElements(e, unix.NFT_MSG_NEWSETELEM, id, "weir", id.Set.Name("KUBEX", f), many[:1])
			})
			if got := unix.NLMSG_HDRLEN + len(one); got > nftElementBytes+nftHeaderBytes {
				t.Errorf("%s: a message with one element has %d bytes, more than %d", id, got, nftElementBytes+nftHeaderBytes)
			}
		}
	}
}

func FuzzParseNFTElements(f *testing.F) {
	fuzzing.Wide(f)
	for _, m := range someMembers() {
		id := lb.IPSet{Set: m.Set, Family: m.Family()}
		f.Add(encoded(func(e *encoder) {
			putNFTElements(e, unix.NFT_MSG_NEWSETELEM, id, "weir", "KUBE-X", []nftElement{elementOf(m), {catchAll: true}})
		}), uint8(m.Set), m.Addr.Is6())
	}
	f.Add(binary.NativeEndian.AppendUint32(nil, 0), uint8(0), false)
	f.Fuzz(func(t *testing.T, b []byte, set uint8, six bool) {
		id := lb.IPSet{Set: lb.Set(int(set) % len(lb.Sets())), Family: lb.IPv4}
		if six {
			id.Family = lb.IPv6
		}
		parseNFTSet(b)
		parseElements(b, id, func(m lb.Member, ok bool) {
			if !ok {
				return
			}
			if !m.Addr.IsValid() && !m.Net.IsValid() {
				t.Errorf("a member of nothing: %v", m)
			}
			again := encoded(func(e *encoder) {
				putNFTElements(e, unix.NFT_MSG_NEWSETELEM, id, "weir", "KUBE-X", []nftElement{elementOf(m)})
			})
			parseElements(again, id, func(back lb.Member, ok bool) {
				if !ok || back != m {
					t.Errorf("%v comes back as %v", m, back)
				}
			})
		})
	})
}
