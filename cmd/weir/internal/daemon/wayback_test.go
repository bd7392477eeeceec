package daemon

import (
	"net/netip"
	"testing"

	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/l2"
)

func TestAnOwnerWithoutTheWayBackIsAStandby(t *testing.T) {
	vip, gateway := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("10.2.0.254")
	mine := owner.Verdict{Role: owner.Owner}
	f := &fleet{cfg: &config.Fleet{Rules: owner.Rules{Mode: owner.ActiveStandby}}, share: newShare()}
	if f.noticeWayBack(); f.lacksWayBack(mine) || f.share.all {
		t.Error("without a gateway an owner is a standby")
	}
	f.extras = map[netip.Addr][]string{gateway: nil}
	if f.lacksWayBack(mine) {
		t.Error("what only routers are told of is waited for")
	}
	f.extras, f.answer.cfg = map[netip.Addr][]string{gateway: {"back"}}, &config.L2{}
	for _, step := range []struct {
		name  string
		vips  []l2.VIP
		lacks bool
		news  bool
	}{
		{"nothing yet", nil, true, false},
		{"probing", []l2.VIP{{Addr: gateway, State: l2.Probing}, {Addr: vip, State: l2.Held}}, true, false},
		{"held", []l2.VIP{{Addr: gateway, State: l2.Held}, {Addr: vip, State: l2.Held}}, false, true},
		{"still", []l2.VIP{{Addr: gateway, State: l2.Held}}, false, false},
		{"another box answers", []l2.VIP{{Addr: gateway, State: l2.Contested}}, true, true},
	} {
		f.answer.status.VIPs, f.share.all = step.vips, false
		f.noticeWayBack()
		if got := f.lacksWayBack(mine); got != step.lacks || f.share.all != step.news {
			t.Errorf("%s: lacks %t, news %t, want %t, %t", step.name, got, f.share.all, step.lacks, step.news)
		}
	}
	if f.lacksWayBack(owner.Verdict{Role: owner.Standby}) {
		t.Error("a standby is told to be one for another reason")
	}
	f.cfg.Rules.Mode = owner.ActiveActive
	if f.lacksWayBack(mine) {
		t.Error("there is no standby in active-active")
	}
}
