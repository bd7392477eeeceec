package l2

import (
	"net/netip"
	"testing"
	"time"
)

// leaf is a switch that answers for a VIP by itself: with the MAC address of a dead member,
// as with ARP suppression, or with its own one, as with proxy ARP.
func (n *lan) leaf(mac MAC, vip netip.Addr) *box {
	b := n.foreign(mac, vip)
	b.name = "leaf"
	delete(n.boxes, "foreign host")
	n.boxes[b.name] = b
	return b
}

// gone has a box count others as dead.
func (n *lan) gone(name string, dead ...string) {
	members := map[MAC]Member{}
	for mac, m := range n.boxes[name].e.members {
		for _, x := range dead {
			m.Gone = m.Gone || m.Name == x
		}
		members[mac] = m
	}
	n.boxes[name].e.setMembers(members)
}

// A dead owner has a switch that goes on answering for it. The new owner takes the VIP in
// bounded time, only if the fleet knows of the death, and only once.
func TestTheAnswersOfALeafDoNotKeepAVIP(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		for _, c := range []struct {
			name  string
			claim Claim
			own   bool // the leaf answers with its own MAC address
			dead  bool // the fleet knows of the death
			want  bool
		}{
			{"suppression, the member is dead", Claim{Orphaned: true}, false, true, true},
			{"suppression, the member is alive as far as the fleet knows", Claim{}, false, false, false},
			{"proxy, the last owner is dead", Claim{Orphaned: true}, true, true, true},
			{"proxy, the VIP has had no owner that died", Claim{}, true, true, false},
		} {
			n := newLAN(t, "a", "b")
			mac := n.boxes["b"].mac
			if c.own {
				mac = MAC{2, 9}
			}
			delete(n.boxes, "b")
			n.leaf(mac, of(1))
			if c.dead {
				n.gone("a", "b")
			}
			n.set("a", &c.claim, of(1))
			n.run(overruleAfter)
			n.expect(of(1))
			n.run(2 * contestSlowGap)
			if got := len(n.holders(of(1))) == 1; got != c.want {
				t.Errorf("%s: taken: %v", c.name, got)
			}
			n.run(30 * time.Second)
			status := n.boxes["a"].e.status(n.now)
			if v := status.VIPs[0]; c.want && (v.State != Answered || !v.Overruled || v.Other != mac) || !c.want && (v.State != Contested || v.Overruled) {
				t.Errorf("%s: %+v", c.name, v)
			}
			if got := status.Interfaces[0].Overruled; (got == 1) != c.want || got > 1 {
				t.Errorf("%s: counted %d times", c.name, got)
			}
			n.set("a", &Claim{}, of(1)) // another member owned it since
			n.run(2 * time.Minute)
			if got := len(n.holders(of(1))) == 1; got != c.want {
				t.Errorf("%s: answered two minutes later: %v", c.name, got)
			}
			if v := n.boxes["a"].e.status(n.now).VIPs[0]; v.Overruled {
				t.Errorf("%s: still reported after two minutes", c.name)
			}
		}
	})
}

// A claim becomes one of a dead owner while it is contested.
func TestADeathThatIsKnownLater(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a", "b")
		leaf := n.leaf(n.boxes["b"].mac, of(1))
		delete(n.boxes, "b")
		n.set("a", &Claim{Cautious: true}, of(1))
		n.run(time.Minute)
		n.expect(of(1))
		n.gone("a", "b")
		n.set("a", &Claim{Orphaned: true}, of(1))
		n.run(2 * contestSlowGap)
		n.expect(of(1), "a")
		delete(leaf.has, of(1))
	})
}

// Only the gossip is cut: both boxes count each other as dead, and the holder keeps the VIP
// although a switch answers for it, too.
func TestALiveHolderIsNotOverruled(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			for _, leaf := range []bool{false, true} {
				holder, other := order[0], order[1]
				vip := preferredVIP(other, holder, of) // so that a mistake would move it
				n := newLAN(t, "a", "b")
				n.set(holder, &Claim{}, vip)
				n.run(time.Minute)
				n.gone("a", "b")
				n.gone("b", "a")
				if leaf {
					n.leaf(n.boxes[holder].mac, vip)
				}
				n.set(other, &Claim{Orphaned: true}, vip)
				for range 600 {
					n.run(time.Second)
					n.expect(vip, holder)
				}
				n.set(holder, nil, vip)
				n.run(overruleAfter + 2*contestSlowGap)
				n.expect(vip, other)
			}
		}
	})
}

