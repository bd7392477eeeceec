package linux

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// nftRanges are the members of a set of ranges. The kernel refuses an element that overlaps
// another one, so the members inside another one are hidden: they are kept here only. A hidden
// member becomes an element in the transaction that removes the last member around it.
//
// A process that starts does not know the hidden members. It finds them missing, and adds them
// here.
type nftRanges struct {
	of map[lb.Frontend][]nftRange // sorted; the ranges around another one precede it
	// foreign are the elements that are no members.
	foreign []nftElement
}

// nftRange is a member.
type nftRange struct {
	net     netip.Prefix
	element bool // the kernel has it
}

func (r nftRange) compare(p netip.Prefix) int { return r.net.Compare(p) }

func (r nftRange) compareRange(other nftRange) int { return r.compare(other.net) }

// rangesOf returns the frontend of a member of a set of ranges; zero for a set of networks.
func rangesOf(m lb.Member) lb.Frontend {
	return lb.Frontend{Addr: m.Addr, Port: m.Port, Proto: m.Proto}
}

func (r *nftRanges) members(set lb.Set) iter.Seq[lb.Member] {
	return func(yield func(lb.Member) bool) {
		for f, ranges := range r.of {
			for _, one := range ranges {
				if !yield(lb.Member{Set: set, Addr: f.Addr, Port: f.Port, Proto: f.Proto, Net: one.net}) {
					return
				}
			}
		}
	}
}

// covers calls each for every range of sorted ones with the outermost range around it, which may
// be the range itself.
func covers(ranges []nftRange, each func(i, outermost int)) {
	outermost := 0
	for i, r := range ranges {
		if !ranges[outermost].net.Contains(r.net.Addr()) {
			outermost = i
		}
		each(i, outermost)
	}
}

// readRanges reads the elements of a set of ranges.
func (s *nftSets) readRanges(ctx context.Context, id lb.IPSet) (*nftRanges, error) {
	r := &nftRanges{}
	again := func() { *r = nftRanges{of: map[lb.Frontend][]nftRange{}} }
	err := s.read(ctx, id, again, func(el nftElement) {
		m, ok := el.member(id)
		if !ok {
			r.foreign = append(r.foreign, el)
			return
		}
		r.of[rangesOf(m)] = append(r.of[rangesOf(m)], nftRange{m.Net, true})
	})
	for _, ranges := range r.of {
		slices.SortFunc(ranges, nftRange.compareRange)
	}
	return r, err
}

// remember adds the members that were known before.
func (r *nftRanges) remember(before *nftRanges) {
	if before == nil {
		return
	}
	for f, ranges := range before.of {
		now := r.of[f]
		for _, one := range ranges {
			if at, found := slices.BinarySearchFunc(now, one.net, nftRange.compare); !found {
				now = slices.Insert(now, at, nftRange{net: one.net})
			}
		}
		r.of[f] = now
	}
}

// forgetLost removes the members that the kernel does not match.
func (r *nftRanges) forgetLost() {
	for f, ranges := range r.of {
		var around netip.Prefix // the outermost element so far
		r.of[f] = slices.DeleteFunc(ranges, func(one nftRange) bool {
			inside := around.Contains(one.net.Addr())
			if one.element && !inside {
				around = one.net
			}
			return !one.element && !inside
		})
		if len(r.of[f]) == 0 {
			delete(r.of, f)
		}
	}
}

// observeRanges reads the members of a set of ranges. The hidden members stay known while an
// element is around them, and after a failed read.
func (s *nftSets) observeRanges(ctx context.Context, id lb.IPSet) (*nftRanges, error) {
	now, err := s.readRanges(ctx, id)
	if err != nil {
		return nil, err
	}
	now.remember(s.known.ranges[id])
	now.forgetLost()
	s.known.ranges[id] = now
	return now, nil
}

