package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"weir/bgp"
	"weir/cluster/owner"
)

// The ways in which a standby's routes are told worse: the values of standby.
const (
	byMED       = "med"
	byLocalPref = "local_pref"
	byPrepend   = "prepend"
)

// standbyWays are all of them.
var standbyWays = []string{byMED, byLocalPref, byPrepend}

// handicaps are what the ways come to.
var handicaps = map[string]bgp.Handicap{
	byMED:       {MED: bgp.StandbyMED},
	byLocalPref: {LocalPref: bgp.StandbyLocalPref},
	byPrepend:   {Prepend: bgp.StandbyPrepend},
}

// readStandby reads how the peer is told of what others own, and complains about a
// way that it would not hear of: its best route would be no better than the worse one.
func (p *peer) readStandby(own *speaker) {
	way, whose := p.text("standby"), ""
	if way == "" {
		way, whose = own.text("standby"), ` of [bgp], at `+own.at("standby").String()+","
	}
	p.Standby = handicaps[way]
	if p.bad("standby") || p.bad("asn") || own.bad("standby") || own.bad("asn") {
		return
	}
	unknown := p.ASN == 0 // a range of any system
	quoted := strconv.Quote(way) + whose
	switch {
	case way == byMED:
	case unknown && p.text("range") != "":
		p.fail("standby", quoted+` can't be where asn = 0: of an unknown system it can't be told whether it is an external peer`,
			`write standby = "med", which both hear of, or the peers' system`)
	case unknown: // which is complained about elsewhere
	case way == byLocalPref && !p.internal(own.Speaker.ASN):
		p.fail("standby", quoted+" is not told to an external peer", `write standby = "med" or "prepend"`)
	case way == byPrepend && p.internal(own.Speaker.ASN):
		p.fail("standby", quoted+" is not told to an internal peer: it would take the route for a loop", `write standby = "med" or "local_pref"`)
	}
}

// checkStandby warns of what a rule has no room for: it is the worst already, so that
// a standby's routes would be as good as the owner's.
func (v *provider) checkStandby(r *rule) {
	if r.Refuse || v.fleet == nil || v.fleet.Rules.Mode != owner.ActiveStandby {
		return
	}
	for _, p := range v.bgp.peers {
		if len(r.Peers) > 0 && !slices.Contains(r.Peers, p.Name) {
			continue
		}
		var key string
		var worst int64
		switch {
		case p.Standby.MED > 0 && r.MED.Value == math.MaxUint32:
			key, worst = "med", math.MaxUint32
		case p.Standby.LocalPref > 0 && r.LocalPref == bgp.MetricOf(0):
			key = "local_pref"
		case p.Standby.Prepend > 0 && r.Prepend == mostPrepend:
			key, worst = "prepend", mostPrepend
		default:
			continue
		}
		r.warn(Warning, key, fmt.Sprintf("%d can't be made worse, so %s can't tell the owner of a VIP from a standby", worst, p.called()),
			"leave room, or give the peer another standby")
		return
	}
}
