package k8ssync

import (
	"net/netip"
	"sync"
)

// subscription carries the Services of a Cluster, as the API server reports them, to a
// Provider.
type subscription struct {
	notify func() // there is a change; it returns at once

	mu       sync.Mutex
	begun    bool
	whole    bool // changed has all Services
	live     bool // they are from the API server, not from the snapshot
	changed  map[key]*service
	excluded excluded
}

// excluded are addresses that no Service may get.
type excluded struct {
	nodes   []netip.Addr // of the Nodes of the cluster
	servers []netip.Addr // that the box needs
}

// publish queues the changed Services of o, or all.
func (s *subscription) publish(o *objects, changed map[key]struct{}, whole, live bool) {
	s.mu.Lock()
	whole = whole || !s.begun
	if whole {
		s.begun, s.whole, s.changed = true, true, make(map[key]*service, len(o.services))
		for k, v := range o.services {
			s.changed[k] = v
		}
	}
	s.live = live
	for k := range changed {
		if s.changed == nil {
			s.changed = map[key]*service{}
		}
		s.changed[k] = o.services[k]
	}
	pending := len(s.changed) > 0 || s.whole
	s.mu.Unlock()
	if pending {
		s.notify()
	}
}

// exclude replaces the addresses that no Service of the cluster may have: those of Nodes
// and those that the box needs.
func (s *subscription) exclude(addrs excluded) {
	s.mu.Lock()
	s.excluded = addrs
	s.mu.Unlock()
}

// take returns the changes since the last call; nil is a Service that is gone. If whole,
// there are no other Services.
func (s *subscription) take() (changed map[key]*service, whole, live bool, excluded excluded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, whole = s.changed, s.whole
	s.changed, s.whole = nil, false
	return changed, whole, s.live, s.excluded
}
