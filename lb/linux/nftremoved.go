package linux

import (
	"bytes"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// maxRemovals limits the announcements of removed elements that wait for Watch, in bytes. An audit finds the others.
const maxRemovals = 256 << 10

// keepRemoval keeps the announcement of elements that were removed from a set of weir's tables.
func (g *generations) keepRemoval(m message) {
	if m.typ == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELSETELEM && g.kept+len(m.body) <= maxRemovals {
		g.pending.removals = append(g.pending.removals, bytes.Clone(m.body))
		g.kept += len(m.body)
	}
}

// removedMembers returns the identities of the members in announcements that are of a family's sets. Those of ranges are
// left out: a range may be two elements.
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
