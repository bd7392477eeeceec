package linux

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// removedMembers returns the identities of the members of a family's sets that messages remove, and do not add after that.
// Those of ranges are left out: a range may be two elements. Another message may have added some by now. To write
// those once more changes nothing.
func removedMembers(messages []elementMessage, prefix string, f lb.Family) []lb.Object {
	byName := map[string]lb.IPSet{}
	for _, set := range lb.Sets() {
		byName[set.Name(prefix, f)] = lb.IPSet{Set: set, Family: f}
	}
	gone := map[lb.Object]lb.Member{}
	for _, m := range messages {
		if len(m.body) < 4 || m.body[0] != nftFamily(f) {
			continue
		}
		set, known := byName[cString(attribute(m.body[4:], unix.NFTA_SET_ELEM_LIST_SET))]
		if !known || ofRanges(set.Set) {
			continue
		}
		elements := nftElements{kind: nftKindOf(set), each: func(el nftElement) {
			member, ok := el.member(set)
			switch {
			case !ok:
			case !m.added:
				gone[member.ID()] = member
			case gone[member.ID()] == member: // and not with another mark
				delete(gone, member.ID())
			}
		}}
		elements.parse(m.body)
	}
	return slices.Collect(maps.Keys(gone))
}
