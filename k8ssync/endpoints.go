package k8ssync

import (
	"cmp"
	"net/netip"
	"slices"

	"weir/lb"
)

// candidate is an endpoint that answers for a port.
type candidate struct {
	*endpoint
	addr netip.AddrPort
	// from is its slice, where it is the nth.
	from *slice
	nth  int
}

// candidates returns the endpoints of a port, sorted by address, each once. A port
// of a slice is that of the same name and protocol; its number is the slice's own,
// so a named targetPort may differ between slices.
//
// Two slices may name the same address while an endpoint moves between them, or
// when a Pod gets the address of one that still terminates: a
// terminating one yields, then one that is not ready or not serving. Between equals the
// name of the slice decides, so that the order of events does not matter.
func candidates(port servicePort, from []*slice) []candidate {
	var out []candidate
	for _, s := range from {
		for _, p := range s.Ports {
			if p.Name != port.Name || p.Proto != port.Proto {
				continue
			}
			out = slices.Grow(out, len(s.Endpoints))
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				out = append(out, candidate{e, netip.AddrPortFrom(e.Addr, p.Port), s, i})
			}
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.from.compare(b.from.key), cmp.Compare(a.nth, b.nth))
	})
	return slices.CompactFunc(out, func(a, b candidate) bool { return a.addr == b.addr })
}

// rank orders endpoints with one address: the first one is used.
func (e *endpoint) rank() (n int) {
	if e.Terminating {
		n += 4
	}
	if !e.Ready {
		n += 2
	}
	if !e.Serving {
		n++
	}
	return n
}

// leaving reports whether an endpoint terminates and still serves: it is used
// where none is ready (KEP-1669).
func (c candidate) leaving() bool { return !c.Ready && c.Serving && c.Terminating }

// place is the location of the box; the zero place is unknown.
type place struct {
	node, zone string
}

func (p place) has(c candidate) bool { return p.node != "" && c.Node == p.node }

// scoped chooses among the candidates of one family as kube-proxy does for each
// Service port, and returns the scope of each. There are two lists:
//
//   - Wide, for a traffic policy of Cluster: the ready ones, narrowed by topology; if
//     there are none, the leaving ones.
//   - Near, for one of Local: the ready ones on this node, regardless of hints; if there
//     are none, the leaving ones there.
//
// Without near only the wide list is made.
func scoped(all []candidate, at place, near bool) ([]candidate, []lb.Scope) {
	hinted := topology(all, at)
	ready, readyHere := false, false
	for _, c := range all {
		ready = ready || c.Ready
		readyHere = readyHere || c.Ready && at.has(c)
	}
	chosen, scopes := make([]candidate, 0, len(all)), make([]lb.Scope, 0, len(all))
	for _, c := range all {
		inWide := c.Ready && hinted(c) || !ready && c.leaving()
		inNear := near && at.has(c) && (c.Ready || !readyHere && c.leaving())
		switch {
		case inWide && inNear:
			scopes = append(scopes, lb.Both)
		case inWide:
			scopes = append(scopes, lb.Wide)
		case inNear:
			scopes = append(scopes, lb.Near)
		default:
			continue
		}
		chosen = append(chosen, c)
	}
	return chosen, scopes
}

// topology selects the endpoints that hints leave to this box (KEP-2433, KEP-3015).
// Hints count only when every ready endpoint has them and one of them names this
// node, or else this zone: a rollout in mid-air, or a zone that has become empty,
// falls back to all endpoints.
func topology(all []candidate, at place) func(candidate) bool {
	forNode := func(c candidate) []string { return c.Hints.nodes() }
	forZone := func(c candidate) []string { return c.Hints.zones() }
	switch {
	case allHint(all, forNode, at.node):
		return func(c candidate) bool { return slices.Contains(c.Hints.nodes(), at.node) }
	case allHint(all, forZone, at.zone):
		return func(c candidate) bool { return slices.Contains(c.Hints.zones(), at.zone) }
	}
	return func(candidate) bool { return true }
}

// allHint reports whether every ready endpoint has hints, and one of them is for
// here.
func allHint(all []candidate, hints func(candidate) []string, here string) bool {
	found := false
	for _, c := range all {
		if !c.Ready {
			continue
		}
		h := hints(c)
		if len(h) == 0 {
			return false
		}
		found = found || here != "" && slices.Contains(h, here)
	}
	return found
}

// ofFamily returns the part of sorted candidates that is of a family: IPv4 sorts
// before IPv6.
func ofFamily(all []candidate, f lb.Family) []candidate {
	six := slices.IndexFunc(all, func(c candidate) bool { return c.Addr.Is6() })
	if six < 0 {
		six = len(all)
	}
	if f == lb.IPv4 {
		return all[:six]
	}
	return all[six:]
}

// healthy counts the endpoints that a healthCheckNodePort reports: those that are
// ready on this node, by their addresses; leaving ones never count. Pods of
// two families count once.
func healthy(from []*slice, at place) int {
	seen := map[netip.Addr]bool{}
	four, six := 0, 0
	for _, s := range from {
		if len(s.Ports) == 0 {
			continue
		}
		for _, e := range s.Endpoints {
			if !e.Ready || at.node == "" || e.Node != at.node || seen[e.Addr] {
				continue
			}
			seen[e.Addr] = true
			if e.Addr.Is4() {
				four++
			} else {
				six++
			}
		}
	}
	return max(four, six)
}

// maxWeight is the largest that an IPVS scheduler takes.
const maxWeight = 65535

// weighted is a backend before it has its weight.
type weighted struct {
	lb.Backend
	share      int
	node, zone string
}
