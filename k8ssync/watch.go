package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// lister lists and watches a resource with one client.
type lister struct {
	*feed
	client *client
	// namespace is that of the feed at the start. The Reflector does not wait for its last list, and
	// the next lister may have another one.
	namespace string
	// listed are the pages of a list that have come so far.
	listed *pages
	// doubt is set while the server could not be reached since the last list or watch:
	// another one with an older state may have replaced it.
	doubt   bool
	behind  bool // the last list was older than the known state
	retries retries
}

// run watches with one client until ctx ends.
func (f *feed) run(ctx context.Context, with *client, backoff time.Duration) {
	f.set(func(s *feedState) { s.client = with })
	l := &lister{feed: f, client: with, namespace: f.namespace, retries: retries{longest: backoff}}
	cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: l.List, WatchFuncWithContext: l.Watch}, nil, f,
		cache.ReflectorOptions{
			Name: f.name, TypeDescription: f.name, Logger: new(klog.Logger),
			// It never grows: the pauses that do are those of retries.
			Backoff: &wait.Backoff{Duration: min(firstRetry, backoff), Jitter: 1},
		}).RunWithContext(klog.NewContext(ctx, klog.Logger{}))
}

// request makes a request with the resource's selectors. client-go must not
// repeat it, which would hide an error for minutes.
func (l *lister) request(opts metav1.ListOptions) *rest.Request {
	opts.LabelSelector, opts.FieldSelector = l.labels, l.fields
	return l.resource.client(l.client).Get().NamespaceIfScoped(l.namespace, l.namespace != "").Resource(l.name).
		VersionedParams(&opts, params).MaxRetries(0)
}

// anyState is the resourceVersion of a list that the API server may answer from its cache.
const anyState = "0"

// List reads one page. The Reflector puts pages together. The first list of all may be any
// server's cached state, which costs etcd nothing. The Reflector of a new client asks for the
// same; another server's cache may be older than what is known, so that one has to be current.
func (l *lister) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.Continue == "" {
		l.retries.begin(ctx, &l.client.reachable)
	}
	if opts.ResourceVersion == anyState && l.current().listed {
		opts.ResourceVersion = ""
	}
	l.setListing(true)
	// Into would accept any answer as an empty list.
	list, err := l.request(opts).Do(ctx).Get()
	if err == nil {
		err = ctx.Err() // the Reflector has ended, and another one may have begun
	}
	if err == nil && reflect.TypeOf(list) != reflect.TypeOf(l.list) {
		err = fmt.Errorf("the API server sent a %T", list)
	}
	if err != nil {
		return nil, l.failed(ctx, "list", err)
	}
	m, err := meta.ListAccessor(list)
	if err == nil && m.GetResourceVersion() == "" {
		err = errors.New("the API server sent a list without a resourceVersion")
	}
	if err != nil {
		return nil, l.failed(ctx, "list", err)
	}
	l.contacted()
	if opts.Continue == "" {
		if err := l.outdated(ctx, m.GetResourceVersion()); err != nil {
			return nil, err
		}
		l.listed = l.begin()
	}
	out := &internalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue()}}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		if it, ok := l.reduce(o); ok && l.fits(it, l.listed) {
			out.Items = append(out.Items, it)
		}
		return nil
	})
	return out, err
}

// begin begins the objects of a list.
func (l *lister) begin() *pages {
	l.set(func(s *feedState) { s.unreadable, s.full = nil, "" })
	if by, ok := l.sink.(limiter); ok {
		by.begins()
	}
	return &pages{of: map[string][]aged{}, streamed: map[key]*item{}}
}

// pages are a list on its way, with the items of each namespace.
type pages struct {
	sizes
	of       map[string][]aged
	streamed map[key]*item // the items of a list in the form of a watch
}

// fits adds an object to a list, and reports whether its namespace may have it. Objects of
// larger namespaces may be left out for it. The sink limits the objects of all lists together.
func (l *lister) fits(it *item, list *pages) bool {
	if by, ok := l.sink.(limiter); ok {
		return by.fits(it)
	}
	namespace, change := namespaceOf(it.object), weigh(it.object)
	full, others := list.with(namespace, change, l.limit)
	if full != "" {
		l.full(full)
	}
	if full != "" && others == nil {
		l.sink.left(namespace)
		return false
	}
	for name, release := range others {
		l.sink.left(name)
		for _, v := range release.chosen(list.of[name]) {
			left := v.(*item) //nolint:forcetypeassert // as stored below
			list.add(name, amount{}.minus(weigh(left.object)))
			left.object = nil
		}
		list.of[name] = slices.DeleteFunc(list.of[name], func(v aged) bool { return v.object.(*item).object == nil }) //nolint:forcetypeassert // as above
	}
	list.add(namespace, change)
	if namespace != "" {
		list.of[namespace] = append(list.of[namespace], aged{it, it.key(), it.CreationTimestamp.Time})
	}
	return true
}

