package advertise

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// Advertiser decides which prefixes are announced, to which peers, with which attributes
// and when. It is pure, and not safe for concurrent use. The cost of a change depends on
// its size, not on the number of VIPs.
//
// # Time
//
// A VIP is announced as soon as its Route has a Service, and withdrawn as soon as it has
// none. There are two exceptions, both for VIPs that lose their last backend
// (lb.NoLiveBackend):
//
// Reannounce delay. A VIP that was withdrawn for that reason is announced again when it
// has had backends for Policy.ReannounceDelay without interruption: routers remember
// routes that flap, and some damp them for an hour. A VIP that was deleted, drained or not
// programmed returns at once, and a new one is announced at once.
//
// Minimum. Withdrawals for that reason stop where they would leave fewer than
// Policy.MinAnnounced of the VIPs, rounded up: those that have backends, or had some
// within the last minute. Further VIPs stay announced without a backend (MinAnnounced),
// since when many fail at once it is more often the check or the cluster that is broken.
// They are withdrawn as others return, the one without backends for longest first. Time
// does not end it, and while there are any the minute does not pass for those that were
// withdrawn. VIPs that no peer has, or that are drained or out, do not count; deletions,
// drains, roles and VIPs that the kernel lacks are never refused. With fewer than four
// VIPs there is no minimum: one failure of three is no evidence about the others, and a
// box with a single VIP must be able to leave it to another box.
//
// This is about the lifetime of a process. One that has just started announces what it
// sees.
//
// # Aggregates
//
// An aggregate is announced while one of its VIPs would be, in the best form of them: as
// its Rule demands while one is AsRuled, as second choice while one is Standby, and with
// the shutdown community (Shutting) when all are. So a single VIP of an aggregate cannot
// be drained or moved: its packets still arrive. If several Rules give a peer the same
// prefix, the attributes are those of the first Rule with a VIP in the best form.
type Advertiser struct {
	policy Policy
	drains Drains
	roles  map[netip.Addr]Role // without those that are AsRuled
	now    time.Time

	vips    map[netip.Addr]*vip
	delayed queue // VIPs that wait for Policy.ReannounceDelay
	minimum minimum
	table   prefixTable
}

// New returns an Advertiser that announces nothing until it is configured and has Routes.
func New() *Advertiser {
	return &Advertiser{
		delayed: queue{valid: func(v *vip, since time.Time) bool { return v.delayed() && v.goodSince.Equal(since) }},
		minimum: minimum{
			late:  queue{valid: func(v *vip, since time.Time) bool { return v.kept && v.ended.Equal(since) }},
			ended: queue{valid: func(v *vip, since time.Time) bool { return !v.old && v.ended.Equal(since) }},
		},
		roles: map[netip.Addr]Role{},
		vips:  map[netip.Addr]*vip{},
		table: prefixTable{prefixes: map[netip.Prefix]*prefixState{}, aggregates: map[netip.Prefix]struct{}{}},
	}
}

// The methods that change something return the prefixes that differ, for Speaker.Set: all
// the paths of a prefix, and none to withdraw it; nil if nothing differs. An earlier time
// than the last one counts as the last one.

// Configure replaces the policy. Its cost depends on the number of VIPs.
func (a *Advertiser) Configure(p Policy, now time.Time) map[netip.Prefix][]Path {
	a.now = later(a.now, now)
	for _, v := range a.vips {
		a.table.setDemand(v, plain, nil)
	}
	a.policy = p
	a.table.compile(p)
	for _, addr := range a.sorted() {
		v := a.vips[addr]
		v.targets = a.table.targets(addr, v.serving)
		if v.kept && len(v.targets) == 0 {
			a.drop(v)
		}
		a.update(v)
	}
	a.tick(now) // the hold-down may be shorter now
	return a.changes()
}

