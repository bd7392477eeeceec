package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// resource is a kind of objects that is followed.
type resource struct {
	name   string
	client func(*client) rest.Interface
	list   runtime.Object // what lists are
	// labels and fields select on the server; what stops to match is told as
	// deleted.
	labels, fields string
}

func coreClient(c *client) rest.Interface      { return c.core }
func discoveryClient(c *client) rest.Interface { return c.discovery }

// resources are what is followed of a cluster, with kube-proxy's selectors.
func (c Config) resources() []resource {
	out := []resource{
		{
			name: "services", client: coreClient, list: &corev1.ServiceList{},
			labels: "!" + labelOtherProxy, fields: "spec.clusterIP!=" + corev1.ClusterIPNone,
		},
		{
			name: "endpointslices", client: discoveryClient, list: &discoveryv1.EndpointSliceList{},
			labels: "!" + corev1.IsHeadlessService,
		},
	}
	if !c.wantsNodes() {
		return out
	}
	nodes := resource{name: "nodes", client: coreClient, list: &corev1.NodeList{}}
	if c.ownNodeOnly() {
		nodes.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, c.NodeName).String()
	}
	return append(out, nodes)
}

// ownNodeOnly tells that the other Nodes don't matter: where every node of a big
// cluster runs weir, each following all of them would burden the API servers. Who
// may set spec.externalIPs is a tenant, so that those are held against all Nodes;
// who may set status.loadBalancer is as powerful as the nodes are.
func (c Config) ownNodeOnly() bool {
	return c.Reach == Pods && c.NodeName != "" && len(c.ExternalIPRanges) == 0
}

// feed follows one resource, in one namespace or in all. It is what client-go's
// Reflector calls, and turns API objects into weir's before anybody keeps them.
// It outlives clients, so that a new one only brings what differs.
type feed struct {
	resource
	cluster   *Cluster
	namespace string

	// What follows belongs to the Reflector's goroutine: versions are the
	// resourceVersions of the objects that came by this feed, by their names.
	versions map[key]uint64

	// What follows is under Cluster.mu.
	listed, watching bool
	server           string // that was listed last
	// err is why it is not followed, odd an object that could not be read. full
	// is of what there is too much, so that objects are left out.
	err, odd error
	full     string
}

// item is an object on its way through a Reflector.
type item struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	object any // *service, *slice or *node; nil in a bookmark
}

// DeepCopyObject is runtime.Object's. An item is never modified.
func (i *item) DeepCopyObject() runtime.Object { return i }

func (i *item) key() key { return key{i.Namespace, i.Name} }

// reduce turns an API object into an item. One that can't be read is left out and
// told: no object harms another.
func (f *feed) reduce(o runtime.Object) (it *item, ok bool) {
	it = &item{}
	defer func() {
		if r := recover(); r != nil {
			f.cluster.odd(f, fmt.Errorf("%s %s can't be read: %v", f.name, it.key(), r))
			ok = false
		}
	}()
	m, err := meta.Accessor(o)
	if err != nil {
		f.cluster.odd(f, fmt.Errorf("%T is not one of %s", o, f.name))
		return it, false
	}
	it.Namespace, it.Name, it.ResourceVersion = m.GetNamespace(), m.GetName(), m.GetResourceVersion()
	switch v := o.(type) {
	case *corev1.Service:
		read := readService(v, f.cluster.cfg.Labels)
		it.object = &read
	case *discoveryv1.EndpointSlice:
		read := readSlice(v)
		it.object = &read
	case *corev1.Node:
		read := readNode(v)
		it.object = &read
	}
	if !f.named1123(it) {
		f.cluster.odd(f, fmt.Errorf("%s %.64q in namespace %.64q is left out: names must be as RFC 1123 has them", f.name, it.Name, it.Namespace))
		return it, false
	}
	return it, f.owns(it.object)
}

// named1123 tells whether an object is named as the API server admits it. Names
// go into logs, rules and files; and no two Services may be one there.
func (f *feed) named1123(it *item) bool {
	if len(validation.IsDNS1123Subdomain(it.Name)) > 0 {
		return false
	}
	if f.name == "nodes" {
		return it.Namespace == ""
	}
	return len(validation.IsDNS1123Label(it.Namespace)) == 0
}

// owns tells whether an object is of the feed's kind.
func (f *feed) owns(object any) bool { return reflect.TypeOf(object) == reflect.TypeOf(f.named(key{})) }

// lister reads a resource with one client.
type lister struct {
	*feed
	client *client
	// taken is what the pages of a list have come to so far.
	taken *amount
	// doubt is that the server could not be reached since the last list or watch: it
	// may be another one by now, that has an older state.
	doubt bool
}

// request makes a request with the resource's selectors. client-go shall not
// repeat it: what is wrong would be known minutes later.
func (l *lister) request(opts metav1.ListOptions) *rest.Request {
	opts.LabelSelector, opts.FieldSelector = l.labels, l.fields
	return l.resource.client(l.client).Get().NamespaceIfScoped(l.namespace, l.namespace != "").Resource(l.name).
		VersionedParams(&opts, params).MaxRetries(0)
}

