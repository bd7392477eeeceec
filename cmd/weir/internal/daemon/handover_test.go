package daemon

import (
	"net/netip"
	"testing"
	"time"

	"weir/bgp"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
)

// handing is a box "a" that has VIPs and the gateway, beside a settled "b".
func handing() (f *fleet, vip, gateway netip.Addr, other *fellow) {
	vip, gateway = netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("10.2.0.254")
	other = &fellow{standing: owner.Settled, word: word{vips: map[netip.Addr]part{vip: partServes, gateway: partServes}}}
	f = &fleet{
		cfg: &config.Fleet{Rules: owner.Rules{Mode: owner.ActiveStandby, Together: true}}, share: newShare(),
		extras: map[netip.Addr][]string{gateway: {"back"}}, fellows: map[string]*fellow{"b": other},
	}
	f.cfg.Gossip.Name = "a"
	f.answer.cfg = &config.L2{}
	return f, vip, gateway, other
}

// The routers of a VIP that moves must not be faster than the gateway of its backends.
func TestRoutersAreLedHereUntilTheNextOwnerHasTheWayBack(t *testing.T) {
	now := time.Unix(1000, 0)
	mine, theirs := owner.Verdict{Role: owner.Owner, Owner: "a"}, owner.Verdict{Role: owner.Out, Owner: "b"}
	gives := func(name string, f *fleet, vip netip.Addr, had owner.Verdict, at time.Time, want bool) {
		t.Helper()
		if got := f.givesAway(vip, had, theirs, at); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
	f, vip, _, _ := handing()
	gives("it moves", f, vip, mine, now, true)
	gives("still", f, vip, theirs, now.Add(time.Second), true)
	if end := f.handoverEnds(); !end.Equal(now.Add(handoverPatience)) {
		t.Errorf("patience ends %s", end)
	}
	f.late(now.Add(handoverPatience))
	if _, again := f.share.dirty[vip]; !again {
		t.Error("nobody looks again when patience is over")
	}
	gives("for too long", f, vip, theirs, now.Add(handoverPatience), false)
	gives("after that", f, vip, theirs, now.Add(handoverPatience), false)

	f, vip, _, other := handing()
	gives("it moves", f, vip, mine, now, true)
	other.word.vips[vip] |= partHolds
	gives("the other has it", f, vip, theirs, now.Add(time.Second), false)

	f, vip, _, other = handing()
	gives("it moves", f, vip, mine, now, true)
	other.standing = owner.Absent
	gives("the other is gone", f, vip, theirs, now.Add(time.Second), false)

	f, vip, _, _ = handing()
	gives("it never was here", f, vip, theirs, now, false)
	f.share.roles[vip] = bgp.Standby
	gives("routers prefer others already", f, vip, mine, now, false)
	delete(f.share.roles, vip)
	f.extras = nil
	gives("nothing goes with it", f, vip, mine, now, false)
}

func TestADrainWaitsForTheWayBack(t *testing.T) {
	now := time.Unix(1000, 0)
	f, _, gateway, other := handing()
	f.share.verdicts[gateway] = owner.Verdict{Role: owner.Owner, Owner: "a"}
	d := drainer{drained: drained{all: now}, handsOver: f.handsOver}
	stage := func(name string, after time.Duration, want bgp.Stage) {
		t.Helper()
		if d.advance(now.Add(after), 10*time.Second, nil); d.all() != want {
			t.Errorf("%s: stage %d, want %d", name, d.all(), want)
		}
	}
	stage("the gateway is here", 0, bgp.NotDrained)
	if !d.due.Equal(now.Add(handoverPatience)) {
		t.Errorf("due %s", d.due)
	}
	f.share.verdicts[gateway] = owner.Verdict{Role: owner.Out, Owner: "b"}
	stage("it is on its way", time.Second, bgp.NotDrained)
	other.word.vips[gateway] |= partHolds
	stage("it is there", 2*time.Second, bgp.Shutting)
	other.word.vips[gateway] = partServes
	stage("it is nowhere for too long", handoverPatience, bgp.Shutting)
	stage("the end", 10*time.Second, bgp.Drained)
}