// Take applies the result of lb.Reconciler.Routes: addresses that are not in routes stay
// as they are. labels returns the labels of a Service, as a map that is not changed later;
// nil: there are none. They are read when a Route is applied, so pass a Route again when
// they change.
//
// A VIP that lb.Options.Leaving announces is passed in the same way before it goes: as
// lb.Reconciler.Route has it then.
func (a *Advertiser) Take(routes []lb.Route, labels func(lb.ServiceID) map[string]string, now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(r, s lb.Route) int { return r.Addr.Compare(s.Addr) })
	// Those without backends come last, since the minimum needs all the others.
	for _, lacking := range []bool{false, true} {
		for i, r := range routes {
			again := i+1 < len(routes) && routes[i+1].Addr == r.Addr // the last one counts
			if !again && lacking == (len(r.Serves) == 0 && r.Withheld == lb.NoLiveBackend) {
				a.take(r, labels)
			}
		}
	}
	return a.changes()
}

// Drain replaces the drains. A VIP that is no longer drained returns at once.
func (a *Advertiser) Drain(d Drains, now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	old := a.drains
	a.drains = Drains{d.All, maps.Clone(d.VIPs)}
	touched := map[netip.Addr]*vip{}
	if old.All != d.All {
		touched = a.vips
	} else {
		for _, vips := range []map[netip.Addr]Stage{old.VIPs, d.VIPs} {
			for addr := range vips {
				if v := a.vips[addr]; v != nil && old.VIPs[addr] != d.VIPs[addr] {
					touched[addr] = v
				}
			}
		}
	}
	for addr, v := range touched {
		if stage := a.drains.Of(addr); stage != v.stage {
			v.stage, v.since = stage, a.now
			a.stageOrRoleChanged(v)
		}
	}
	return a.changes()
}

// Assign sets the roles of some VIPs, also of future ones; the others keep theirs. The
// default is AsRuled, and assigning it to a VIP that is gone frees its memory.
//
// A role counts at once, without reannounce delay or minimum, and a VIP that is Out does
// not count for the minimum, like a drained one. So another box must announce every VIP
// that is Out here: also one without a backend here, for which the minimum is not meant.
//
// A drain has precedence. A Shutting VIP stays announced until it is Drained, even if it
// is Out, as badly as a Standby, so that routers have another route before they lose this
// one. A Drained VIP that is not AsRuled is withdrawn like any other.
func (a *Advertiser) Assign(roles map[netip.Addr]Role, now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	for addr, role := range roles {
		if role == AsRuled {
			delete(a.roles, addr)
		} else {
			a.roles[addr] = role
		}
		if v := a.vips[addr]; v != nil && v.role != role {
			before := v.reason()
			v.role = role
			a.stageOrRoleChanged(v)
			if v.reason() != before {
				v.since = a.now
			}
		}
	}
	return a.changes()
}

// Roles returns the assigned roles other than AsRuled, for another Advertiser.
func (a *Advertiser) Roles() map[netip.Addr]Role { return maps.Clone(a.roles) }

// Advance does the work that is due by now.
func (a *Advertiser) Advance(now time.Time) map[netip.Prefix][]Path {
	a.tick(now)
	return a.changes()
}

// Next returns when Advance is due; the zero time: never.
func (a *Advertiser) Next() time.Time {
	if head := a.delayed.first(); head != nil {
		return head.goodSince.Add(a.policy.ReannounceDelay)
	}
	return time.Time{}
}

// Announced returns everything that is announced, for a new Speaker.
func (a *Advertiser) Announced() map[netip.Prefix][]Path {
	out := make(map[netip.Prefix][]Path, len(a.table.prefixes))
	for prefix, b := range a.table.prefixes {
		out[prefix] = b.paths
	}
	return out
}

// Aggregates returns the announced prefixes that are wider than one address, sorted. Each
// needs an unreachable route in the kernel (lb.Base.Unreachable) before it is passed to
// the Speaker.
func (a *Advertiser) Aggregates() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(a.table.aggregates), netip.Prefix.Compare)
}

func later(s, t time.Time) time.Time {
	if t.After(s) {
		return t
	}
	return s
}

func (a *Advertiser) sorted() []netip.Addr {
	return slices.SortedFunc(maps.Keys(a.vips), netip.Addr.Compare)
}

