package linux

import (
	"context"
	"errors"
	"iter"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// nftBatchBytes limits a transaction to the default send buffer of a socket (212,992 bytes). A
// larger change needs sendBuffer.
const nftBatchBytes = 160 << 10

// nftChange is the elements of a set that are removed and added together: in one step for the
// packets.
type nftChange struct{ remove, add []nftElement }

func (s *nftSets) applyMembers(ctx context.Context, ops []lb.Op) []error {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	return s.marks.bySet(ops, func(set lb.IPSet, verb lb.Verb, members []lb.Member) []error {
		switch {
		case ofRanges(set.Set):
			return s.changeRanges(ctx, set, members, verb == lb.Delete)
		case verb == lb.Delete:
			return s.remove(ctx, set, members)
		}
		return s.add(ctx, set, members)
	})
}

func (s *nftSets) add(ctx context.Context, set lb.IPSet, members []lb.Member) []error {
	changes, elements := make([]nftChange, len(members)), elementsOf(members)
	for i := range members {
		changes[i].add = elements[i : i+1 : i+1]
	}
	errs := s.send(ctx, set, changes)
	// The kernel changes no mark.
	var marked []int
	var replaced []nftChange
	for i, err := range errs {
		if set.Set.MarksPackets() && (errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY)) {
			marked = append(marked, i)
			replaced = append(replaced, nftChange{remove: changes[i].add, add: changes[i].add})
		}
	}
	for i, err := range s.send(ctx, set, replaced) {
		errs[marked[i]] = err
	}
	return errs
}

func elementsOf(members []lb.Member) []nftElement {
	out := make([]nftElement, len(members))
	for i, m := range members {
		out[i] = elementOf(m)
	}
	return out
}

func (s *nftSets) remove(ctx context.Context, set lb.IPSet, members []lb.Member) []error {
	changes, elements := make([]nftChange, len(members)), elementsOf(members)
	for i := range members {
		changes[i].remove = elements[i : i+1 : i+1]
	}
	errs := s.send(ctx, set, changes)
	for i, err := range errs {
		if errors.Is(err, unix.ENOENT) || noNFTables(err) { // no such set, so no such member
			errs[i] = nil
		}
	}
	return errs
}

// send carries changes out in as few transactions as possible, and returns their errors. One
// change that the kernel refuses undoes a whole transaction, so the others are sent again.
func (s *nftSets) send(ctx context.Context, set lb.IPSet, changes []nftChange) []error {
	s.known.stable[set] = false
	errs := make([]error, len(changes))
	all := make([]int, 0, len(changes))
	for i, c := range changes {
		if len(c.remove)+len(c.add) > 0 {
			all = append(all, i)
		}
	}
	for part := range nftParts(changes, all, 0) {
		if err := s.together(ctx, set, changes, part); err != nil {
			for part := range nftParts(changes, part, nftHeaderBytes) {
				s.apart(ctx, set, changes, part, errs)
			}
		}
	}
	return errs
}

// nftParts splits changes into parts that a transaction can carry, with a header for each
// change.
func nftParts(changes []nftChange, all []int, header int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for len(all) > 0 {
			n, size := 0, 0
			for n < len(all) && (n == 0 || size < nftBatchBytes) {
				c := changes[all[n]]
				size += 2*header + nftElementBytes*(len(c.remove)+len(c.add))
				n++
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// together sends changes in one transaction of few messages. Removals go first, because a range
// that is added may overlap one that is removed.
func (s *nftSets) together(ctx context.Context, set lb.IPSet, changes []nftChange, part []int) error {
	removed, added := 0, 0
	for _, i := range part {
		removed += len(changes[i].remove)
		added += len(changes[i].add)
	}
	remove, add := make([]nftElement, 0, removed), make([]nftElement, 0, added)
	for _, i := range part {
		remove = append(remove, changes[i].remove...)
		add = append(add, changes[i].add...)
	}
	errs, err := s.conn.transaction(ctx, func(e *encoder) {
		s.put(e, unix.NFT_MSG_DELSETELEM, set, remove)
		s.put(e, unix.NFT_MSG_NEWSETELEM, set, add)
	})
	return errors.Join(err, firstError(errs))
}

func (s *nftSets) put(e *encoder, cmd uint16, set lb.IPSet, elements []nftElement) {
	for len(elements) > 0 {
		n := putNFTElements(e, cmd, set, s.table, s.name(set), elements)
		elements = elements[n:]
	}
}

// apart sends changes in one transaction with messages of their own, and so finds those that
// the kernel refuses. Without them it succeeds.
func (s *nftSets) apart(ctx context.Context, set lb.IPSet, changes []nftChange, part []int, errs []error) {
	for len(part) > 0 {
		var of []int // the change of each message
		got, err := s.conn.transaction(ctx, func(e *encoder) {
			for _, i := range part {
				before := e.count
				s.put(e, unix.NFT_MSG_DELSETELEM, set, changes[i].remove)
				s.put(e, unix.NFT_MSG_NEWSETELEM, set, changes[i].add)
				for range e.count - before {
					of = append(of, i)
				}
			}
		})
		if err != nil {
			for _, i := range part {
				errs[i] = err
			}
			return
		}
		for at, err := range got {
			if i := of[at]; errs[i] == nil {
				errs[i] = err
			}
		}
		var left []int
		for _, i := range part {
			if errs[i] == nil {
				left = append(left, i)
			}
		}
		if len(left) == len(part) {
			return
		}
		part = left
	}
}
