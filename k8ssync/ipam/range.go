package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// Range is the addresses from First to Last, both of one family and both within.
type Range struct {
	First, Last netip.Addr
	// CIDR tells that it was written as a prefix, so that it has ends to avoid.
	CIDR bool
}

// ParseRange reads "192.0.2.0/24", "192.0.2.10-192.0.2.20" or one address. A prefix
// with bits beyond its length is an error that names the one meant.
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

// check tells what is wrong with a range.
func (r Range) check() error {
	if !r.First.IsValid() || !r.Last.IsValid() || r.First.BitLen() != r.Last.BitLen() || r.First.Zone() != "" || r.Last.Zone() != "" {
		return fmt.Errorf("range %v-%v is not of one family: give two addresses of one", r.First, r.Last)
	}
	if r.Last.Less(r.First) {
		return fmt.Errorf("range %v-%v ends before it begins: write %v-%v", r.First, r.Last, r.Last, r.First)
	}
	for _, p := range never {
		if r.Contains(p.Addr()) || p.Contains(r.First) {
			return fmt.Errorf("range %v has addresses of %v, which can't be a Service's: leave them out", r, p)
		}
	}
	return nil
}

// Contains tells whether an address is within.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// Prefixes gives the fewest prefixes that are together the range, in order.
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

// String gives what ParseRange reads.
func (r Range) String() string {
	switch {
	case r.CIDR && len(r.Prefixes()) == 1:
		return r.Prefixes()[0].String()
	case r.First == r.Last:
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// ends tells whether the range has ends worth avoiding: it is an IPv4 network with
// more than those.
func (r Range) ends() bool {
	size, _ := r.size().Uint64()
	return r.CIDR && r.First.Is4() && size >= 4
}

// size is how many addresses there are.
func (r Range) size() Count {
	return number(r.Last).minus(number(r.First)).plus(Count{lo: 1})
}

// last gives the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