// take applies one Route.
func (a *Advertiser) take(r lb.Route, labels func(lb.ServiceID) map[string]string) {
	v := a.vips[r.Addr]
	if len(r.Serves) == 0 && r.Withheld == lb.Gone {
		if v != nil {
			v.up, v.kept, v.lost = false, false, false
			a.update(v)
			delete(a.vips, r.Addr)
		}
		return
	}
	if v == nil {
		v = &vip{addr: r.Addr, stage: a.drains.Of(r.Addr), role: a.roles[r.Addr], withheld: "new"}
		a.vips[r.Addr] = v
	}
	if len(r.Serves) > 0 {
		v.serving = servedOf(r.Serves, labels)
		v.targets = a.table.targets(r.Addr, v.serving)
		a.served(v)
	} else {
		a.unserved(v, r.Withheld)
	}
	a.update(v)
}

func servedOf(serves []lb.Serving, labels func(lb.ServiceID) map[string]string) []served {
	claims := make([]served, len(serves))
	for i, s := range serves {
		claims[i] = served{Serving: s}
		if labels != nil {
			claims[i].labels = labels(s.Service)
		}
	}
	return claims
}

// served records that a VIP has a Service.
func (a *Advertiser) served(v *vip) {
	if v.withheld != "" {
		v.withheld, v.goodSince, v.since = "", a.now, a.now
	}
	v.kept = false
	switch {
	case v.up:
	case !v.lost || a.policy.ReannounceDelay <= 0:
		v.up, v.lost = true, false
	case v.goodSince.Equal(a.now):
		a.delayed.push(v, v.goodSince)
	}
}

// unserved records that a VIP has no Service, and the reason.
func (a *Advertiser) unserved(v *vip, reason lb.Withheld) {
	if v.withheld == "" && reason == lb.NoLiveBackend {
		v.ended, v.old = a.now, false
		a.minimum.ended.push(v, a.now)
	}
	if v.withheld != reason {
		v.withheld, v.since = reason, a.now
	}
	switch {
	case reason == lb.NotServed:
		v.up, v.kept, v.lost, v.serving, v.targets = false, false, false, nil, nil
	case reason != lb.NoLiveBackend:
		v.up, v.kept = false, false
	case v.up && !v.kept && v.counted == announced && a.minimum.keeps(a.policy.MinAnnounced):
		v.kept = true
		a.minimum.late.push(v, v.ended)
	case v.up && !v.kept:
		a.drop(v)
	}
}

// drop withdraws a VIP because it has no backend. One that no peer had returns without
// delay: it has not flapped.
func (a *Advertiser) drop(v *vip) {
	v.up, v.kept, v.lost = false, false, len(v.demand.targets) > 0
}

// update passes the state of a VIP to the prefix table and the minimum.
func (a *Advertiser) update(v *vip) {
	if f, ok := v.form(); v.up && ok {
		a.table.setDemand(v, f, v.targets)
	} else {
		a.table.setDemand(v, plain, nil)
	}
	a.minimum.recount(v)
}

// tick sets the time, and does the work that is due.
func (a *Advertiser) tick(now time.Time) {
	a.now = later(a.now, now)
	for v := a.delayed.first(); v != nil && !v.goodSince.Add(a.policy.ReannounceDelay).After(a.now); v = a.delayed.first() {
		v.up, v.lost, v.since = true, false, a.now
		a.update(v)
	}
	a.minimum.age(a.now)
}

// changes ends every change: it withdraws the VIPs that the minimum no longer keeps, and
// returns the prefixes that differ.
func (a *Advertiser) changes() map[netip.Prefix][]Path {
	for a.minimum.kept > 0 && !a.minimum.keeps(a.policy.MinAnnounced) {
		v := a.minimum.late.first()
		a.drop(v)
		v.since = a.now
		a.update(v)
	}
	return a.table.refresh()
}

// stageOrRoleChanged updates a VIP with a new stage or role. One that is no longer
// eligible for the minimum is not kept by it.
func (a *Advertiser) stageOrRoleChanged(v *vip) {
	if v.kept && !v.eligible() {
		a.drop(v)
	}
	a.update(v)
}
