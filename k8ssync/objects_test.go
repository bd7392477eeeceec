package k8ssync

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
)

// TestObjectsHaveTheirSize puts and drops at random, into little room, and
// recounts.
func TestObjectsHaveTheirSize(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	limit := amount{services: 6, slices: 12, endpoints: 20, nodes: 3, bytes: 16 << 10}
	o := newObjects(limit)
	refused := map[string]bool{}
	for range 20_000 {
		object := someObject(rnd)
		if rnd.IntN(4) == 0 {
			o.drop(object)
		} else if full := o.put(object, time.Time{}, time.Time{}); full != "" {
			refused[full] = true // or others were left out
		} else if o.same(object) != object {
			t.Fatalf("%v was put and is not there", object)
		}
		var used amount
		targets := 0
		for _, s := range o.services {
			used = used.plus(weigh(s))
		}
		for _, s := range o.slices {
			used = used.plus(weigh(s))
			if !slices.Contains(o.of(s.target()), s) {
				t.Fatalf("slice %s is not found by its Service", s.key)
			}
		}
		for _, n := range o.nodes {
			used = used.plus(weigh(n))
		}
		for k, m := range o.targets {
			if targets += len(m); len(m) == 0 {
				t.Fatalf("%s has a list of no slices", k)
			}
		}
		for namespace, size := range o.sizes.by {
			if namespace != "n" || size.over(limit.half()) != "" {
				t.Fatalf("namespace %s holds %+v", namespace, size)
			}
		}
		if used != o.sizes.all || used.over(limit) != "" || targets != len(o.slices) {
			t.Fatalf("counted %+v, holds %+v, %d slices by Service", o.sizes.all, used, targets)
		}
	}
	if len(refused) != 5 {
		t.Errorf("refused for %v, want every kind of reason", refused)
	}
}

func someObject(rnd *rand.Rand) any {
	k := key{"n", fmt.Sprint(rnd.IntN(15))}
	switch rnd.IntN(3) {
	case 0:
		return &service{key: k, Annotations: map[string]string{"x": strings.Repeat("x", rnd.IntN(4000))}}
	case 1:
		return &slice{key: k, Service: fmt.Sprint(rnd.IntN(4)), Endpoints: make([]endpoint, rnd.IntN(6))}
	}
	return &node{Name: k.Name, InternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(rnd.IntN(3))})}}
}

// A namespace that is full keeps no other from its room, and what was left out of a
// namespace is listed again when that has room.
func TestNoNamespaceFillsACluster(t *testing.T) {
	t.Parallel()
	limit := most
	limit.slices = 40
	o := newObjects(limit)
	put := func(namespace string, n int) string {
		return o.put(&slice{key: key{namespace, fmt.Sprint(n)}, Service: "web"}, time.Time{}, time.Time{})
	}
	for i := range 100 {
		if full := put("hostile", i); (full != "") != (i >= 20) {
			t.Fatalf("slice %d: %q", i, full)
		}
	}
	if got := put("hostile", 100); got != "more than 20 EndpointSlices in namespace hostile" {
		t.Errorf("%q", got)
	}
	for i := range 15 {
		if full := put("victim", i); full != "" {
			t.Fatalf("the victim's slice %d: %s", i, full)
		}
	}
	if o.hasRoom() {
		t.Error("the hostile namespace has no room, and nothing was left out of others")
	}
	for i := range 10 {
		o.drop(&slice{key: key{"hostile", fmt.Sprint(i)}})
	}
	if !o.hasRoom() || o.hasRoom() {
		t.Error("there is room, which is to be used once")
	}
}

