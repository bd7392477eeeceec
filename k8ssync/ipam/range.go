package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// Range is the addresses from First to Last, both of one family and both included.
type Range struct {
	First, Last netip.Addr
	// CIDR reports whether it was written as a prefix: its first and last address may be avoided.
	CIDR bool
}

// never are addresses that no pool may have: those of hosts themselves, and special ones.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// ParseRange reads "192.0.2.0/24", "192.0.2.10-192.0.2.20" or one address. A prefix
// with bits beyond its length is an error with the correct one.
func ParseRange(s string) (Range, error) {
	s = strings.TrimSpace(s)
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return Range{}, fmt.Errorf("%q is no range of addresses: write it as 192.0.2.0/24 or 192.0.2.10-192.0.2.20", s)
		}
		if p != p.Masked() {
			return Range{}, fmt.Errorf("%q has bits beyond its length: write %v, or %v for the one address", s, p.Masked(), p.Addr())
		}
		r := Range{First: p.Addr(), Last: last(p), CIDR: true}
		return r, r.check()
	}
	from, to, two := strings.Cut(s, "-")
	if !two {
		to = from
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	end, err2 := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || err2 != nil {
		return Range{}, fmt.Errorf("%q is no range of addresses: write it as 192.0.2.0/24 or 192.0.2.10-192.0.2.20", s)
	}
	r := Range{First: first, Last: end}
	return r, r.check()
}

// check returns the error of a range.
func (r Range) check() error {
	if !r.First.IsValid() || !r.Last.IsValid() || r.First.BitLen() != r.Last.BitLen() || r.First.Zone() != "" || r.Last.Zone() != "" {
		return fmt.Errorf("range %v-%v is not of one family: give two addresses of one", r.First, r.Last)
	}
	if r.Last.Less(r.First) {
		return fmt.Errorf("range %v-%v ends before it begins: write %v-%v", r.First, r.Last, r.Last, r.First)
	}
	for _, p := range never {
		if r.Contains(p.Addr()) || p.Contains(r.First) {
			return fmt.Errorf("range %v has addresses of %v, which no Service may have: remove them", r, p)
		}
	}
	return nil
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// Prefixes returns the fewest prefixes that cover exactly the range, in order.
func (r Range) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for at := r.First; at.IsValid() && !r.Last.Less(at); {
		bits := at.BitLen()
		for bits > 0 {
			wider := netip.PrefixFrom(at, bits-1)
			if wider.Masked().Addr() != at || r.Last.Less(last(wider)) {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(at, bits)
		out = append(out, p)
		at = last(p).Next()
	}
	return out
}

// String returns the form that ParseRange reads.
func (r Range) String() string {
	switch {
	case r.CIDR && len(r.Prefixes()) == 1:
		return r.Prefixes()[0].String()
	case r.First == r.Last:
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// hasEnds reports whether the first and last address may be avoided: the range is an IPv4
// network with other addresses.
func (r Range) hasEnds() bool {
	size, _ := r.size().Uint64()
	return r.CIDR && r.First.Is4() && size >= 4
}

// size returns the number of addresses.
func (r Range) size() Count {
	return number(r.Last).minus(number(r.First)).plus(Count{lo: 1})
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
