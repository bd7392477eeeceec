package k8ssync

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The namespaces of a cluster share its limits, so that no tenant takes the room of another.
// While there is room, each has what it needs, up to half of a limit. When a limit is reached,
// a namespace with less than its fair part still grows: those with more lose their youngest
// objects. Others lose none. A namespace with more than its fair part does not grow.

// sizes are the sizes of objects, together and by namespace.
type sizes struct {
	all amount
	by  map[string]amount // without the Nodes
}

// with returns the limit that the sizes would exceed with a change of a namespace's objects;
// empty is none. others are the amounts that other namespaces must release then; nil is that
// the change is not possible. The Nodes, without a namespace, come before all namespaces.
func (s *sizes) with(namespace string, change, limit amount) (full string, others map[string]amount) {
	if namespace != "" {
		if full := s.by[namespace].plus(change).over(limit.half()); full != "" {
			return fmt.Sprintf("%s in namespace %s", full, namespace), nil
		}
	}
	full = s.all.plus(change).over(limit)
	if full == "" || s.all.nodes+change.nodes > limit.nodes {
		return full, nil
	}
	others = map[string]amount{}
	for _, part := range shared {
		if all := s.all.plus(change); *part(&all) > *part(&limit) && !s.release(namespace, *part(&change), *part(&limit), part, others) {
			return full, nil
		}
	}
	return full, others
}

// shared are the numbers of an amount that namespaces share.
var shared = []func(*amount) *int{
	func(a *amount) *int { return &a.services }, func(a *amount) *int { return &a.slices },
	func(a *amount) *int { return &a.endpoints }, func(a *amount) *int { return &a.bytes },
}

// slack is the part of a limit that is released at a time, so that not each new object costs
// a search for another one.
const slack = 128

// release adds the amounts to release, of one part, to others. It reports whether the namespace
// has no more than its fair part after the change.
func (s *sizes) release(namespace string, change, limit int, part func(*amount) *int, others map[string]amount) bool {
	most, needs := limit-*part(&s.all), map[string]int{}
	for name, size := range s.by {
		needs[name] = *part(&size)
		most += needs[name] // so that the Nodes are subtracted
	}
	if namespace == "" {
		most -= change
	} else {
		needs[namespace] += change
	}
	parts, small := fair(needs, limit/2, most), fair(needs, limit/2, most-limit/slack)
	if needs[namespace] > parts[namespace] {
		return false
	}
	for name, need := range needs {
		if need > parts[name] {
			size := others[name]
			*part(&size) += need - small[name]
			others[name] = size
		}
	}
	return true
}

// add adds to the sizes.
func (s *sizes) add(namespace string, change amount) {
	s.all = s.all.plus(change)
	if namespace == "" {
		return
	}
	if s.by == nil {
		s.by = map[string]amount{}
	}
	if s.by[namespace] = s.by[namespace].plus(change); s.by[namespace] == (amount{}) {
		delete(s.by, namespace)
	}
}

// evict leaves out objects of namespaces until each has released an amount.
func (o *objects) evict(releases map[string]amount) {
	if len(releases) == 0 {
		return
	}
	found := map[string][]aged{}
	for k, v := range o.services {
		if _, ok := releases[k.Namespace]; ok {
			found[k.Namespace] = append(found[k.Namespace], aged{v, k, v.Created})
		}
	}
	for k, v := range o.slices {
		if _, ok := releases[k.Namespace]; ok {
			created := youngest
			if svc := o.services[v.target()]; svc != nil {
				created = svc.Created
			}
			found[k.Namespace] = append(found[k.Namespace], aged{v, k, created})
		}
	}
	for namespace, release := range releases {
		o.left[namespace] = struct{}{}
		for _, v := range release.chosen(found[namespace]) {
			o.drop(v)
		}
	}
}

// aged is a *service or *slice, and the time of the creation of the Service.
type aged struct {
	object  any
	key     key
	created time.Time
}

// chosen returns the youngest objects which together have an amount.
func (a amount) chosen(list []aged) (out []any) {
	slices.SortFunc(list, func(x, y aged) int { return cmp.Or(y.created.Compare(x.created), y.key.compare(x.key)) })
	for _, v := range list {
		size, helps := weigh(v.object), false
		for _, part := range shared {
			helps = helps || *part(&a) > 0 && *part(&size) > 0
		}
		if helps {
			a = a.minus(size)
			out = append(out, v.object)
		}
	}
	return out
}

// hasRoom reports whether a tenth more of everything would fit, also of a namespace of which
// objects were left out. A new list follows then, and finds them.
func (o *objects) hasRoom() bool {
	if !o.sizes.all.hasRoom(o.limit) {
		return false
	}
	for namespace := range o.left {
		if namespace == "" || o.sizes.by[namespace].hasRoom(o.limit.half()) {
			clear(o.left)
			return true
		}
	}
	return false
}

func (a amount) hasRoom(limit amount) bool {
	used := a
	for _, n := range []*int{&used.services, &used.slices, &used.endpoints, &used.nodes, &used.bytes} {
		*n += *n/10 + 1
	}
	return used.over(limit) == ""
}
