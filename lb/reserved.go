package lb

import "net/netip"

// reserved are the ranges without hosts. 240.0.0.0/4 is not among them: some clouds give it to
// clusters.
var reserved = []struct {
	prefix netip.Prefix
	name   string
}{
	{netip.MustParsePrefix("0.0.0.0/32"), "the unspecified address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this host (RFC 1122, section 3.2.1.3)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("192.0.0.8/32"), "the IPv4 dummy address (RFC 7600)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("100::/64"), "an address for discarding (RFC 6666)"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// Reserved returns the first of the addresses from first to last that can be neither a VIP nor
// a backend: "a loopback address"; "" if there is none.
func Reserved(first, last netip.Addr) string {
	for _, r := range reserved {
		from := r.prefix.Addr()
		if r.prefix.Contains(first) || first.Compare(from) <= 0 && from.Compare(last) <= 0 {
			return r.name
		}
	}
	return ""
}
