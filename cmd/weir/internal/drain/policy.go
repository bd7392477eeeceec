package drain

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// Possible reports whether a configuration can steer clients to another box: by routers, neighbors, or a fleet.
func Possible(cfg *config.Config) bool {
	return cfg.BGP != nil || cfg.L2 != nil || cfg.Fleet != nil
}

// Delay returns how long a drain asks routers to prefer other boxes before it withdraws routes. A box without routers
// withdraws immediately: the fleet moves drained VIPs without a request. A stop takes at most half of its time.
func (s *State) Delay(cfg *config.Config) time.Duration {
	if cfg.BGP == nil {
		return 0
	}
	if s.Stopping.IsZero() {
		return cfg.BGP.DrainDelay
	}
	return min(cfg.BGP.DrainDelay, cfg.Daemon.StopTimeout/2)
}

// VIPs returns the VIPs to which clients outside can be steered, sorted. A router can have a route to any address;
// neighbors get none to the ClusterIPs of a cluster.
func VIPs(catalog *lb.Catalog, cfg *config.Config) []netip.Addr {
	seen := map[netip.Addr]struct{}{}
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		for _, v := range svc.VIPs {
			if v.Kind == lb.LoadBalancer || v.Kind == lb.ExternalIP || v.Kind == lb.ClusterIP && cfg.BGP != nil {
				seen[v.Addr] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), netip.Addr.Compare)
}

// Step is Advance for a configuration and its Services. Most boxes drain nothing most of the time, and then the VIPs are
// not listed.
func (s *State) Step(now time.Time, cfg *config.Config, catalog *lb.Catalog) {
	var vips []netip.Addr
	if s.Fleet.LastOne != nil && s.Active() {
		vips = VIPs(catalog, cfg)
	}
	s.Advance(now, s.Delay(cfg), vips)
}

// Details returns the drains, VIP by VIP.
func (s *State) Details(cfg *config.Config, catalog *lb.Catalog) status.Drained {
	delay := s.Delay(cfg)
	doc := *s.Doc(delay)
	if doc.All == nil {
		return doc
	}
	for _, a := range VIPs(catalog, cfg) {
		if !s.set.Has(a) {
			doc.VIPs = append(doc.VIPs, s.VIP(a, doc.All.Since, delay))
		}
	}
	return doc
}
