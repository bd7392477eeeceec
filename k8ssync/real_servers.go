package k8ssync

import (
	"cmp"
	"maps"
	"slices"

	"weir/lb"
)

// maxClusterReal limits the real servers of a cluster: backends, over all VIPs and ports
// of all Services.
const maxClusterReal = 1_000_000

// realServers counts the real servers that the Services of a cluster need.
type realServers struct {
	most  int
	of    map[key]int
	total int
	// excess are the Services that are not served, because there are too many.
	excess map[key]bool
}

// countReal returns the number of real servers of a Service.
func countReal(s *lb.Service) int {
	n := 0
	if s != nil {
		for _, p := range s.Ports {
			n += len(p.Backends) * len(s.VIPs)
		}
	}
	return n
}

func (r *realServers) reset() { r.of, r.total, r.excess = map[key]int{}, 0, nil }

// put records the number of a Service.
func (r *realServers) put(k key, n int) {
	r.total += n - r.of[k]
	r.of[k] = n
	if n == 0 {
		delete(r.of, k)
	}
}

// tooMany returns the Services beyond the limit: the youngest ones, so that the choice
// does not depend on the order of events.
func (r *realServers) tooMany(services map[key]*service) map[key]bool {
	if r.total <= r.most {
		return nil
	}
	out, sum := map[key]bool{}, 0
	for _, k := range slices.SortedFunc(maps.Keys(r.of), func(a, b key) int {
		return cmp.Or(services[a].Created.Compare(services[b].Created), a.compare(b))
	}) {
		if sum+r.of[k] > r.most {
			out[k] = true
		} else {
			sum += r.of[k]
		}
	}
	return out
}
