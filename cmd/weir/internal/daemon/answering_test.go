package daemon

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// A VIP is answered for by a member that answers, whoever owns it.
func TestAMemberThatDoesNotAnswerKeepsNobodyFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, theirs := rivals()
		vip := netip.MustParseAddr(theirs)
		m := grown(t, inFleet+onWire, theirs)

		w := able(vip)
		w.answers = false
		m.rumor.says(t, settledMember("b"), w)
		m.hear(t)
		m.check(t, "b has no [l2]", "claim "+theirs)

		m.rumor.says(t, settledMember("b"), able(vip))
		m.hear(t)
		m.check(t, "b has one", "release "+theirs)

		w = able(vip)
		w.vips[vip] |= partMute
		m.rumor.says(t, settledMember("b"), w)
		m.hear(t)
		m.check(t, "b has one, for other VIPs", "claim "+theirs)

		b := settledMember("b")
		b.State.Unfit = "eth0 has no carrier"
		m.rumor.says(t, b, able())
		m.hear(t)
		m.check(t, "b is not even there", "announce "+theirs+"/32")
	})
}

// A box says whether it answers, and for which of its VIPs it does not.
func TestWhatABoxDoesNotAnswerForIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		vip := netip.MustParseAddr(mine)
		for _, tt := range []struct {
			name, toml    string
			answers, mute bool
		}{
			{"no [l2]", inFleet, false, false},
			{"it answers", inFleet + onWire, true, false},
			{"it answers for others", inFleet + onWire + "vips = [\"LoadBalancer\"]\n", true, true},
		} {
			m := grown(t, tt.toml, mine)
			w, err := parseWord(m.rumor.word)
			if err != nil || w.answers != tt.answers || w.has(partMute)(vip) != tt.mute || !w.has(partServes)(vip) {
				t.Errorf("%s: it says %+v, %v", tt.name, w, err)
			}
		}
	})
}

// Where the wire was split for a moment another box has answered beyond, perhaps: who
// answered all the while tells it again when the doubt ends, but not with every packet
// that gets lost.
func TestNeighborsAreToldAgainWhenADoubtEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := rivals()
		m := grown(t, inFleet+onWire, mine, theirs)
		b, w := settledMember("b"), able(netip.MustParseAddr(mine), netip.MustParseAddr(theirs))
		blink := func() {
			for _, b.Suspect = range []bool{true, false} {
				m.rumor.says(t, b, w)
				m.hear(t)
			}
		}
		before := m.mouth.bursts
		blink()
		if n := m.mouth.bursts - before; n != 1 {
			t.Errorf("told %d times", n)
		}
		blink()
		blink()
		if n := m.mouth.bursts - before; n != 1 {
			t.Errorf("told %d times at once", n)
		}
		if next := m.fleet.next(); next.IsZero() || next.After(time.Now().Add(burstEvery)) {
			t.Errorf("it wakes at %s", next)
		}
		m.live(t, burstEvery)
		if n := m.mouth.bursts - before; n != 2 {
			t.Errorf("told %d times in the end", n)
		}
	})
}
