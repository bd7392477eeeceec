package advertise

import "slices"

// Path is how a prefix is announced to some of the peers. A peer is in one Path of a
// prefix at most.
type Path struct {
	// Communities and LargeCommunities are sent sorted, each once.
	Communities      []Community
	LargeCommunities []LargeCommunity
	// LocalPref is sent to iBGP peers only; not given: 100.
	LocalPref Metric
	// MED is sent to all peers; not given: 0, which is also the value of a missing one
	// (RFC 4271, 9.1.2.2).
	MED Metric
	// Prepend is the number of additional copies of the box's ASN in the AS path, 0 to 16.
	// iBGP peers do not get it: they would detect a loop.
	Prepend int
	// Peers are the names of the peers, sorted. Empty: it is not announced.
	Peers []string
}

// Equal reports whether p and q are the same, in the same order.
func (p Path) Equal(q Path) bool {
	return slices.Equal(p.Communities, q.Communities) && slices.Equal(p.LargeCommunities, q.LargeCommunities) &&
		p.LocalPref == q.LocalPref && p.MED == q.MED && p.Prepend == q.Prepend && slices.Equal(p.Peers, q.Peers)
}

// Metric is an optional LOCAL_PREF or MED; a LOCAL_PREF of 0 is not the same as none. The
// zero value is none.
type Metric struct {
	Value uint32
	Given bool
}

// MetricOf returns a Metric that is given.
func MetricOf(v uint32) Metric { return Metric{Value: v, Given: true} }

// MaxPrepend is the largest Path.Prepend.
const MaxPrepend = 16

// defaultLocalPref is the usual default of routers, too.
const defaultLocalPref = 100

// EffectiveLocalPref returns LocalPref, or the default of 100.
func (p Path) EffectiveLocalPref() uint32 {
	if !p.LocalPref.Given {
		return defaultLocalPref
	}
	return p.LocalPref.Value
}
