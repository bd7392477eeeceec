package k8ssync

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Service that displaced others is removed like each, if a list has it no longer.
func TestListRemovesWhatDisplacedOthers(t *testing.T) {
	s := newStore(&Config{}, amount{services: 6, slices: 10, endpoints: 10, nodes: 10, bytes: 1 << 20})
	f := &feed{resource: resource{name: "services"}, sink: s, changed: func(bool) {}, versions: map[key]uint64{}}
	add := func(namespace string, n int) {
		k := key{namespace, fmt.Sprintf("web-%d", n)}
		must(t, f.Update(&item{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, ResourceVersion: fmt.Sprint(n)},
			object:     &service{key: k},
		}))
	}
	for n := range 6 {
		add([]string{"large", "larger"}[n%2], n+1)
	}
	add("small", 7)
	small := key{"small", "web-7"}
	if s.live.services[small] == nil || f.current().full == "" {
		t.Fatalf("it displaces none: %v, %q", s.live.services, f.current().full)
	}
	must(t, f.Replace(nil, "8"))
	if len(s.live.services) != 0 {
		t.Errorf("gone, and still there: %v", s.live.services)
	}
}
