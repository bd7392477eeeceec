package k8ssync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"weir/lb"
)

// maxClusterReal bounds the real servers of a cluster: backends, over all VIPs
// and ports of all Services.
const maxClusterReal = 1_000_000

// real counts the real servers that the Services of a cluster come to.
type real struct {
	most  int
	of    map[key]int
	total int
	// excess are the Services that are left out, because there are too many.
	excess map[key]bool
}

// realServers counts those of a Service.
func realServers(s *lb.Service) int {
	n := 0
	if s != nil {
		for _, p := range s.Ports {
			n += len(p.Backends) * len(s.VIPs)
		}
	}
	return n
}

// put takes in how many a Service comes to.
func (r *real) put(k key, n int) {
	r.total += n - r.of[k]
	r.of[k] = n
	if n == 0 {
		delete(r.of, k)
	}
}

// tooMany gives the Services that find no room: the youngest ones, so that who is
// left out does not depend on the order of events.
func (r *real) tooMany(services map[key]*service) map[key]bool {
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

// bound leaves Services out of meant, of which there are too many real servers,
// and puts in those that find room again. c.in is held.
func (c *Cluster) bound(o *objects, meant map[key]*lb.Service, whole bool) {
	if whole {
		c.real.of, c.real.total, c.real.excess = map[key]int{}, 0, nil
	}
	for k, s := range meant {
		c.real.put(k, realServers(s))
	}
	excess := c.real.tooMany(o.services)
	for k := range c.real.excess {
		if _, fresh := meant[k]; !fresh && !excess[k] {
			meant[k], _ = c.mean(o, k) // what is odd about it has been told
		}
	}
	for k := range excess {
		id := serviceID(&c.cfg, k)
		meant[k] = &lb.Service{ID: id, Created: o.services[k].Created, Notes: []lb.Note{{Service: id, Reason: lb.BadObject, Text: fmt.Sprintf(
			"it is not served: with older Services, cluster %s comes to more than %d real servers (backends, over all VIPs and ports)", c.cfg.Name, c.real.most)}}}
	}
	c.real.excess = excess
	c.mu.Lock()
	defer c.mu.Unlock()
	c.excess = nil
	if len(excess) > 0 {
		c.excess = fmt.Errorf("more than %d real servers: %d Services are not served", c.real.most, len(excess))
	}
}
