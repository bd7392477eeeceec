package ipam

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"net/netip"
)

// Count is a number of addresses, up to that of an IPv6 range: more than 64 bits.
type Count struct{ hi, lo uint64 }

// Float64 is for metrics: exact up to 2^53.
func (c Count) Float64() float64 { return float64(c.hi)*(1<<64) + float64(c.lo) }

// Uint64 returns the number, and whether it fits.
func (c Count) Uint64() (uint64, bool) { return c.lo, c.hi == 0 }

// String returns the number in decimal.
func (c Count) String() string {
	n := new(big.Int).SetUint64(c.hi)
	return n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(c.lo)).String()
}

// Short returns a number of at most seven characters: from ten million on, the greatest
// power of two that is not above it, "~2^64".
func (c Count) Short() string {
	if c.hi == 0 && c.lo < 10_000_000 {
		return c.String()
	}
	n := 63 + bits.Len64(c.hi)
	if c.hi == 0 {
		n = bits.Len64(c.lo) - 1
	}
	if bits.OnesCount64(c.hi)+bits.OnesCount64(c.lo) == 1 {
		return fmt.Sprintf("2^%d", n)
	}
	return fmt.Sprintf("~2^%d", n)
}

// MarshalJSON writes a number, in full: readers with floats round it.
func (c Count) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

func (c Count) plus(d Count) Count {
	lo, carry := bits.Add64(c.lo, d.lo, 0)
	hi, _ := bits.Add64(c.hi, d.hi, carry)
	return Count{hi, lo}
}

// minus takes d off c, down to 0.
func (c Count) minus(d Count) Count {
	lo, borrow := bits.Sub64(c.lo, d.lo, 0)
	hi, below := bits.Sub64(c.hi, d.hi, borrow)
	if below != 0 {
		return Count{}
	}
	return Count{hi, lo}
}

// number returns an address as a number.
func number(a netip.Addr) Count {
	b := a.As16()
	return Count{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}
