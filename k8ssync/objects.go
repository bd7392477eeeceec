package k8ssync

import (
	"fmt"
	"slices"
	"time"
)

// amount is the size of objects.
type amount struct {
	services, slices, endpoints, nodes int
	bytes                              int // about
}

func (a amount) plus(b amount) amount {
	return amount{a.services + b.services, a.slices + b.slices, a.endpoints + b.endpoints, a.nodes + b.nodes, a.bytes + b.bytes}
}

func (a amount) minus(b amount) amount {
	return amount{a.services - b.services, a.slices - b.slices, a.endpoints - b.endpoints, a.nodes - b.nodes, a.bytes - b.bytes}
}

// most limits the objects of one cluster, so that none exhausts the box. Kubernetes
// itself is tested with 10,000 Services, 150,000 pods and 5,000 Nodes. Namespaces share it
// (room.go).
var most = amount{services: 50_000, slices: 200_000, endpoints: 500_000, nodes: 20_000, bytes: 512 << 20}

// half is the most of one namespace, so that no tenant takes the room of all others.
func (a amount) half() amount {
	return amount{a.services / 2, a.slices / 2, a.endpoints / 2, a.nodes, a.bytes / 2}
}

// over returns the limit that a exceeds; empty is none.
func (a amount) over(limit amount) string {
	switch {
	case a.services > limit.services:
		return fmt.Sprintf("more than %d Services", limit.services)
	case a.slices > limit.slices:
		return fmt.Sprintf("more than %d EndpointSlices", limit.slices)
	case a.endpoints > limit.endpoints:
		return fmt.Sprintf("more than %d endpoints", limit.endpoints)
	case a.nodes > limit.nodes:
		return fmt.Sprintf("more than %d Nodes", limit.nodes)
	case a.bytes > limit.bytes:
		return fmt.Sprintf("more than %d MiB of objects", limit.bytes>>20)
	}
	return ""
}

// weigh returns the size of an object. Bytes are those of its lists and of the strings that
// it doesn't share with others.
func weigh(object any) amount {
	switch o := object.(type) {
	case *item:
		return weigh(o.object)
	case *service:
		n := 512 + len(o.Name) + 64*len(o.Ports) + 24*(len(o.ExternalIPs)+len(o.Ingress)+len(o.SourceRanges))
		for k, v := range o.Annotations {
			n += len(k) + len(v)
		}
		n += 96*len(o.Labels) + len(o.Condition.Message) + len(o.Selector) + 24*len(o.Proxied)
		return amount{services: 1, bytes: n + texts(o.Dropped)}
	case *slice:
		n := 256 + len(o.Name) + len(o.Namespace) + len(o.Owner) + 64*len(o.Ports) + texts(o.Dropped)
		for _, e := range o.Endpoints {
			n += 128 + 16*(len(e.Hints.zones())+len(e.Hints.nodes()))
		}
		return amount{slices: 1, endpoints: len(o.Endpoints), bytes: n}
	case *node:
		return amount{nodes: 1, bytes: 256 + len(o.Name) + 24*(len(o.InternalIPs)+len(o.ExternalIPs)+len(o.PodCIDRs)) + texts(o.Dropped)}
	}
	return amount{}
}

func texts(list []string) int {
	n := 0
	for _, s := range list {
		n += 16 + len(s)
	}
	return n
}

// objects are those of a cluster, with their changes since the last call of take. A stored
// object is never modified: it is replaced.
type objects struct {
	services map[key]*service
	slices   map[key]*slice
	nodes    map[string]*node
	targets  map[key][]*slice // by Service; none is empty
	sizes    sizes
	limit    amount
	// left are the namespaces of which objects were left out by a limit.
	left map[string]struct{}

	changes
}

// namespaceOf returns the namespace of an object; "" is none.
func namespaceOf(object any) string {
	switch o := object.(type) {
	case *service:
		return o.Namespace
	case *slice:
		return o.Namespace
	}
	return ""
}

// changes are Services that must be translated again.
type changes struct {
	dirty map[key]struct{}
	nodes bool // so that all must
	// touched are Services that differ at all, even if only in their resourceVersion.
	touched map[key]struct{}
	// triggered is when the endpoints of a Service changed first.
	triggered map[key]time.Time
}

