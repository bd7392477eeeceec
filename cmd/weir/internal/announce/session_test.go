package announce

import (
	"net/netip"
	"strings"
	"testing"

	"weir/bgp"
)

func TestTheRouterIDIsTheAddressTowardsAPeer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		peers []bgp.Peer
		want  string
	}{
		{"its address", []bgp.Peer{{Address: netip.MustParseAddr("2001:db8::1")}, {Address: netip.MustParseAddr("127.0.0.9")}}, "127.0.0.1"},
		{"its range", []bgp.Peer{{Range: netip.MustParsePrefix("127.0.9.0/24")}}, "127.0.0.1"},
		{"the source", []bgp.Peer{{Address: netip.MustParseAddr("192.0.2.1"), Source: netip.MustParseAddr("192.0.2.77")}}, "192.0.2.77"},
	} {
		if got, err := ownAddress(tt.peers); err != nil || got.String() != tt.want {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if _, err := ownAddress([]bgp.Peer{{Address: netip.MustParseAddr("2001:db8::1")}}); err == nil || !strings.Contains(err.Error(), "write router_id") {
		t.Errorf("without IPv4: %v", err)
	}
}
