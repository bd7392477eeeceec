package daemon

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/cmd/weir/internal/config"
)

func TestWhereTheOwnerOfEverythingAnswers(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("weir.toml", []byte(`
[kernel]
masquerade_source = ["10.2.0.250"]
[l2]
interfaces = ["eth0"]
[[l2.gateway]]
address = "10.2.0.254"
interface = "eth1"
`), config.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr][]string{
		netip.MustParseAddr("10.2.0.250"): {"eth0", "eth1"}, // the backends that it talks to are behind eth1
		netip.MustParseAddr("10.2.0.254"): {"eth1"},
	}
	if d := cmp.Diff(want, extrasOf(cfg), cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	cfg.L2 = nil
	if got := extrasOf(cfg); len(got) > 0 {
		t.Errorf("without [l2]: %v", got)
	}
}
