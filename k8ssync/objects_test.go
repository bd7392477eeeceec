package k8ssync

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
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
			refused[full] = true
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
			if _, found := o.targets[s.target()][s]; !found {
				t.Fatalf("slice %s is not found by its Service", s.key)
			}
		}
		for _, n := range o.nodes {
			used = used.plus(weigh(n))
		}
		for k, m := range o.targets {
			if targets += len(m); len(m) == 0 || len(o.of(k)) != len(m) {
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
