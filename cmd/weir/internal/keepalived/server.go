package keepalived

import (
	"cmp"
	"net/netip"
	"slices"
)

// real is a real_server that is served.
type real struct {
	node   *node
	addr   netip.Addr
	port   uint16
	weight uint64
	method method
	own    *node // the directive of its method, if it differs from that of the virtual_server

	weightFrom *node // nil for the default
}

// server is a virtual_server on its way to become services.
type server struct {
	node     *node
	proto    string
	ports    map[uint16][]netip.Addr // the VIPs by port
	marks    []*mark
	backends []real
}

// mark is a virtual server by fwmark, and its directive.
type mark struct {
	number int64
	node   *node
}

// backendPort returns the port of the backends, and whether it is the same for all.
func (s *server) backendPort(port uint16) (uint16, bool) {
	first := port
	for i, r := range s.backends {
		p := r.port
		if p == 0 {
			p = port
		}
		if i == 0 {
			first = p
		} else if p != first {
			return port, false
		}
	}
	return first, true
}

// isPlain reports whether all backends have only an address.
func (s *server) isPlain() bool {
	return !slices.ContainsFunc(s.backends, func(r real) bool {
		return r.weight != 1 || r.own != nil || r.node.find("uthreshold") != nil
	})
}

func (r real) text(uniform bool) string {
	if uniform || r.port == 0 {
		return r.addr.String()
	}
	return netip.AddrPortFrom(r.addr, r.port).String()
}

// heaviest returns the number of backends, the heaviest first, that have a weight.
func (s *server) heaviest(weight uint64) int {
	list := slices.Clone(s.backends)
	slices.SortFunc(list, func(a, b real) int { return cmp.Compare(b.weight, a.weight) })
	sum := uint64(0)
	for i, r := range list {
		if sum += r.weight; sum >= weight {
			return i + 1
		}
	}
	return max(1, len(list))
}

// mostOfAFamily returns the number of backends of the larger family.
func (s *server) mostOfAFamily() int {
	v4 := 0
	for _, r := range s.backends {
		if r.addr.Is4() {
			v4++
		}
	}
	return max(1, v4, len(s.backends)-v4)
}
