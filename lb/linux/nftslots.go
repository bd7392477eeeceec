package linux

import (
	"cmp"
	"net/netip"
	"slices"

	"weir/lb"
)

// maxSlots limits the slots of backends with different shares: a share is exact, or one of this
// number of parts. Backends with equal shares have a slot each.
const maxSlots = 256

// slot is an element of mapBackends: a slot, or a number from stickySlots or parkedSlots.
type slot struct {
	number uint32
	addr   netip.AddrPort
	record string
}

// slotCounts returns the number of slots of each real server; 0 for those that take no
// connections.
func slotCounts(shares []uint32) []uint32 {
	sum, divisor, takers := uint64(0), uint32(0), uint64(0)
	for _, s := range shares {
		sum += uint64(s)
		divisor = gcd(s, divisor)
		takers += uint64(min(s, 1))
	}
	if sum == 0 {
		return make([]uint32, len(shares))
	}
	out := make([]uint32, len(shares))
	limit := max(maxSlots, takers)
	if exact := sum / uint64(divisor); exact <= limit {
		for i, s := range shares {
			out[i] = s / divisor
		}
		return out
	}
	// Each takes one, and the rest is divided by share: the largest remainders are rounded up.
	spare := limit - takers
	rest := make([]uint64, len(shares))
	given := uint64(0)
	for i, s := range shares {
		whole := uint64(s) * spare
		out[i] = uint32(whole/sum) + min(s, 1)
		rest[i] = whole % sum
		given += whole / sum
	}
	order := make([]int, len(shares))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if rest[a] > rest[b] {
			return -1
		}
		return int(min(1, rest[b]-rest[a]))
	})
	for _, i := range order[:spare-given] {
		out[i]++
	}
	return out
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// arrange returns the slots of a virtual server, sorted by number: those from 0 without a gap,
// then one for each real server from stickySlots, if it takes connections, or from parkedSlots.
// Real servers keep the numbers that they have as far as possible.
func arrange(p *natService, have []slot) []slot {
	left := slotCounts(shares(*p))
	n := uint32(0)
	others := map[int]uint32{} // the first number of the range in which a real server has one
	for i, c := range left {
		n += c
		switch {
		case c == 0:
			others[i] = parkedSlots
		case p.server.Affinity != 0:
			others[i] = stickySlots
		}
	}
	owner := make([]int, n) // of each slot: the index of its real server and 1; 0 is none
	kept := map[int]uint32{}
	used := map[uint32]bool{}
	for _, s := range have {
		i, found := p.find(s.addr)
		used[s.number] = true // a new real server gets no number of one that goes
		switch from := others[i]; {
		case !found:
		case s.number < stickySlots:
			if s.number < n && left[i] > 0 && owner[s.number] == 0 {
				owner[s.number] = i + 1
				left[i]--
			}
		case from != 0 && kept[i] == 0 && s.number >= from && (from == parkedSlots || s.number < parkedSlots):
			kept[i] = s.number
		}
	}
	next := 0
	out := make([]slot, 0, int(n)+len(others))
	put := func(number uint32, rs lb.RealServer) {
		out = append(out, slot{number, rs.Addr, backendRecord(rs)})
	}
	for number, i := range owner {
		if i == 0 {
			for left[next] == 0 {
				next++
			}
			left[next]--
			i = next + 1
		}
		put(uint32(number), p.reals[i-1])
	}
	for i := range p.reals {
		number := others[i]
		switch {
		case number == 0:
			continue
		case kept[i] != 0:
			number = kept[i]
		default:
			for used[number] {
				number++
			}
			used[number] = true
		}
		put(number, p.reals[i])
	}
	sortSlots(out)
	return out
}

func sortSlots(all []slot) {
	slices.SortFunc(all, func(a, b slot) int { return cmp.Compare(a.number, b.number) })
}

// stickyNumbers returns the number from stickySlots of each slot, in their order.
func stickyNumbers(all []slot) (out []uint32) {
	numbers := map[netip.AddrPort]uint32{}
	for _, s := range all {
		if s.number >= stickySlots && s.number < parkedSlots {
			numbers[s.addr] = s.number
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	for _, s := range all {
		if s.number < stickySlots {
			out = append(out, numbers[s.addr])
		}
	}
	return out
}
