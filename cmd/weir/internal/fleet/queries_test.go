package fleet

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// Only live members that serve the VIP can take its connections over.
func TestSurvivalCountsMembersThatServeTheVIP(t *testing.T) {
	t.Parallel()
	source := netip.MustParseAddr("192.0.2.250")
	cfg := &config.Config{
		Kernel: config.Kernel{SloppyTCP: true, MasqueradeSource: []netip.Addr{source}},
		Fleet:  &config.Fleet{Gossip: cluster.Config{Name: "box1"}, Sync: &config.FleetSync{Interface: "eth2"}},
	}
	e := newTestEngine(&config.Config{})
	if got := e.View().Survival(cfg, vip); got != nil {
		t.Errorf("without [fleet]: %+v", got)
	}
	e.Configure(cfg, "a", nil)
	e.members.byName = map[string]*member{
		"box2": {state: owner.Stable, message: serving(vip)},
		"box3": {state: owner.Absent, message: serving(vip)},
		"box4": {state: owner.Stable},
	}
	want := &lb.Fleet{Others: 1, SloppyTCP: true, Sync: true, Sources: []netip.Addr{source}}
	if d := cmp.Diff(want, e.View().Survival(cfg, vip), compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := e.View().Survival(cfg, source); got.Others != 0 {
		t.Errorf("of a VIP that no member serves: %+v", got)
	}
}
