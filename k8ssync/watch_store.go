package k8ssync

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// A feed is a cache.ReflectorStore.

// Add takes in an object of a watch.
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update takes in an object of a watch. One older than what is known has been
// repeated by mistake (a cache in between), and would make Services flap.
func (f *feed) Update(obj any) error {
	if it, ok := obj.(*item); ok && f.newer(it) {
		f.versions[it.key()] = version(it.ResourceVersion)
		var full string
		f.cluster.change(func(o *objects) { full = f.cluster.put(o, it.object) })
		if full != "" {
			f.cluster.full(f, full)
		}
	}
	return nil
}

// Delete takes out an object.
func (f *feed) Delete(obj any) error {
	if it, ok := obj.(*item); ok && f.newer(it) {
		delete(f.versions, it.key())
		f.cluster.change(func(o *objects) { o.drop(it.object) })
	}
	return nil
}

func (f *feed) newer(it *item) bool {
	v := version(it.ResourceVersion)
	return v == 0 || v >= f.versions[it.key()]
}

// Replace takes in a whole list. It is the truth, even if it is older than what
// was known: somebody may have restored the cluster from a backup.
func (f *feed) Replace(list []any, _ string) error {
	items := make(map[key]*item, len(list))
	for _, obj := range list {
		if it, ok := obj.(*item); ok {
			items[it.key()] = it
		}
	}
	var full string
	f.cluster.change(func(o *objects) {
		for k := range f.versions {
			if items[k] == nil {
				o.drop(f.named(k))
			}
		}
		for _, k := range slices.SortedFunc(maps.Keys(items), key.compare) { // who finds no room is always the same
			it := items[k]
			full = cmp.Or(full, f.cluster.put(o, it.object))
		}
	})
	if full != "" {
		f.cluster.full(f, full)
	}
	f.versions = make(map[key]uint64, len(items))
	for k, it := range items {
		f.versions[k] = version(it.ResourceVersion)
	}
	f.cluster.listed(f)
	return nil
}

// named makes an object that has nothing but its name.
func (f *feed) named(k key) any {
	switch f.name {
	case "services":
		return &service{key: k}
	case "endpointslices":
		return &slice{key: k}
	}
	return &node{Name: k.Name}
}

// Resync is never asked for.
func (f *feed) Resync() error { return nil }

// stream is a watch whose events go through a function. Other than watch.Filter's,
// its goroutine ends when nobody reads it any more.
type stream struct {
	in   watch.Interface
	out  chan watch.Event
	done chan struct{}
	stop sync.Once
}

func newStream(in watch.Interface, f func(watch.Event) (watch.Event, bool)) *stream {
	s := &stream{in: in, out: make(chan watch.Event), done: make(chan struct{})}
	go s.run(f)
	return s
}

func (s *stream) run(f func(watch.Event) (watch.Event, bool)) {
	defer close(s.out)
	for e := range s.in.ResultChan() {
		e, ok := f(e)
		if !ok {
			continue
		}
		select {
		case s.out <- e:
		case <-s.done:
			return
		}
	}
}

// Stop is watch.Interface's.
func (s *stream) Stop() {
	s.stop.Do(func() { close(s.done) })
	s.in.Stop()
}

// ResultChan is watch.Interface's.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }
