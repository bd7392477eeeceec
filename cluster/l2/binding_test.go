package l2

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

// both runs a test for each family.
func both(t *testing.T, do func(*testing.T, func(int) netip.Addr)) {
	t.Run("IPv4", func(t *testing.T) { t.Parallel(); do(t, vip4) })
	t.Run("IPv6", func(t *testing.T) { t.Parallel(); do(t, vip6) })
}

func TestClaimProbesThenAnnounces(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a", "b")
		n.set("a", &Claim{}, of(1))
		n.run(299 * ms)
		n.expect(of(1))
		n.run(ms)
		n.expect(of(1), "a")
		n.run(2 * time.Minute)
		if diff := cmp.Diff([]time.Duration{0, 100 * ms, 200 * ms}, n.times("a", isProbe)); diff != "" {
			t.Errorf("probes (-want +got):\n%s", diff)
		}
		var want []time.Duration
		for _, s := range []float64{0.3, 0.4, 0.8, 1.3, 2.3, 5.3, 10.3, 30.3, 90.3} {
			want = append(want, time.Duration(s*float64(time.Second)))
			if of(1).Is4() { // in both forms
				want = append(want, want[len(want)-1])
			}
		}
		if diff := cmp.Diff(want, n.times("a", isGratuitous)); diff != "" {
			t.Errorf("announcements (-want +got):\n%s", diff)
		}
	})
}

func TestCautiousClaimProbesLonger(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a", "b")
		n.set("a", &Claim{Cautious: true}, of(1))
		n.run(599 * ms)
		n.expect(of(1))
		n.run(ms)
		n.expect(of(1), "a")
		if got := len(n.times("a", isProbe)); got != 8 {
			t.Errorf("%d probes, want 8", got)
		}
		n.set("a", &Claim{Cautious: true}, of(1))
		n.expect(of(1), "a") // an answered VIP stays answered
	})
}

func TestAClaimThatIsNoLongerCautious(t *testing.T) {
	n := newLAN(t, "a", "b")
	n.set("a", &Claim{Cautious: true}, vip4(1))
	n.run(230 * ms) // four probes have been sent
	n.set("a", &Claim{}, vip4(1))
	n.run(100 * ms)
	n.expect(vip4(1), "a")
}

func TestAMemberThatProbesIsRecorded(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a", "b")
		wanted := func() time.Time { return n.boxes["a"].e.status(n.now).VIPs[0].Requested }
		n.set("a", &Claim{}, of(1))
		n.run(10 * time.Second)
		if got := wanted(); !got.IsZero() {
			t.Errorf("nobody wants it, and %s is said", got.Sub(begin))
		}
		n.set("b", &Claim{}, of(1))
		n.run(10 * time.Second)
		if ago := n.now.Sub(wanted()); ago > 2*contestSlowGap {
			t.Errorf("b wants it all the time, and asked %s ago", ago)
		}
		if who := n.boxes["a"].e.status(n.now).VIPs[0].Requester; who != "b" {
			t.Errorf("b wants it, and %q is named", who)
		}
		n.set("b", nil, of(1))
		last := wanted()
		n.run(10 * time.Second)
		if now := wanted(); now.Sub(last) > time.Second {
			t.Errorf("nobody has asked any more, and it is said so of %s later", now.Sub(last))
		}
	})
}

func TestAnAnsweredAddressIsNotTaken(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			first, second := order[0], order[1]
			vip := preferredVIP(second, first, of) // the rule for splits does not matter here
			n := newLAN(t, "a", "b")
			n.set(first, &Claim{}, vip)
			n.run(time.Second)
			n.set(second, &Claim{}, vip)
			n.run(3 * time.Second)
			n.expect(vip, first)
			s := n.binding(second, vip)
			if s.state != Contested || s.other.member != first {
				t.Fatalf("the second is %v, by %q", s.state, s.other.member)
			}
			n.set(first, nil, vip)
			before := len(n.sent)
			n.expect(vip)
			n.run(501 * ms) // at most 200 until it is asked again, three probes
			n.expect(vip, second)
			if said := slices.ContainsFunc(n.sent[before:], func(s sent) bool { return s.by.name == first }); said {
				t.Error("the box that released it still speaks")
			}
		}
	})
}

func TestReleasedIsNotAnsweredFor(t *testing.T) {
	n := newLAN(t, "a")
	asker := n.foreign(MAC{2, 9})
	n.set("a", &Claim{}, vip4(1))
	n.run(time.Second)
	ask := arpFrame(arpRequest, broadcast, asker.mac, netip.MustParseAddr("192.0.2.99"), MAC{}, vip4(1))
	n.send(asker, ask)
	n.run(ms)
	answered := n.sent[len(n.sent)-1]
	if answered.by.name != "a" || answered.used != vip4(1) || MAC(answered.data[:6]) != asker.mac {
		t.Fatalf("not answered: %+v", answered)
	}
	n.set("a", nil, vip4(1))
	sofar := len(n.sent)
	n.send(asker, ask)
	n.run(time.Minute)
	if len(n.sent) != sofar+1 {
		t.Errorf("said after the release: %+v", n.sent[sofar+1:])
	}
}

func TestBothProbingOnlyOneClaims(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		for offset := range 4 {
			n := newLAN(t, "a", "b", "c")
			vip := of(offset + 1)
			n.set("a", &Claim{}, vip)
			n.run(time.Duration(offset) * 50 * ms)
			n.set("b", &Claim{}, vip)
			n.set("c", &Claim{}, vip)
			n.run(5 * time.Second)
			if got := n.holders(vip); len(got) != 1 {
				t.Fatalf("offset %d: answered by %v", offset, got)
			}
		}
	})
}

func TestForeignHostsThatProbeAtOnceDoNotBothClaim(t *testing.T) {
	n := newLAN(t, "a", "b")
	for _, b := range n.boxes {
		b.e.setMembers(nil)
	}
	n.set("a", &Claim{}, vip4(1))
	n.set("b", &Claim{}, vip4(1))
	n.run(5 * time.Second)
	n.expect(vip4(1), "a") // the smaller MAC
}

func TestSplitHealsToExactlyOne(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		for _, first := range []string{"a", "b"} {
			n := newLAN(t, "a", "b")
			n.boxes["b"].segment = 1
			vips := []netip.Addr{preferredVIP("a", "b", of), preferredVIP("b", "a", of)}
			n.set("a", &Claim{}, vips...)
			n.set("b", &Claim{}, vips...)
			n.run(time.Minute)
			for _, v := range vips {
				n.expect(v, "a", "b") // each side is served
			}
			n.boxes["b"].segment = 0
			n.boxes[first].e.announceAll()
			n.step()
			n.run(10 * ms)
			n.expect(vips[0], "a")
			n.expect(vips[1], "b")
			for _, v := range vips {
				n.lastAnnouncement(v)
			}
			n.run(time.Minute)
			n.expect(vips[0], "a")
			n.expect(vips[1], "b")
		}
	})
}

// lastWord fails the test if the last frame about a VIP is not of its holder.
func (n *lan) lastAnnouncement(vip netip.Addr) {
	n.t.Helper()
	holder := n.holders(vip)[0]
	for _, s := range slices.Backward(n.sent) {
		if s.used == vip && isGratuitous(s) {
			if s.by.name != holder {
				n.t.Errorf("%s said last that it has %v, %s does", s.by.name, vip, holder)
			}
			return
		}
	}
}

func TestForeignUseIsDefendedAndReported(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a")
		n.set("a", &Claim{}, of(1))
		n.run(31 * time.Second) // the burst is over
		sofar := len(n.times("a", isGratuitous))
		x := n.foreign(MAC{2, 9}, of(1))
		for range 50 { // for five seconds
			n.send(x, gratuitous(x.mac, of(1)))
			n.run(100 * ms)
		}
		n.expect(of(1), "a")
		if got := len(n.times("a", isGratuitous)) - sofar; got != 5 {
			t.Errorf("%d defences in 5 s, want one a second", got)
		}
		st := n.boxes["a"].e.status(n.now)
		if v := st.VIPs[0]; !v.Duplicate() || v.Other != x.mac || st.Interfaces[0].ForeignConflicts != 5 {
			t.Errorf("it is not told: %+v", st)
		}
		n.run(conflictMemory + time.Second)
		if v := n.boxes["a"].e.status(n.now).VIPs[0]; v.Duplicate() {
			t.Errorf("it is told a minute later: %+v", v)
		}
	})
}

func TestAForeignAddressIsNotTaken(t *testing.T) {
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, "a")
		x := n.foreign(MAC{2, 9}, of(1))
		n.set("a", &Claim{}, of(1))
		n.run(time.Minute)
		n.expect(of(1))
		if v := n.boxes["a"].e.status(n.now).VIPs[0]; !v.Duplicate() || v.State != Contested {
			t.Errorf("it is not told: %+v", v)
		}
		// Five a second for five seconds, then one a second.
		if got := len(n.times("a", isProbe)); got < 70 || got > 90 {
			t.Errorf("%d probes in a minute", got)
		}
		delete(x.has, of(1))
		n.run(1400 * ms)
		n.expect(of(1), "a")
	})
}

