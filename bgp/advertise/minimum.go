package advertise

import (
	"math"
	"slices"
	"time"

	"weir/lb"
)

const (
	// minimumFrom is the number of VIPs from which on there is a minimum.
	minimumFrom = 4
	// recentFor is how long a VIP that was withdrawn counts.
	recentFor = time.Minute
)

// minimum counts the VIPs that are announced to a peer, or would be, and that are neither
// drained nor out.
type minimum struct {
	all, up, kept int
	late          queue // of the kept VIPs, by when they lost their backends
	ended         queue // of all VIPs without backends, by when they lost them
}

// keeps reports whether one more withdrawal would leave too few VIPs.
func (f *minimum) keeps(share float64) bool {
	// 0.1 * 30 is a little more than 3.
	need := int(math.Ceil(share*float64(f.all) - 1e-9))
	return f.all >= minimumFrom && f.up-1 < need
}

// recount counts a VIP again.
func (f *minimum) recount(v *vip) {
	is := notCounted
	switch {
	case len(v.targets) == 0 || !v.eligible():
	case v.kept:
		is = announcedKept
	case v.up:
		is = announced
	case v.delayed(), v.lost && !v.old && v.withheld == lb.NoLiveBackend:
		is = recent
	}
	f.add(v.counted, -1)
	f.add(is, 1)
	v.counted = is
}

func (f *minimum) add(s countedAs, n int) {
	if s == notCounted {
		return
	}
	f.all += n
	if s != recent {
		f.up += n
	}
	if s == announcedKept {
		f.kept += n
	}
}

// age stops counting VIPs that were withdrawn too long ago, unless there are kept ones.
func (f *minimum) age(now time.Time) {
	if f.kept > 0 {
		return
	}
	for v := f.ended.first(); v != nil && now.Sub(v.ended) > recentFor; v = f.ended.first() {
		v.old = true
		f.recount(v)
	}
}

// queue has VIPs in the order of the times at which they were added. An entry that is no
// longer valid stays for a while.
type queue struct {
	valid   func(*vip, time.Time) bool
	entries []entry
	limit   int // of entries, before invalid ones are removed
}

type entry struct {
	vip   *vip
	since time.Time
}

func (q *queue) push(v *vip, since time.Time) {
	if len(q.entries) >= q.limit {
		q.entries = slices.DeleteFunc(q.entries, func(e entry) bool { return !q.valid(e.vip, e.since) })
		q.limit = 64 + 2*len(q.entries)
	}
	q.entries = append(q.entries, entry{v, since})
}

// first returns the first valid VIP, or nil.
func (q *queue) first() *vip {
	for len(q.entries) > 0 {
		if e := q.entries[0]; q.valid(e.vip, e.since) {
			return e.vip
		}
		q.entries = q.entries[1:]
	}
	return nil
}
