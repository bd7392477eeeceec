package k8ssync

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// feed watches one resource, in one namespace or in all, and puts its objects into a
// sink. It is a cache.ReflectorStore, and reduces API objects before they are stored.
// It outlives clients, so that a new one brings only differences.
type feed struct {
	resource
	namespace string
	sink      sink
	limit     amount
	// changed is called after a change of the state, relisted after a list.
	changed func(relisted bool)

	// versions are the resourceVersions of the objects that came by this feed, by name.
	// They belong to the goroutine of the Reflector.
	versions map[key]uint64
	// known is the resourceVersion of the last list or event. It belongs to the same goroutine.
	known uint64

	mu    sync.Mutex
	state feedState
}

// feedState is the state of a feed.
type feedState struct {
	// listing is set from the request of a list to its end or failure.
	listed, listing, watching bool
	server                    string // that was listed last
	client                    *client
	lists                     uint64
	contact                   time.Time // of the last answer or event
	// err is the error that stops the feed, unreadable is of an object that was left
	// out, and full names the limit that is exceeded, so that objects are left out.
	err, unreadable error
	full            string
}

// sink stores the objects of feeds.
type sink interface {
	// put stores an object, or returns the limit that leaves it out.
	put(it *item) (full string)
	// drop removes an object at the version of its deletion.
	drop(resource string, k key, version uint64)
	// replace stores a whole list at a version, in place of the objects that the
	// feed stored before. gone are those that are not in the list.
	replace(resource string, gone []key, list []*item, version uint64) (full string)
	// left records that a list left out an object of a namespace because of a limit.
	left(namespace string)
}

// limiter is a sink that limits its lists by itself, and not by namespace.
type limiter interface {
	// begins begins a list; fits reports whether an object fits beside those before.
	begins()
	fits(it *item) bool
}

// item is an object on its way through a Reflector.
type item struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	object any // as resource.read returned it; nil in a bookmark, and if a limit leaves it out
	// list are the items of a list in the form of a watch, if this is all of it.
	list []*item
}

// DeepCopyObject implements runtime.Object. An item is never modified.
func (i *item) DeepCopyObject() runtime.Object { return i }

func (i *item) key() key { return key{i.Namespace, i.Name} }

// all returns the items that i stands for.
func (i *item) all() []*item {
	switch {
	case i == nil:
		return nil
	case i.list != nil:
		return i.list
	}
	return []*item{i}
}

// current returns the state.
func (f *feed) current() feedState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// set changes the state without a notification.
func (f *feed) set(change func(*feedState)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
}

// setListing records whether a list is on its way.
func (f *feed) setListing(on bool) { f.set(func(s *feedState) { s.listing = on }) }

func (f *feed) contacted() { f.set(func(s *feedState) { s.contact = time.Now() }) }

func (f *feed) opened() {
	f.set(func(s *feedState) { s.watching, s.err, s.contact = true, nil, time.Now() })
	f.changed(false)
}

func (f *feed) broken(err error) {
	f.set(func(s *feedState) { s.watching, s.listing, s.err = false, false, err })
	f.changed(false)
}

func (f *feed) unreadable(err error) { f.set(func(s *feedState) { s.unreadable = err }) }

func (f *feed) full(limit string) { f.set(func(s *feedState) { s.full = limit }) }

// reduce turns an API object into an item. An object that can't be read is left out and
// reported: no object harms another.
func (f *feed) reduce(o runtime.Object) (it *item, ok bool) {
	it = &item{}
	defer func() {
		if r := recover(); r != nil {
			f.unreadable(fmt.Errorf("%s %s can't be read: %v", f.name, it.key(), r))
			ok = false
		}
	}()
	m, err := meta.Accessor(o)
	if err != nil {
		f.unreadable(fmt.Errorf("%T is not one of %s", o, f.name))
		return it, false
	}
	it.Namespace, it.Name, it.ResourceVersion, it.CreationTimestamp = m.GetNamespace(), m.GetName(), m.GetResourceVersion(), m.GetCreationTimestamp()
	it.object = f.read(o)
	if !f.named1123(it) {
		f.unreadable(fmt.Errorf("%s %.64q in namespace %.64q is left out: names must be as RFC 1123 has them", f.name, it.Name, it.Namespace))
		return it, false
	}
	return it, it.object != nil
}

// named1123 reports whether an object has a name that the API server admits. Names go
// into logs, rules and files, where no two Services may become one.
func (f *feed) named1123(it *item) bool {
	if len(validation.IsDNS1123Subdomain(it.Name)) > 0 {
		return false
	}
	if f.name == "nodes" {
		return it.Namespace == ""
	}
	return len(validation.IsDNS1123Label(it.Namespace)) == 0
}

// Add stores an object of a watch.
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update stores an object of a watch. An object older than the stored one was repeated by
// mistake (a cache in between), and would make Services flap.
func (f *feed) Update(obj any) error {
	if it, ok := obj.(*item); ok && f.newer(it) {
		f.versions[it.key()] = version(it.ResourceVersion)
		if full := f.sink.put(it); full != "" {
			// Nothing is known of it. Another sink may have stored it, in place of others.
			if _, ok := f.sink.(limiter); ok {
				delete(f.versions, it.key())
			}
			f.full(full)
		}
	}
	return nil
}

// Delete removes an object.
func (f *feed) Delete(obj any) error {
	if it, ok := obj.(*item); ok && f.newer(it) {
		delete(f.versions, it.key())
		f.sink.drop(f.name, it.key(), version(it.ResourceVersion))
	}
	return nil
}

func (f *feed) newer(it *item) bool {
	v := version(it.ResourceVersion)
	return v == 0 || v >= f.versions[it.key()]
}

// Replace stores a whole list. The list replaces newer objects, too: the cluster may have
// been restored from a backup.
func (f *feed) Replace(list []any, resourceVersion string) error {
	items := make(map[key]*item, len(list))
	for _, obj := range list {
		of, _ := obj.(*item)
		for _, it := range of.all() {
			if it.object != nil {
				items[it.key()] = it
			}
		}
	}
	var gone []key
	for k := range f.versions {
		if items[k] == nil {
			gone = append(gone, k)
		}
	}
	// Sorted, so that a limit always leaves out the same objects: the youngest.
	sorted := slices.SortedFunc(maps.Values(items), func(a, b *item) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), a.key().compare(b.key()))
	})
	full := f.sink.replace(f.name, gone, sorted, version(resourceVersion))
	f.versions = make(map[key]uint64, len(items))
	for k, it := range items {
		f.versions[k] = version(it.ResourceVersion)
	}
	f.known = version(resourceVersion)
	f.set(func(s *feedState) {
		s.listed, s.listing, s.lists = true, false, s.lists+1
		if s.client != nil {
			s.server = s.client.server
		}
		if full != "" {
			s.full = full
		}
	})
	f.changed(true)
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (f *feed) UpdateResourceVersion(resourceVersion string) {
	f.known = max(f.known, version(resourceVersion))
}

// Resync implements cache.ReflectorStore; it is never requested.
func (f *feed) Resync() error { return nil }

// problems returns the errors of a feed.
func (s feedState) problems() []error {
	out := []error{s.err, s.unreadable}
	if s.full != "" {
		out = append(out, errors.New(s.full+": the rest is ignored"))
	}
	return out
}

// version reads a resourceVersion. They grow (KEP-5504); 0 is one that can't be
// compared.
func version(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