func TestCarrierLossAndReturn(t *testing.T) {
	n := newLAN(t, "a", "b")
	a := n.boxes["a"]
	n.set("a", &Claim{}, vip4(1))
	n.run(time.Second)
	cable := func(in bool) {
		a.e.setLink("eth0", linkState{index: 7, mac: a.mac, carrier: in}, n.now)
		n.step()
	}
	cable(false)
	n.expect(vip4(1))
	n.set("b", &Claim{}, vip4(1))
	sofar := len(n.times("a", func(sent) bool { return true }))
	n.run(time.Minute)
	n.expect(vip4(1), "b")
	if got := len(n.times("a", func(sent) bool { return true })); got != sofar {
		t.Errorf("%d frames without a cable", got-sofar)
	}
	cable(true)
	n.run(time.Minute)
	n.expect(vip4(1), "b") // no second owner after it is back
}

func TestAnotherMACIsAnnounced(t *testing.T) {
	n := newLAN(t, "a")
	a := n.boxes["a"]
	n.set("a", &Claim{}, vip4(1))
	n.run(time.Second)
	a.mac = MAC{2, 7}
	sofar := len(n.times("a", isGratuitous))
	a.e.setLink("eth0", linkState{index: 7, mac: a.mac, carrier: true}, n.now)
	n.step()
	n.expect(vip4(1), "a")
	if got := n.sent[len(n.sent)-1]; len(n.times("a", isGratuitous)) == sofar || got.from != a.mac {
		t.Errorf("not announced: %+v", got)
	}
}

// Of many VIPs that are taken over at once, repeated frames take only the time that
// nothing else wants.
func TestFirstAnnouncementsPrecedeRepeats(t *testing.T) {
	const many = 5000
	n := newLAN(t, "a")
	var vips []netip.Addr
	for i := range many {
		vips = append(vips, vip4(i+1))
	}
	n.set("a", &Claim{}, vips...)
	n.run(10 * time.Second)
	first := map[netip.Addr]time.Duration{}
	var last, sum time.Duration
	again := 0 // before all were announced
	perSecond := map[time.Duration]int{}
	for _, s := range n.sent {
		at := s.at.Sub(begin)
		perSecond[at.Truncate(time.Second)]++
		if !isGratuitous(s) {
			continue
		}
		if _, was := first[s.used]; was && len(first) < many {
			again++
		} else if !was {
			first[s.used], last = at, at
			sum += at
		}
	}
	if len(first) != many || again > many/5 {
		t.Errorf("%d announced, and %d announcements again before the last", len(first), again)
	}
	// Three probes and an announcement of each are 20,000 frames, two seconds.
	if last > 2200*ms || sum/many > 1300*ms || first[vips[0]] > 400*ms {
		t.Error("too late")
	}
	for at, frames := range perSecond {
		if frames > 10000+paceBurst {
			t.Errorf("%d frames in the second after %v", frames, at)
		}
	}
	t.Logf("%d VIPs: first announced after %v, on average after %v, last after %v; %d said again by then", many,
		first[vips[0]], sum/many, last, again)
}

func TestInterfacesOfClaimsAndConfig(t *testing.T) {
	e := newEngine()
	e.configure(Config{Interfaces: []string{"eth0", "eth1"}}, begin)
	e.set(map[netip.Addr]*Claim{vip4(1): {}, vip4(2): {Interfaces: []string{"back"}}}, begin)
	seats := func() (got []string) {
		for _, v := range e.status(begin).VIPs {
			got = append(got, v.Addr.String()+" "+v.Interface)
		}
		return got
	}
	if diff := cmp.Diff([]string{"192.0.2.1 eth0", "192.0.2.1 eth1", "192.0.2.2 back"}, seats()); diff != "" {
		t.Error(diff)
	}
	e.links["eth1"].Answered = 7
	e.configure(Config{Interfaces: []string{"eth1", "eth2"}}, begin)
	if diff := cmp.Diff([]string{"192.0.2.1 eth1", "192.0.2.1 eth2", "192.0.2.2 back"}, seats()); diff != "" {
		t.Error(diff)
	}
	if e.links["eth1"].Answered != 7 || e.links["eth0"] != nil {
		t.Error("links were replaced, or kept")
	}
	e.set(map[netip.Addr]*Claim{vip4(1): nil, vip4(2): nil}, begin)
	if len(e.links) != 2 || len(e.timers) != 0 || seats() != nil {
		t.Errorf("left: %d links, %d timers", len(e.links), len(e.timers))
	}
}