// Hostile namespaces may do what they like, at any time and in any number: a victim with less
// than its fair part of each limit never loses an object, the limits hold, and no object of a
// namespace with less than a fair part is left out.
func TestTenantsHaveFairParts(t *testing.T) {
	t.Parallel()
	const tenants = 5
	limit := amount{services: 300, slices: 600, endpoints: 1500, nodes: 20, bytes: 1 << 20}
	part := func(n int) int { return (n - n/slack) / tenants }
	own := amount{part(limit.services), part(limit.slices), part(limit.endpoints), 0, part(limit.bytes) - 8<<10}
	for seed := range histories.Times(5) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o, mine, used := newObjects(limit), map[any]bool{}, amount{}
		some := func(namespace string, most int) any {
			k := key{namespace, fmt.Sprint(rnd.IntN(most))}
			switch rnd.IntN(8) {
			case 0, 1, 2:
				return &service{key: k, Created: time.Unix(int64(rnd.IntN(1000)), 0), Annotations: map[string]string{"x": strings.Repeat("x", rnd.IntN(8000))}}
			case 3:
				return &node{Name: fmt.Sprint(rnd.IntN(limit.nodes))}
			}
			return &slice{key: k, Service: fmt.Sprint(rnd.IntN(most)), Endpoints: make([]endpoint, rnd.IntN(20))}
		}
		for range 4000 {
			if rnd.IntN(8) > 0 {
				object := some(fmt.Sprint("hostile-", rnd.IntN(tenants-1)), 400)
				if rnd.IntN(20) == 0 {
					o.drop(object)
				} else {
					o.put(object, time.Time{}, time.Time{})
				}
			} else if object := some("victim", 60); namespaceOf(object) != "" {
				was := o.same(object)
				if next := used.plus(weigh(object)).minus(weigh(was)); next.over(own) == "" {
					delete(mine, was)
					mine[object], used = true, next
					o.put(object, time.Time{}, time.Time{})
				}
			}
			if full := o.sizes.all.over(limit); full != "" {
				t.Fatalf("seed %d: %s", seed, full)
			}
			for object := range mine {
				if o.same(object) != object {
					t.Fatalf("seed %d: the victim has lost %v", seed, object)
				}
			}
		}
		for namespace := range o.left {
			if namespace == "victim" || namespace == "" {
				t.Errorf("seed %d: objects of %q were left out", seed, namespace)
			}
		}
		if len(o.left) == 0 {
			t.Errorf("seed %d: no limit was reached", seed)
		}
	}
}

// The youngest objects are left out: those of the youngest Services, and no more than needed.
func TestYoungestObjectsAreLeftOut(t *testing.T) {
	t.Parallel()
	limit := most
	limit.slices = 12
	o := newObjects(limit)
	put := func(namespace string, n int) string {
		name := fmt.Sprint(n)
		o.put(&service{key: key{namespace, name}, Created: time.Unix(int64(n), 0)}, time.Time{}, time.Time{})
		return o.put(&slice{key: key{namespace, name + "-a"}, Service: name}, time.Time{}, time.Time{})
	}
	for n := range 6 {
		put("a", n)
		put("b", n)
	}
	if full := put("c", 0); full != "more than 12 EndpointSlices" {
		t.Errorf("%q", full)
	}
	count := map[string]int{}
	for k := range o.slices {
		count[k.Namespace]++
	}
	if o.slices[key{"c", "0-a"}] == nil || count["a"]+count["b"] != 11 || o.slices[key{"b", "5-a"}] != nil && o.slices[key{"a", "5-a"}] != nil {
		t.Errorf("the slices are %v", slices.SortedFunc(maps.Keys(o.slices), key.compare))
	}
	if full := put("a", 6); full == "" || o.slices[key{"a", "6-a"}] != nil {
		t.Error("a namespace with more than its part has grown")
	}
}

func TestIrrelevantDifferenceIsNoChange(t *testing.T) {
	o := someObjects()
	o.take()
	for _, s := range o.services {
		again := *s
		o.put(&again, time.Time{}, time.Time{})
	}
	for _, s := range o.slices {
		again := *s
		o.put(&again, time.Time{}, time.Time{})
	}
	for _, n := range o.nodes {
		again := *n
		o.put(&again, time.Time{}, time.Time{})
	}
	o.drop(&service{key: key{"not", "there"}})
	o.drop(&slice{key: key{"not", "there"}})
	o.drop(&node{Name: "nor that"})
	if ch := o.take(); len(ch.dirty) > 0 || ch.nodes {
		t.Errorf("changes %+v", ch)
	}
}

func TestObjectBeyondTheLimitIsDropped(t *testing.T) {
	limit := most
	limit.endpoints = 6 // 3 of a namespace
	o := newObjects(limit)
	with := func(n int) *slice {
		return &slice{key: key{"shop", "web-1"}, Service: "web", Endpoints: make([]endpoint, n)}
	}
	if full := o.put(with(3), time.Time{}, time.Time{}); full != "" {
		t.Fatal(full)
	}
	o.take()
	if full := o.put(with(4), time.Time{}, time.Time{}); full != "more than 3 endpoints in namespace shop" {
		t.Errorf("too much of %q", full)
	}
	if ch := o.take(); len(o.slices) != 0 || o.sizes.all != (amount{}) || len(ch.dirty) != 1 {
		t.Errorf("left: %+v, dirty: %v", o.sizes.all, ch.dirty)
	}
}
