package k8ssync

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// store has the objects of a cluster as its API server last reported them, with the
// inputs that change while the cluster is followed. It is the sink of the cluster's feeds.
type store struct {
	wake chan struct{} // something has changed

	mu   sync.Mutex
	live *objects
	// holders have a lock of their own.
	holders *holders
	// generation counts how often changes were taken for translation.
	generation uint64
	// started is the start by the wall clock, to compare with times of objects.
	started time.Time

	// inputsMu is of the fields below. mu is held for as long as a translation lasts: seconds in a
	// big cluster.
	inputsMu sync.Mutex
	// refused and provided are Config.Refused and Config.Provided as they are now.
	// reconfigured is set when they have changed since the last translation.
	refused      Refused
	provided     Provided
	reconfigured bool
	subscriber   atomic.Pointer[subscription]
}

// skew is how far the clock of a cluster may be ahead of the box's.
const skew = time.Minute

func newStore(cfg *Config, limit amount) *store {
	return &store{wake: make(chan struct{}, 1), live: newObjects(limit), holders: newHolders(), refused: cfg.Refused, provided: cfg.Provided}
}

func (s *store) start() {
	s.mu.Lock()
	s.started = time.Now().Round(0)
	s.mu.Unlock()
}

// put implements sink.
func (s *store) put(it *item) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer signal(s.wake)
	return s.putObject(it.object, time.Now())
}

// putObject stores an object, but for an EndpointSlice without a Service. s.mu is held.
func (s *store) putObject(object any, now time.Time) (full string) {
	if v, ok := object.(*slice); ok && v.Service == "" {
		s.live.drop(v)
		return ""
	}
	return s.live.put(object, s.started, now.Add(skew))
}

// drop implements sink.
func (s *store) drop(resource string, k key, _ uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.drop(named(resource, k))
	signal(s.wake)
}

// replace implements sink.
func (s *store) replace(resource string, gone []key, list []*item, _ uint64) (full string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range gone {
		s.live.drop(named(resource, k))
	}
	now := time.Now()
	for _, it := range list {
		full = cmp.Or(full, s.putObject(it.object, now))
	}
	signal(s.wake)
	return full
}

// left implements sink.
func (s *store) left(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.left[namespace] = struct{}{}
}

// named returns an object that has only a name.
func named(resource string, k key) any {
	switch resource {
	case "services":
		return &service{key: k}
	case "endpointslices":
		return &slice{key: k}
	}
	return &node{Name: k.Name}
}

// hasRoom reports whether objects that a limit left out would fit now.
func (s *store) hasRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live.hasRoom()
}

// configure changes inputs of the translation; change reports whether they differ.
func (s *store) configure(change func() bool) {
	s.inputsMu.Lock()
	defer s.inputsMu.Unlock()
	if change() {
		s.reconfigured = true
		signal(s.wake)
	}
}

// inputs returns the inputs of a translation beside the objects, and whether they have changed since
// the last call.
func (s *store) inputs() (refused Refused, provided Provided, sub *subscription, changed bool) {
	s.inputsMu.Lock()
	defer s.inputsMu.Unlock()
	changed, s.reconfigured = s.reconfigured, false
	return s.refused, s.provided, s.subscriber.Load(), changed
}

// hold replaces the holders of an address.
func (s *store) hold(a netip.Addr, keys []key) {
	if s.holders.set(a, keys) {
		signal(s.wake)
	}
}

// holdAll replaces all holders. With keep, those of other addresses stay.
func (s *store) holdAll(all map[netip.Addr][]key, keep bool) {
	if s.holders.replace(all, keep) {
		signal(s.wake)
	}
}

// subscribe returns a subscription, which begins with all Services, and replaces that of
// an earlier subscriber.
func (s *store) subscribe(notify func()) *subscription {
	sub := &subscription{notify: notify}
	s.configure(func() bool {
		s.subscriber.Store(sub)
		return true
	})
	return sub
}

// unsubscribe ends a subscription.
func (s *store) unsubscribe(sub *subscription) { s.subscriber.CompareAndSwap(sub, nil) }

// notify notifies the subscriber of a change beside the Services.
func (s *store) notify() {
	if sub := s.subscriber.Load(); sub != nil {
		sub.notify()
	}
}

// copied returns the objects as they are now, and the generation that has all of them
// translated.
func (s *store) copied() (snapshot, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation := s.generation
	if s.live.changed() {
		generation++
	}
	return snapshotOf(s.live), generation
}

// uids returns the UIDs of those Services that the API server has reported.
func (s *store) uids(keys []key) map[key]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[key]string{}
	for _, k := range keys {
		if v := s.live.services[k]; v != nil {
			out[k] = v.UID
		}
	}
	return out
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
