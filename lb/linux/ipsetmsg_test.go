package linux

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// someMembers has one of each set type and family.
func someMembers() []lb.Member {
	a, n := netip.MustParseAddr, netip.MustParsePrefix
	return []lb.Member{
		{Set: lb.SetIPVSIPs, Addr: a("192.0.2.1")},
		{Set: lb.SetIPVSIPs, Addr: a("2001:db8::1")},
		{Set: lb.SetIPVSNets, Net: n("192.0.2.0/24")},
		{Set: lb.SetIPVSNets, Net: n("2001:db8:1::/48")},
		{Set: lb.SetLoadBalancer, Addr: a("192.0.2.1"), Port: 80, Proto: lb.TCP},
		{Set: lb.SetLoadBalancerLocal, Addr: a("2001:db8::1"), Port: 53, Proto: lb.UDP},
		{Set: lb.SetIPVSPorts, Addr: a("192.0.2.1"), Port: 7, Proto: lb.SCTP},
		{Set: lb.SetSourceCIDR, Addr: a("192.0.2.1"), Port: 80, Proto: lb.TCP, Net: n("198.51.100.0/24")},
		{Set: lb.SetSourceCIDR, Addr: a("192.0.2.1"), Port: 80, Proto: lb.TCP, Net: n("0.0.0.0/1")},
		{Set: lb.SetSourceCIDR, Addr: a("192.0.2.1"), Port: 80, Proto: lb.TCP, Net: n("198.51.100.7/32")},
		{Set: lb.SetSourceCIDR, Addr: a("2001:db8::1"), Port: 80, Proto: lb.TCP, Net: n("2001:db8:2::/64")},
		{Set: lb.SetLoopBack, Addr: a("10.0.0.7"), Port: 8080, Proto: lb.TCP, Net: n("10.0.0.7/32")},
		{Set: lb.SetLoopBack, Addr: a("2001:db8::7"), Port: 8080, Proto: lb.TCP, Net: n("2001:db8::7/128")},
		{Set: lb.SetSourceIP, Addr: a("192.0.2.1"), Port: 80, Proto: lb.TCP, Net: n("192.0.2.1/32")},
		{Set: lb.SetNodePorts, Addr: a("192.0.2.9"), Port: 30080, Proto: lb.UDP},
		{Set: lb.SetNodePortsLocal, Addr: a("2001:db8::9"), Port: 65535, Proto: lb.SCTP},
		{Set: lb.SetHealthCheckNodePort, Addr: a("0.0.0.0"), Port: 65535},
		{Set: lb.SetHealthCheckNodePort, Addr: a("::"), Port: 30001},
		{Set: lb.SetMarks, Addr: a("0.0.0.1")},
		{Set: lb.SetMarks, Addr: a("::7f:ffff")},
		{Set: lb.SetInternal, Addr: a("192.0.2.1"), Port: 80, Proto: lb.TCP, Mark: 1},
		{Set: lb.SetInternal, Addr: a("2001:db8::1"), Port: 53, Proto: lb.UDP, Mark: lb.MaxMark},
	}
}

func TestMembersMessage(t *testing.T) {
	t.Parallel()
	m := lb.Member{Set: lb.SetSourceCIDR, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP, Net: netip.MustParsePrefix("198.51.100.0/24")}
	got := words(encoded(func(e *encoder) { putMembers(e, nl.IPSET_CMD_ADD, "KUBE-X", []lb.Member{m}) }))
	want := "02000000 05000100 06000000 " + // family, version; protocol 6
		"0b000200 4b554245 2d580000 " + // name
		"08000900 00000000 " + // line number, which the kernel fills in
		"40000880 3c000780 " + // members, one member
		"0c000180 08000140 c0000201 " + // address
		"06000440 00500000 05000700 06000000 " + // port, protocol
		"0c001480 08000140 c6336400 05001500 18000000 " + // second address, its length
		"08000900 01000000" // its line, from 1
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMembersComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	for _, m := range someMembers() {
		body := encoded(func(e *encoder) { putMembers(e, nl.IPSET_CMD_ADD, "KUBE-X", []lb.Member{m}) })
		var got []lb.Member
		parseSet(body, lb.IPSet{Set: m.Set, Family: m.Family()}, func(m lb.Member) { got = append(got, m) })
		if d := cmp.Diff([]lb.Member{m}, got, compareNetip); d != "" {
			t.Errorf("%s (-want +got):\n%s", m, d)
		}
	}
}

func TestMembersFillAMessageButNoMore(t *testing.T) {
	t.Parallel()
	var many []lb.Member
	for i := range 5000 {
		many = append(many, lb.Member{Set: lb.SetLoadBalancer, Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP})
	}
	var n int
	body := encoded(func(e *encoder) { n = putMembers(e, nl.IPSET_CMD_ADD, "KUBE-X", many) })
	if n < 100 || n == len(many) || len(body) > 32<<10 {
		t.Errorf("%d members in %d bytes", n, len(body))
	}
	got := 0
	parseSet(body, lb.IPSet{Set: lb.SetLoadBalancer, Family: lb.IPv4}, func(m lb.Member) {
		if m != many[got] {
			t.Errorf("member %d is %s", got, m)
		}
		got++
	})
	if got != n {
		t.Errorf("%d of %d members come back", got, n)
	}
}

func FuzzParseSet(f *testing.F) {
	fuzzing.Wide(f)
	for _, m := range someMembers() {
		f.Add(encoded(func(e *encoder) { putMembers(e, nl.IPSET_CMD_ADD, "KUBE-X", []lb.Member{m}) }), uint8(m.Set))
	}
	f.Fuzz(func(t *testing.T, b []byte, set uint8) {
		s := lb.Set(int(set) % len(lb.Sets()))
		parseSet(b, lb.IPSet{Set: s, Family: lb.IPv6}, func(m lb.Member) {
			if !m.Addr.IsValid() && !m.Net.IsValid() {
				t.Errorf("a member of nothing: %v", m)
			}
			_ = m.String()
		})
		refusedMember(&refusal{echo: b})
	})
}
