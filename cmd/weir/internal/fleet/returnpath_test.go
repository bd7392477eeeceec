package fleet

import (
	"net/netip"
	"testing"

	"weir/bgp/advertise"
	"weir/cluster/l2"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

func TestAnOwnerWithoutTheReturnPathIsAStandby(t *testing.T) {
	cfg := inFleet(owner.Rules{Mode: owner.ActiveStandby})
	e := newTestEngine(cfg)
	e.local.routes[vip] = []lb.Serving{{}}
	lacks := func(role owner.Role) bool {
		delete(e.ownership.roles, vip)
		d := Decision{Roles: map[netip.Addr]advertise.Role{}, Late: map[netip.Addr]advertise.Role{}}
		e.assign(vip, owner.Decision{Role: role, Owner: "a"}, &d)
		return d.Roles[vip] == advertise.Standby
	}
	if e.followReturnPath(); lacks(owner.Owner) || e.gen.returnPath != 0 {
		t.Error("without a gateway an owner is a standby")
	}
	e.settings.floating = map[netip.Addr][]string{gateway: nil}
	if lacks(owner.Owner) {
		t.Error("an address that only routers know is waited for")
	}
	e.settings.floating, e.settings.l2 = map[netip.Addr][]string{gateway: {"back"}}, &config.L2{}
	for _, step := range []struct {
		name    string
		vips    []l2.VIP
		lacks   bool
		changed bool
	}{
		{"nothing yet", nil, true, false},
		{"probing", []l2.VIP{{Addr: gateway, State: l2.Probing}, {Addr: vip, State: l2.Answered}}, true, false},
		{"answered", []l2.VIP{{Addr: gateway, State: l2.Answered}, {Addr: vip, State: l2.Answered}}, false, true},
		{"still", []l2.VIP{{Addr: gateway, State: l2.Answered}}, false, false},
		{"another box answers", []l2.VIP{{Addr: gateway, State: l2.Contested}}, true, true},
	} {
		before := e.gen.returnPath
		e.claims.status.VIPs = step.vips
		e.followReturnPath()
		if got := lacks(owner.Owner); got != step.lacks || (e.gen.returnPath != before) != step.changed {
			t.Errorf("%s: lacks %t, generation %d after %d", step.name, got, e.gen.returnPath, before)
		}
	}
	e.settings.fleet.Rules.Mode = owner.ActiveActive
	if lacks(owner.Owner) {
		t.Error("there is no standby in active-active")
	}
}
