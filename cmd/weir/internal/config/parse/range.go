package parse

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// The widest pools: a wider one would contain addresses that the box itself needs.
const (
	widestPool4 = 8
	widestPool6 = 16
)

// Range parses 192.0.2.0/24, 192.0.2.10-192.0.2.20 or one address.
func Range(s string) (ipam.Range, *source.Fault) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		if a, err := netip.ParseAddr(s); err == nil && !a.Is4In6() && a.Zone() == "" {
			return ipam.Range{First: a, Last: a}, nil
		}
		p, f := Prefix(s)
		return ipam.Range{First: p.Addr(), Last: lastOf(p), CIDR: true}, f
	}
	var r ipam.Range
	for _, end := range []struct {
		text string
		addr *netip.Addr
	}{{first, &r.First}, {last, &r.Last}} {
		a, err := netip.ParseAddr(strings.TrimSpace(end.text))
		if err != nil || a.Is4In6() || a.Zone() != "" {
			return r, source.Faultf("write two addresses: 192.0.2.10-192.0.2.20", "%q is not a range of addresses", s)
		}
		*end.addr = a
	}
	switch {
	case r.First.BitLen() != r.Last.BitLen():
		return r, source.Faultf("write two addresses of one family", "%q has addresses of both families", s)
	case r.Last.Less(r.First):
		return r, source.Faultf(fmt.Sprintf("write \"%s-%s\"", r.Last, r.First), "%q is in the wrong order", s)
	}
	return r, nil
}

// lastOf returns the last address of a prefix, the zero Addr of the zero Prefix.
func lastOf(p netip.Prefix) netip.Addr {
	if !p.IsValid() {
		return netip.Addr{}
	}
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(bytes); i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// RangeOf returns a prefix as a range.
func RangeOf(p netip.Prefix) ipam.Range {
	p = p.Masked()
	return ipam.Range{First: p.Addr(), Last: lastOf(p), CIDR: true}
}

// Overlap reports whether two ranges have an address in common.
func Overlap(a, b ipam.Range) bool { return a.Contains(b.First) || b.Contains(a.First) }

// UnusablePool returns the fault of a range that can't be a pool of this box.
func UnusablePool(text string, r ipam.Range, families []lb.Family) *source.Fault {
	widest := widestPool4
	if r.First.Is6() {
		widest = widestPool6
	}
	if wide, err := r.First.Prefix(widest); err != nil || !wide.Contains(r.Last) {
		return source.Faultf(fmt.Sprintf("a pool is /%d or smaller", widest), "%q is too wide", text)
	}
	if f := lb.FamilyOf(r.First); !slices.Contains(families, f) && len(families) > 0 {
		return source.Faultf("remove it, or add the family there", "%q is %s, which is not in kernel.families", text, f)
	}
	if what := lb.Reserved(r.First, r.Last); what != "" {
		return source.Faultf("choose another range", "%q contains %s", text, what)
	}
	return nil
}
