package linux

import (
	"golang.org/x/sys/unix"

	"weir/lb"
)

// removedMembers returns the identities of the members in announcements that are of a family's sets. Those of ranges are
// left out: a range may be two elements. Some may be back by now, as after a change of a mark. To write those once more
// changes nothing.
func removedMembers(removals [][]byte, prefix string, f lb.Family) (out []lb.Object) {
	byName := map[string]lb.IPSet{}
	for _, set := range lb.Sets() {
		byName[set.Name(prefix, f)] = lb.IPSet{Set: set, Family: f}
	}
	for _, body := range removals {
		if len(body) < 4 || body[0] != nftFamily(f) {
			continue
		}
		set, known := byName[cString(attribute(body[4:], unix.NFTA_SET_ELEM_LIST_SET))]
		if !known || ofRanges(set.Set) {
			continue
		}
		elements := nftElements{kind: nftKindOf(set), each: func(el nftElement) {
			if m, ok := el.member(set); ok {
				out = append(out, m.ID())
			}
		}}
		elements.parse(body)
	}
	return out
}
