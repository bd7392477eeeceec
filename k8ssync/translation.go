package k8ssync

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/lb"
)

// translation turns the objects of a cluster into lb.Services whenever they change. All
// of it belongs to the goroutine of run.
type translation struct {
	cfg    *Config
	log    *slog.Logger
	timing *timing
	store  *store
	conn   *connection
	out    *outbox

	unsaved chan struct{} // the snapshot is out of date
	synced  func()        // called after each whole translation

	env   *env
	saved *objects // of the snapshot; nil when it is no longer needed
	late  bool     // the API server has had its time to answer
	from  *objects // the source of the last translation
	usage usage
	// missing are the keys that the last translation missed.
	missing map[string][]netip.Prefix
}

// Updates are published at once after a pause, and at most every minInterval under load.
// When a translation takes long, the next one waits loadFactor times as long, up to
// maxInterval, so that a busy cluster leaves time for the others.
const (
	minInterval = 50 * time.Millisecond
	maxInterval = 250 * time.Millisecond
	loadFactor  = 4
)

// run translates until ctx ends.
func (t *translation) run(ctx context.Context) {
	signal(t.store.wake)
	grace := time.NewTimer(t.timing.grace)
	defer grace.Stop()
	due := time.NewTimer(time.Hour)
	due.Stop()
	defer due.Stop()
	var earliest time.Time
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-grace.C:
			t.late = true
			signal(t.store.wake)
		case <-t.store.wake:
			if !waiting {
				waiting = true
				due.Reset(time.Until(earliest))
			}
		case <-due.C:
			waiting = false
			began := time.Now()
			t.flush()
			earliest = time.Now().Add(max(minInterval, min(maxInterval, loadFactor*time.Since(began))))
		}
	}
}

// source returns the objects to translate now; nil is none yet.
func (t *translation) source() *objects {
	listed, prevented := t.conn.progress()
	switch {
	case listed:
		if t.saved != nil && t.from == nil {
			t.remember()
		}
		t.saved = nil
		return t.store.live
	case t.saved != nil && (t.late || prevented):
		return t.saved
	}
	return nil
}

// flush translates all changes and publishes the result.
func (t *translation) flush() {
	o := t.source()
	if o == nil {
		t.count(t.store.live)
		return
	}
	whole := t.from != o
	t.store.mu.Lock()
	ch := t.begin(o, whole)
	out := translated{generation: t.store.generation, whole: whole, triggered: ch.triggered, stale: o != t.store.live}
	out.services, out.err = t.services(o, ch.dirty)
	t.limit(o, out.services, whole)
	if whole || ch.nodes || len(ch.dirty) > 0 {
		t.missing = t.env.missing(o)
	}
	t.store.mu.Unlock()
	out.own, out.missing = t.env.own, t.missing
	t.count(o)
	n := t.out.publish(out)
	if whole {
		t.log.Info("cluster synced", "services", n, "stale", out.stale)
		t.synced()
	}
	if !out.stale && (whole || len(ch.dirty) > 0) {
		signal(t.unsaved)
	}
}

// begin takes the changes of o, with all Services that they affect, and passes them to
// the subscriber. store.mu is held.
func (t *translation) begin(o *objects, whole bool) changes {
	s := t.store
	ch := o.take()
	if whole {
		t.from, t.env = o, t.newEnv()
	}
	refused, provided, sub, changed := s.inputs()
	if whole || changed {
		t.env.refused, t.env.provided, ch.nodes = refused, provided, true
	}
	if ch.nodes {
		t.env.setNodes(o.allNodes())
		for k := range o.services {
			ch.dirty[k] = struct{}{}
		}
	}
	for a := range s.holders.take() {
		for k := range t.env.wanted[a] {
			ch.dirty[k] = struct{}{}
		}
	}
	if ch.nodes || len(ch.dirty) > 0 {
		s.generation++
	}
	if sub != nil {
		if ch.nodes {
			sub.exclude(excluded{
				nodes:   slices.Collect(maps.Keys(t.env.nodeAddrs)),
				servers: slices.Concat(slices.Collect(maps.Keys(t.env.refused.Peers)), slices.Collect(maps.Keys(t.env.refused.Backends))),
			})
		}
		sub.publish(o, ch.touched, whole, o == s.live)
	}
	t.env.putServices(o, ch.dirty, whole)
	return ch
}

func (t *translation) newEnv() *env {
	e := newEnv(t.cfg)
	e.holders = t.store.holders
	return e
}

// services translates some of the Services of o.
func (t *translation) services(o *objects, dirty map[key]struct{}) (out map[key]*lb.Service, failed error) {
	out = make(map[key]*lb.Service, len(dirty))
	for k := range dirty {
		s, err := t.service(o, k)
		out[k] = s
		failed = cmp.Or(err, failed)
	}
	return out, failed
}

// remember publishes the objects of the snapshot before those of the API server: the
// guard compares a cluster that has shrunk while weir did not run with what it was.
func (t *translation) remember() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.env = t.newEnv()
	t.env.refused, t.env.provided, _, _ = t.store.inputs() // the whole translation that follows needs no change
	t.env.setNodes(t.saved.allNodes())
	all := make(map[key]struct{}, len(t.saved.services))
	for k := range t.saved.services {
		all[k] = struct{}{}
	}
	t.env.putServices(t.saved, all, true)
	known := lb.Update{Source: t.cfg.Name, Synced: true}
	for _, k := range slices.SortedFunc(maps.Keys(all), key.compare) {
		if s, _ := t.service(t.saved, k); s != nil {
			known.Put = append(known.Put, *s)
		}
	}
	t.out.remember(known)
}

// service translates one Service; nil is one that is not served. A panic concerns no
// other Service.
func (t *translation) service(o *objects, k key) (out *lb.Service, err error) {
	svc := o.services[k]
	if svc == nil {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("%s can't be served: %v", k, r)
			t.log.Error("Service translation failed", "service", k.String(), "panic", r)
		}
	}()
	s, ok := translate(svc, o.of(k), t.env)
	if !ok {
		return nil, nil
	}
	s.Created = s.Created.UTC() // as the snapshot has it
	return &s, nil
}

// limit replaces Services beyond the budget in out, and adds those that fit again. store.mu
// is held.
func (t *translation) limit(o *objects, out map[key]*lb.Service, whole bool) {
	if whole {
		t.usage = newUsage(t.cfg.budget())
	}
	for k, s := range out {
		t.usage.put(k, kernelObjects(s))
	}
	excess := t.usage.tooMany(o.services)
	for k := range t.usage.excess {
		if _, fresh := out[k]; !fresh && !excess[k] {
			out[k], _ = t.service(o, k) // its error was reported before
		}
	}
	for k := range excess {
		id := serviceID(t.cfg, k)
		out[k] = &lb.Service{ID: id, Created: o.services[k].Created, Notes: []lb.Note{{Service: id, Reason: lb.OverBudget, Text: fmt.Sprintf(
			"it is not served: it needs %d kernel objects, and with the older Services of its namespace this is more than max_namespace_objects "+
				"or the namespace's part of max_objects", t.usage.of[k])}}}
	}
	t.usage.excess = excess
	var err error
	if len(excess) > 0 {
		err = fmt.Errorf("%d Services are not served: their namespaces need more kernel objects than max_namespace_objects or their parts of max_objects", len(excess))
	}
	t.out.limited(err, t.usage.total, len(excess))
}

// count publishes the numbers of objects.
func (t *translation) count(o *objects) {
	t.store.mu.Lock()
	used := o.sizes.all
	t.store.mu.Unlock()
	t.out.count(used)
}
