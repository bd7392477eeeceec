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

// bySet calls change for the members of each set that are added, and for those that are removed. The
// members have the marks of the firewall. It returns the errors in the order of ops.
func (m marking) bySet(ops []lb.Op, change func(set lb.IPSet, verb lb.Verb, members []lb.Member) []error) []error {
	type key struct {
		set  lb.IPSet
		verb lb.Verb
	}
	groups := map[key][]int{}
	var order []key
	for i, op := range ops {
		member := op.Object.(lb.Member)
		k := key{lb.IPSet{Set: member.Set, Family: member.Family()}, op.Verb}
		if _, ok := groups[k]; !ok {
			order = append(order, k)
		}
		groups[k] = append(groups[k], i)
	}
	errs := make([]error, len(ops))
	for _, k := range order {
		members := make([]lb.Member, len(groups[k]))
		for i, at := range groups[k] {
			members[i] = ops[at].Object.(lb.Member)
			members[i].Mark = m.firewall(members[i].Mark)
		}
		for i, err := range change(k.set, k.verb, members) {
			errs[groups[k][i]] = err
		}
	}
	return errs
}
