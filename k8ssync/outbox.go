package k8ssync

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"weir/lb"
)

// outbox has the translated Services of a cluster, for Take, and the part of Status that
// follows from them.
type outbox struct {
	cfg     *Config
	changes chan struct{} // Take or Status has something new
	notify  func()        // notifies the Provider after a commit

	mu        sync.Mutex
	services  map[key]lb.Service // only the goroutine that translates modifies it
	known     *lb.Update         // the content of the snapshot, not taken yet
	pending   map[key]struct{}   // changed in services, or removed, and not taken yet
	whole     bool               // all of services is pending
	triggered map[lb.ServiceID]time.Time
	// The generations of the store up to which changes were published, taken and
	// committed. The guard blocks some of the committed ones of the guarded namespaces.
	published, taken, committed uint64
	guarded                     []string
	summary                     summary
	errs                        translationErrors
}

// summary is the part of Status that is known after a translation.
type summary struct {
	synced, stale bool
	podCIDRs      []netip.Prefix
	addrs         []netip.Addr // of the own Node
	leaving       bool
	objects       map[string]int
	endpoints     int
	missing       map[string][]netip.Prefix
	// needed are the kernel objects of all Services, excess the Services over budget.
	needed, excess int
}

// translationErrors are the errors of the last translation.
type translationErrors struct{ node, pods, limit, service error }

// Reasons for which the Services of a cluster may not be complete.
var (
	errNotRead = errors.New("it has not been read yet")
	errGuarded = errors.New("the guard blocks a mass deletion until it is confirmed: weir guard")
)

func newOutbox(cfg *Config, notify func()) *outbox {
	return &outbox{
		cfg: cfg, changes: make(chan struct{}, 1), notify: notify,
		services: map[key]lb.Service{}, pending: map[key]struct{}{}, triggered: map[lb.ServiceID]time.Time{},
	}
}

// take implements Cluster.Take.
func (b *outbox) take() (lb.Update, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.known; known != nil {
		b.known = nil
		return *known, true
	}
	if !b.whole && len(b.pending) == 0 {
		return lb.Update{}, false
	}
	u := lb.Update{Source: b.cfg.Name, Synced: b.whole}
	keys := maps.Keys(b.pending)
	if b.whole {
		keys = maps.Keys(b.services)
	}
	sorted := slices.SortedFunc(keys, key.compare)
	u.Put = make([]lb.Service, 0, len(sorted))
	for _, k := range sorted {
		if s, ok := b.services[k]; ok {
			u.Put = append(u.Put, s)
		} else {
			u.Delete = append(u.Delete, serviceID(b.cfg, k))
		}
	}
	if len(b.triggered) > 0 {
		u.Triggered = b.triggered
	}
	b.whole, b.pending, b.triggered = false, map[key]struct{}{}, map[lb.ServiceID]time.Time{}
	b.taken = b.published
	return u, true
}

// commit implements Cluster.Commit.
func (b *outbox) commit(guarded []string) {
	b.mu.Lock()
	changed := b.committed != b.taken || !slices.Equal(b.guarded, guarded)
	b.committed, b.guarded = b.taken, guarded
	b.mu.Unlock()
	if changed {
		b.notify()
	}
}

// commits returns the generation up to which changes were committed, and the namespaces in
// which the guard blocks some of them.
func (b *outbox) commits() (generation uint64, guarded []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.committed, b.guarded
}

// complete returns an error unless all published changes are from the API server and
// committed.
func (b *outbox) complete() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.committed != b.published || !b.summary.synced || b.summary.stale {
		return errNotRead
	}
	return nil
}

// remember publishes the content of the snapshot ahead of all else.
func (b *outbox) remember(u lb.Update) {
	b.mu.Lock()
	b.known = &u
	b.mu.Unlock()
}

// translated is the result of one translation.
type translated struct {
	generation uint64
	whole      bool
	// services are the changed ones, or all; nil is one that is not served.
	services  map[key]*lb.Service
	triggered map[key]time.Time
	stale     bool // they are from the snapshot
	own       node
	// missing are the keys that env.missing returns; err is the error of a Service.
	missing map[string][]netip.Prefix
	err     error
}

