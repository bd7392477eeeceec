package daemon

import (
	"net/netip"
	"testing"

	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func TestServicesTellTheirOwners(t *testing.T) {
	t.Parallel()
	vip := netip.MustParseAddr("192.0.2.1")
	f := &fleet{cfg: &config.Fleet{}, share: newShare()}
	f.share.verdicts[vip] = owner.Verdict{Role: owner.Standby, Owner: "box2", Why: owner.Hashed}
	at := func(a netip.Addr) status.Frontend {
		x := status.Frontend{Key: lb.Frontend{Addr: a, Port: 80, Proto: lb.TCP}}
		f.showOwner(&x)
		return x
	}
	if x := at(vip); x.Owner != "box2" || x.Role != status.RoleStandby {
		t.Errorf("a VIP of another member: owner %q, role %q", x.Owner, x.Role)
	}
	if x := at(vip.Next()); x.Owner != "" || x.Role != "" {
		t.Errorf("what is not shared: owner %q, role %q", x.Owner, x.Role)
	}
	f.cfg = nil
	if x := at(vip); x.Owner != "" || x.Role != "" {
		t.Errorf("a box alone: owner %q, role %q", x.Owner, x.Role)
	}
}
