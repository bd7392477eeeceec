package draft

import (
	"net/netip"
	"strings"
)

// MostAddresses limits the addresses of a range.
const MostAddresses = 1024

// Addresses reads 192.0.2.1, 192.0.2.1-10, 192.0.2.1-192.0.2.10, ae00::2-9 or 192.0.2.0/29. It
// returns false for another text, and for more than MostAddresses.
func Addresses(s string) ([]netip.Addr, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		p = p.Masked()
		return between(p.Addr(), func(a netip.Addr) bool { return p.Contains(a) })
	}
	first, last, isRange := strings.Cut(s, "-")
	a, err := netip.ParseAddr(first)
	if err != nil || !isRange {
		return []netip.Addr{a}, err == nil
	}
	b, err := netip.ParseAddr(last)
	if at := strings.LastIndexAny(first, ".:"); err != nil || a.Is4() != b.Is4() {
		b, err = netip.ParseAddr(first[:at+1] + last)
	}
	if err != nil || b.Less(a) {
		return nil, false
	}
	return between(a, func(x netip.Addr) bool { return !b.Less(x) })
}

// between returns the addresses from the first one on while in is true; false means too
// many.
func between(a netip.Addr, in func(netip.Addr) bool) ([]netip.Addr, bool) {
	var out []netip.Addr
	for ; a.IsValid() && in(a); a = a.Next() {
		if out = append(out, a); len(out) > MostAddresses {
			return nil, false
		}
	}
	return out, true
}
