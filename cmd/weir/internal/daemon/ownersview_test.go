package daemon

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
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

// Where nobody is told by BGP, active-active comes to one owner of each VIP, and that is
// what people are told.
func TestWithoutBGPAVIPHasOneOwner(t *testing.T) {
	t.Parallel()
	f := &fleet{
		cfg: &config.Fleet{Gossip: cluster.Config{Name: "box1"}}, byL2: true, share: newShare(),
		routes: map[netip.Addr][]lb.Serving{}, fellows: map[string]*fellow{"box2": {standing: owner.Settled, word: word{vips: map[netip.Addr]part{}, answers: true}}},
	}
	f.stand.now.Own = owner.Settled
	vip := netip.MustParseAddr("192.0.2.0")
	roles := map[status.VIPRole]int{}
	for range 100 {
		vip = vip.Next()
		f.routes[vip] = []lb.Serving{{}}
		f.fellows["box2"].word.vips[vip] = partServes
		v := f.rules().Verdict("box1", f.members(), vip)
		if v.Role != owner.Owner || v.Why != owner.Shared {
			t.Fatalf("%s: %+v, want all to announce it", vip, v)
		}
		f.share.verdicts[vip] = v
		f.share.count(v, "box1", 1)
		doc := f.owned(vip)
		if doc.Me != (doc.Role == status.RoleOwner) || doc.Me != (doc.Owner == "box1") || doc.Why != owner.Hashed.Text() {
			t.Errorf("%s: %+v", vip, doc)
		}
		roles[doc.Role]++
	}
	if d := cmp.Diff(roles, f.roles()); d != "" || roles[status.RoleOwner] < 20 || roles[status.RoleStandby] < 20 {
		t.Errorf("roles of each (-) and counted (+):\n%s%v", d, roles)
	}
	f.byL2 = false
	if got := f.roles(); got[status.RoleOwner] != 100 || len(got) != 1 {
		t.Errorf("with BGP: %v", got)
	}
}
