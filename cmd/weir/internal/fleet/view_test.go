package fleet

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func TestShowOwner(t *testing.T) {
	t.Parallel()
	e := newTestEngine(inFleet(owner.Rules{}))
	e.ownership.verdicts[vip] = owner.Decision{Role: owner.Standby, Owner: "box2", Reason: owner.Hashed}
	at := func(a netip.Addr) status.Frontend {
		x := status.Frontend{Key: lb.Frontend{Addr: a, Port: 80, Proto: lb.TCP}}
		e.View().ShowOwner(&x)
		return x
	}
	if x := at(vip); x.Owner != "box2" || x.Role != status.RoleStandby {
		t.Errorf("a VIP of another member: owner %q, role %q", x.Owner, x.Role)
	}
	if x := at(vip.Next()); x.Owner != "" || x.Role != "" {
		t.Errorf("what is not shared: owner %q, role %q", x.Owner, x.Role)
	}
	e.settings.fleet = nil
	if x := at(vip); x.Owner != "" || x.Role != "" {
		t.Errorf("a box alone: owner %q, role %q", x.Owner, x.Role)
	}
}

// Without BGP peers, active-active comes to one owner of each VIP, and that is
// what operators see.
func TestWithoutBGPAVIPHasOneOwner(t *testing.T) {
	t.Parallel()
	cfg := inFleet(owner.Rules{})
	cfg.L2 = &config.L2{}
	e := newTestEngine(cfg)
	other := &member{state: owner.Stable, message: serving()}
	e.members.byName["b"] = other
	e.self.now.Effective = owner.Stable
	vip := netip.MustParseAddr("192.0.2.0")
	roles := map[status.VIPRole]int{}
	for range 100 {
		vip = vip.Next()
		e.local.routes[vip] = []lb.Serving{{}}
		other.message.VIPs[vip] = message.Serves
		v := e.settings.rules().Decide("a", e.candidates(), vip)
		if v.Role != owner.Owner || v.Reason != owner.Shared {
			t.Fatalf("%s: %+v, want all to announce it", vip, v)
		}
		e.ownership.verdicts[vip] = v
		e.ownership.count(v, "a", 1)
		doc := e.View().Owned(vip)
		if doc.Self != (doc.Role == status.RoleOwner) || doc.Self != (doc.Owner == "a") || doc.Reason != owner.Hashed.Text() {
			t.Errorf("%s: %+v", vip, doc)
		}
		roles[doc.Role]++
	}
	if d := cmp.Diff(roles, e.View().roleCounts()); d != "" || roles[status.RoleOwner] < 20 || roles[status.RoleStandby] < 20 {
		t.Errorf("roles of each (-) and counted (+):\n%s%v", d, roles)
	}
	e.settings.arpOnly = false
	if got := e.View().roleCounts(); got[status.RoleOwner] != 100 || len(got) != 1 {
		t.Errorf("with BGP: %v", got)
	}
}

// A state of a newer version can't be read. That is no reason any more once the member runs this version.
func TestTheReasonOfAnUnreadableMemberEnds(t *testing.T) {
	t.Parallel()
	e := newTestEngine(inFleet(owner.Rules{}))
	for _, unreadable := range []string{"unknown drain 9", ""} {
		members := withMember(startTime, message.Serves, vip, func(m *cluster.Member) { m.Unreadable = unreadable })
		e.update(moment{Inputs: Inputs{Now: startTime, Members: members}})
		for _, m := range e.View().Members(startTime, nil).Members {
			if m.Name == "b" && strings.Contains(m.Reason, "unknown drain 9") != (unreadable != "") {
				t.Errorf("unreadable %q: reason %q", unreadable, m.Reason)
			}
		}
	}
}
