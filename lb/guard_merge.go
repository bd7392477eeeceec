package lb

import (
	"slices"
	"time"
)

// merge returns young with the VIPs, ports and NodePorts of old that it lacks, and with the old
// backends of each port and family that would have none left. It has all frontends of old.
func merge(old, young Service) Service {
	out := young
	out.VIPs, out.Ports = slices.Clone(young.VIPs), slices.Clone(young.Ports)
	for _, v := range old.VIPs {
		if !slices.ContainsFunc(young.VIPs, func(x VIP) bool { return x.Addr == v.Addr && x.Kind == v.Kind }) {
			out.VIPs = append(out.VIPs, v)
		}
	}
	restored := restoredNodePorts(old, young)
	for _, p := range old.Ports {
		if !restored[p.Key()] {
			p.NodePort = 0
		}
		i := slices.IndexFunc(out.Ports, func(x Port) bool { return x.Key() == p.Key() })
		if i < 0 {
			out.Ports = append(out.Ports, p)
			continue
		}
		if p.NodePort != 0 {
			out.Ports[i].NodePort = p.NodePort
		}
		out.Ports[i].Backends = refill(p, young.Ports[i])
	}
	return out
}

// restoredNodePorts returns the ports that get their old NodePort back. A NodePort that another port has now
// stays there, unless that port gets its own old one back.
func restoredNodePorts(old, young Service) map[PortKey]bool {
	type nodePort struct {
		proto  Protocol
		number uint16
	}
	former, holder, current := map[nodePort]Port{}, map[nodePort]PortKey{}, map[PortKey]uint16{}
	for _, p := range old.Ports {
		former[nodePort{p.Proto, p.NodePort}] = p
	}
	for _, p := range young.Ports {
		holder[nodePort{p.Proto, p.NodePort}] = p.Key()
		current[p.Key()] = p.NodePort
	}
	restored := map[PortKey]bool{}
	for _, p := range old.Ports {
		for p.NodePort != 0 && !restored[p.Key()] {
			other, taken := holder[nodePort{p.Proto, p.NodePort}]
			if taken && other != p.Key() && !restored[other] {
				break
			}
			restored[p.Key()] = true
			p = former[nodePort{p.Proto, current[p.Key()]}] // its NodePort of young is free again
		}
	}
	return restored
}

// refill returns the backends of young, and those of old of a family that young lacks.
func refill(old, young Port) []Backend {
	out := young.Backends
	for _, family := range [...]Family{IPv4, IPv6} {
		if emptied(old, young, family) == 0 {
			continue
		}
		// The ones of young in that family have no weight.
		out = slices.DeleteFunc(slices.Clone(out), func(be Backend) bool {
			return slices.ContainsFunc(old.Backends, func(x Backend) bool { return x.Addr == be.Addr && x.Weight > 0 })
		})
		for _, be := range old.Backends {
			if be.Weight > 0 && FamilyOf(be.Addr.Addr()) == family {
				out = append(out, be)
			}
		}
	}
	return out
}

// emptied returns the number of backends of a family if all of them are removed, 0 if some
// stay: a port with fewer backends is no outage.
func emptied(old, young Port, f Family) int {
	if young.live(f) > 0 {
		return 0
	}
	return old.live(f)
}

// live counts the backends of a family that have a weight.
func (p Port) live(f Family) (n int) {
	for _, be := range p.Backends {
		if be.Weight > 0 && FamilyOf(be.Addr.Addr()) == f {
			n++
		}
	}
	return n
}

// shortage returns the number of backends with a weight of each port of a that has none in b.
func shortage(a, b Service) map[backendsOf]int {
	var out map[backendsOf]int
	for _, p := range a.Ports {
		var other Port
		if i := slices.IndexFunc(b.Ports, func(x Port) bool { return x.Key() == p.Key() }); i >= 0 {
			other = b.Ports[i]
		}
		for _, family := range [...]Family{IPv4, IPv6} {
			if n := emptied(p, other, family); n > 0 {
				if out == nil {
					out = map[backendsOf]int{}
				}
				out[backendsOf{a.ID, FamilyPort{p.Key(), family}}] = n
			}
		}
	}
	return out
}

// without returns the frontends of a that are not in b.
func without(a, b []Frontend) []Frontend {
	in := make(map[Frontend]struct{}, len(b))
	for _, f := range b {
		in[f] = struct{}{}
	}
	return slices.DeleteFunc(a, func(f Frontend) bool { _, ok := in[f]; return ok })
}

// losses count recent deletions that were not reverted. The zero value is empty.
type losses[K comparable] struct {
	of    map[K][]loss
	order []dated[K] // in the order of time
	total int
	by    map[string]int // by namespace
}

type loss struct {
	n     int
	at    time.Time
	space string
}

type dated[K comparable] struct {
	key K
	at  time.Time
}

func (l *losses[K]) add(key K, space string, n int, now time.Time) {
	if l.of == nil {
		l.of, l.by = map[K][]loss{}, map[string]int{}
	}
	l.of[key] = append(l.of[key], loss{n, now, space})
	l.order = append(l.order, dated[K]{key, now})
	l.count(space, n)
}

func (l *losses[K]) count(space string, n int) {
	l.total += n
	if l.by[space] += n; l.by[space] == 0 {
		delete(l.by, space)
	}
}

// restore reverts n deletions of a key, the oldest first.
func (l *losses[K]) restore(key K, n int) {
	for n > 0 && len(l.of[key]) > 0 {
		first := &l.of[key][0]
		m := min(n, first.n)
		l.count(first.space, -m)
		first.n, n = first.n-m, n-m
		if first.n == 0 {
			l.drop(key)
		}
	}
}

// expire forgets deletions at or before a time.
func (l *losses[K]) expire(before time.Time) {
	for len(l.order) > 0 && !l.order[0].at.After(before) {
		key := l.order[0].key
		l.order = l.order[1:]
		for len(l.of[key]) > 0 && !l.of[key][0].at.After(before) {
			l.count(l.of[key][0].space, -l.of[key][0].n)
			l.drop(key)
		}
	}
}

// drop forgets the oldest loss of a key.
func (l *losses[K]) drop(key K) {
	if l.of[key] = l.of[key][1:]; len(l.of[key]) == 0 {
		delete(l.of, key)
	}
}

// next is the time at which the oldest loss expires; zero if there is none.
func (l *losses[K]) next(window time.Duration) time.Time {
	if len(l.order) == 0 {
		return time.Time{}
	}
	return l.order[0].at.Add(window)
}

// earliest returns the earlier of two times; the zero time is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// backendsOf names the backends of a Service's port in a family.
type backendsOf struct {
	service ServiceID
	FamilyPort
}