// publish stores the result of a translation, and reports how many Services differ.
func (b *outbox) publish(t translated) int {
	b.reduce(&t)
	b.mu.Lock()
	for k, s := range t.services {
		id := serviceID(b.cfg, k)
		if s == nil {
			delete(b.services, k)
			delete(b.triggered, id)
		} else {
			b.services[k] = *s
			if at, ok := t.triggered[k]; ok && (b.triggered[id].IsZero() || at.Before(b.triggered[id])) {
				b.triggered[id] = at
			}
		}
		b.pending[k] = struct{}{}
	}
	b.whole = b.whole || t.whole
	if !t.whole && len(t.services) == 0 { // there is nothing to take of this generation
		if b.committed == b.published {
			b.committed = t.generation
		}
		if b.taken == b.published {
			b.taken = t.generation
		}
	}
	b.published = t.generation
	moved := b.update(t)
	b.mu.Unlock()
	if t.whole || moved || len(t.services) > 0 {
		signal(b.changes)
	}
	return len(b.services)
}

// reduce leaves the Services that differ from the published ones.
func (b *outbox) reduce(t *translated) {
	if t.whole {
		for k := range b.services {
			if _, ok := t.services[k]; !ok {
				t.services[k] = nil
			}
		}
		return
	}
	for k, s := range t.services {
		if was, ok := b.services[k]; s == nil && !ok || s != nil && ok && reflect.DeepEqual(was, *s) {
			delete(t.services, k)
		}
	}
}

// update changes the summary, and reports whether the addresses of the own Node differ.
// b.mu is held.
func (b *outbox) update(t translated) (moved bool) {
	if t.whole || t.err != nil {
		b.errs.service = t.err
	}
	b.errs.node, b.errs.pods = nil, unknownPods(t.missing)
	if b.cfg.NodeName != "" && t.own.Name == "" {
		b.errs.node = fmt.Errorf("there is no Node %q, so no endpoint is local: node_name must be as kubectl get nodes shows it", b.cfg.NodeName)
	}
	s := &b.summary
	s.synced, s.stale, s.missing = true, t.stale, t.missing
	moved = !slices.Equal(s.podCIDRs, t.own.PodCIDRs) || !slices.Equal(s.addrs, t.own.primary())
	s.podCIDRs, s.addrs, s.leaving = t.own.PodCIDRs, t.own.primary(), t.own.Leaving
	return moved
}

// primary returns the Node's first address of each family.
func (n node) primary() []netip.Addr {
	var out []netip.Addr
	for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
		if !slices.ContainsFunc(out, func(b netip.Addr) bool { return b.Is4() == a.Is4() }) {
			out = append(out, a)
		}
	}
	return out
}

// count publishes the numbers of objects.
func (b *outbox) count(used amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.summary.objects = map[string]int{"services": used.services, "endpointslices": used.slices, "nodes": used.nodes}
	b.summary.endpoints = used.endpoints
}

// limited publishes the use of the budget, and its error; nil is none.
func (b *outbox) limited(err error, needed, excess int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errs.limit, b.summary.needed, b.summary.excess = err, needed, excess
}

// problems returns the errors of the last translation.
func (b *outbox) problems() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return []error{b.errs.node, b.errs.pods, b.errs.limit, b.errs.service}
}

// current reports whether the published Services are those of the API server.
func (b *outbox) current() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.summary.synced && !b.summary.stale
}

// status adds the summary to s.
func (b *outbox) status(s *Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.summary
	s.Synced, s.Stale, s.Objects, s.Endpoints = m.synced, m.stale, maps.Clone(m.objects), m.endpoints
	s.KernelObjects, s.OverBudget, s.Missing = m.needed, m.excess, m.missing
	s.NodePodCIDRs, s.NodeAddrs, s.NodeLeaving = m.podCIDRs, m.addrs, m.leaving
}
