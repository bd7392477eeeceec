package l2

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// status returns a copy of the state of the engine.
func (e *engine) status(now time.Time) Status {
	var st Status
	for _, name := range slices.Sorted(maps.Keys(e.links)) {
		l := e.links[name]
		st.Interfaces = append(st.Interfaces, Interface{Name: name, Index: l.index, MAC: l.mac,
			Carrier: l.carrier, Error: cmp.Or(l.problem, l.port.problem), Counters: l.Counters})
		for _, s := range l.bindings {
			st.VIPs = append(st.VIPs, s.status(now))
		}
	}
	slices.SortFunc(st.VIPs, func(a, b VIP) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Interface, b.Interface))
	})
	return st
}

func (s *binding) status(now time.Time) VIP {
	v := VIP{Addr: s.vip, Interface: s.link.name, State: s.state, Since: s.since, Requested: s.requested, Requester: s.requester}
	if s.other.mac != (MAC{}) && (s.state == Contested || now.Before(s.other.forget)) {
		v.Other, v.Member, v.OtherSeen, v.Overruled = s.other.mac, s.other.member, s.other.seen, s.state == Answered && s.other.overruled
	}
	return v
}
