package fleet

import (
	"maps"
	"net/netip"
	"time"

	"weir/lb"
)

// local is what this box can do for VIPs.
type local struct {
	// routes are the VIPs that Services here claim, each with those that serve it.
	routes map[netip.Addr][]lb.Serving
	noIPVS bool // the kernel serves no VIP at all
	drain  Drain
}

// receive takes VIPs that have changed, and returns them.
func (l *local) receive(routes []lb.Route) []netip.Addr {
	out := make([]netip.Addr, len(routes))
	for i, r := range routes {
		if out[i] = r.Addr; r.Withheld == lb.Gone {
			delete(l.routes, r.Addr)
		} else {
			l.routes[r.Addr] = r.Serves
		}
	}
	return out
}

// receiveDrain takes the drains and reports whether they have changed.
func (l *local) receiveDrain(d Drain) bool {
	before := l.drain
	l.drain = d
	return before.Version != d.Version || !maps.EqualFunc(before.VIPs, d.VIPs, time.Time.Equal)
}

// serves reports whether this box can serve an address: a VIP of the kernel, or a
// floating address.
func (l *local) serves(s *settings, a netip.Addr) bool {
	_, floating := s.floating[a]
	return !l.noIPVS && (floating || len(l.routes[a]) > 0) && !l.drain.withdrawn(a)
}

// drains reports whether an operator drains a VIP on this box.
func (l *local) drains(a netip.Addr) bool {
	_, drained := l.drain.VIPs[a]
	return drained
}

// answersFor reports whether this box answers ARP for an address when it owns it.
func (l *local) answersFor(s *settings, a netip.Addr) bool {
	_, floating := s.floating[a]
	return floating || s.l2.Wants(a, l.routes[a])
}
