package bgp

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// vip is what is known of one address.
type vip struct {
	addr netip.Addr
	// claims are who serves there; of one that has no backend, who did. sends are
	// whom the rules would have told by that.
	claims []claim
	sends  []send
	// withheld is that of the Route: "" is that it serves, without a break since
	// goodSince.
	withheld  lb.Withheld
	goodSince time.Time
	// up is whether it is to be announced, drains and rules apart. kept: though it has
	// no backend.
	up, kept bool
	// lost is that it was withdrawn for want of a backend and has not returned since.
	// ended is when it last had one; old: that is too long ago to count for the floor.
	lost  bool
	ended time.Time
	old   bool
	stage Stage
	role  Role
	since time.Time // when the above came to be as it is

	// What the prefixes and the floor have been told of it.
	told    []send
	toldAs  form
	counted standing
}

// take takes one Route.
func (a *Advertiser) take(r lb.Route, labels func(lb.ServiceID) map[string]string) {
	v := a.vips[r.Addr]
	if len(r.Serves) == 0 && r.Withheld == lb.Gone {
		if v != nil {
			v.up, v.kept, v.lost = false, false, false
			a.settle(v)
			delete(a.vips, r.Addr)
		}
		return
	}
	if v == nil {
		v = &vip{addr: r.Addr, stage: a.drains.of(r.Addr), role: a.roles[r.Addr], withheld: "new"}
		a.vips[r.Addr] = v
	}
	if len(r.Serves) > 0 {
		v.claims = claimsOf(r.Serves, labels)
		v.sends = a.match(r.Addr, v.claims)
		a.serves(v)
	} else {
		a.lacks(v, r.Withheld)
	}
	a.settle(v)
}

func claimsOf(serves []lb.Serving, labels func(lb.ServiceID) map[string]string) []claim {
	claims := make([]claim, len(serves))
	for i, s := range serves {
		claims[i] = claim{Serving: s}
		if labels != nil {
			claims[i].labels = labels(s.Service)
		}
	}
	return claims
}

// serves takes down that somebody serves a VIP.
func (a *Advertiser) serves(v *vip) {
	if v.withheld != "" {
		v.withheld, v.goodSince, v.since = "", a.now, a.now
	}
	v.kept = false
	switch {
	case v.up:
	case !v.lost || a.policy.HoldDown <= 0:
		v.up, v.lost = true, false
	case v.goodSince.Equal(a.now):
		a.held.push(v, v.goodSince)
	}
}

// lacks takes down that nobody serves a VIP, and why.
func (a *Advertiser) lacks(v *vip, why lb.Withheld) {
	if v.withheld == "" && why == lb.NobodyAnswers {
		v.ended, v.old = a.now, false
		a.floor.ended.push(v, a.now)
	}
	if v.withheld != why {
		v.withheld, v.since = why, a.now
	}
	switch {
	case why == lb.NotServed:
		v.up, v.kept, v.lost, v.claims, v.sends = false, false, false, nil, nil
	case why != lb.NobodyAnswers:
		v.up, v.kept = false, false
	case v.up && !v.kept && v.counted == onAir && a.floor.keeps(a.policy.Floor):
		v.kept = true
		a.floor.late.push(v, v.ended)
	case v.up && !v.kept:
		a.drop(v)
	}
}

// drop withdraws a VIP for want of a backend. One that no peer has heard of returns
// without hold-down: it has not flapped.
func (a *Advertiser) drop(v *vip) {
	v.up, v.kept, v.lost = false, false, len(v.told) > 0
}

// settle has the prefixes and the floor follow what has become of a VIP.
func (a *Advertiser) settle(v *vip) {
	if f, told := v.form(); v.up && told {
		a.contribute(v, f, v.sends)
	} else {
		a.contribute(v, plain, nil)
	}
	a.floor.recount(v)
}

// tick moves the clock, and does what is due.
func (a *Advertiser) tick(now time.Time) {
	a.now = later(a.now, now)
	for v := a.held.first(); v != nil && !v.goodSince.Add(a.policy.HoldDown).After(a.now); v = a.held.first() {
		v.up, v.lost, v.since = true, false, a.now
		a.settle(v)
	}
	a.floor.age(a.now)
}

// holds tells whether the hold-down alone is in its way.
func (v *vip) holds() bool { return !v.up && v.withheld == "" && v.lost }

// changes ends whatever has changed something: it lets go of what the floor need not
// keep any more, and gives what differs.
func (a *Advertiser) changes() map[netip.Prefix][]Path {
	for a.floor.kept > 0 && !a.floor.keeps(a.policy.Floor) {
		v := a.floor.late.first()
		a.drop(v)
		v.since = a.now
		a.settle(v)
	}
	return a.refresh()
}

const (
	// floorFrom is from how many VIPs on there is a floor.
	floorFrom = 4
	// floorWindow is for how long a VIP that was withdrawn counts.
	floorWindow = time.Minute
)

// standing is how a VIP counts for the floor.
type standing uint8

const (
	notCounted standing = iota
	onAir               // announced, with backends
	onAirKept           // announced, without
	lately              // not announced, but with backends, or so lately
)

// floor counts the VIPs that some peer hears of, or would, and that are neither
// drained nor out.
type floor struct {
	all, up, kept int
	late          queue // of the kept, by when they lost their backends
	ended         queue // of all that lack backends, by when they lost them
}

// keeps tells whether too few VIPs would be left, were one more withdrawn.
func (f *floor) keeps(share float64) bool {
	// 0.1 * 30 is a little more than 3.
	need := int(math.Ceil(share*float64(f.all) - 1e-9))
	return f.all >= floorFrom && f.up-1 < need
}

// recount has f follow what has become of a VIP.
func (f *floor) recount(v *vip) {
	is := notCounted
	switch {
	case len(v.sends) == 0 || !v.counts():
	case v.kept:
		is = onAirKept
	case v.up:
		is = onAir
	case v.holds(), v.lost && !v.old && v.withheld == lb.NobodyAnswers:
		is = lately
	}
	f.add(v.counted, -1)
	f.add(is, 1)
	v.counted = is
}

func (f *floor) add(s standing, n int) {
	if s == notCounted {
		return
	}
	f.all += n
	if s != lately {
		f.up += n
	}
	if s == onAirKept {
		f.kept += n
	}
}

// age leaves out what was withdrawn too long ago, unless there are kept VIPs.
func (f *floor) age(now time.Time) {
	if f.kept > 0 {
		return
	}
	for v := f.ended.first(); v != nil && now.Sub(v.ended) > floorWindow; v = f.ended.first() {
		v.old = true
		f.recount(v)
	}
}

// queue has VIPs in the order of the times at which they came in. One that is not
// meant any more stays for a while.
type queue struct {
	meant   func(*vip, time.Time) bool
	entries []entry
	limit   int // of entries, before those that are not meant are thrown out
}

type entry struct {
	vip   *vip
	since time.Time
}

func (q *queue) push(v *vip, since time.Time) {
	if len(q.entries) >= q.limit {
		q.entries = slices.DeleteFunc(q.entries, func(e entry) bool { return !q.meant(e.vip, e.since) })
		q.limit = 64 + 2*len(q.entries)
	}
	q.entries = append(q.entries, entry{v, since})
}

// first gives the first one that is still meant, or nil.
func (q *queue) first() *vip {
	for len(q.entries) > 0 {
		if e := q.entries[0]; q.meant(e.vip, e.since) {
			return e.vip
		}
		q.entries = q.entries[1:]
	}
	return nil
}
