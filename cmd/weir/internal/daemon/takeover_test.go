package daemon

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// Only those that serve the VIP and are there can take its connections over.
func TestBeyondCountsWhoServesTheVIP(t *testing.T) {
	t.Parallel()
	vip, source := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.250")
	cfg := &config.Config{
		Kernel: config.Kernel{SloppyTCP: true, MasqueradeSource: []netip.Addr{source}},
		Fleet:  &config.Fleet{Gossip: cluster.Config{Name: "box1"}, Sync: &config.FleetSync{Interface: "eth2"}},
	}
	f := newFleet(slog.New(slog.DiscardHandler), "1", t.TempDir(), time.Now())
	if got := f.beyond(cfg, vip); got != nil {
		t.Errorf("without [cluster]: %+v", got)
	}
	f.cfg = cfg.Fleet
	serving := word{vips: map[netip.Addr]part{vip: partServes}}
	f.fellows = map[string]*fellow{
		"box2": {standing: owner.Settled, word: serving},
		"box3": {standing: owner.Absent, word: serving},
		"box4": {standing: owner.Settled},
	}
	want := &lb.Fleet{Others: 1, SloppyTCP: true, Sync: true, Sources: []netip.Addr{source}}
	if d := cmp.Diff(want, f.beyond(cfg, vip), compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := f.beyond(cfg, source); got.Others != 0 {
		t.Errorf("of what nobody serves: %+v", got)
	}
	if got := (*fleet)(nil).beyond(cfg, vip); got != nil {
		t.Errorf("without a fleet: %+v", got)
	}
}
