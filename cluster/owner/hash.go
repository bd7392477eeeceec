package owner

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// score is a member's at a VIP; the least one wins. It is the fraction length/weight.
type score struct{ length, weight uint64 }

// less compares two fractions without a division: lengths have 47 bits, weights 10.
func (s score) less(t score) bool { return s.length*t.weight < t.length*s.weight }

// domain begins what is hashed. Members that hash otherwise own otherwise: a change
// here is a change of what boxes say to each other.
const domain = "weir owner 1"

// score draws a member's at a VIP: an exponential variate of the rate of its weight,
// so that the least one is each member's with a chance in proportion to its weight,
// and a member that goes changes nobody else's.
func (r Rules) score(m *Member, vip netip.Addr) score {
	if r.Together {
		vip = netip.IPv6Unspecified()
	}
	var buf [len(domain) + 256 + 16]byte
	in := append(buf[:0], domain...)
	in = append(in, byte(len(m.Name)))
	in = append(in, m.Name...)
	key := vip.As16()
	in = append(in, key[:]...)
	sum := sha256.Sum256(in)
	weight := m.Weight
	if weight == 0 {
		weight = DefaultWeight
	}
	return score{length(binary.BigEndian.Uint64(sum[:])), uint64(min(max(weight, 1), 1000))}
}

// length is -log2((h+1)/2^64) in units of 2^-40. It is done with integers alone:
// floating point logarithms differ between processors in the last bits.
func length(h uint64) uint64 {
	if h == 1<<64-1 {
		return 0
	}
	h++
	whole := uint64(bits.Len64(h) - 1)
	x := h << (63 - whole) // in [1, 2), in units of 2^-63
	var frac uint64
	for range 40 {
		hi, _ := bits.Mul64(x, x) // in [1, 4), in units of 2^-62
		frac <<= 1
		if hi>>63 == 1 {
			frac |= 1
			x = hi
		} else {
			x = hi << 1
		}
	}
	return 64<<40 - (whole<<40 | frac)
}
