package announce

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
	"weir/bgp/advertise"
)

// A session with a router that has no family of weir's has none. It must not read as one of both.
func TestTheFamiliesOfASession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		has  advertise.Families
		want []string
	}{
		{advertise.Families{IPv4: true, IPv6: true}, []string{"IPv4", "IPv6"}},
		{advertise.Families{IPv4: true}, []string{"IPv4"}},
		{advertise.Families{IPv6: true}, []string{"IPv6"}},
		{advertise.Families{}, []string{}},
	} {
		if diff := cmp.Diff(tt.want, neighbor(bgp.PeerStatus{State: bgp.Established, Families: tt.has}).Families); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.has, diff)
		}
	}
}
