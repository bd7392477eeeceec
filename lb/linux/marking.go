package linux

import (
	"weir/lb"
)

// marking converts the small numbers by which lb names virtual servers (Frontend.Mark) to
// firewall marks, and back.
//
// A packet keeps its mark from mangle to ip_vs, while foreign rules may match it. So a mark
// never has the bit of masquerading, nor the one by which kubelets before 1.28 dropped
// packets. Its high part is unusual, so that neither a plain `ip rule fwmark 1` nor a foreign
// virtual server matches it.
type marking struct {
	masquerade uint32 // Config.Mark: one bit
}

const (
	kubeletDrops = 0x8000
	// The high part has 7 bits above the 23 of lb.MaxMark: as many as are free in any case.
	highPart = 0x5a
	highMask = 0x7f
	lowPart  = 23
)

func (m marking) reserved() uint32 { return m.masquerade | kubeletDrops }

// firewall returns the firewall mark for n, which is 1 to lb.MaxMark; 0 for none.
func (m marking) firewall(n uint32) uint32 {
	if n == 0 {
		return 0
	}
	return m.spread(highPart<<lowPart | n)
}

// all returns the bits that all of weir's marks have.
func (m marking) all() bits {
	return bits{m.spread(highPart << lowPart), m.spread(highMask << lowPart)}
}

// masqueraded returns the bits that the marks with lb.MasqueradedMark have.
func (m marking) masqueraded() bits {
	return bits{m.spread(highPart<<lowPart | lb.MasqueradedMark), m.spread(highMask<<lowPart | lb.MasqueradedMark)}
}

// spread distributes the bits of v around the reserved ones.
func (m marking) spread(v uint32) (out uint32) {
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if m.reserved()&bit != 0 {
			continue
		}
		if v&1 != 0 {
			out |= bit
		}
		v >>= 1
	}
	return out
}

// number is the inverse of firewall; 0 for a foreign mark.
func (m marking) number(mark uint32) uint32 {
	if mark&m.reserved() != 0 {
		return 0
	}
	v, at := uint32(0), 0
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if m.reserved()&bit != 0 {
			continue
		}
		if mark&bit != 0 {
			v |= 1 << at
		}
		at++
	}
	if v>>lowPart != highPart {
		return 0
	}
	return v & lb.MaxMark
}
