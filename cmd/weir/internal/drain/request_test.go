package drain

import (
	"net/netip"
	"slices"
	"testing"
)

func TestAddressesOfTheCommandLine(t *testing.T) {
	t.Parallel()
	got, err := ParseVIPs([]string{"192.0.2.1", "::ffff:192.0.2.2", "2001:db8::1"})
	want := []netip.Addr{vipA, netip.MustParseAddr("192.0.2.2"), vipB}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