func noChanges() changes {
	return changes{dirty: map[key]struct{}{}, touched: map[key]struct{}{}, triggered: map[key]time.Time{}}
}

func newObjects(limit amount) *objects {
	return &objects{
		services: map[key]*service{},
		slices:   map[key]*slice{},
		nodes:    map[string]*node{},
		targets:  map[key][]*slice{},
		limit:    limit,
		left:     map[string]struct{}{},
		changes:  noChanges(),
	}
}

// take returns the changes and clears them.
func (o *objects) take() changes {
	c := o.changes
	o.changes = noChanges()
	return c
}

// changed reports whether take has something.
func (o *objects) changed() bool { return len(o.dirty) > 0 || o.changes.nodes }

// put stores an object. If it would exceed a limit, put returns that, and objects are left
// out: those of larger namespaces, or this one. It is a *service, *slice or *node, and must not
// be modified afterwards. A time of a change before since or after now is ignored.
func (o *objects) put(object any, since, now time.Time) (full string) {
	namespace, change := namespaceOf(object), weigh(object).minus(weigh(o.same(object)))
	full, others := o.sizes.with(namespace, change, o.limit)
	o.evict(others)
	if full != "" && others == nil {
		o.drop(object) // its stored state is out of date
		o.left[namespace] = struct{}{}
		return full
	}
	o.sizes.add(namespace, change)
	switch v := object.(type) {
	case *service:
		was := o.services[v.key]
		o.services[v.key] = v
		o.touched[v.key] = struct{}{}
		if was == nil || !was.equal(v) {
			o.dirty[v.key] = struct{}{}
		}
	case *slice:
		o.putSlice(v, since, now)
	case *node:
		was := o.nodes[v.Name]
		o.nodes[v.Name] = v
		if was == nil || !was.equal(v) {
			o.changes.nodes = true
		}
	}
	return full
}

func (o *objects) putSlice(v *slice, since, now time.Time) {
	was := o.slices[v.key]
	o.slices[v.key] = v
	t := v.target()
	if was != nil {
		o.unlink(was)
		if old := was.target(); old != t {
			o.dirty[old] = struct{}{}
		}
	}
	o.targets[t] = append(o.targets[t], v)
	if was != nil && was.equal(v) {
		return
	}
	o.dirty[t] = struct{}{}
	if v.Triggered.Before(since) || v.Triggered.After(now) || was != nil && was.Triggered.Equal(v.Triggered) {
		return
	}
	if first, ok := o.triggered[t]; !ok || v.Triggered.Before(first) {
		o.triggered[t] = v.Triggered
	}
}

// same returns the stored object with the name of another.
func (o *objects) same(object any) any {
	switch v := object.(type) {
	case *service:
		if s := o.services[v.key]; s != nil {
			return s
		}
	case *slice:
		if s := o.slices[v.key]; s != nil {
			return s
		}
	case *node:
		if n := o.nodes[v.Name]; n != nil {
			return n
		}
	}
	return nil
}

// drop removes the object with the name of another.
func (o *objects) drop(object any) {
	old := o.same(object)
	o.sizes.add(namespaceOf(old), amount{}.minus(weigh(old)))
	switch v := old.(type) {
	case *service:
		delete(o.services, v.key)
		o.touched[v.key] = struct{}{}
		o.dirty[v.key] = struct{}{}
	case *slice:
		delete(o.slices, v.key)
		o.unlink(v)
		o.dirty[v.target()] = struct{}{}
	case *node:
		delete(o.nodes, v.Name)
		o.changes.nodes = true
	}
}

// unlink removes a slice from its Service.
func (o *objects) unlink(v *slice) {
	t := v.target()
	o.targets[t] = slices.DeleteFunc(o.targets[t], func(s *slice) bool { return s == v })
	if len(o.targets[t]) == 0 {
		delete(o.targets, t)
	}
}

// of returns the slices of a Service, in no order. They are for reading, until the next change.
func (o *objects) of(k key) []*slice { return o.targets[k] }

// allNodes returns the Nodes, in no order.
func (o *objects) allNodes() []node {
	out := make([]node, 0, len(o.nodes))
	for _, n := range o.nodes {
		out = append(out, *n)
	}
	return out
}