// A foreign host that uses the address itself keeps it, also after the death of a member.
func TestALiveForeignHostIsNotOverruled(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a")
		x := n.foreign(MAC{2, 9}, of(1))
		n.set("a", &Claim{Orphaned: true}, of(1))
		for range 300 {
			n.run(850 * ms)
			n.send(x, gratuitous(x.mac, of(1)))
			n.run(150 * ms)
			n.expect(of(1))
		}
	})
}

// The second answer of two leaves does not make the new owner yield. A later frame does, and
// is not overruled until the member is known to live and to die again.
func TestOnlyALateFrameIsAnObjection(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a", "b")
		vip := preferredVIP("b", "a", of)
		leaf := n.leaf(n.boxes["b"].mac, vip)
		delete(n.boxes, "b")
		n.gone("a", "b")
		n.set("a", &Claim{Orphaned: true}, vip)
		for len(n.holders(vip)) == 0 {
			n.run(ms)
		}
		n.send(leaf, gratuitous(leaf.mac, vip))
		n.run(10 * ms)
		n.expect(vip, "a")
		n.run(500 * ms) // an answer to the announcement of this moment
		n.send(leaf, gratuitous(leaf.mac, vip))
		n.run(10 * ms)
		n.expect(vip, "a")
		// The member itself is back, and the fleet does not know yet.
		n.run(1300 * ms)
		n.send(leaf, gratuitous(leaf.mac, vip))
		n.run(10 * ms)
		n.expect(vip)
		n.run(time.Minute) // it is not overruled twice
		n.expect(vip)
		n.set("a", &Claim{}, vip) // the fleet knows
		n.set("a", &Claim{Orphaned: true}, vip)
		n.run(2 * contestSlowGap)
		n.expect(vip, "a")
	})
}

// A leaf also answers the announcements of the new owner, which keeps the VIP: also from a dead member that the tie-break
// prefers, and long after the takeover.
func TestAnswersToAnnouncementsAreNoConflict(t *testing.T) {
	n := newLAN(t, "a", "b")
	vip := preferredVIP("b", "a", vip4)
	mac := n.boxes["b"].mac
	delete(n.boxes, "b")
	leaf := n.leaf(mac, vip)
	n.gone("a", "b")
	n.set("a", &Claim{Orphaned: true}, vip)
	n.run(2 * overruleAfter)
	n.expect(vip, "a")
	answers := 0
	for seen := len(n.sent); n.now.Sub(begin) < 15*time.Minute; n.run(50 * time.Millisecond) {
		for _, s := range n.sent[seen:] {
			if s.by.name == "a" && isGratuitous(s) {
				answers++
				n.send(leaf, arpFrame(arpReply, s.by.mac, mac, vip, s.by.mac, vip))
			}
		}
		seen = len(n.sent)
		if st := n.binding("a", vip).state; st != Answered {
			t.Fatalf("%s after the takeover, and %d answers of the leaf, the VIP is %s", n.now.Sub(begin), answers, st)
		}
	}
	if answers < 10 {
		t.Errorf("the leaf has answered %d announcements only", answers)
	}
}

// Only the gossip is cut, and the holder is silent for a moment, repeatedly, as a virtual machine without a processor. It
// keeps the VIP. Once it is silent for longer, the other box takes the VIP.
func TestALiveHolderMayPause(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		vip := preferredVIP("a", "b", of)
		n := newLAN(t, "a", "b")
		n.set("b", &Claim{}, vip)
		n.run(time.Minute)
		n.gone("a", "b")
		n.gone("b", "a")
		n.set("a", &Claim{Orphaned: true}, vip)
		for range 100 {
			n.run(930 * ms)
			n.boxes["b"].segment = 1
			n.run(450 * ms)
			n.boxes["b"].segment = 0
			n.expect(vip, "b")
		}
		delete(n.boxes, "b")
		n.run(contestSlowGap + cautiousProbes*cautiousGap)
		n.expect(vip, "a")
	})
}