// List reads one page. The Reflector puts pages together.
func (l *lister) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	// Into would take whatever comes for an empty list.
	list, err := l.request(opts).Do(ctx).Get()
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
	l.cluster.heard()
	if opts.Continue == "" {
		l.taken = l.begin()
	}
	out := &internalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue()}}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		if it, ok := l.reduce(o); ok && l.room(it, l.taken) {
			out.Items = append(out.Items, it)
		}
		return nil
	})
	return out, err
}

// begin begins a list, and what it comes to.
func (l *lister) begin() *amount {
	l.cluster.odd(l.feed, nil)
	l.cluster.full(l.feed, "")
	return &amount{}
}

// room tells whether a list of what is taken may grow by it. The objects are
// limited again, over all lists, when they are put to the others.
func (l *lister) room(it *item, taken *amount) bool {
	*taken = taken.plus(weigh(it.object))
	if why := taken.over(l.cluster.limit); why != "" {
		l.cluster.full(l.feed, why)
		return false
	}
	return true
}

// Watch opens a watch, or a list in the form of a watch (KEP-3157).
func (l *lister) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	listing := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if l.doubt && !listing {
		if err := l.wentBack(ctx, opts.ResourceVersion); err != nil {
			return nil, err
		}
	}
	var lost lost
	w, err := l.request(opts).Watch(context.WithValue(ctx, lostKey{}, &lost))
	if err == nil && lost.err != nil {
		w.Stop()
		err = lost.err
	}
	if err != nil {
		if listing && apierrors.IsInvalid(err) {
			return nil, err // the server does not know such lists, and will be asked for a plain one
		}
		l.doubt = true
		err = l.failed(ctx, "watch", err)
		if listing && !forgotten(err) {
			return nil, apierrors.FromObject(hidden(err))
		}
		return nil, err
	}
	var list *amount // until the initial events end
	if listing {
		list = l.begin()
	}
	l.doubt = false
	l.cluster.watching(l.feed)
	return newStream(w, func(e watch.Event) (watch.Event, bool) { return l.event(ctx, e, &list) }), nil
}

// wentBack is an error if the server's state is older than what is known, as after an
// older backup of etcd: it would take a watch from then on for one of the future, and
// say nothing of what is different, for as long as nothing changes. The error has the
// list read again.
func (l *lister) wentBack(ctx context.Context, known string) error {
	list, err := l.request(metav1.ListOptions{Limit: 1}).Do(ctx).Get()
	if err != nil {
		return l.failed(ctx, "list", err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return l.failed(ctx, "list", err)
	}
	if at := version(m.GetResourceVersion()); at != 0 && at < version(known) {
		return apierrors.NewResourceExpired("the API server has an older state")
	}
	return nil
}

// event turns the object of an event into an item.
func (l *lister) event(ctx context.Context, e watch.Event, list **amount) (watch.Event, bool) {
	l.cluster.heard()
	switch e.Type {
	case watch.Error:
		err := l.failed(ctx, "watch", apierrors.FromObject(e.Object))
		if *list != nil && apierrors.IsTooManyRequests(err) {
			e.Object = hidden(err)
		}
		return e, true
	case watch.Bookmark:
		m, err := meta.Accessor(e.Object)
		if err != nil {
			return e, false
		}
		if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			*list = nil
		}
		e.Object = &item{ObjectMeta: metav1.ObjectMeta{ResourceVersion: m.GetResourceVersion(), Annotations: m.GetAnnotations()}}
		return e, true
	}
	it, ok := l.reduce(e.Object)
	e.Object = it
	return e, ok && (*list == nil || l.room(it, *list))
}

// failed tells what went wrong, in words that name the right that is missing. A
// history that the server has forgotten is nothing wrong: the list is read again.
func (l *lister) failed(ctx context.Context, verb string, err error) error {
	if ctx.Err() != nil || forgotten(err) {
		return err
	}
	var long *url.Error // with all the selectors
	if errors.As(err, &long) {
		err = long.Err
	}
	err = fmt.Errorf("%s: %w", l.right(verb), err)
	l.cluster.broken(l.feed, err)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		l.cluster.rest(ctx, seconds)
	}
	return err
}

// forgotten tells that the server has no history as old as what it was asked for.
func forgotten(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// hidden makes an error one that the Reflector knows nothing of: in a list it
// would wait for the reason of some to pass, and not hear ctx meanwhile.
func hidden(err error) *metav1.Status {
	s := apierrors.NewInternalError(err).Status()
	return &s
}

// right names what a role must allow.
func (l *lister) right(verb string) string {
	s := verb + " " + schema.GroupResource{Group: map[string]string{"endpointslices": discoveryv1.GroupName}[l.name], Resource: l.name}.String()
	if l.namespace != "" {
		s += " in namespace " + l.namespace
	}
	return s
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
