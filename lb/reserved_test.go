package lb

import (
	"net/netip"
	"testing"
)

func TestReserved(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ first, last, want string }{
		{"192.0.2.1", "192.0.2.1", ""},
		{"240.0.0.1", "240.0.0.1", ""},
		{"255.255.255.255", "255.255.255.255", "the broadcast address"},
		{"0.0.0.0", "0.0.0.0", "the unspecified address"},
		{"0.0.0.1", "0.0.0.1", "an address of this host (RFC 1122, section 3.2.1.3)"},
		{"127.0.0.1", "127.0.0.1", "a loopback address"},
		{"126.255.255.0", "127.0.0.0", "a loopback address"},
		{"126.0.0.0", "126.255.255.255", ""},
		{"127.255.255.255", "128.0.0.9", "a loopback address"},
		{"192.0.0.0", "192.0.0.255", "the IPv4 dummy address (RFC 7600)"},
		{"2001:db8::1", "2001:db8::ffff", ""},
		{"::", "::", "the unspecified address"},
		{"::1", "::1", "a loopback address"},
		{"fe80::1", "fe80::1", "a link-local address"},
		{"ff02::1", "ff02::1", "a multicast address"},
		{"100::8", "100::8", "an address for discarding (RFC 6666)"},
	} {
		if got := Reserved(netip.MustParseAddr(tt.first), netip.MustParseAddr(tt.last)); got != tt.want {
			t.Errorf("%s to %s: %q, want %q", tt.first, tt.last, got, tt.want)
		}
	}
}
