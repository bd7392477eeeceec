package l2

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	one4, two4 = netip.MustParseAddr("192.0.2.201"), netip.MustParseAddr("192.0.2.202")
	one6, two6 = netip.MustParseAddr("2001:db8::1:201"), netip.MustParseAddr("2001:db8::1:202")
)

func TestNeighboursResolveVIPs(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	for _, vip := range []netip.Addr{one4, one6} {
		// The kernel has the VIP, on another device, and does not answer for it.
		if got := n.ask(vip, time.Second); got == "a" {
			t.Fatalf("%v is served without an answerer", vip)
		}
		a.claim(vip)
		a.becomes(vip, Answered)
		await(t, "served", func() bool { return n.ask(vip, time.Second) == "a" })
		n.knows(vip, a.mac("eth0"))
		// Asked again by unicast, as neighbours do with an old entry.
		answered := a.answered()
		n.sh("ip neigh change %s lladdr %s dev eth0 nud probe", vip, a.mac("eth0"))
		await(t, "confirmed", func() bool { return strings.Contains(n.sh("ip neigh show %s", vip), "REACHABLE") })
		if a.answered() == answered {
			t.Errorf("%v: it was not the box that answered", vip)
		}
		if got := n.ask(vip, patience); got != "a" {
			t.Errorf("%v: %s", vip, got)
		}
		a.release(vip)
		n.sh("ip neigh flush dev eth0")
		if got := n.ask(vip, time.Second); got == "a" {
			t.Errorf("%v is served after its release", vip)
		}
	}
	// Nothing but the VIP: the box's own addresses are the kernel's.
	answered := a.answered()
	if got := n.ask(netip.MustParseAddr("192.0.2.11"), patience); got != "a" || a.answered() != answered {
		t.Errorf("the box itself: %s", got)
	}
}

func (b *station) answered() uint64 { return b.Status().Interfaces[0].Answered }

func TestDuplicateAddressDetectionFindsTheVIP(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	a.claim(one4, one6)
	a.becomes(one6, Answered)
	n.sh("ip addr add %s/64 dev eth0", one6) // its kernel looks for duplicates
	await(t, "the duplicate is found", func() bool { return strings.Contains(n.sh("ip -6 addr show dev eth0"), "dadfailed") })
	a.becomes(one4, Answered)
	s := n.packet("eth0")
	answered := a.answered()
	must(t, s.write(probeFrame(n.mac("eth0"), one4)))
	await(t, "the probe is answered", func() bool { return a.answered() > answered })
}

func TestSecondClaimWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	b := newBox(t, "b", 12, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	introduce(a, b)
	for _, vip := range []netip.Addr{one4, one6} {
		a.claim(vip)
		a.becomes(vip, Answered)
		await(t, "served by a", func() bool { return n.ask(vip, time.Second) == "a" })
		b.claim(vip)
		b.becomes(vip, Contested)
		if v := b.vip(vip); v.Member != "a" || v.Other != a.mac("eth0") {
			t.Errorf("contested by %v %q", v.Other, v.Member)
		}
		remains(t, "answered by a, contested by b", time.Second, func() bool { return a.state(vip) == Answered && b.state(vip) == Contested })
		a.release(vip)
		took := b.becomes(vip, Answered)
		t.Logf("%v: answered %v after the release", vip, took.Round(time.Millisecond))
		if took > 10*time.Second {
			t.Errorf("answered only %v after the release", took)
		}
		n.knows(vip, b.mac("eth0"))
		if got := n.ask(vip, patience); got != "b" {
			t.Errorf("%v: %s", vip, got)
		}
		b.release(vip)
	}
}

func TestCautiousClaimOnALAN(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan)
	for _, vip := range []netip.Addr{one4, one6} {
		before := a.Status().Interfaces[0].Probes
		a.set(&Claim{Cautious: true}, vip)
		took := a.becomes(vip, Answered)
		if got := a.Status().Interfaces[0].Probes - before; got != cautiousProbes {
			t.Errorf("%v: %d probes", vip, got)
		}
		t.Logf("%v: answered after %v", vip, took.Round(time.Millisecond))
	}
}