// changeRanges adds or removes members of a set of ranges.
func (s *nftSets) changeRanges(ctx context.Context, id lb.IPSet, members []lb.Member, remove bool) []error {
	errs := make([]error, len(members))
	left := make([]int, len(members))
	for i := range left {
		left[i] = i
	}
	known := s.known.ranges[id]
	if known != nil {
		left = s.sendRanges(ctx, id, known, members, left, remove, errs)
	}
	if len(left) == 0 {
		return errs
	}
	// The process has just started, or another program has changed the set meanwhile. Its removals
	// of members are undone.
	r, err := s.readRanges(ctx, id)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || noNFTables(err) { // no such set, so no such member
			delete(s.known.ranges, id)
			if remove {
				err = nil
			}
		}
		for _, i := range left {
			errs[i] = err
		}
		return errs
	}
	r.remember(known)
	s.known.ranges[id] = r
	s.sendRanges(ctx, id, r, members, left, remove, errs)
	return errs
}

// sendRanges adds or removes the members at some indexes, stores their errors, and returns the
// failed ones.
func (s *nftSets) sendRanges(ctx context.Context, id lb.IPSet, r *nftRanges, members []lb.Member, which []int, remove bool, errs []error) (failed []int) {
	var fronts []lb.Frontend
	of := map[lb.Frontend][]int{}
	for _, i := range which {
		f := rangesOf(members[i])
		if of[f] == nil {
			fronts = append(fronts, f)
		}
		of[f] = append(of[f], i)
	}
	after := make([][]nftRange, len(fronts))
	changes := make([]nftChange, len(fronts), len(fronts)+1)
	for n, f := range fronts {
		nets := make([]netip.Prefix, len(of[f]))
		for i, at := range of[f] {
			nets[i] = members[at].Net.Masked()
		}
		after[n], changes[n] = changedRanges(id.Set, f, r.of[f], nets, remove)
	}
	got := s.send(ctx, id, append(changes, nftChange{remove: r.foreign}))
	if got[len(fronts)] == nil {
		r.foreign = nil
	}
	for n, f := range fronts {
		for _, i := range of[f] {
			errs[i] = got[n]
		}
		switch {
		case got[n] != nil:
			failed = append(failed, of[f]...)
		case len(after[n]) == 0:
			delete(r.of, f)
		default:
			r.of[f] = after[n]
		}
	}
	return failed
}

// changedRanges adds members to the ranges of a frontend, or removes them. It returns the new
// ranges, and the change of the elements to the outermost ones. The outermost range around an
// added member is added in any case: another program may have removed it.
func changedRanges(set lb.Set, f lb.Frontend, before []nftRange, nets []netip.Prefix, remove bool) (after []nftRange, c nftChange) {
	element := func(p netip.Prefix) nftElement {
		return elementOf(lb.Member{Set: set, Addr: f.Addr, Port: f.Port, Proto: f.Proto, Net: p})
	}
	slices.SortFunc(nets, netip.Prefix.Compare)
	after = slices.Clone(before)
	for _, p := range nets {
		at, found := slices.BinarySearchFunc(after, p, nftRange.compare)
		switch {
		case !remove && !found:
			after = slices.Insert(after, at, nftRange{net: p})
		case remove && found:
			if after[at].element {
				c.remove = append(c.remove, element(p))
			}
			after = slices.Delete(after, at, at+1)
		}
	}
	wanted := map[int]bool{}
	covers(after, func(i, outermost int) {
		r := &after[i]
		if _, named := slices.BinarySearchFunc(nets, r.net, netip.Prefix.Compare); named && !remove {
			wanted[outermost] = true
		}
		switch {
		case i == outermost && !r.element:
			wanted[i] = true
		case i != outermost && r.element:
			c.remove = append(c.remove, element(r.net))
			r.element = false
		}
	})
	for i := range after {
		if wanted[i] {
			c.add = append(c.add, element(after[i].net))
			after[i].element = true
		}
	}
	return after, c
}
