package parse

import (
	"net/netip"
	"testing"

	"weir/k8ssync/ipam"
)

func TestRange(t *testing.T) {
	for _, tt := range []struct {
		text, first, last string
		cidr              bool
	}{
		{"192.0.2.7", "192.0.2.7", "192.0.2.7", false},
		{"192.0.2.0/24", "192.0.2.0", "192.0.2.255", true},
		{"192.0.2.7/32", "192.0.2.7", "192.0.2.7", true},
		{"192.0.2.7-192.0.2.9", "192.0.2.7", "192.0.2.9", false},
		{"192.0.2.7 - 192.0.2.9", "192.0.2.7", "192.0.2.9", false},
		{"2001:db8::/64", "2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", true},
		{"2001:db8::1-2001:db8::a", "2001:db8::1", "2001:db8::a", false},
	} {
		got, f := Range(tt.text)
		want := ipam.Range{First: netip.MustParseAddr(tt.first), Last: netip.MustParseAddr(tt.last), CIDR: tt.cidr}
		if f != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", tt.text, got, f, want)
		}
		if also, err := ipam.ParseRange(tt.text); err != nil || also != want {
			t.Errorf("%s: ipam reads %v, %v", tt.text, also, err)
		}
	}
}
