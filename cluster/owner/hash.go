package owner

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// score is that of a member at a VIP; the least one wins. It is the fraction
// length/weight.
type score struct{ length, weight uint64 }

// less compares two fractions without a division: lengths have 47 bits, weights 10.
func (s score) less(t score) bool { return s.length*t.weight < t.length*s.weight }

// domain is the prefix of the hashed data. Members with another prefix choose other
// owners: a change here is a change of the protocol.
const domain = "weir owner 1"

// score returns the score of a member at a VIP: an exponential variate with the rate of
// its weight. So each member has the least score with a probability in proportion to its
// weight, and a member that leaves changes no other score.
func (r Rules) score(m *Member, vip netip.Addr) score {
	if r.SingleOwner {
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

// Prefers reports whether member a has a better score at a VIP than member b: the
// tie-break among members of equal standing. For two names exactly one of Prefers(a, b)
// and Prefers(b, a) is true. Only the names and the weights count.
func (r Rules) Prefers(a, b *Member, vip netip.Addr) bool {
	return preferred(a, r.score(a, vip), b, r.score(b, vip))
}

// preferred is Prefers with scores that are known.
func preferred(a *Member, as score, b *Member, bs score) bool {
	return as.less(bs) || !bs.less(as) && a.Name < b.Name
}

// length returns -log2((h+1)/2^64) in units of 2^-40, computed with integers: floating
// point logarithms differ between processors in the last bits.
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