// Watch opens a watch, or a list in the form of a watch (KEP-3157).
func (l *lister) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	l.retries.begin(ctx, &l.client.reachable)
	opts.Watch = true
	listing := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if l.doubt && !listing {
		if err := l.wentBack(ctx, opts.ResourceVersion); err != nil {
			return nil, err
		}
	}
	l.setListing(listing)
	// Unlike lists, watches have no rate.
	var contentType string
	r := l.request(opts).Throttle(nil)
	body, err := r.Stream(context.WithValue(ctx, contentTypeKey{}, &contentType))
	var in decoder
	if err == nil {
		in, err = newDecoder(body, contentType, l.resource.client(l.client).APIVersion())
	}
	if err != nil {
		if listing && apierrors.IsInvalid(err) {
			return nil, err // the server does not know such lists: the Reflector requests a plain one
		}
		l.doubt = true
		err = l.failed(ctx, "watch", err)
		if listing && !expired(err) {
			return nil, apierrors.FromObject(hidden(err))
		}
		return nil, err
	}
	var list *pages // until the initial events end
	if listing {
		list = l.begin()
	}
	l.doubt = false
	l.retries.open(time.Now())
	l.client.reachable.notify()
	l.opened()
	ended := func() {
		l.setListing(false)
		l.retries.close(time.Now())
	}
	return newStream(in, func(e watch.Event) []watch.Event { return l.event(ctx, e, &list) }, ended), nil
}

// wentBack returns an error if the state of the server is older than the known one, as
// after a restored backup of etcd. Such a server would accept the watch as one of the
// future, and report no difference until something changes. The error causes a new list.
func (l *lister) wentBack(ctx context.Context, known string) error {
	at, err := l.stateOf(ctx)
	if err != nil {
		return l.failed(ctx, "list", err)
	}
	if at != 0 && at < version(known) {
		return l.failed(ctx, "list", apierrors.NewResourceExpired("the API server has an older state"))
	}
	return nil
}

// event turns the object of an event into an item. Those of a list in the form of a watch go to
// the Reflector as one item at its end: tens of thousands of single ones take seconds.
func (l *lister) event(ctx context.Context, e watch.Event, list **pages) []watch.Event {
	const few = 100 // the clock is a system call on some machines
	if *list == nil || len((*list).streamed)%few == 0 {
		l.contacted()
	}
	switch e.Type {
	case watch.Error:
		err := l.failed(ctx, "watch", apierrors.FromObject(e.Object))
		if *list != nil && apierrors.IsTooManyRequests(err) {
			e.Object = hidden(err)
		}
		return []watch.Event{e}
	case watch.Bookmark:
		m, err := meta.Accessor(e.Object)
		if err != nil {
			return nil
		}
		e.Object = &item{ObjectMeta: metav1.ObjectMeta{ResourceVersion: m.GetResourceVersion(), Annotations: m.GetAnnotations()}}
		if *list == nil || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return []watch.Event{e}
		}
		if err := l.outdated(ctx, m.GetResourceVersion()); err != nil {
			return []watch.Event{{Type: watch.Error, Object: hidden(err)}}
		}
		all := &item{list: slices.Collect(maps.Values((*list).streamed))}
		*list = nil
		return []watch.Event{{Type: watch.Added, Object: all}, e}
	}
	it, ok := l.reduce(e.Object)
	e.Object = it
	switch {
	case !ok:
		return nil
	case *list == nil:
		return []watch.Event{e}
	case e.Type == watch.Deleted:
		delete((*list).streamed, it.key())
	case l.fits(it, *list):
		(*list).streamed[it.key()] = it
	}
	return nil
}

// failed reports an error with the name of the permission that may be missing, and waits. An expired
// history is no error: the list is read again. A server that is overloaded gets its pause in any case.
func (l *lister) failed(ctx context.Context, verb string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	l.setListing(false)
	reached := l.retries.reached
	if !expired(err) {
		err = fmt.Errorf("%s: %w", l.permission(verb), short(err))
		l.broken(err)
		sleep(ctx, requestedDelay(err))
		if apierrors.IsTooManyRequests(err) {
			reached = nil
		}
	}
	waitForRetry(ctx, l.retries.ended(time.Now()), reached)
	return err
}

// expired reports whether the server no longer has the requested history.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// hidden turns an error into one that the Reflector does not know: for some errors of a
// list it would wait, and ignore the end of ctx.
func hidden(err error) *metav1.Status {
	s := apierrors.NewInternalError(err).Status()
	return &s
}

// permission names the right that a role must grant.
func (l *lister) permission(verb string) string {
	s := verb + " " + schema.GroupResource{Group: l.group, Resource: l.name}.String()
	if l.namespace != "" {
		s += " in namespace " + l.namespace
	}
	return s
}

// short removes the URL, with all its selectors, from an error.
func short(err error) error {
	if long, ok := errors.AsType[*url.Error](err); ok {
		return long.Err
	}
	return err
}

// requestedDelay returns the pause that an API server requests, if it is sane.
func requestedDelay(err error) time.Duration {
	const sane = time.Minute
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return min(sane, time.Duration(seconds)*time.Second)
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
