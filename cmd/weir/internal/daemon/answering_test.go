package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/fleet/message"
)

// A VIP is answered for by a member that answers, whichever member owns it.
func TestMembersWithoutARPDoNotKeepVIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, theirs := ownVIPs()
		vip := netip.MustParseAddr(theirs)
		m := stableMember(t, inFleet+onWire, theirs)

		w := serving(vip)
		w.Answers = false
		m.gossip.report(t, stablePeer("b"), w)
		m.receive(t)
		m.check(t, "b has no [l2]", "claim "+theirs)

		m.gossip.report(t, stablePeer("b"), serving(vip))
		m.receive(t)
		m.check(t, "b has one", "release "+theirs)

		w = serving(vip)
		w.VIPs[vip] |= message.Mute
		m.gossip.report(t, stablePeer("b"), w)
		m.receive(t)
		m.check(t, "b has one, for other VIPs", "claim "+theirs)

		b := stablePeer("b")
		b.State.Unfit = "eth0 has no carrier"
		m.gossip.report(t, b, serving())
		m.receive(t)
		m.check(t, "b is not even there", "announce "+theirs+"/32")
	})
}

// A box reports whether it answers, and for which of its VIPs it does not.
func TestMuteVIPsArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := ownVIPs()
		vip := netip.MustParseAddr(mine)
		for _, tt := range []struct {
			name, toml    string
			answers, mute bool
		}{
			{"no [l2]", inFleet, false, false},
			{"it answers", inFleet + onWire, true, false},
			{"it answers for others", inFleet + onWire + "vips = [\"LoadBalancer\"]\n", true, true},
		} {
			m := stableMember(t, tt.toml, mine)
			w, err := message.Parse(m.gossip.word)
			if err != nil || w.Answers != tt.answers || w.Has(message.Mute)(vip) != tt.mute || !w.Has(message.Serves)(vip) {
				t.Errorf("%s: it says %+v, %v", tt.name, w, err)
			}
		}
	})
}

// Where the wire was split for a moment another box has answered beyond, perhaps: the one
// that answered all the while announces it again when the doubt ends, but not with every packet
// that gets lost.
func TestGratuitousARPAfterASuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := ownVIPs()
		m := stableMember(t, inFleet+onWire, mine, theirs)
		b, w := stablePeer("b"), serving(netip.MustParseAddr(mine), netip.MustParseAddr(theirs))
		blink := func() {
			for _, b.Suspect = range []bool{true, false} {
				m.gossip.report(t, b, w)
				m.receive(t)
			}
		}
		before := m.answerer.bursts
		blink()
		if n := m.answerer.bursts - before; n != 1 {
			t.Errorf("told %d times", n)
		}
		blink()
		blink()
		if n := m.answerer.bursts - before; n != 1 {
			t.Errorf("told %d times at once", n)
		}
		if next := m.steering.fleet.Next(); next.IsZero() || next.After(time.Now().Add(garpEvery)) {
			t.Errorf("it wakes at %s", next)
		}
		m.live(t, garpEvery)
		if n := m.answerer.bursts - before; n != 2 {
			t.Errorf("told %d times in the end", n)
		}
	})
}

// A VIP that the owner of everything can't serve gets its return path elsewhere.
func TestLostReturnPathIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gateway = "[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth0\"\n"
		ours, others, back := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("10.2.0.254")
		m := stableMember(t, inFleet+"placement = \"single\"\n"+onWire+gateway, ours.String())
		explained := func() (out []string) {
			for _, a := range []netip.Addr{ours, others, back} {
				if doc := m.steering.fleet.View().Owned(a); doc != nil && strings.Contains(doc.Reason, "10.2.0.254") {
					out = append(out, a.String())
				}
			}
			return out
		}
		for _, tt := range []struct {
			name string
			w    message.Message
			want int
		}{
			{"each serves what the other can't", serving(others, back), 1},
			{"b is not there for it", serving(), 0},
		} {
			m.gossip.report(t, stablePeer("b"), tt.w)
			m.receive(t)
			if got := explained(); len(got) != tt.want {
				t.Errorf("%s: astray are %v, want %d", tt.name, got, tt.want)
			}
		}
	})
}
