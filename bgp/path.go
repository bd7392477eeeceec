package bgp

import "slices"

// Path is how some of the peers hear of a prefix. Of two Paths of one prefix no
// peer is in both.
type Path struct {
	// Communities and LargeCommunities are sent sorted, each once.
	Communities      []Community
	LargeCommunities []LargeCommunity
	// LocalPref is told to iBGP peers only; not given: 100.
	LocalPref Metric
	// MED is told to all peers; not given: 0, which is what routers take a missing one
	// for (RFC 4271, 9.1.2.2).
	MED Metric
	// Prepend is how many times more than needed the box's own ASN stands in the AS
	// path, 0 to 16. iBGP peers do not get it: to them that would be a loop.
	Prepend int
	// Peers are the names of those who hear of it, sorted. None: nobody does.
	Peers []string
}

// Equal tells whether p and q are the same, in the same order.
func (p Path) Equal(q Path) bool {
	return slices.Equal(p.Communities, q.Communities) && slices.Equal(p.LargeCommunities, q.LargeCommunities) &&
		p.LocalPref == q.LocalPref && p.MED == q.MED && p.Prepend == q.Prepend && slices.Equal(p.Peers, q.Peers)
}

// Metric is a LOCAL_PREF or a MED that may be left out; a LOCAL_PREF of 0 is not the
// same as none.
// The zero value is none.
type Metric struct {
	Value uint32
	Given bool
}

// MetricOf is a Metric that is given.
func MetricOf(v uint32) Metric { return Metric{Value: v, Given: true} }
