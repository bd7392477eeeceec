package l2

import (
	"net/netip"
	"testing"
	"time"

	"weir/cluster/owner"
)

// weights of the members of tests: different ones, which change the owner of many VIPs.
var weights = map[string]int{"a": 100, "b": 300, "c": 30}

func ownerMember(name string) *owner.Member {
	return &owner.Member{
		Name: name, Weight: weights[name], State: owner.Stable,
		Serves: func(netip.Addr) bool { return true }, Owns: func(netip.Addr) bool { return true },
	}
}

// preferred reports whether one member keeps a VIP that another one holds too, as in the
// daemon.
func preferred(one, other string, vip netip.Addr) bool {
	return owner.Rules{}.Prefers(ownerMember(one), ownerMember(other), vip)
}

// Members that all hold a VIP after a partition keep it exactly where the fleet's rules
// place it, with the first announcement: no second move follows.
func TestConflictsEndAtTheOwner(t *testing.T) {
	names := []string{"a", "b", "c"}
	var members []owner.Member
	for _, name := range names {
		members = append(members, *ownerMember(name))
	}
	both(t, func(t *testing.T, of func(int) netip.Addr) {
		n := newLAN(t, names...)
		var vips []netip.Addr
		for i := range 200 {
			vips = append(vips, of(i+1))
		}
		for i, name := range names {
			n.boxes[name].segment = i
			n.set(name, &Claim{}, vips...)
		}
		n.run(time.Minute)
		for _, v := range vips {
			n.expect(v, names...)
		}
		for _, name := range names {
			n.boxes[name].segment = 0
		}
		for _, name := range names {
			n.boxes[name].e.announceAll()
			n.step()
			n.run(50 * ms)
		}
		count := map[string]int{}
		for _, v := range vips {
			for _, rules := range []owner.Rules{{}, {Mode: owner.ActiveStandby}, {NoPreempt: true}} {
				n.expect(v, rules.Owner(members, v))
			}
			count[n.holders(v)[0]]++
			n.lastAnnouncement(v)
		}
		if count["b"] < 100 || count["c"] > 50 {
			t.Errorf("the weights have no effect: %v", count)
		}
		n.run(time.Minute)
		for _, v := range vips {
			n.expect(v, owner.Rules{}.Owner(members, v))
		}
	})
}