func TestTakeoverOfADeadBox(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	b := newBox(t, "b", 12, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	introduce(a, b)
	a.claim(one4, one6)
	a.becomes(one6, Answered)
	a.becomes(one4, Answered)
	await(t, "served by a", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
	lan.sh("ip link set dev a down") // as if its power were cut; it goes idle
	began := time.Now()
	b.claim(one4, one6)
	n.knows(one4, b.mac("eth0"))
	four := time.Since(began)
	n.knows(one6, b.mac("eth0"))
	t.Logf("neighbours have the new box %v (IPv4), %v (both) after it was told to take over",
		four.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	for _, vip := range []netip.Addr{one4, one6} {
		if got := n.ask(vip, patience); got != "b" {
			t.Errorf("%v: %s", vip, got)
		}
		a.becomes(vip, Idle)
	}
	lan.sh("ip link set dev a up")
	a.becomes(one4, Contested) // it still claims: and does not take what b has
	a.becomes(one6, Contested)
	if b.state(one4) != Answered || b.state(one6) != Answered {
		t.Error("b no longer holds the VIPs")
	}
	n.sh("ip neigh flush dev eth0")
	if got := n.ask(one4, patience); got != "b" {
		t.Errorf("after the cable is back: %s", got)
	}
}

func TestForeignHostOnALAN(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	x := newNeighbour(t, "x", 66, lan)
	n := newNeighbour(t, "n", 100, lan)
	for _, vip := range []netip.Addr{one4, one6} {
		x.sh("ip addr add %s dev eth0 $(expr %s : '.*:' >/dev/null && echo nodad)", netip.PrefixFrom(vip, vip.BitLen()), vip)
		a.claim(vip)
		a.becomes(vip, Contested)
		if v := a.vip(vip); !v.Duplicate() || v.Other != x.mac("eth0") {
			t.Errorf("told: %+v", v)
		}
		x.sh("ip addr del %s dev eth0", netip.PrefixFrom(vip, vip.BitLen()))
		a.becomes(vip, Answered)
		// Now it comes without asking, and the neighbours accept it for a moment.
		n.ask(vip, time.Second)
		s := x.packet("eth0")
		must(t, s.write(gratuitous(x.mac("eth0"), vip)))
		await(t, "the foreign host is told", func() bool { return a.vip(vip).Duplicate() })
		n.knows(vip, a.mac("eth0"))
		if a.state(vip) != Answered {
			t.Errorf("%v is %v", vip, a.state(vip))
		}
	}
	if got := a.Status().Interfaces[0].ForeignConflicts; got < 4 {
		t.Errorf("%d conflicts with foreign hosts counted, want 4 or more", got)
	}
}

func TestSplitLANHeals(t *testing.T) {
	t.Parallel()
	left, right := newSwitch(t, "left"), newSwitch(t, "right")
	left.plug("joint", right, "joint")
	left.sh("ip link set dev joint master br0")
	a := newBox(t, "a", 11, left, one4, two4, one6, two6)
	b := newBox(t, "b", 12, right, one4, two4, one6, two6)
	n, m := newNeighbour(t, "n", 100, left), newNeighbour(t, "m", 101, right)
	introduce(a, b)
	left.sh("ip link set dev joint down")
	vips := []netip.Addr{one4, two4, one6, two6}
	a.claim(vips...)
	b.claim(vips...)
	for _, vip := range vips {
		a.becomes(vip, Answered)
		b.becomes(vip, Answered)
		await(t, "each side is served", func() bool { return n.ask(vip, time.Second) == "a" && m.ask(vip, time.Second) == "b" })
	}
	left.sh("ip link set dev joint up")
	began := time.Now()
	await(t, "one owner for each VIP", func() bool { // the bridges' ports take a moment to forward
		a.Announce()
		b.Announce()
		time.Sleep(20 * time.Millisecond)
		return oneHolderEach(a, b, vips)
	})
	t.Logf("one owner for each VIP %v after the split was over", time.Since(began).Round(time.Millisecond))
	for _, vip := range vips {
		winner := a
		if preferred("b", "a", vip) {
			winner = b
		}
		n.knows(vip, winner.mac("eth0"))
		m.knows(vip, winner.mac("eth0"))
		if got := m.ask(vip, patience); got != winner.name || winner.state(vip) != Answered {
			t.Errorf("%v: served by %s, want %s", vip, got, winner.name)
		}
	}
	if !oneHolderEach(a, b, vips) {
		t.Error("it does not stay so")
	}
}

// oneHolderEach reports whether each VIP has one holder, and the other box waits.
func oneHolderEach(a, b *station, vips []netip.Addr) bool {
	for _, vip := range vips {
		one, two := a.state(vip), b.state(vip)
		if one == two || one != Answered && two != Answered || one != Contested && two != Contested {
			return false
		}
	}
	return true
}

func TestAGatewayIsAnswered(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	outside := newSwitch(t, "outside")
	a := newBox(t, "a", 11, lan)
	a.plug("eth1", outside, "a1")
	a.sh("ip addr add 198.51.100.1/24 dev eth1; ip addr add 2001:db8:1::1/64 dev eth1 nodad")
	server := newHost(t, "server")
	server.plug("eth0", outside, "server")
	server.sh(`ip addr add 198.51.100.2/24 dev eth0; ip addr add 2001:db8:1::2/64 dev eth0 nodad
ip route add default via 198.51.100.1; ip route add default via 2001:db8:1::1`)
	server.serve()
	// The gateways are no addresses of the box.
	n := newNeighbour(t, "n", 100, lan)
	n.sh("ip route add default via 192.0.2.254; ip route add default via 2001:db8::fe")
	gateways := map[netip.Addr]string{netip.MustParseAddr("192.0.2.254"): "198.51.100.2", netip.MustParseAddr("2001:db8::fe"): "2001:db8:1::2"}
	for gateway, to := range gateways {
		if got := n.ask(netip.MustParseAddr(to), time.Second); got == "server" {
			t.Fatalf("%s is reached without a gateway", to)
		}
		a.set(&Claim{Interfaces: []string{"eth0"}}, gateway)
		a.becomes(gateway, Answered)
		await(t, "the way by "+gateway.String(), func() bool { return n.ask(netip.MustParseAddr(to), time.Second) == "server" })
		n.sh("ip neigh change %s lladdr %s dev eth0 nud probe", gateway, a.mac("eth0"))
		await(t, "confirmed", func() bool { return strings.Contains(n.sh("ip neigh show %s", gateway), "REACHABLE") })
	}
}
