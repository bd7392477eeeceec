package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/cluster/owner"
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

// Thousands of VIPs are told of less often; how the box is, at once.
func TestAWordOfThousandsWaitsForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := rivals()
		m := grown(t, inFleet, mine)
		f := m.fleet
		time.Sleep(time.Minute)
		says := func(vips int, change func()) time.Duration {
			f.say.stale = true
			f.speak(time.Now())
			for a := netip.MustParseAddr("198.18.0.0"); len(f.say.word.vips) < vips; a = a.Next() {
				f.say.word.vips[a] = partServes
			}
			before, begin := len(m.rumor.said), time.Now()
			for change(); len(m.rumor.said) == before && time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
				f.speak(time.Now())
			}
			return time.Since(begin)
		}
		stale := func() { f.say.stale = true }
		unfit := func() { f.stand.now.Said, f.stand.why = owner.Unfit, "the kernel has no IPVS any more" }
		for _, tt := range []struct {
			name   string
			vips   int
			change func()
			least  time.Duration
		}{
			{"a few", 3, stale, sayEvery}, {"many", manyVIPs, stale, sayManyEvery}, {"many, and it is unfit", manyVIPs, unfit, sayEvery},
		} {
			time.Sleep(time.Minute)
			if got := says(tt.vips, tt.change); got < tt.least || got > tt.least+20*time.Millisecond {
				t.Errorf("%s: said after %s, want %s", tt.name, got, tt.least)
			}
		}
	})
}

// A VIP that the owner of everything can't serve is told to have its way back elsewhere.
func TestAVIPWhoseRepliesGoAstray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gateway = "[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth0\"\n"
		ours, others, back := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("10.2.0.254")
		m := grown(t, inFleet+"owners = \"one\"\n"+onWire+gateway, ours.String())
		explained := func() (out []string) {
			for _, a := range []netip.Addr{ours, others, back} {
				if doc := m.fleet.owned(a); doc != nil && strings.Contains(doc.Why, "10.2.0.254") {
					out = append(out, a.String())
				}
			}
			return out
		}
		for _, tt := range []struct {
			name string
			w    word
			want int
		}{
			{"each serves what the other can't", able(others, back), 1},
			{"b is not there for it", able(), 0},
		} {
			m.rumor.says(t, settledMember("b"), tt.w)
			m.hear(t)
			if got := explained(); len(got) != tt.want {
				t.Errorf("%s: astray are %v, want %d", tt.name, got, tt.want)
			}
		}
	})
}
