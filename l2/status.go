package l2

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// status is all that the engine knows, for others to keep.
func (e *engine) status(now time.Time) Status {
	var st Status
	for _, name := range slices.Sorted(maps.Keys(e.links)) {
		l := e.links[name]
		st.Interfaces = append(st.Interfaces, Interface{Name: name, Index: l.index, MAC: l.mac,
			Carrier: l.carrier, Error: cmp.Or(l.trouble, l.port.trouble), Counters: l.Counters})
		for _, s := range l.seats {
			st.VIPs = append(st.VIPs, s.status(now))
		}
	}
	slices.SortFunc(st.VIPs, func(a, b VIP) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Interface, b.Interface))
	})
	return st
}

func (s *seat) status(now time.Time) VIP {
	v := VIP{Addr: s.vip, Interface: s.link.name, State: s.state, Since: s.since, Doubtful: s.doubtful, Wanted: s.wanted}
	if s.other != (MAC{}) && (s.state == Contested || now.Sub(s.heard) < otherMemory) {
		v.Other, v.Fellow, v.Heard = s.other, s.fellow, s.heard
	}
	return v
}
